"""Requests that steer the fake cluster while it serves: what Python has as methods of `Cluster`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from airflows.testing.cluster.exchange import Answer, Request, as_answer
from airflows.testing.cluster.messages import bad_request, no_such_resource
from airflows.testing.cluster.scheduler import Nodes
from airflows.testing.cluster.steering import Pods
from airflows.testing.cluster.world import World

CONTROL = "/__fake__/"


class Control:
    """Answers what no API server knows; it asks for no token, and nothing of it is recorded."""

    def __init__(self, world: World, pods: Pods, nodes: Nodes) -> None:
        self._world = world
        self._deeds: Mapping[str, Callable[..., Any]] = {
            "advance": world.clock.advance,
            "faults": world.faults.add,
            "plans": pods.plan,
            "pods/end": pods.end,
            "pods/write": pods.write,
            "pods/evict": pods.evict,
            "pods/preempt": pods.preempt,
            "pods/pressure": pods.pressure,
            "pods/delete": pods.delete,
            "nodes/lose": nodes.lose,
            "nodes/remove": nodes.remove,
            "nodes/add": nodes.add,
            "access/forbid": world.access.forbid,
            "access/allow": world.access.allow,
        }

    def answer(self, request: Request) -> Answer:
        """Do what is asked; the body's fields are the method's arguments.

        Raises:
            ApiError: 404 for what is not known, 400 for what cannot be done.
        """
        what = request.path.removeprefix(CONTROL)
        if (request.method, what) == ("GET", "state"):
            return as_answer(self._state())
        if (request.method, what) == ("DELETE", "faults"):
            self._world.faults.clear()
        elif request.method == "POST" and what in self._deeds:
            self._do(self._deeds[what], request.object())
        else:
            raise no_such_resource()
        return as_answer({})

    def _do(self, deed: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        try:
            deed(**arguments)
        except (TypeError, LookupError, ValidationError) as exc:
            raise bad_request(str(exc)) from None

    def _state(self) -> dict[str, Any]:
        with self._world.lock:
            phases = Counter(pod["status"]["phase"] for pod in self._world.store.all("pods"))
            counts = self._world.recorder.summary()
            jobs = len(self._world.store.all("jobs"))
        return {"now": self._world.clock.now(), "jobs": jobs, "pods": dict(phases), "requests": counts}
