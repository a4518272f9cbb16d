"""The names a pod can resolve, in the format of /etc/hosts: itself, its aliases, and every Service of its cluster.

This is the cluster DNS's role. Names of Services in the pod's own namespace also exist in their short form, as the
search list of a real pod's resolver would have it.
"""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.objects import Obj, is_deleting, is_true, name_of, namespace_of, spec_of, status_of

DOMAIN = "cluster.local"


def service_names(name: str, namespace: str, seen_from: str) -> list[str]:
    names = [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{DOMAIN}"]
    return [name, *names] if namespace == seen_from else names


def service_hosts(services: Iterable[Obj]) -> str:
    """Every Service that has an address, for processes that are no pods."""
    lines = [
        f"{address} {' '.join(service_names(name_of(service), namespace_of(service), ''))}"
        for service in sorted(services, key=lambda s: (namespace_of(s), name_of(s)))
        if (address := spec_of(service).get("clusterIP")) and address != "None"
    ]
    return "".join(f"{line}\n" for line in lines)


def hosts_file(pod: Obj, address: str, services: Iterable[Obj], pods: Iterable[Obj]) -> str:
    spec, namespace = spec_of(pod), namespace_of(pod)
    hostname = spec.get("hostname") or name_of(pod)
    own = [hostname]
    if subdomain := spec.get("subdomain"):
        own = [f"{hostname}.{subdomain}.{namespace}.svc.{DOMAIN}", hostname]
    lines = ["127.0.0.1 localhost", f"{address} {' '.join(own)}"]
    lines += [f"{a['ip']} {' '.join(a.get('hostnames') or [])}" for a in spec.get("hostAliases") or []]
    headless: dict[tuple[str, str], Obj] = {}
    for service in sorted(services, key=lambda s: (namespace_of(s), name_of(s))):
        cluster_ip = spec_of(service).get("clusterIP")
        if cluster_ip and cluster_ip != "None":
            lines.append(f"{cluster_ip} {' '.join(service_names(name_of(service), namespace_of(service), namespace))}")
        elif cluster_ip == "None":
            headless[namespace_of(service), name_of(service)] = service
    if headless:
        lines += _headless(headless, pods, namespace)
    return "\n".join(lines) + "\n"


def published(pod: Obj) -> tuple[str, bool]:
    """The address that a pod's names lead to, if any, and whether also those that only ready pods have."""
    over = status_of(pod).get("phase") in ("Succeeded", "Failed")
    return "" if over else status_of(pod).get("podIP") or "", is_true(pod, "Ready") and not is_deleting(pod)


def _headless(services: dict[tuple[str, str], Obj], pods: Iterable[Obj], seen_from: str) -> list[str]:
    """A headless Service's name is its ready pods' addresses; pods with a subdomain also have names of their own."""
    lines = []
    for pod in sorted(pods, key=name_of):
        namespace = namespace_of(pod)
        address, ready = published(pod)
        if not address:
            continue
        labels = pod.get("metadata", {}).get("labels") or {}
        for (service_namespace, name), service in services.items():
            selector = spec_of(service).get("selector") or {}
            if service_namespace != namespace or not selector:
                continue
            if not (ready or spec_of(service).get("publishNotReadyAddresses")):
                continue
            if not all(labels.get(key) == value for key, value in selector.items()):
                continue
            names = service_names(name, namespace, seen_from)
            if spec_of(pod).get("subdomain") == name:
                hostname = spec_of(pod).get("hostname") or name_of(pod)
                names = [f"{hostname}.{known}" for known in names] + names
            lines.append(f"{address} {' '.join(names)}")
    return lines
