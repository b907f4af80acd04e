"""One Timeline or many as a terminal waterfall, a self-contained HTML file, or JSON."""
