"""Built-in kinds on their way in: defaults, what the server decides, what is refused."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from regional.kube.objects import Obj
from regional.kube.schema.builtin import (
    default_builtin,
    from_storage,
    identify_job,
    prepare_for_create,
    prepare_for_update,
    settle,
    to_storage,
    validate_builtin,
    validate_metadata,
)
from regional.kube.schema.registry import Kind
from tests.kube_schema.widgets import WIDGET, builtin, widget

POD = builtin("v1", "Pod")
DEPLOYMENT = builtin("apps/v1", "Deployment")
SECRET = builtin("v1", "Secret")
SERVICE = builtin("v1", "Service")
CONFIG_MAP = builtin("v1", "ConfigMap")


def deployment(**spec: Any) -> Obj:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": template, **spec},
    }


def created(kind: Kind, obj: Obj) -> Obj:
    default_builtin(kind, obj)
    settle(kind, obj)
    prepare_for_create(kind, obj)
    return obj


def refusals(kind: Kind, obj: Obj, old: Obj | None = None) -> list[str]:
    return [str(error) for error in (*validate_metadata(kind, obj, old), *validate_builtin(kind, obj, old))]


# --- defaults --------------------------------------------------------------------------------------------------------


def test_a_deployment_gets_what_clients_expect() -> None:
    spec = created(DEPLOYMENT, deployment())["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)


def test_the_pod_template_is_defaulted_deep_inside() -> None:
    obj = deployment()
    container = obj["spec"]["template"]["spec"]["containers"][0]
    container |= {
        "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    }
    obj["spec"]["template"]["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": "x"}}, {"name": "e"}]
    default_builtin(DEPLOYMENT, obj)
    pod = obj["spec"]["template"]["spec"]
    assert {key: pod[key] for key in ("restartPolicy", "dnsPolicy", "schedulerName", "securityContext")} == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
    }
    assert pod["terminationGracePeriodSeconds"] == 30
    container = pod["containers"][0]
    assert container["resources"] == {}
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["livenessProbe"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert pod["volumes"] == [
        {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
        {"name": "e", "emptyDir": {}},
    ]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    obj: Obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image}]}}
    default_builtin(POD, obj)
    assert obj["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_defaults_never_override_and_are_stable() -> None:
    obj = deployment(replicas=0, strategy={"type": "Recreate"})
    default_builtin(DEPLOYMENT, obj)
    assert obj["spec"]["replicas"] == 0
    assert obj["spec"]["strategy"] == {"type": "Recreate"}
    again = copy.deepcopy(obj)
    default_builtin(DEPLOYMENT, again)
    assert again == obj


def test_a_service() -> None:
    obj: Obj = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    default_builtin(SERVICE, obj)
    assert obj["spec"] == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "internalTrafficPolicy": "Cluster",
    }


def test_role_bindings_know_their_api_group() -> None:
    obj: Obj = {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}
    default_builtin(builtin("rbac.authorization.k8s.io/v1", "RoleBinding"), obj)
    assert obj["roleRef"]["apiGroup"] == obj["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"


# --- what the server decides -----------------------------------------------------------------------------------------


def test_a_create_ignores_what_only_the_server_sets() -> None:
    obj = deployment() | {"status": {"replicas": 7}}
    obj["metadata"] |= {"uid": "x", "generation": 9, "creationTimestamp": "2020-01-01T00:00:00Z", "selfLink": "/x"}
    made = created(DEPLOYMENT, obj)
    assert made["metadata"] == {"name": "w", "namespace": "d", "generation": 1}
    assert made["status"] == {}


def test_string_data_becomes_data() -> None:
    obj: Obj = {"metadata": {"name": "s"}, "data": {"a": "b2xk"}, "stringData": {"a": "new", "b": "x"}}
    made = created(SECRET, obj)
    assert "stringData" not in made
    assert {key: base64.b64decode(value) for key, value in made["data"].items()} == {"a": b"new", "b": b"x"}
    assert made["type"] == "Opaque"


def test_a_namespace_starts_active_with_its_finalizer_and_label() -> None:
    made = created(builtin("v1", "Namespace"), {"metadata": {"name": "n"}})
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}, "Guaranteed"),
    ],
)
def test_a_pod_starts_pending_with_its_quality_of_service(resources: Obj, quality: str) -> None:
    container = {"name": "c", "image": "i", "resources": resources}
    made = created(POD, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    assert made["status"] == {"phase": "Pending", "qosClass": quality}


def test_the_generation_counts_changes_of_what_is_wanted() -> None:
    old = created(DEPLOYMENT, deployment())
    same = copy.deepcopy(old)
    same["metadata"]["labels"] = {"a": "b"}
    prepare_for_update(DEPLOYMENT, same, old)
    assert same["metadata"]["generation"] == 1
    changed = copy.deepcopy(old)
    changed["spec"]["replicas"] = 5
    prepare_for_update(DEPLOYMENT, changed, old)
    assert changed["metadata"]["generation"] == 2


def test_main_keeps_status_and_status_keeps_the_rest() -> None:
    old = created(DEPLOYMENT, deployment())
    old["status"] = {"replicas": 1}
    main = copy.deepcopy(old) | {"status": {"replicas": 99}}
    prepare_for_update(DEPLOYMENT, main, old)
    assert main["status"] == {"replicas": 1}
    status = copy.deepcopy(old) | {"status": {"replicas": 2}, "spec": {"replicas": 50}}
    prepare_for_update(DEPLOYMENT, status, old, "status")
    assert status["spec"] == old["spec"]
    assert status["status"] == {"replicas": 2}
    assert status["metadata"]["generation"] == 1


def test_custom_kinds_drop_status_at_create_and_count_generations() -> None:
    obj = widget({"size": 1}) | {"status": {"phase": "x"}}
    prepare_for_create(WIDGET, obj)
    assert "status" not in obj
    new = copy.deepcopy(obj) | {"spec": {"size": 2}}
    prepare_for_update(WIDGET, new, obj)
    assert (obj["metadata"]["generation"], new["metadata"]["generation"]) == (1, 2)


def test_an_update_keeps_the_cluster_address() -> None:
    old = {
        "metadata": {"name": "s"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]},
    }
    new: Obj = {"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP"}]}}
    prepare_for_update(SERVICE, new, old)
    assert new["spec"]["clusterIPs"] == ["10.0.0.1"]
    new["spec"] |= {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}
    assert refusals(SERVICE, new, old) == [
        'spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set',
    ]


def test_a_job_selects_its_pods_by_its_own_uid() -> None:
    kind = builtin("batch/v1", "Job")
    obj: Obj = {"metadata": {"name": "j", "uid": "u1"}, "spec": {"template": {"spec": {"containers": []}}}}
    identify_job(kind, obj)
    assert obj["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}}
    assert obj["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"


def test_the_same_owner_twice_is_one_owner() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    obj: Obj = {"metadata": {"name": "c", "ownerReferences": [owner, dict(owner)]}}
    assert settle(CONFIG_MAP, obj) == ["u"]
    assert obj["metadata"]["ownerReferences"] == [owner]


# --- two views of one event ------------------------------------------------------------------------------------------


def test_an_event_written_in_one_shape_reads_in_the_other() -> None:
    new_kind, core_kind = builtin("events.k8s.io/v1", "Event"), builtin("v1", "Event")
    event: Obj = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "d"},
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "hello",
        "reportingController": "c",
    }
    stored = to_storage(new_kind, event)
    seen = from_storage(core_kind, stored)
    assert (seen["apiVersion"], seen["involvedObject"], seen["message"]) == (
        "v1",
        {"kind": "Pod", "name": "p"},
        "hello",
    )
    assert from_storage(new_kind, stored) == event
    assert new_kind.store == core_kind.store


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_good_deployment_is_accepted() -> None:
    assert refusals(DEPLOYMENT, created(DEPLOYMENT, deployment())) == []


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"selector": None}, "spec.selector: Required value"),
        ({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
        (
            {"selector": {"matchLabels": {"app": "other"}}},
            'spec.template.metadata.labels: Invalid value: {"app":"w"}: `selector` does not match template `labels`',
        ),
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ({"template": {"metadata": {"labels": {"app": "w"}}}}, "spec.template.spec.containers: Required value"),
    ],
)
def test_a_bad_deployment_is_refused(spec: Obj, refusal: str) -> None:
    assert refusal in refusals(DEPLOYMENT, created(DEPLOYMENT, deployment(**spec)))


@pytest.mark.parametrize(
    ("container", "refusal"),
    [
        ({"image": "i"}, "spec.containers[0].name: Required value"),
        ({"name": "c"}, "spec.containers[0].image: Required value"),
        (
            {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {"name": "c", "image": "i", "ports": [{"containerPort": 70000}]},
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"name": "c", "image": "i", "imagePullPolicy": "Sometimes"},
            'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": '
            'supported values: "Always", "IfNotPresent", "Never"',
        ),
    ],
)
def test_a_bad_container_is_refused(container: Obj, refusal: str) -> None:
    pod: Obj = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    assert refusal in refusals(POD, created(POD, pod))


def test_a_deployments_selector_is_immutable() -> None:
    old = created(DEPLOYMENT, deployment())
    new = copy.deepcopy(old)
    new["spec"]["selector"] = {"matchLabels": {"app": "w", "x": "y"}}
    new["spec"]["template"]["metadata"]["labels"] = {"app": "w", "x": "y"}
    assert refusals(DEPLOYMENT, new, old) == [
        'spec.selector: Invalid value: {"matchLabels":{"app":"w","x":"y"}}: field is immutable'
    ]


def test_a_pod_is_what_it_was_created_as() -> None:
    old = created(POD, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["image"] = "i:2"
    assert refusals(POD, new, old) == []
    new["spec"]["containers"][0]["command"] = ["x"]
    assert refusals(POD, new, old)[0].startswith("spec: Forbidden: pod updates may not change fields other than")


def test_secrets() -> None:
    old = created(SECRET, {"metadata": {"name": "s"}, "data": {"a": "YQ=="}, "immutable": True})
    new = copy.deepcopy(old) | {"data": {"a": "Yg=="}, "type": "other"}
    assert refusals(SECRET, new, old) == [
        'type: Invalid value: "other": field is immutable',
        "data: Forbidden: field is immutable when `immutable` is set",
    ]
    tls = created(SECRET, {"metadata": {"name": "s"}, "type": "kubernetes.io/tls"})
    assert refusals(SECRET, tls) == ["data[tls.crt]: Required value", "data[tls.key]: Required value"]


def test_config_maps_have_a_size_and_plain_keys() -> None:
    big = {"metadata": {"name": "c"}, "data": {"k": "x" * 1_048_577}}
    assert refusals(CONFIG_MAP, big) == ["[]: Too long: may not be more than 1048576 bytes"]
    assert (
        "a valid config key must consist of"
        in refusals(CONFIG_MAP, {"metadata": {"name": "c"}, "data": {"a b": ""}})[0]
    )


@pytest.mark.parametrize(
    ("kind", "name", "good"),
    [
        (CONFIG_MAP, "a.b-c", True),
        (CONFIG_MAP, "A", False),
        (builtin("v1", "Namespace"), "a.b", False),
        (SERVICE, "1abc", False),
        (builtin("rbac.authorization.k8s.io/v1", "ClusterRole"), "system:node-Admin", True),
        (builtin("rbac.authorization.k8s.io/v1", "ClusterRole"), "a/b", False),
    ],
)
def test_names_follow_the_rule_of_their_kind(kind: Kind, name: str, good: bool) -> None:
    assert (validate_metadata(kind, {"metadata": {"name": name}}, None) == []) is good


def test_a_bad_name_is_explained() -> None:
    (error,) = validate_metadata(CONFIG_MAP, {"metadata": {"name": "Bad_Name"}}, None)
    assert str(error) == (
        'metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of lower case '
        "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
        "'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


@pytest.mark.parametrize(
    ("metadata", "old", "refusal"),
    [
        ({"name": ""}, None, "metadata.name: Required value: name or generateName is required"),
        (
            {"name": "a", "annotations": {"a": "x" * 262_145}},
            None,
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        ({"name": "a", "uid": "x"}, {"name": "a", "uid": "y"}, 'metadata.uid: Invalid value: "x": field is immutable'),
        (
            {"name": "a", "finalizers": ["a/x", "y/y"], "deletionTimestamp": "t"},
            {"name": "a", "finalizers": ["a/x"], "deletionTimestamp": "t"},
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
            'found new finalizers []string{"y/y"}',
        ),
    ],
)
def test_metadata_refusals(metadata: Obj, old: Obj | None, refusal: str) -> None:
    found = validate_metadata(CONFIG_MAP, {"metadata": metadata}, None if old is None else {"metadata": old})
    assert [str(error) for error in found] == [refusal]


def test_only_one_owner_controls() -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in ("a", "b")]
    (error,) = validate_metadata(CONFIG_MAP, {"metadata": {"name": "c", "ownerReferences": owners}}, None)
    assert error.message.endswith('Found "true" in references for Pod/a and Pod/b')


def test_a_role_ref_is_fixed() -> None:
    kind = builtin("rbac.authorization.k8s.io/v1", "RoleBinding")
    old: Obj = {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r", "apiGroup": "g"}}
    new = copy.deepcopy(old)
    new["roleRef"]["name"] = "other"
    assert refusals(kind, new, old) == [
        'roleRef: Invalid value: {"APIGroup":"g","Kind":"Role","Name":"other"}: cannot change roleRef'
    ]


def test_a_statefulsets_pods_may_mount_what_its_claim_templates_bring() -> None:
    kind = builtin("apps/v1", "StatefulSet")
    made = deployment(serviceName="w", volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {}}])
    made |= {"kind": "StatefulSet"}
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    assert not [text for text in refusals(kind, created(kind, copy.deepcopy(made))) if "volumeMounts" in text]
    container["volumeMounts"] = [{"name": "other", "mountPath": "/data"}]
    assert [text for text in refusals(kind, created(kind, made)) if "volumeMounts" in text]
