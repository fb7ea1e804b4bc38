"""The objects of the cluster, their versions, and the history that watches go back in."""

from __future__ import annotations

import json
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflows.testing.cluster.kinds import Kind
from airflows.testing.cluster.messages import Json


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object, as watches tell it.

    Attributes:
        version: of the whole store.
        resource: plural name.
        type: ADDED, MODIFIED or DELETED.
        object: afterwards; for DELETED its last state.
        before: None when it was added.
    """

    version: int
    resource: str
    type: str
    object: Json
    before: Json | None


class Store:
    """All objects. Not for several threads at once: the world's lock is held.

    What is handed out is not to be changed: `edited` returns a copy for that, `replace` puts it back.
    """

    def __init__(self, seed: int, history: int) -> None:
        self._objects: dict[str, dict[tuple[str, str], Json]] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._owned: dict[str, set[tuple[str, str, str]]] = {}
        self._by_uid: dict[str, Json] = {}
        self._labelled: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
        self._changes: deque[Change] = deque(maxlen=history)
        self._chance = random.Random(seed)  # noqa: S311 - names, not secrets
        self.version = 1
        self.oldest = 0
        self.on_change: Callable[[Change], None] = lambda _: None

    def new_uid(self) -> str:
        """Return an id of no object yet."""
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def suffix(self) -> str:
        """Return the five characters at the end of a made-up name."""
        return "".join(self._chance.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object."""
        return self._objects.get(resource, {}).get((namespace, name))

    def of_uid(self, uid: str) -> Json | None:
        """Return the object with an id."""
        return self._by_uid.get(uid)

    def all(self, resource: str, namespace: str = "") -> list[Json]:
        """Return the objects of a kind in the order of their names; of all namespaces when none is given."""
        found = self._objects.get(resource, {})
        return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def labelled(self, resource: str, namespace: str, required: Mapping[str, set[str]]) -> list[Json]:
        """Return what `all` does, but for objects that lack one of the required labels, or its values.

        Only the label that the fewest objects have is looked at, so some of them are left.
        """
        found = self._objects.get(resource, {})
        fewest: set[tuple[str, str]] | None = None
        for label, values in required.items():
            places = [self._labelled.get((resource, label, value), set()) for value in values]
            if fewest is None or sum(map(len, places)) < len(fewest):
                fewest = set().union(*places)
        if fewest is None:
            return self.all(resource, namespace)
        return [found[key] for key in sorted(fewest) if not namespace or key[0] == namespace]

    def dependents(self, uid: str) -> list[tuple[str, Json]]:
        """Return what an owner owns, each with its resource."""
        keys = sorted(self._owned.get(uid, ()))
        return [(key[0], self._objects[key[0]][key[1], key[2]]) for key in keys]

    def edited(self, found: Json) -> Json:
        """Return a copy of which metadata and status may be changed, and what stands directly in the spec."""
        changed = {**found, "metadata": copied(found["metadata"])}
        if "spec" in found:
            changed["spec"] = dict(found["spec"])
        if "status" in found:
            changed["status"] = copied(found["status"])
        return changed

    def add(self, kind: Kind, made: Json) -> Json:
        """Take in a new object; it gets the next version."""
        key = _key(made)
        self._write("ADDED", kind.resource, key, made, None)
        return made

    def replace(self, kind: Kind, changed: Json) -> Json:
        """Put a changed object in the place of the old one; nothing happens when they are the same."""
        key = _key(changed)
        before = self._objects[kind.resource][key]
        if before == changed:
            return before
        self._forget_places(kind.resource, key, before)
        self._write("MODIFIED", kind.resource, key, changed, before)
        return changed

    def remove(self, kind: Kind, gone: Json) -> Json:
        """Take an object out; what is returned is its last state."""
        key = _key(gone)
        before = self._objects[kind.resource].pop(key)
        self._by_uid.pop(before["metadata"]["uid"], None)
        self._forget_places(kind.resource, key, before)
        self.version += 1
        last: Json = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._tell(Change(self.version, kind.resource, "DELETED", last, before))
        self._texts.pop((before["metadata"]["uid"], before["metadata"]["resourceVersion"]), None)
        return last

    def text(self, found: Json) -> str:
        """Return an object as lists have it in JSON; kept, because the same is asked for again and again."""
        key = (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
        known = self._texts.get(key)
        if known is None:
            known = self._texts[key] = json.dumps(without_kind(found), separators=(",", ":"))
        return known

    def since(self, version: int, resource: str) -> list[Change]:
        """Return the changes of a kind after a version, in order."""
        changes: list[Change] = []
        for change in reversed(self._changes):
            if change.version <= version:
                break
            if change.resource == resource:
                changes.append(change)
        return changes[::-1]

    def forget_history(self) -> None:
        """Let every version before now be too old."""
        self._changes.clear()
        self.version += 1
        self.oldest = self.version

    def _write(self, word: str, resource: str, key: tuple[str, str], made: Json, before: Json | None) -> None:
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        if before is not None:
            self._texts.pop((before["metadata"]["uid"], before["metadata"]["resourceVersion"]), None)
        self._objects.setdefault(resource, {})[key] = self._by_uid[made["metadata"]["uid"]] = made
        for uid in _owners(made):
            self._owned.setdefault(uid, set()).add((resource, *key))
        for label, value in _labels(made):
            self._labelled.setdefault((resource, label, value), set()).add(key)
        self._tell(Change(self.version, resource, word, made, before))

    def _tell(self, change: Change) -> None:
        if self._changes.maxlen and len(self._changes) == self._changes.maxlen:
            self.oldest = self._changes[0].version
        self._changes.append(change)
        self.on_change(change)

    def _forget_places(self, resource: str, key: tuple[str, str], before: Json) -> None:
        for label, value in _labels(before):
            labelled = self._labelled[resource, label, value]
            labelled.discard(key)
            if not labelled:
                del self._labelled[resource, label, value]
        for uid in _owners(before):
            owned = self._owned.get(uid, set())
            owned.discard((resource, *key))
            if not owned:
                self._owned.pop(uid, None)


def copied(value: Any) -> Any:
    """Return a copy of JSON; much faster than `copy.deepcopy`, which looks for what is shared."""
    if isinstance(value, dict):
        # What clients say of fields is replaced as a whole, never changed in place.
        return {name: item if name == "managedFields" else copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def without_kind(found: Json) -> Json:
    """Return an object as an item of a list."""
    return {name: value for name, value in found.items() if name not in ("kind", "apiVersion")}


def controller_of(found: Json) -> Json | None:
    """Return the owner reference of what controls an object."""
    for owner in found["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            reference: dict[str, Any] = owner
            return reference
    return None


def _owners(found: Json) -> Iterable[str]:
    return [str(owner.get("uid")) for owner in found["metadata"].get("ownerReferences", ())]


def _labels(found: Json) -> Iterable[tuple[str, str]]:
    labels: dict[str, str] = found["metadata"].get("labels") or {}
    return labels.items()


def _key(found: Json) -> tuple[str, str]:
    metadata = found["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])
