"""Events: what the parts of the cluster say of objects, merged when they repeat themselves."""

from __future__ import annotations

from collections.abc import Callable

from airflows.testing.cluster.kinds import EVENTS
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.store import Store


class Events:
    """Writes events into the store."""

    def __init__(self, store: Store, now: Callable[[], str]) -> None:
        self._store, self._now = store, now
        self._known: dict[tuple[str, str, str], str] = {}

    def normal(self, about: Json, reason: str, message: str, source: str = "job-controller") -> None:
        """Say something of an object."""
        self._say(about, "Normal", reason, message, source)

    def warning(self, about: Json, reason: str, message: str, source: str = "job-controller") -> None:
        """Say that something is wrong with an object."""
        self._say(about, "Warning", reason, message, source)

    def _say(self, about: Json, kind: str, reason: str, message: str, source: str) -> None:
        metadata, now = about["metadata"], self._now()
        namespace = metadata.get("namespace", "default")
        key = (metadata["uid"], reason, message)
        known = self._store.get("events", namespace, self._known.get(key, ""))
        if known is not None:
            again = self._store.edited(known)
            again["count"] += 1
            again["lastTimestamp"] = now
            self._store.replace(EVENTS, again)
            return
        name = f"{metadata['name']}.{self._store.new_uid().replace('-', '')[:16]}"
        self._known[key] = name
        made: Json = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": self._store.new_uid(),
                "creationTimestamp": now,
            },
            "involvedObject": {
                "kind": about["kind"],
                "apiVersion": about["apiVersion"],
                "namespace": namespace,
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": source},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "reportingComponent": source,
        }
        self._store.add(EVENTS, made)
