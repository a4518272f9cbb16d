"""Kubeconfigs of hosted clusters."""

from __future__ import annotations

import base64

from regional.core.pki import KeyPair


def kubeconfig(server: str, authority: KeyPair, client: KeyPair, user: str) -> str:
    """Cluster `cluster`, user and context `user`: what consumers of HyperShift's Secrets know."""
    # Written out: every word in it is plain, and a YAML library takes milliseconds for each of many kubeconfigs.
    return f"""\
apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: {server}
    certificate-authority-data: {_data(authority.certificate)}
users:
- name: {user}
  user:
    client-certificate-data: {_data(client.certificate)}
    client-key-data: {_data(client.key)}
contexts:
- name: {user}
  context:
    cluster: cluster
    user: {user}
current-context: {user}
"""


def _data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
