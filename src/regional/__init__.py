"""regional: regions of hosted control planes. One package per box of docs/architecture.md."""

__version__ = "0.1.0"
