"""Runs on a management cluster: receives bundles of its consumer, applies them, reports status."""
