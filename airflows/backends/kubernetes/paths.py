"""Where things are in the API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflows import ids
from airflows.backends.kubernetes.manifest import SWEEP, TRIAL, sweep_label

KUEUE = "/apis/kueue.x-k8s.io"
_STRICT_SINCE = (1, 25)
# An address of 4 to 6 KB; the proxies before clusters take 8.
_AT_ONCE = 500
# More lists than these cost a cluster more than the one of all of a sweep.
_MOST_BY_NUMBER = 2 * _AT_ONCE
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


def selectors(jobs: Iterable[str]) -> Iterator[str]:
    """Yield selectors that find what belongs to Jobs of ours, and little else.

    A sweep's ended trials stay in the cluster for days: with all of its objects, each look at a few open
    trials would cost as much as the sweep has run.

    Args:
        jobs: their names.
    """
    sweeps: dict[str, set[int | None]] = {}
    for job in jobs:
        sweeps.setdefault(sweep_label(job), set()).add(_number(job))
    for sweep, found in sorted(sweeps.items()):
        numbers = sorted(number for number in found if number is not None)
        if None in found or len(numbers) > _MOST_BY_NUMBER:
            yield f"{SWEEP}={sweep}"
            continue
        for start in range(0, len(numbers), _AT_ONCE):
            chosen = ",".join(map(str, numbers[start : start + _AT_ONCE]))
            yield f"{SWEEP}={sweep},{TRIAL} in ({chosen})"


def _number(job: str) -> int | None:
    try:
        return ids.parse_token(job)[0]
    except ValueError:
        # Somebody asks for a Job that is not of a sweep.
        return None


def _path(collection: str, name: str) -> str:
    return f"{collection}/{name}" if name else collection
