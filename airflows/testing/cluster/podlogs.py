"""The log endpoint of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflows.testing.cluster.exchange import Answer
from airflows.testing.cluster.kubelet import Kubelet
from airflows.testing.cluster.logs import ContainerLog, chosen, limited
from airflows.testing.cluster.messages import ApiError, Json, bad_request
from airflows.testing.cluster.podstatus import has
from airflows.testing.cluster.world import World

_TEXT = "text/plain"
_GLANCE_S = 1.0


class PodLogs:
    """Answers with what containers wrote."""

    def __init__(self, world: World, kubelet: Kubelet) -> None:
        self._world, self._kubelet = world, kubelet

    def answer(self, pod: Json, query: Mapping[str, str]) -> Answer:
        """Return the log of a container of a pod.

        Raises:
            ApiError: 400 while it does not run, 500 when its node is gone.
        """
        name = self._container(pod, query)
        if "nodeName" not in pod["spec"]:
            return Answer(204, content_type=_TEXT)
        self._check(pod, name, query)
        log = self._kubelet.log(pod["metadata"]["uid"], name)
        if query.get("follow") == "true":
            first = len(log.lines)
            head = b"".join(chosen(log.lines, query, self._world.now()))
            follower = _Follower(self._world, log, query)
            return Answer(200, content_type=_TEXT, stream=lambda: follower.parts(head, first))
        content = b"".join(chosen(log.lines, query, self._world.now()))
        return Answer(200, limited(content, query), _TEXT)

    def _container(self, pod: Json, query: Mapping[str, str]) -> str:
        metadata, spec = pod["metadata"], pod["spec"]
        names = [container["name"] for container in spec["containers"]]
        known = [*names, *(container["name"] for container in spec.get("initContainers") or ())]
        name = query.get("container", "")
        if not name and len(names) > 1:
            message = f"a container name must be specified for pod {metadata['name']}, choose one of: {names}"
            raise bad_request(message)
        if name and name not in known:
            message = f"container {name} is not valid for pod {metadata['name']}"
            raise bad_request(message)
        return str(name or names[0])

    def _check(self, pod: Json, name: str, query: Mapping[str, str]) -> None:
        pod_name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        found = self._world.store.get("nodes", "", node)
        if found is None or not has(found, "Ready"):
            where = f"https://10.244.0.1:10250/containerLogs/{pod['metadata']['namespace']}/{pod_name}/{name}"
            message = f'Get "{where}": dial tcp 10.244.0.1:10250: connect: no route to host'
            raise ApiError(500, "InternalError", message)
        if query.get("previous") == "true":
            message = f'previous terminated container "{name}" in pod "{pod_name}" not found'
            raise bad_request(message)
        for field in ("initContainerStatuses", "containerStatuses"):
            for container in pod["status"].get(field) or ():
                waiting = container["state"].get("waiting")
                if container["name"] == name and waiting:
                    message = (
                        f'container "{name}" in pod "{pod_name}" is waiting to start: {waiting["reason"]}'
                    )
                    raise bad_request(message)


class _Follower:
    """Gives a log as it grows. The lock is held to look, never to send."""

    def __init__(self, world: World, log: ContainerLog, query: Mapping[str, str]) -> None:
        self._world, self._log = world, log
        self._query = {"timestamps": query.get("timestamps", "")}

    def parts(self, head: bytes, seen: int) -> Iterator[bytes]:
        if head:
            yield head
        while True:
            with self._world.lock:
                if len(self._log.lines) == seen and not self._log.is_over:
                    self._world.changed.wait(_GLANCE_S)
                fresh = b"".join(chosen(self._log.lines[seen:], self._query, self._world.now()))
                seen = len(self._log.lines)
                is_over = self._log.is_over or self._world.closing.is_set()
            if fresh:
                yield fresh
            if is_over:
                return
