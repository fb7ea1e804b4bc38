"""ResourceQuotas: what may not be created any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflows.testing.cluster.kinds import QUOTAS
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.podstatus import is_over
from airflows.testing.cluster.quantities import quantity, requests, written
from airflows.testing.cluster.world import World


class Quotas:
    """Adds quotas, and checks new objects against them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def add(self, name: str, hard: Mapping[str, Any], namespace: str) -> None:
        """Limit a namespace, by keys such as `pods`, `count/jobs.batch` or `requests.nvidia.com/gpu`."""
        limits = {key: str(value) for key, value in hard.items()}
        body = {"metadata": {"name": name}, "spec": {"hard": limits}}
        known = self._world.store.get("resourcequotas", namespace, name)
        if known is not None:
            self._world.store.remove(QUOTAS, known)
        self._world.store.add(QUOTAS, self._world.make(QUOTAS, body, namespace))

    def refusal(self, namespace: str, resource: str, body: Json) -> str:
        """Return why a new object exceeds a quota; empty when it does not."""
        for quota in self._world.store.all("resourcequotas", namespace):
            hard = (quota.get("spec") or {}).get("hard") or {}
            over = []
            for name, limit in hard.items():
                asked = _asked(name, resource, body)
                used = self._used(name, namespace)
                if asked and used + asked > quantity(limit):
                    over.append((name, asked, used, limit))
            if over:
                requested = ",".join(f"{name}={written(asked)}" for name, asked, _, _ in over)
                used_text = ",".join(f"{name}={written(used)}" for name, _, used, _ in over)
                limited = ",".join(f"{name}={limit}" for name, _, _, limit in over)
                return (
                    f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, "
                    f"used: {used_text}, limited: {limited}"
                )
        return ""

    def _used(self, name: str, namespace: str) -> float:
        if name.startswith("count/"):
            return float(len(self._world.store.all(name.removeprefix("count/").split(".")[0], namespace)))
        pods = [pod for pod in self._world.store.all("pods", namespace) if not is_over(pod)]
        return sum(_asked(name, "pods", pod) for pod in pods)


def _asked(name: str, resource: str, body: Json) -> float:
    if name.startswith("count/"):
        return 1.0 if name.removeprefix("count/").split(".")[0] == resource else 0.0
    if resource != "pods":
        return 0.0
    if name == "pods":
        return 1.0
    return requests(body["spec"]).get(name.removeprefix("requests."), 0.0)
