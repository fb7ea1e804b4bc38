"""The resources that the fake API server serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource.

    Attributes:
        resource: plural name in paths.
        kind: name in objects.
        group: empty for the core group.
        versions: the preferred one first.
        is_namespaced: its objects live in namespaces.
        default_propagation: what a DELETE without a policy does with dependents.
        has_generation: changes of its spec are counted.
        verbs: what can be done; `create` alone for reviews.
    """

    resource: str
    kind: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    is_namespaced: bool = True
    default_propagation: str = "Background"
    has_generation: bool = False
    verbs: tuple[str, ...] = ALL_VERBS

    @property
    def api_version(self) -> str:
        """What objects say."""
        return f"{self.group}/{self.versions[0]}" if self.group else self.versions[0]

    @property
    def qualified(self) -> str:
        """What messages say, such as `jobs.batch`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


KUEUE_GROUP = "kueue.x-k8s.io"
REVIEW_GROUP = "authorization.k8s.io"
_KUEUE_VERSIONS = ("v1beta2", "v1beta1")

JOBS = Kind("jobs", "Job", "batch", default_propagation="Orphan", has_generation=True)
PODS = Kind("pods", "Pod", has_generation=True)
SERVICES = Kind("services", "Service")
CONFIGMAPS = Kind("configmaps", "ConfigMap")
SECRETS = Kind("secrets", "Secret")
EVENTS = Kind("events", "Event")
NAMESPACES = Kind("namespaces", "Namespace", is_namespaced=False)
NODES = Kind("nodes", "Node", is_namespaced=False)
QUOTAS = Kind("resourcequotas", "ResourceQuota")
CLAIMS = Kind("persistentvolumeclaims", "PersistentVolumeClaim")
WORKLOADS = Kind("workloads", "Workload", KUEUE_GROUP, _KUEUE_VERSIONS)
LOCAL_QUEUES = Kind("localqueues", "LocalQueue", KUEUE_GROUP, _KUEUE_VERSIONS)
CLUSTER_QUEUES = Kind("clusterqueues", "ClusterQueue", KUEUE_GROUP, _KUEUE_VERSIONS, is_namespaced=False)
PRIORITIES = Kind(
    "workloadpriorityclasses", "WorkloadPriorityClass", KUEUE_GROUP, _KUEUE_VERSIONS, is_namespaced=False
)
REVIEWS = Kind(
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    REVIEW_GROUP,
    is_namespaced=False,
    verbs=("create",),
)

_BUILT_IN = (JOBS, PODS, SERVICES, CONFIGMAPS, SECRETS, EVENTS, NAMESPACES, NODES, QUOTAS, CLAIMS, REVIEWS)
_KUEUE = (WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES, PRIORITIES)
BY_RESOURCE = {kind.resource: kind for kind in (*_BUILT_IN, *_KUEUE)}


def served(*, has_kueue: bool) -> tuple[Kind, ...]:
    """Return the resources of a server."""
    return _BUILT_IN + (_KUEUE if has_kueue else ())


def discovery(path: str, kinds: tuple[Kind, ...]) -> dict[str, Any] | None:
    """Return what is said of groups and their resources; None for other paths."""
    groups: dict[str, list[Kind]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind)
    parts = path.strip("/").split("/")
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["api", "v1"]:
            return _resources("v1", groups[""])
        case ["apis"]:
            known = [_group(name, members) for name, members in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": known}
        case ["apis", group] if group and group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["apis", group, version] if group in groups and version in groups[group][0].versions:
            return _resources(f"{group}/{version}", groups[group])
    return None


def _group(name: str, members: list[Kind]) -> Mapping[str, Any]:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in members[0].versions]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(version: str, members: list[Kind]) -> dict[str, Any]:
    listed = [
        {
            "name": kind.resource,
            "singularName": kind.kind.lower(),
            "namespaced": kind.is_namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        for kind in members
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}
