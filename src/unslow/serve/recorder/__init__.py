"""Takes finished Timelines: history, metrics, the console's server."""
