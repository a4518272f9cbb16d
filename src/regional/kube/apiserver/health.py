"""/healthz, /livez, /readyz: in the words that load balancers and people know."""

from __future__ import annotations

from regional.kube.messages import Request, Response, text_response


def health(path: str, request: Request, ready: bool, writable: bool) -> Response:
    kind = path.split("/")[1]
    checks = {"ping": True, "etcd": writable}
    if kind == "readyz":
        checks["poststarthook/bootstrap"] = ready
    single = path.split("/", 2)[2] if path.count("/") > 1 else ""
    if single:
        if single not in checks:
            return text_response(404, "404 page not found\n")
        checks = {single: checks[single]}
    excluded = {value for name, value in request.query if name == "exclude"} if not single else set()
    well = all(good for name, good in checks.items() if name not in excluded)
    if well and "verbose" not in dict(request.query):
        return text_response(200, "ok")
    lines = [_line(name, good, name in excluded) for name, good in checks.items()]
    if unknown := sorted(excluded - checks.keys()):
        matches = ",".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {matches}")
    lines.append(f"{kind} check {'passed' if well else 'failed'}")
    return text_response(200 if well else 500, "\n".join(lines) + "\n")


def _line(name: str, good: bool, excluded: bool) -> str:
    if excluded:
        return f"[+]{name} excluded: ok"
    return f"[{'+' if good else '-'}]{name} {'ok' if good else 'failed'}"
