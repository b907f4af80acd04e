"""Prometheus text, log lines and other payloads for machines."""
