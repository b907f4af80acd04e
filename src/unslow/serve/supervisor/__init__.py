"""Starts the rooms that run for long as child processes, restarts each with back-off, and ends them all."""

from unslow.serve.supervisor.backoff import Backoff
from unslow.serve.supervisor.child import ChildSpec
from unslow.serve.supervisor.supervisor import Supervisor

__all__ = ["Backoff", "ChildSpec", "Supervisor"]
