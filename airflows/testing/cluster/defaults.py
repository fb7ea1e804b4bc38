"""What the API server fills in when an object is created."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from airflows.testing.cluster.kinds import Kind
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.schema import without_young

UID_LABEL, NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
PREFIXED_LABELS_SINCE, INDEX_LABEL_SINCE = 27, 28
_MOST_FAILURES = 2**31 - 1


def written_time(seconds: float) -> str:
    """Return a time as objects have it, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str) -> float:
    """Return the seconds since the epoch of a time as objects have it."""
    return datetime.fromisoformat(text).timestamp()


def with_metadata(body: Json, kind: Kind, namespace: str, uid: str, now: str) -> Json:
    """Return an object with the metadata that it is born with; a status of its own does not count."""
    given = body.get("metadata") or {}
    kept = ("name", "generateName", "labels", "annotations", "ownerReferences", "finalizers")
    metadata: Json = {name: given[name] for name in kept if given.get(name)}
    if kind.is_namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = uid
    if kind.has_generation:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = now
    rest = {
        name: value
        for name, value in body.items()
        if name not in ("metadata", "status", "kind", "apiVersion")
    }
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, **rest}


def with_defaults(made: Json, minor: int) -> Json:
    """Return a new object of a known kind with its defaults."""
    filled = _DEFAULTS.get(made["kind"])
    return filled(made, minor) if filled else made


def managed_by(body: Json, manager: str, operation: str, now: str) -> Json:
    """Return the entry of `managedFields` for what a client sent."""
    sent = {name: value for name, value in body.items() if name not in ("kind", "apiVersion", "status")}
    sent["metadata"] = {
        name: value
        for name, value in (body.get("metadata") or {}).items()
        if name in ("labels", "annotations", "ownerReferences")
    }
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": body.get("apiVersion", "v1"),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(sent),
    }


def _fields(value: Any) -> Json:
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": _fields(item) for name, item in value.items()}


def _job(made: Json, minor: int) -> Json:
    metadata = made["metadata"]
    spec = without_young(dict(made.get("spec") or {}), minor)
    template = dict(spec.get("template") or {})
    uid, name = metadata["uid"], metadata.get("name", "")
    prefixed = {UID_LABEL: uid, NAME_LABEL: name} if minor >= PREFIXED_LABELS_SINCE else {}
    if not spec.get("manualSelector"):
        about = dict(template.get("metadata") or {})
        about["labels"] = {
            **prefixed,
            "controller-uid": uid,
            "job-name": name,
            **(about.get("labels") or {}),
        }
        template["metadata"] = about
        key = UID_LABEL if prefixed else "controller-uid"
        spec.setdefault("selector", {"matchLabels": {key: uid}})
    template["spec"] = pod_spec(template.get("spec") or {})
    spec["template"] = template
    spec.setdefault("parallelism", 1)
    if spec.get("completionMode", "NonIndexed") == "NonIndexed":
        spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", _MOST_FAILURES if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("manualSelector", False)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    if minor >= 29:  # noqa: PLR2004 - the minor version that switched it on
        replaced = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
        spec.setdefault("podReplacementPolicy", replaced)
    _fill_policy(spec)
    return {**made, "spec": spec, "status": {}}


def _fill_policy(spec: Json) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            condition.setdefault("status", "True")


def pod_spec(given: Mapping[str, Any]) -> Json:
    """Return a pod's spec with its defaults."""
    spec = dict(given)
    for part in ("initContainers", "containers"):
        if spec.get(part):
            spec[part] = [_container(container) for container in spec[part]]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    return spec


def _container(given: Mapping[str, Any]) -> Json:
    container = dict(given)
    resources = dict(container.get("resources") or {})
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    container["resources"] = resources
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
    pulled = "Always" if tag in ("", "latest") and "@" not in container.get("image", "") else "IfNotPresent"
    container.setdefault("imagePullPolicy", pulled)
    for variable in container.get("env") or ():
        if "fieldRef" in (variable.get("valueFrom") or {}):
            variable["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")
    return container


def _service(made: Json, _: int) -> Json:
    spec = dict(made.get("spec") or {})
    ports = [
        {"protocol": "TCP", **port, "targetPort": port.get("targetPort", port.get("port"))}
        for port in spec.get("ports") or ()
    ]
    if ports:
        spec["ports"] = ports
    spec.setdefault("clusterIP", "10.96.0.10")
    spec["clusterIPs"] = [spec["clusterIP"]]
    for name, value in (
        ("type", "ClusterIP"),
        ("sessionAffinity", "None"),
        ("ipFamilies", ["IPv4"]),
        ("ipFamilyPolicy", "SingleStack"),
        ("internalTrafficPolicy", "Cluster"),
    ):
        spec.setdefault(name, value)
    return {**made, "spec": spec, "status": {"loadBalancer": {}}}


def _pod(made: Json, _: int) -> Json:
    spec = pod_spec(made.get("spec") or {})
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", "default")
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        known = spec.setdefault("tolerations", [])
        if not any(toleration.get("key") == key for toleration in known):
            known = [
                *known,
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ]
        spec["tolerations"] = known
    spec.setdefault("priority", 0)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    return {**made, "spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}}


def _secret(made: Json, _: int) -> Json:
    packed = {
        name: base64.b64encode(value.encode()).decode() for name, value in made.pop("stringData", {}).items()
    }
    return {"type": "Opaque", **made, "data": {**(made.get("data") or {}), **packed}}


def _namespace(made: Json, _: int) -> Json:
    return {**made, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


_DEFAULTS: dict[str, Callable[[Json, int], Json]] = {
    "Job": _job,
    "Pod": _pod,
    "Service": _service,
    "Secret": _secret,
    "Namespace": _namespace,
}
