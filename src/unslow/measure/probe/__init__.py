"""One endpoint, measured: one request or an experiment's pairs."""
