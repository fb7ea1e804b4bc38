"""Deleting objects: graceful for pods, in three ways for what owns others, and the garbage that is left."""

from __future__ import annotations

from airflows.testing.cluster.kinds import BY_RESOURCE, PODS, Kind
from airflows.testing.cluster.messages import Json, conflict, success
from airflows.testing.cluster.podstatus import is_over, set_condition
from airflows.testing.cluster.store import Change
from airflows.testing.cluster.world import World

TRACKING = "batch.kubernetes.io/job-tracking"
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_COLLECTION_S = 0.25


class Deletion:
    """Deletes, and collects what no longer has an owner."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.listeners.append(self._listen)

    def delete(self, kind: Kind, found: Json, options: Json) -> Json:
        """Delete an object as a client asks; return what it is told.

        Raises:
            ApiError: 409 when it is not the one that was meant.
        """
        self._check(kind, found, options.get("preconditions") or {})
        if kind.kind == "Pod":
            self.stop(found, options.get("gracePeriodSeconds"))
            return self._current(kind, found) or found
        policy = options.get("propagationPolicy") or kind.default_propagation
        if policy == "Background" and not found["metadata"].get("finalizers"):
            self._world.store.remove(kind, found)
            metadata = found["metadata"]
            about = {"name": metadata["name"], "kind": kind.resource, "uid": metadata["uid"]}
            return success({**about, "group": kind.group} if kind.group else about)
        with self._world.changing(kind, found) as changed:
            self._mark(changed, 0)
            added = {"Foreground": [_FOREGROUND], "Orphan": [_ORPHAN]}.get(policy, [])
            known = changed["metadata"].get("finalizers", [])
            changed["metadata"]["finalizers"] = [*known, *(name for name in added if name not in known)]
        told = self._current(kind, found) or found
        self._world.after(0.1, lambda: self._advance(told["metadata"]["uid"]))
        return told

    def delete_at_once(self, kind: Kind, found: Json) -> None:
        """Delete without grace; finalizers are still waited for."""
        current = self._current(kind, found)
        if current is None:
            return
        if not current["metadata"].get("finalizers"):
            self._world.store.remove(kind, current)
            return
        with self._world.changing(kind, current) as changed:
            self._mark(changed, 0)

    def stop(self, pod: Json, grace: int | None = None) -> None:
        """Tell a pod to end, with the grace of its spec when none is named."""
        current = self._current(PODS, pod)
        if current is None or "deletionTimestamp" in current["metadata"]:
            return
        seconds = current["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        is_bound = "nodeName" in current["spec"]
        if (is_over(current) or not is_bound) and not current["metadata"].get("finalizers"):
            self._world.store.remove(PODS, current)
            return
        with self._world.changing(PODS, current) as changed:
            self._mark(changed, int(seconds) if is_bound else 0)

    def disrupt(self, pod: Json, reason: str, message: str) -> None:
        """Tell a pod to end, and say which disruption it is."""
        with self._world.changing(PODS, pod) as changed:
            now = self._world.written_now()
            set_condition(changed["status"], "DisruptionTarget", "True", now, reason, message)
        self.stop(pod)

    def release(self, pod: Json) -> None:
        """Take the Job controller's finalizer off a pod."""
        if TRACKING not in pod["metadata"].get("finalizers", ()):
            return
        with self._world.changing(PODS, pod) as changed:
            _without(changed, TRACKING)

    def _check(self, kind: Kind, found: Json, preconditions: Json) -> None:
        wanted, uid = preconditions.get("uid"), found["metadata"]["uid"]
        name = found["metadata"]["name"]
        if wanted and wanted != uid:
            why = (
                f"the UID in the precondition ({wanted}) does not match the UID in record ({uid}). "
                "The object might have been deleted and then recreated"
            )
            refused = conflict(kind.kind, kind.group, name, why)
            raise refused
        version, known = preconditions.get("resourceVersion"), found["metadata"]["resourceVersion"]
        if version and version != known:
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in "
                f"record ({known}). The object might have been modified"
            )
            raise conflict(kind.kind, kind.group, name, why)

    def _mark(self, changed: Json, grace: int) -> None:
        metadata = changed["metadata"]
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = self._world.written_now()
            metadata["deletionGracePeriodSeconds"] = grace
            if "generation" in metadata:
                metadata["generation"] += 1

    def _current(self, kind: Kind, found: Json) -> Json | None:
        metadata = found["metadata"]
        current = self._world.store.get(kind.resource, metadata.get("namespace", ""), metadata["name"])
        return current if current is not None and current["metadata"]["uid"] == metadata["uid"] else None

    def _listen(self, change: Change) -> None:
        if change.type == "DELETED":
            for owner in change.object["metadata"].get("ownerReferences", ()):
                uid = owner["uid"]
                self._world.after(0.01, lambda uid=uid: self._advance(uid))  # type: ignore[misc]
            uid = change.object["metadata"]["uid"]
            if self._world.store.dependents(uid):
                self._world.after(_COLLECTION_S, lambda: self._collect(uid))
            return
        for owner in change.object["metadata"].get("ownerReferences", ()):
            # Somebody may name an owner that is gone already.
            if change.type == "ADDED" and self._world.store.of_uid(owner["uid"]) is None:
                gone = owner["uid"]
                self._world.after(_COLLECTION_S, lambda gone=gone: self._collect(gone))  # type: ignore[misc]

    def _advance(self, uid: str) -> None:
        """Go on with an object that is being deleted: its dependents, then itself."""
        found = self._world.store.of_uid(uid)
        if found is None or "deletionTimestamp" not in found["metadata"] or found["kind"] == "Pod":
            return
        kind = BY_RESOURCE[_RESOURCES[found["kind"]]]
        finalizers = found["metadata"].get("finalizers", ())
        dependents = self._world.store.dependents(uid)
        if _ORPHAN in finalizers:
            for resource, dependent in dependents:
                with self._world.changing(BY_RESOURCE[resource], dependent) as changed:
                    _disown(changed, uid)
            self._finish(kind, found, _ORPHAN)
        elif _FOREGROUND in finalizers:
            for resource, dependent in dependents:
                self._drop(resource, dependent)
            blocking = [
                dependent
                for _, dependent in self._world.store.dependents(uid)
                if any(
                    owner["uid"] == uid and owner.get("blockOwnerDeletion")
                    for owner in dependent["metadata"].get("ownerReferences", ())
                )
            ]
            if not blocking:
                self._finish(kind, found, _FOREGROUND)

    def _finish(self, kind: Kind, found: Json, finalizer: str) -> None:
        with self._world.changing(kind, found) as changed:
            _without(changed, finalizer)
        current = self._current(kind, found)
        if current is not None and not current["metadata"].get("finalizers"):
            self._world.store.remove(kind, current)

    def _collect(self, uid: str) -> None:
        if self._world.store.of_uid(uid) is not None:
            return
        for resource, dependent in self._world.store.dependents(uid):
            others = [
                owner
                for owner in dependent["metadata"]["ownerReferences"]
                if self._world.store.of_uid(owner["uid"])
            ]
            if others:
                with self._world.changing(BY_RESOURCE[resource], dependent) as changed:
                    _disown(changed, uid)
                continue
            self._drop(resource, dependent)

    def _drop(self, resource: str, dependent: Json) -> None:
        if resource == "pods":
            self.stop(dependent)
            owners = dependent["metadata"].get("ownerReferences", ())
            if not any(self._world.store.of_uid(owner["uid"]) for owner in owners):
                # Nobody counts it any more.
                current = self._current(PODS, dependent)
                if current is not None:
                    self.release(current)
            return
        self.delete_at_once(BY_RESOURCE[resource], dependent)


_RESOURCES = {kind.kind: kind.resource for kind in BY_RESOURCE.values()}


def _without(changed: Json, finalizer: str) -> None:
    left = [name for name in changed["metadata"].get("finalizers", ()) if name != finalizer]
    if left:
        changed["metadata"]["finalizers"] = left
    else:
        changed["metadata"].pop("finalizers", None)


def _disown(changed: Json, uid: str) -> None:
    left = [owner for owner in changed["metadata"]["ownerReferences"] if owner["uid"] != uid]
    if left:
        changed["metadata"]["ownerReferences"] = left
    else:
        del changed["metadata"]["ownerReferences"]
