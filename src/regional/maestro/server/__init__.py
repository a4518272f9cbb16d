"""Keeps resource bundles in its database and publishes them to consumers."""
