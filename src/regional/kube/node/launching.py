"""From a container of a manifest to something that can be started: program, arguments, environment, mounts."""

from __future__ import annotations

from regional.kube.node.containers import Container, Launch
from regional.kube.node.context import NodeContext
from regional.kube.node.environment import Lookup, container_environment
from regional.kube.node.images import entrypoint
from regional.kube.node.layout import PodDirectory
from regional.kube.node.mounting import lay_out
from regional.kube.objects import Obj, name_of, spec_of


def facts(pod_address: str, host_address: str) -> dict[str, str]:
    """Status fields that the downward API offers, known before the status is written."""
    return {
        "status.podIP": pod_address,
        "status.podIPs": pod_address,
        "status.hostIP": host_address,
        "status.hostIPs": host_address,
    }


def prepare(
    node: NodeContext, pod: Obj, container: Container, directory: PodDirectory, address: str, lookup: Lookup
) -> Launch:
    """Raises ImageProblem or ConfigProblem with a text for the container's status."""
    program = entrypoint(str(container.spec.get("image") or ""), node.settings.image)
    rootfs = container.directory.rootfs
    base = {
        "PATH": node.settings.tools_path,
        "HOME": str(rootfs),
        "TMPDIR": str(rootfs / "tmp"),
        "LANG": "C.UTF-8",
        "HOSTNAME": spec_of(pod).get("hostname") or name_of(pod),
    }
    if api := node.api_for_pods():
        host, port = api
        base |= {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        }
    environment = container_environment(pod, container.spec, lookup, facts(address, node.settings.address), base)
    environment |= {"POD_ROOT": str(rootfs), "HOSTS_FILE": str(directory.hosts)}
    lay_out(rootfs, container.spec, directory.volumes, environment)
    cwd = rootfs
    if working := container.spec.get("workingDir"):
        cwd = rootfs / str(working).lstrip("/")
        cwd.mkdir(parents=True, exist_ok=True)
    return Launch(program.argv(container.spec, environment), environment, str(cwd))
