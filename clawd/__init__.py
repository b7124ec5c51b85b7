"""clawd: serves a local model, learns from what follows each turn, and swaps the result in without a pause."""

__version__ = "0.1.0"
