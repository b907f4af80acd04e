"""One endpoint, measured: one request or an experiment's pairs."""

from unslow.measure.probe.probe import Probe
from unslow.measure.probe.settings import DEFAULT_PROMPT, ProbeSettings
from unslow.measure.probe.target import ASKABLE, shown_url

__all__ = ["ASKABLE", "DEFAULT_PROMPT", "Probe", "ProbeSettings", "shown_url"]
