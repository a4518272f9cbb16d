"""Kubernetes itself: its own API server, controllers and scheduler on its own etcd, beside the embedded API.

`build` makes them from their Go modules into one program (`make kube`), `programs` finds them there or in
KUBEBUILDER_ASSETS, `flags` says how they are started for one cluster, and `plane` runs a control plane for tests. In a
region the supervisor runs the same programs (`local.provisioner.real_cluster`).
"""

from regional.kube.real.plane import RealControlPlane
from regional.kube.real.programs import Programs, find_programs, require_programs

__all__ = ["Programs", "RealControlPlane", "find_programs", "require_programs"]
