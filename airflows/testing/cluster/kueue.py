"""Kueue, as far as a Job with the label of a queue sees it: quota, waiting, preemption, misconfiguration."""

from __future__ import annotations

import re
from typing import Any

from airflows.testing.cluster.kinds import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, PRIORITIES, WORKLOADS
from airflows.testing.cluster.messages import ApiError, Json
from airflows.testing.cluster.podstatus import has
from airflows.testing.cluster.quantities import quantity, requests, written
from airflows.testing.cluster.settings import QueueSettings
from airflows.testing.cluster.store import Change
from airflows.testing.cluster.workloads import Verdict, assignment, own, set_conditions, workload_of
from airflows.testing.cluster.world import World

QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
UID_LABEL = "kueue.x-k8s.io/job-uid"
_LATENCY_S, _REQUEUE_S = 0.1, 10.0
_FLAVOR = "default-flavor"
_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


class Kueue:
    """Suspends what is labelled, and lets it go when its ClusterQueue has room."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_installed = world.settings.kueue is not None
        self._settings = world.settings.kueue or QueueSettings()
        self._is_due = False
        self._not_before: dict[str, float] = {}
        if self.is_installed:
            self._set_up()
            world.listeners.append(self._listen)

    def add_queue(self, name: str, cluster_queue: str, namespace: str = "") -> None:
        """Add a LocalQueue to a namespace; to the first when none is named."""
        where = namespace or self._world.settings.namespaces[0]
        body = {"metadata": {"name": name}, "spec": {"clusterQueue": cluster_queue}}
        with self._world.lock:
            self._world.store.add(LOCAL_QUEUES, self._world.make(LOCAL_QUEUES, body, where))
            self._wake()
            self._world.settle()

    def remove_queue(self, name: str, namespace: str = "") -> None:
        """Take a LocalQueue away."""
        where = namespace or self._world.settings.namespaces[0]
        with self._world.lock:
            found = self._world.store.get("localqueues", where, name)
            if found is not None:
                self._world.store.remove(LOCAL_QUEUES, found)
                self._wake()
                self._world.settle()

    def preempt(self, job: str, namespace: str = "") -> None:
        """Evict the Workload of a Job; it is admitted again ten seconds later, if there is room.

        Raises:
            LookupError: it has none.
        """
        where = namespace or self._world.settings.namespaces[0]
        with self._world.lock:
            for workload in self._world.store.all("workloads", where):
                if own(workload) == job:
                    # Else it would be admitted again at once, and nobody saw it.
                    self._not_before[workload["metadata"]["uid"]] = self._world.now() + _REQUEUE_S
                    self._world.after(_REQUEUE_S + _LATENCY_S, self._pass)
                    self._evict(
                        workload, "Preempted to accommodate a workload (UID: unknown, JobUID: unknown)"
                    )
                    self._world.settle()
                    return
        message = f"no Workload of a Job {job} in {where}"
        raise LookupError(message)

    def admit_job(self, made: Json) -> None:
        """Be the webhook: suspend a new Job of a queue.

        Raises:
            ApiError: 403 for a name that no queue can have.
        """
        queue = (made["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        if not self.is_installed or queue is None:
            return
        if not re.fullmatch(_NAME, queue):
            words = (
                f'admission webhook "vjob.kb.io" denied the request: metadata.labels[{QUEUE_LABEL}]: '
                f'Invalid value: "{queue}": a lowercase RFC 1123 subdomain must consist of lower case '
                "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
            )
            raise ApiError(403, "Forbidden", words)
        made["spec"]["suspend"] = True

    def _set_up(self) -> None:
        for name in {*self._settings.quotas, *self._settings.queues.values()}:
            quota = self._settings.quotas.get(name, {})
            resources = [{"name": key, "nominalQuota": str(value)} for key, value in quota.items()]
            spec: Json = {"resourceGroups": [{"flavors": [{"name": _FLAVOR, "resources": resources}]}]}
            body = {"metadata": {"name": name}, "spec": spec}
            self._world.store.add(CLUSTER_QUEUES, self._world.make(CLUSTER_QUEUES, body))
        for name, value in self._settings.priorities.items():
            made = self._world.make(PRIORITIES, {"metadata": {"name": name}, "value": value})
            self._world.store.add(PRIORITIES, made)
        for namespace in self._world.settings.namespaces:
            for name, target in self._settings.queues.items():
                body = {"metadata": {"name": name}, "spec": {"clusterQueue": target}}
                self._world.store.add(LOCAL_QUEUES, self._world.make(LOCAL_QUEUES, body, namespace))

    def _listen(self, change: Change) -> None:
        if change.resource == "jobs":
            labels = change.object["metadata"].get("labels") or {}
            if QUEUE_LABEL in labels:
                if change.type == "ADDED":
                    self._add(change.object, labels)
                self._wake()

    def _add(self, job: Json, labels: Json) -> None:
        priority = self._settings.priorities.get(labels.get(PRIORITY_LABEL, ""), 0)
        body = workload_of(job, labels[QUEUE_LABEL], priority, self._world.store.suffix())
        made = self._world.make(WORKLOADS, body, job["metadata"]["namespace"])
        self._world.store.add(WORKLOADS, {**made, "status": {}})

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._world.after(_LATENCY_S, self._pass)

    def _pass(self) -> None:
        self._is_due = False
        workloads = self._world.store.all("workloads")
        for workload in workloads:
            self._follow(workload)
        waiting = [
            workload
            for workload in self._world.store.all("workloads")
            if not has(workload, "QuotaReserved") and not has(workload, "Finished")
        ]
        waiting.sort(key=lambda found: (-found["spec"]["priority"], found["metadata"]["creationTimestamp"]))
        for workload in waiting:
            self._consider(workload)

    def _follow(self, workload: Json) -> None:
        """Let a Workload follow its Job, and the Job the Workload."""
        job = self._job(workload)
        if job is None:
            return
        queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL, "")
        is_admitted = has(workload, "Admitted")
        with self._world.changing(WORKLOADS, workload) as changed:
            if not is_admitted:
                changed["spec"]["queueName"] = queue
            end = next((name for name in ("Complete", "Failed") if has(job, name)), "")
            if end:
                reason = "Succeeded" if end == "Complete" else "Failed"
                set_conditions(changed, self._world.written_now(), Finished=("True", reason, "Job finished"))
            elif is_admitted and job["status"].get("ready") == job["spec"]["parallelism"]:
                words = ("True", "Started", "All pods reached readiness and the workload is running")
                set_conditions(changed, self._world.written_now(), PodsReady=words)
        if not is_admitted and not end and not job["spec"].get("suspend"):
            # Somebody has let it go by hand.
            self._set_suspended(job, value=True)

    def _consider(self, workload: Json) -> None:
        if self._not_before.get(workload["metadata"]["uid"], 0.0) > self._world.now():
            return
        verdict = self._verdict(workload)
        if not verdict.reason and verdict.lacking and self._make_room(workload, verdict):
            verdict = self._verdict(workload)
        job = self._job(workload)
        if verdict.is_good and job is not None:
            with self._world.changing(WORKLOADS, workload) as changed:
                assignment(changed, verdict.cluster_queue, self._world.written_now())
            self._set_suspended(job, value=False)
            return
        with self._world.changing(WORKLOADS, workload) as changed:
            set_conditions(
                changed,
                self._world.written_now(),
                QuotaReserved=("False", verdict.reason or "WaitingForQuota", verdict.message),
                Admitted=("False", "NoReservation", "The workload has no reservation"),
                PodsReady=("False", "WaitForStart", "Not all pods are ready or succeeded"),
            )

    def _verdict(self, workload: Json) -> Verdict:
        queue, namespace = workload["spec"]["queueName"], workload["metadata"]["namespace"]
        local = self._world.store.get("localqueues", namespace, queue)
        if local is None:
            return Verdict("Misconfigured", f"LocalQueue {queue} doesn't exist")
        name = local["spec"]["clusterQueue"]
        if self._world.store.get("clusterqueues", "", name) is None:
            return Verdict("Misconfigured", f"ClusterQueue {name} doesn't exist", name)
        prefix = "couldn't assign flavors to pod set main: "
        for resource, wanted in _wanted(workload).items():
            limit = self._limit(name, resource)
            if limit is None:
                continue
            if wanted > limit:
                over = f"request > maximum capacity ({written(wanted)} > {written(limit)})"
                words = f"{prefix}insufficient quota for {resource} in flavor {_FLAVOR}, {over}"
                return Verdict("ExceedsMaxQuota", words, name)
            lacking = wanted - (limit - self._used(name, resource))
            if lacking > 0:
                more = f"{written(lacking)} more needed"
                words = f"{prefix}insufficient unused quota for {resource} in flavor {_FLAVOR}, {more}"
                return Verdict("", words, name, {resource: lacking})
        return Verdict("", "", name)

    def _make_room(self, workload: Json, verdict: Verdict) -> bool:
        """Preempt what has a lower priority, if that is enough."""
        resource, lacking = next(iter(verdict.lacking.items()))
        victims = [
            found
            for found in self._admitted(verdict.cluster_queue)
            if found["spec"]["priority"] < workload["spec"]["priority"]
        ]
        victims.sort(key=lambda found: (found["spec"]["priority"], -_age(found)))
        chosen: list[Json] = []
        for victim in victims:
            if lacking > 0:
                chosen.append(victim)
                lacking -= _wanted(victim).get(resource, 0.0)
        if lacking > 0:
            return False
        metadata = workload["metadata"]
        words = (
            f"Preempted to accommodate a workload (UID: {metadata['uid']}, JobUID: "
            f"{metadata['labels'][UID_LABEL]}) due to prioritization in the ClusterQueue"
        )
        for victim in chosen:
            self._evict(victim, words)
        return True

    def _evict(self, workload: Json, words: str) -> None:
        with self._world.changing(WORKLOADS, workload) as changed:
            changed["status"].pop("admission", None)
            set_conditions(
                changed,
                self._world.written_now(),
                QuotaReserved=("False", "WaitingForQuota", words),
                Evicted=("True", "Preempted", words),
                Admitted=("False", "NoReservation", "The workload has no reservation"),
                Preempted=("True", "InClusterQueue", words),
                Requeued=("True", "Preempted", words),
                PodsReady=("False", "WaitForStart", "Not all pods are ready or succeeded"),
            )
        job = self._job(workload)
        if job is not None:
            self._set_suspended(job, value=True)

    def _admitted(self, cluster_queue: str) -> list[Json]:
        return [
            found
            for found in self._world.store.all("workloads")
            if has(found, "QuotaReserved")
            and not has(found, "Finished")
            and found["status"].get("admission", {}).get("clusterQueue") == cluster_queue
        ]

    def _used(self, cluster_queue: str, resource: str) -> float:
        return sum(_wanted(found).get(resource, 0.0) for found in self._admitted(cluster_queue))

    def _limit(self, cluster_queue: str, resource: str) -> float | None:
        found = self._world.store.get("clusterqueues", "", cluster_queue) or {}
        for group in found.get("spec", {}).get("resourceGroups") or ():
            for known in group["flavors"][0]["resources"]:
                if known["name"] == resource:
                    return quantity(known["nominalQuota"])
        return None

    def _job(self, workload: Json) -> Json | None:
        return self._world.store.of_uid(workload["metadata"]["labels"][UID_LABEL])

    def _set_suspended(self, job: Json, *, value: bool) -> None:
        with self._world.changing(JOBS, job) as changed:
            if changed["spec"].get("suspend") is not value:
                changed["spec"]["suspend"] = value
                changed["metadata"]["generation"] += 1


def _wanted(workload: Json) -> dict[str, float]:
    podset: dict[str, Any] = workload["spec"]["podSets"][0]
    each = requests(podset["template"]["spec"])
    return {name: value * podset["count"] for name, value in each.items()}


def _age(workload: Json) -> int:
    return int(workload["metadata"]["resourceVersion"])
