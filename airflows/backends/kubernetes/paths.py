"""Where things are in the API. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from airflows.backends.kubernetes.manifest import SWEEP

KUEUE = "/apis/kueue.x-k8s.io"
_STRICT_SINCE = (1, 25)
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def jobs(namespace: str, name: str = "") -> str:
    """Return the path of the Jobs, or of one."""
    return _path(f"/apis/batch/v1/namespaces/{namespace}/jobs", name)


def core(namespace: str, kind: str, name: str = "") -> str:
    """Return the path of objects of the core group: `pods`, `services`, `configmaps`, `events`."""
    return _path(f"/api/v1/namespaces/{namespace}/{kind}", name)


def log(namespace: str, pod: str) -> str:
    """Return the path of a pod's log."""
    return f"{core(namespace, 'pods', pod)}/log"


def kueue(version: str, namespace: str, kind: str, name: str = "") -> str:
    """Return the path of Kueue's objects: `localqueues`, `workloads`."""
    return _path(f"{KUEUE}/{version}/namespaces/{namespace}/{kind}", name)


def deletion(uid: object) -> dict[str, object]:
    """Return the body that deletes one Job, and no later one of its name, after its pods."""
    return {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}


def strictness(version: tuple[int, int]) -> dict[str, str]:
    """Return the query by which a cluster refuses fields that it does not know, if it can."""
    return {"fieldValidation": "Strict"} if version >= _STRICT_SINCE else {}


def of_sweeps(sweeps: Iterable[str]) -> str:
    """Return the selector of everything that belongs to sweeps."""
    names = sorted(set(sweeps))
    return f"{SWEEP}={names[0]}" if len(names) == 1 else f"{SWEEP} in ({','.join(names)})"


def _path(collection: str, name: str) -> str:
    return f"{collection}/{name}" if name else collection
