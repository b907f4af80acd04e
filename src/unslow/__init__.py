"""unslow finds where every millisecond of an LLM response goes, takes it out, and proves that it is gone.

The package is laid out in rooms (docs/architecture.md); imports between them point one way.
"""

__version__ = "0.1.0"
