"""The pod that the Job controller makes for an index."""

from __future__ import annotations

import copy

from airflows.testing.cluster.defaults import INDEX_LABEL, INDEX_LABEL_SINCE
from airflows.testing.cluster.deletion import TRACKING
from airflows.testing.cluster.messages import Json

# A made-up name has 63 characters, five of them random.
_LONGEST_PREFIX = 58


def pod_of(job: Json, index: int | None, suffix: str, minor: int) -> Json:
    """Return the body of a pod; without an index for Jobs that have none."""
    metadata, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
    about = template.get("metadata") or {}
    prefix = _prefix(metadata["name"], index)
    annotations, labels = dict(about.get("annotations") or {}), dict(about.get("labels") or {})
    if index is not None:
        annotations[INDEX_LABEL] = str(index)
        if "backoffLimitPerIndex" in job["spec"]:
            annotations["batch.kubernetes.io/job-index-failure-count"] = "0"
        if minor >= INDEX_LABEL_SINCE:
            labels[INDEX_LABEL] = str(index)
        _add_index(template["spec"], f"{metadata['name']}-{index}", minor)
    return {
        "metadata": {
            "name": f"{prefix}{suffix}",
            "generateName": prefix,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [TRACKING],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template["spec"],
    }


def _prefix(job: str, index: int | None) -> str:
    end = "-" if index is None else f"-{index}-"
    return f"{job[: _LONGEST_PREFIX - len(end)]}{end}"


def _add_index(spec: Json, hostname: str, minor: int) -> None:
    spec["hostname"] = hostname
    where = "labels" if minor >= INDEX_LABEL_SINCE else "annotations"
    source = {"apiVersion": "v1", "fieldPath": f"metadata.{where}['{INDEX_LABEL}']"}
    for part in ("initContainers", "containers"):
        for container in spec.get(part) or ():
            known = container.get("env") or []
            if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in known):
                variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": source}}
                container["env"] = [*known, variable]
