"""Workloads of Kueue: what stands for a Job in its queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.podstatus import condition


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a Workload can be admitted.

    Attributes:
        reason: why it cannot be for ever; empty when it only waits.
        message: in Kueue's words.
        cluster_queue: where its quota is.
        lacking: of which resource there is too little.
    """

    reason: str
    message: str
    cluster_queue: str = ""
    lacking: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether it can be admitted now."""
        return not self.reason and not self.lacking


def workload_of(job: Json, queue: str, priority: int, suffix: str) -> Json:
    """Return the body of the Workload of a Job."""
    metadata = job["metadata"]
    return {
        "metadata": {
            "name": f"job-{metadata['name']}-{suffix}",
            "labels": {"kueue.x-k8s.io/job-uid": metadata["uid"]},
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
        "spec": {
            "active": True,
            "queueName": queue,
            "priority": priority,
            "podSets": [
                {"name": "main", "count": job["spec"]["parallelism"], "template": job["spec"]["template"]}
            ],
        },
    }


def own(workload: Json) -> str:
    """Return the name of the Job that a Workload stands for."""
    return str(workload["metadata"]["ownerReferences"][0]["name"])


def set_conditions(workload: Json, now: str, **wanted: tuple[str, str, str]) -> None:
    """Set conditions of a Workload: type to status, reason and message."""
    conditions = workload["status"].setdefault("conditions", [])
    for name, (value, reason, message) in wanted.items():
        known = condition(workload, name)
        made = {"type": name, "status": value, "reason": reason, "message": message}
        since = known["lastTransitionTime"] if known and known["status"] == value else now
        made["lastTransitionTime"] = since
        if known is None:
            conditions.append(made)
        else:
            known.update(made)


def assignment(workload: Json, cluster_queue: str, now: str) -> None:
    """Admit a Workload."""
    podset = workload["spec"]["podSets"][0]
    workload["status"]["admission"] = {
        "clusterQueue": cluster_queue,
        "podSetAssignments": [{"name": "main", "count": podset["count"]}],
    }
    set_conditions(
        workload,
        now,
        QuotaReserved=("True", "QuotaReserved", f"Quota reserved in ClusterQueue {cluster_queue}"),
        Admitted=("True", "Admitted", "The workload is admitted"),
        PodsReady=("False", "WaitForStart", "Not all pods are ready or succeeded"),
    )
    for name in ("Evicted", "Preempted"):
        known = condition(workload, name)
        if known is not None:
            words = ("False", "QuotaReserved", f"Previously: {known['message']}")
            set_conditions(workload, now, **{name: words})
