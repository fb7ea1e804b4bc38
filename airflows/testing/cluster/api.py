"""What the fake API server does for each verb."""

from __future__ import annotations

from collections.abc import Callable

from airflows.testing.cluster.defaults import managed_by
from airflows.testing.cluster.deletion import Deletion
from airflows.testing.cluster.exchange import Answer, Request, Target, as_answer, target_of, verb_of
from airflows.testing.cluster.kinds import JOBS, NAMESPACES, REVIEWS, Kind, discovery, served
from airflows.testing.cluster.kueue import Kueue
from airflows.testing.cluster.listing import listed, test_of, watched
from airflows.testing.cluster.messages import (
    ApiError,
    Json,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    no_such_resource,
    not_found,
)
from airflows.testing.cluster.patching import APPLY, check_update, patched
from airflows.testing.cluster.podlogs import PodLogs
from airflows.testing.cluster.quotas import Quotas
from airflows.testing.cluster.schema import without_unknown
from airflows.testing.cluster.store import without_kind
from airflows.testing.cluster.validation import check, labels
from airflows.testing.cluster.world import World

_LARGEST_BODY = 3 * 1024 * 1024
_OPEN = ("/version", "/healthz", "/readyz", "/livez")


class Api:
    """Answers requests. The world's lock is held."""

    def __init__(self, world: World, deletion: Deletion, quotas: Quotas, kueue: Kueue, logs: PodLogs) -> None:
        self._world, self._deletion, self._quotas = world, deletion, quotas
        self._kueue, self._logs = kueue, logs
        self._kinds = {kind.resource: kind for kind in served(has_kueue=kueue.is_installed)}

    def route(self, request: Request) -> str:
        """Return the short name of what is asked for, such as `jobs/create`."""
        if request.path in _OPEN:
            return request.path.strip("/")
        try:
            target = target_of(request.path, self._kinds)
            verb = verb_of(request.method, target, request.query)
        except ApiError:
            return "discovery" if discovery(request.path, tuple(self._kinds.values())) else ""
        return f"{target.kind.resource}/{target.sub or verb}"

    def answer(self, request: Request) -> Answer:
        """Answer a request.

        Raises:
            ApiError: it is refused.
        """
        if request.path in _OPEN:
            if request.path == "/version":
                return as_answer(self._version())
            return Answer(200, b"ok", "text/plain")
        user = self._world.access.user(request.headers.get("authorization", ""))
        if len(request.body) > _LARGEST_BODY:
            message = f"Request entity too large: limit is {_LARGEST_BODY}"
            raise ApiError(413, "RequestEntityTooLarge", message)
        known = discovery(request.path, tuple(self._kinds.values()))
        if known is not None:
            return as_answer(known)
        target = target_of(request.path, self._kinds)
        verb = verb_of(request.method, target, request.query)
        if target.kind is REVIEWS:
            return as_answer(self._world.access.review(user, request.object()), 201)
        self._world.access.check(user, target.asked(verb), target.kind)
        return self._do(verb, target, request)

    def _do(self, verb: str, target: Target, request: Request) -> Answer:
        if target.sub:
            return self._do_sub(target, request)
        handlers: dict[str, Callable[[Target, Request], Answer]] = {
            "get": self._get,
            "list": lambda target, request: listed(self._world, target, request.query),
            "watch": lambda target, request: watched(self._world, target, request),
            "create": self._create,
            "patch": self._change,
            "update": self._change,
            "delete": self._delete,
            "deletecollection": self._delete_all,
        }
        return handlers[verb](target, request)

    def _get(self, target: Target, _: Request) -> Answer:
        return as_answer(self._found(target))

    def _delete(self, target: Target, request: Request) -> Answer:
        return as_answer(self._deletion.delete(target.kind, self._found(target), _options(request)))

    def _do_sub(self, target: Target, request: Request) -> Answer:
        found = self._found(target)
        match target.kind.kind, target.sub, request.method:
            case "Pod", "log", "GET":
                return self._logs.answer(found, request.query)
            case "Pod", "eviction", "POST":
                words = "Eviction API: evicting"
                self._deletion.disrupt(found, "EvictionByEvictionAPI", words)
                return as_answer(
                    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, 201
                )
            case _, "status", "GET":
                return as_answer(found)
            case _, "status", "PATCH" | "PUT":
                return self._change_status(target, found, request)
        raise no_such_resource()

    def _create(self, target: Target, request: Request) -> Answer:
        kind, body = target.kind, request.object()
        if target.name:
            raise no_such_resource()
        self._check_place(target, body)
        body, warnings = self._decoded(kind, body, request)
        metadata = body.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName'][:58]}{self._world.store.suffix()}"
        made = self._world.make(kind, body, target.namespace, _manager(request))
        check(made, kind, self._world.minor)
        name = made["metadata"]["name"]
        if self._world.store.get(kind.resource, target.namespace, name) is not None:
            raise already_exists(kind.resource, kind.group, name)
        refused = self._quotas.refusal(target.namespace, kind.resource, made)
        if refused:
            raise forbidden(kind.resource, kind.group, name, refused)
        if kind is JOBS:
            self._kueue.admit_job(made)
        if request.query.get("dryRun") != "All":
            self._world.store.add(kind, made)
        answer = as_answer(made, 201)
        if warnings:
            answer.headers["Warning"] = ", ".join(f'299 - "{warning}"' for warning in warnings)
        return answer

    def _change(self, target: Target, request: Request) -> Answer:
        kind, found = target.kind, self._found(target)
        name, body = target.name, request.json()
        if request.method == "PUT":
            after = {**request.object(), "status": found.get("status")}
            if after["status"] is None:
                del after["status"]
        else:
            after = patched(found, body, request.content_type)
            if kind.resource not in ("events", "nodes") and "status" in found:
                after["status"] = found["status"]
        sent = (after.get("metadata") or {}).get("resourceVersion")
        if sent and sent != found["metadata"]["resourceVersion"]:
            why = (
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            raise conflict(kind.resource, kind.group, name, why)
        after, _ = self._decoded(kind, after, request)
        after = _with_fixed(after, found, kind)
        if request.content_type == APPLY:
            self._apply(after, body, request)
        check_update(found, after, kind)
        causes = labels(after["metadata"].get("labels"), "metadata.labels")
        if causes:
            raise invalid(kind.kind, kind.group, name, causes)
        if request.query.get("dryRun") != "All":
            after = self._stored(kind, found, after)
        return as_answer(after)

    def _stored(self, kind: Kind, found: Json, after: Json) -> Json:
        if kind.has_generation and found.get("spec") != after.get("spec"):
            after["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
        stored = self._world.store.replace(kind, after)
        metadata = stored["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and kind.kind != "Pod":
            return self._world.store.remove(kind, stored)
        return stored

    def _change_status(self, target: Target, found: Json, request: Request) -> Answer:
        if request.method == "PUT":
            changed = request.object()
        else:
            changed = patched(found, request.json(), request.content_type)
        after = {**self._world.store.edited(found), "status": changed.get("status") or {}}
        return as_answer(self._world.store.replace(target.kind, after))

    def _delete_all(self, target: Target, request: Request) -> Answer:
        fits, options = test_of(request.query), _options(request)
        gone = [
            found for found in self._world.store.all(target.kind.resource, target.namespace) if fits(found)
        ]
        for found in gone:
            self._deletion.delete(target.kind, found, options)
        metadata = {"resourceVersion": str(self._world.store.version)}
        head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version}
        return as_answer({**head, "metadata": metadata, "items": list(map(without_kind, gone))})

    def _found(self, target: Target) -> Json:
        kind = target.kind
        found = self._world.store.get(kind.resource, target.namespace, target.name)
        if found is None:
            raise not_found(kind.resource, kind.group, target.name)
        return found

    def _check_place(self, target: Target, body: Json) -> None:
        given = (body.get("metadata") or {}).get("namespace")
        kind = target.kind
        if kind.is_namespaced and not target.namespace:
            raise no_such_resource()
        if given and kind.is_namespaced and given != target.namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(message)
        if body.get("kind") not in (None, kind.kind):
            message = f'{body["kind"]} in version "v1" cannot be handled as a {kind.kind}'
            raise bad_request(message)
        if kind.is_namespaced and self._world.store.get("namespaces", "", target.namespace) is None:
            raise not_found(NAMESPACES.resource, "", target.namespace)

    def _decoded(self, kind: Kind, body: Json, request: Request) -> tuple[Json, list[str]]:
        known, unknown = without_unknown(body, kind.kind)
        words = [f'unknown field "{path}"' for path in unknown]
        # Servers before 1.25 know no validation of fields.
        if unknown and request.query.get("fieldValidation") == "Strict" and self._world.minor >= 25:  # noqa: PLR2004
            said = ", ".join(words)
            head = f'{kind.kind} in version "v1" cannot be handled as a {kind.kind}'
            message = f"{head}: strict decoding error: {said}"
            raise bad_request(message)
        return known, words

    def _apply(self, after: Json, body: Json, request: Request) -> None:
        manager = request.query.get("fieldManager")
        if not manager:
            words = "fieldManager: Required value: is required for apply patch"
            message = f'PatchOptions.meta.k8s.io "" is invalid: {words}'
            raise ApiError(422, "Invalid", message)
        known = [
            entry
            for entry in after["metadata"].get("managedFields", ())
            if (entry["manager"], entry["operation"]) != (manager, "Apply")
        ]
        made = managed_by(body, manager, "Apply", self._world.written_now())
        after["metadata"]["managedFields"] = [made, *known]

    def _version(self) -> Json:
        return {
            "major": "1",
            "minor": str(self._world.minor),
            "gitVersion": f"v{self._world.settings.version.lstrip('v')}",
            "gitCommit": "0" * 40,
            "gitTreeState": "",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "go1.27.3",
            "compiler": "gc",
            "platform": "linux/amd64",
        }


def _options(request: Request) -> Json:
    body = request.object() if request.body else {}
    names = ("propagationPolicy", "gracePeriodSeconds")
    given: Json = {name: request.query[name] for name in names if name in request.query}
    if "gracePeriodSeconds" in given:
        given["gracePeriodSeconds"] = int(given["gracePeriodSeconds"])
    return {**given, **body}


def _manager(request: Request) -> str:
    agent = request.headers.get("user-agent", "unknown").partition("/")[0]
    return request.query.get("fieldManager") or agent or "unknown"


def _with_fixed(after: Json, found: Json, kind: Kind) -> Json:
    """Return a changed object with what only the server may change as it was."""
    fixed = (
        "name",
        "namespace",
        "uid",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
    )
    metadata = {name: value for name, value in (after.get("metadata") or {}).items() if name not in fixed}
    metadata |= {name: found["metadata"][name] for name in fixed if name in found["metadata"]}
    metadata.setdefault("managedFields", found["metadata"].get("managedFields", []))
    return {**after, "kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
