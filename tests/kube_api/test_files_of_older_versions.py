"""A version learns defaults that the one before did not write; what that one stored can still be changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from regional.kube.apiserver.entries import decode_body, encode_body

from .harness import Api, Obj, start_server

SETS = "/apis/apps/v1/namespaces/default/statefulsets"


def _statefulset() -> Obj:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": 1,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": "exec:/bin/true"}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }


def _forget_defaults(file: Path) -> None:
    """As a version that did not know the defaults of claim templates left the object."""
    with sqlite3.connect(file) as connection:
        (body,) = connection.execute("SELECT body FROM objects WHERE name = 'db'").fetchone()
        stored = decode_body(body)
        template = stored["spec"]["volumeClaimTemplates"][0]
        for field in ("apiVersion", "kind", "status"):
            del template[field]
        del template["spec"]["volumeMode"]
        connection.execute("UPDATE objects SET body = ? WHERE name = 'db'", (encode_body(stored),))
    connection.close()


async def test_what_lacks_newer_defaults_is_scaled_and_what_is_fixed_stays_fixed(tmp_path: Path, keys: Path) -> None:
    server = await start_server(tmp_path, keys)
    created = await Api(server).post(SETS, _statefulset())
    assert created.status == 201, created.body
    await server.stop()
    [file] = tmp_path.rglob("kube.db")
    _forget_defaults(file)

    server = await start_server(tmp_path, keys)
    try:
        api = Api(server)
        scaled = await api.patch(f"{SETS}/db", {"spec": {"replicas": 3}}, "merge")
        assert scaled.status == 200, scaled.body
        assert scaled.body["spec"]["replicas"] == 3
        assert scaled.body["spec"]["volumeClaimTemplates"][0]["kind"] == "PersistentVolumeClaim"
        refused = await api.patch(f"{SETS}/db", {"spec": {"serviceName": "other"}}, "merge")
        assert refused.status == 422 and "updates to statefulset spec" in refused.message
    finally:
        await server.stop()
