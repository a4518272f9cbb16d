"""Requests that make no sense get the real server's code, reason and message.

`bad_requests.json` holds what kube-apiserver 1.35.4 answered: name, method, path, media type, body (latin-1), status,
reason and message. `{}` in a path is the test's namespace, which holds the ConfigMap `x`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .wire import Http

RECORDED: list[list[Any]] = json.loads((Path(__file__).parent / "bad_requests.json").read_text())


async def test_senseless_requests_are_answered_as_recorded(http: Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    (await http.post(path, {"metadata": {"name": "x"}, "data": {"a": "b"}})).ok(201)
    wrong = []
    for name, method, place, media, body, *wanted in RECORDED:
        kind = {"accept" if method == "GET" else "content_type": media} if media else {}
        answer = await http.call(method, place.replace("{}", namespace), body.encode("latin-1") or None, **kind)
        document = answer.body if "json" in answer.media else {}
        found = [answer.status, document.get("reason"), document.get("message")]
        if found != wanted:
            wrong.append((name, wanted, found))
    assert not wrong, "\n".join(map(str, wrong))
