"""What tests say of pods: beforehand, and while they run."""

from __future__ import annotations

from typing import Any

from airflows.testing.cluster.deletion import Deletion
from airflows.testing.cluster.kinds import PODS
from airflows.testing.cluster.kubelet import Kubelet
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.plans import PlanRule, PodPlan
from airflows.testing.cluster.podstatus import Exit, index_of, is_over, set_condition
from airflows.testing.cluster.simulated import SimulatedContainers, main_of
from airflows.testing.cluster.store import controller_of
from airflows.testing.cluster.world import World

_RULE = ("job", "namespace", "index")


class Pods:
    """The pods of the cluster, past the API."""

    def __init__(self, world: World, kubelet: Kubelet, deletion: Deletion) -> None:
        self._world, self._kubelet, self._deletion = world, kubelet, deletion

    def plan(self, plan: PodPlan | None = None, **fields: Any) -> None:
        """Say what pods do that fit a rule; what is said last counts.

        Args:
            plan: made of `fields` when absent.
            fields: of `PodPlan`, and `job`, `namespace` and `index` of `PlanRule`.
        """
        rule = {name: fields.pop(name) for name in _RULE if name in fields}
        chosen = plan or PodPlan.model_validate(fields)
        with self._world.lock:
            self._kubelet.rules.append(PlanRule.model_validate({**rule, "plan": chosen}))

    def list(self, job: str = "") -> list[Json]:
        """Return pods as they are now, of one Job or all, oldest first."""
        with self._world.lock:
            self._world.settle()
            pods = [pod for pod in self._world.store.all("pods") if not job or _job_of(pod) == job]
            return sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], index_of(pod)))

    def end(self, job: str, index: int = 0, exit_code: int = 0, reason: str = "") -> None:
        """Let the running pod of an index end now.

        Raises:
            LookupError: there is none.
            TypeError: its containers are real processes.
        """
        with self._world.lock:
            pod = self._running(job, index)
            if not isinstance(self._kubelet.containers, SimulatedContainers):
                message = "a real process ends by itself"
                raise TypeError(message)
            self._kubelet.containers.end(pod["metadata"]["uid"], Exit(exit_code, reason))
            self._world.settle()

    def write(self, job: str, line: str, index: int = 0) -> None:
        """Write a line into the log of the running pod of an index.

        Raises:
            LookupError: there is none.
        """
        with self._world.lock:
            pod = self._running(job, index)
            log = self._kubelet.log(pod["metadata"]["uid"], main_of(pod))
            log.write(line.encode() + b"\n", self._world.now())

    def evict(self, job: str, index: int = 0) -> None:
        """Evict a pod, as a drained node does.

        Raises:
            LookupError: there is none.
        """
        self._disrupt(job, index, "EvictionByEvictionAPI", "Eviction API: evicting")

    def preempt(self, job: str, index: int = 0) -> None:
        """Let the scheduler take a pod's place for a more important one.

        Raises:
            LookupError: there is none.
        """
        words = "default-scheduler: preempting to accommodate a higher priority pod"
        self._disrupt(job, index, "PreemptionByScheduler", words)

    def pressure(self, job: str, index: int = 0) -> None:
        """Let the kubelet end a pod for the memory of its node; the pod is kept, as Failed.

        Raises:
            LookupError: there is none.
        """
        with self._world.lock:
            pod = self._running(job, index)
            words = "The node was low on resource: memory."
            with self._world.changing(PODS, pod) as changed:
                now = self._world.written_now()
                set_condition(
                    changed["status"], "DisruptionTarget", "True", now, "TerminationByKubelet", words
                )
            self._kubelet.fail(pod, "Evicted", words)
            self._world.settle()

    def delete(self, job: str, index: int = 0) -> None:
        """Delete a pod, as `kubectl delete pod` does.

        Raises:
            LookupError: there is none.
        """
        with self._world.lock:
            self._deletion.stop(self._running(job, index))
            self._world.settle()

    def _disrupt(self, job: str, index: int, reason: str, words: str) -> None:
        with self._world.lock:
            self._deletion.disrupt(self._running(job, index), reason, words)
            self._world.settle()

    def _running(self, job: str, index: int) -> Json:
        pods = [pod for pod in self.list(job) if index_of(pod) == index and not is_over(pod)]
        if not pods:
            message = f"no pod of index {index} of a Job {job} that has not ended"
            raise LookupError(message)
        return pods[-1]


def _job_of(pod: Json) -> str:
    owner = controller_of(pod)
    return str(owner["name"]) if owner else ""
