"""The scheduler and the nodes: which pod goes where, what waits, and what a lost node takes along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

from airflows.testing.cluster import podstatus
from airflows.testing.cluster.deletion import Deletion
from airflows.testing.cluster.kinds import NODES, PODS
from airflows.testing.cluster.kubelet import Kubelet
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.podstatus import has, set_condition
from airflows.testing.cluster.quantities import quantity, requests
from airflows.testing.cluster.store import Change
from airflows.testing.cluster.world import World

# Seen on a real cluster, whose settings are the defaults.
_SILENCE_S, _TOLERATION_S, _COLLECTION_S = 43.0, 300.0, 48.0
_ANYTHING = "node1"
_NOT_HELPFUL = "preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."


_NODE_INFO = {
    "machineID": "",
    "systemUUID": "",
    "bootID": "",
    "kernelVersion": "6.1.0",
    "osImage": "fake",
    "containerRuntimeVersion": "containerd://1.6.20",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
Room: TypeAlias = dict[str, float]


class Nodes:
    """The nodes, and the scheduler that fills them."""

    def __init__(self, world: World, kubelet: Kubelet, deletion: Deletion) -> None:
        self._world, self._kubelet, self._deletion = world, kubelet, deletion
        self._is_due = False
        self._is_endless = not world.settings.nodes
        for name, given in (world.settings.nodes or {_ANYTHING: {}}).items():
            self._add(name, given)
        world.listeners.append(self._listen)

    def add(self, name: str, capacity: Mapping[str, Any] | None = None) -> None:
        """Add a node with its resources; `labels` and `taints` among them are its own."""
        with self._world.lock:
            self._add(name, capacity or {})
            self._wake()
            self._world.settle()

    def lose(self, name: str) -> None:
        """Let a node fall silent; its pods' containers run on or not, nobody can tell."""
        with self._world.lock:
            self._kubelet.lose(name, is_lost=True)
            self._world.after(_SILENCE_S, lambda: self._set_ready(name, "Unknown"))
            self._world.after(_SILENCE_S + _TOLERATION_S, lambda: self._evict(name))

    def remove(self, name: str) -> None:
        """Take a node away; what was on it is failed by the garbage collector of pods."""
        with self._world.lock:
            node = self._world.store.get("nodes", "", name)
            if node is not None:
                self._kubelet.lose(name, is_lost=True)
                self._world.store.remove(NODES, node)
                self._world.after(_COLLECTION_S, lambda: self._collect(name))

    def _add(self, name: str, given: Mapping[str, Any]) -> None:
        own = {key: str(value) for key, value in given.items() if key not in ("labels", "taints")}
        allocatable = {"cpu": "1000", "memory": "9007199254740988Ki", "pods": "100000", **own}
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **given.get("labels", {})}
        made = self._world.make(NODES, {"metadata": {"name": name, "labels": labels}})
        made["spec"] = {"taints": list(given["taints"])} if given.get("taints") else {}
        made["status"] = {
            "capacity": allocatable,
            "allocatable": allocatable,
            "nodeInfo": _NODE_INFO | {"kubeletVersion": f"v{self._world.settings.version}"},
        }
        set_condition(made["status"], "Ready", "True", self._world.written_now(), "KubeletReady")
        self._world.store.add(NODES, made)

    def _listen(self, change: Change) -> None:
        is_claim = change.resource == "persistentvolumeclaims"
        if is_claim or (
            change.resource == "pods" and (change.type != "MODIFIED" or podstatus.is_over(change.object))
        ):
            self._wake()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._world.after(0.0, self._schedule)

    def _schedule(self) -> None:
        self._is_due = False
        pods = self._world.store.all("pods")
        free = None if self._is_endless else self._free(pods)
        waiting = [pod for pod in pods if "nodeName" not in pod["spec"] and podstatus.is_going(pod)]
        for pod in sorted(waiting, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            self._place(pod, free)

    def _place(self, pod: Json, free: dict[str, Room] | None) -> None:
        why = self._kubelet.plan(pod).unschedulable or self._unbound(pod)
        if not why and free is None and not pod["spec"].get("nodeSelector"):
            self._kubelet.bind(pod, self._world.store.all("nodes")[0]["metadata"]["name"])
            return
        wanted = requests(pod["spec"])
        against: Counter[str] = Counter()
        nodes = self._world.store.all("nodes")
        for node in () if why else nodes:
            name = node["metadata"]["name"]
            obstacle = _obstacle(pod, node, wanted, free[name] if free is not None else None)
            if not obstacle:
                if free is not None:
                    _take(free[name], wanted)
                self._kubelet.bind(pod, name)
                return
            against[obstacle] += 1
        self._refuse(pod, why or _refusal(against, len(nodes)))

    def _unbound(self, pod: Json) -> str:
        """Return which claim of a pod is not there."""
        namespace = pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes") or ():
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim and self._world.store.get("persistentvolumeclaims", namespace, claim) is None:
                count = len(self._world.store.all("nodes"))
                words = f'persistentvolumeclaim "{claim}" not found'
                return f"0/{count} nodes are available: {words}. {_NOT_HELPFUL.format(count)}"
        return ""

    def _refuse(self, pod: Json, why: str) -> None:
        known = podstatus.condition(pod, "PodScheduled")
        if known is not None and known.get("message") == why:
            return
        with self._world.changing(PODS, pod) as changed:
            now = self._world.written_now()
            set_condition(changed["status"], "PodScheduled", "False", now, "Unschedulable", why)
        self._world.events.warning(pod, "FailedScheduling", why, "default-scheduler")

    def _free(self, pods: list[Json]) -> dict[str, Room]:
        free: dict[str, Room] = {}
        for node in self._world.store.all("nodes"):
            room = {name: quantity(value) for name, value in node["status"]["allocatable"].items()}
            free[node["metadata"]["name"]] = room
        for pod in pods:
            node_name = pod["spec"].get("nodeName")
            if node_name in free and not podstatus.is_over(pod):
                _take(free[node_name], requests(pod["spec"]))
        return free

    def _set_ready(self, name: str, value: str) -> None:
        node = self._world.store.get("nodes", "", name)
        if node is None:
            return
        now = self._world.written_now()
        words = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        with self._world.changing(NODES, node) as changed:
            set_condition(changed["status"], "Ready", value, now, *words)
            changed["spec"]["taints"] = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
        for pod in self._on(name):
            with self._world.changing(PODS, pod) as changed:
                podstatus.set_node_lost(changed, now)

    def _evict(self, name: str) -> None:
        """Delete the pods of a silent node; not when no node is healthy, then nobody is to blame."""
        if not any(has(node, "Ready") for node in self._world.store.all("nodes")):
            return
        for pod in self._on(name):
            words = "Taint manager: deleting due to NoExecute taint"
            self._deletion.disrupt(pod, "DeletionByTaintManager", words)

    def _collect(self, name: str) -> None:
        for pod in self._on(name):
            words = "PodGC: node no longer exists"
            with self._world.changing(PODS, pod) as changed:
                now = self._world.written_now()
                set_condition(changed["status"], "DisruptionTarget", "True", now, "DeletionByPodGC", words)
            self._kubelet.fail(pod)
            self._deletion.delete_at_once(PODS, pod)

    def _on(self, name: str) -> list[Json]:
        pods = self._world.store.all("pods")
        return [pod for pod in pods if pod["spec"].get("nodeName") == name and not podstatus.is_over(pod)]


def _obstacle(pod: Json, node: Json, wanted: Room, free: Room | None) -> str:
    """Return why a node does not take a pod; empty when it does."""
    if not has(node, "Ready"):
        return "node(s) had untolerated taint {node.kubernetes.io/unreachable: }"
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node["spec"].get("taints", ()):
        if not any(_tolerates(given, taint) for given in pod["spec"].get("tolerations", ())):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    for name, value in wanted.items():
        if free is not None and free.get(name, 0.0) < value:
            return f"Insufficient {name}"
    return ""


def _take(free: Room, wanted: Room) -> None:
    for name, value in wanted.items():
        free[name] = free.get(name, 0.0) - value


def _tolerates(given: Json, taint: Json) -> bool:
    if given.get("effect") not in (None, "", taint.get("effect")):
        return False
    if given.get("operator") == "Exists":
        return given.get("key") in (None, "", taint["key"])
    return bool(given.get("key") == taint["key"] and given.get("value", "") == taint.get("value", ""))


def _refusal(against: Counter[str], nodes: int) -> str:
    listed = ", ".join(f"{count} {why}" for why, count in sorted(against.items()))
    words = _NOT_HELPFUL.format(nodes)
    return f"0/{nodes} nodes are available: {listed}. no new claims to deallocate, {words}"
