"""Turns work into manifests for a management cluster, and reports what became of them."""
