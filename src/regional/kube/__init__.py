"""Kubernetes on one machine: the API (`apiserver`, `schema`), its controllers, its node, and a client for all of it."""
