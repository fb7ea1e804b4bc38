"""Whether attempts can run in a cluster: what is missing is said in words, before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.backends.base import Job, Reach
from airflows.backends.kubernetes import paths
from airflows.backends.kubernetes.client import Api, as_unavailable
from airflows.backends.kubernetes.manifest import Context, UnfitJobError, gpus_of, job_object
from airflows.backends.kubernetes.reasons import Reasons, names_of
from airflows.backends.kubernetes.refusals import ApiError, in_words
from airflows.backends.kubernetes.settings import KubernetesSettings
from airflows.backends.kubernetes.submitting import Submitter, plain_image, require_image
from airflows.errors import AirflowsError, SpecError
from airflows.ids import Token
from airflows.train import TrainConfig

_OLDEST = (1, 24)
_USUAL = (1, 26)
_NEEDED = (
    ("batch", "jobs", "", ("create", "get", "list", "delete")),
    ("", "pods", "", ("list",)),
    ("", "pods", "log", ("get",)),
    ("", "configmaps", "", ("create",)),
)
_SERVICES = ("", "services", "", ("create",))
_FORBIDDEN, _UNAUTHORIZED = 403, 401
_MOST_NAMED = 8


@dataclass(slots=True)
class Checker:
    """Asks a cluster whether attempts can run there; writes nothing.

    Attributes:
        api: which is asked.
        settings: of the backend.
        submitter: makes what would be submitted.
        reasons: knows of Kueue.
    """

    api: Api
    settings: KubernetesSettings
    submitter: Submitter
    reasons: Reasons

    def reach(self) -> Reach:
        """Say whether Jobs can be made from here now; never raises."""
        try:
            version = self.submitter.version
            namespace = self.api.namespace
            if version < _OLDEST:
                named = ".".join(map(str, version))
                return Reach(False, f"the cluster is Kubernetes {named}; Indexed Jobs need 1.24.")
            if missing := self._missing_rights(_NEEDED):
                return Reach(False, self._rights_words(missing))
            if why := self._namespace_trouble():
                return Reach(False, why)
            return Reach(True, "", tuple(self._notes(version, namespace)))
        except ApiError as exc:
            return Reach(False, in_words(exc, self.settings.namespace or "default"))
        except AirflowsError as exc:
            return Reach(False, str(exc))

    def _notes(self, version: tuple[int, int], namespace: str) -> Iterator[str]:
        named = ".".join(map(str, version))
        yield f"Kubernetes {named} at {self.api.host}, context {self.api.context}, namespace {namespace}."
        if version < _USUAL:
            yield "Before 1.26 a preempted attempt may look like one that failed."
        if self.settings.pvc is None:
            yield "No `pvc` is named: checkpoints are lost with the pod of each attempt."

    def _rights_words(self, missing: list[str]) -> str:
        return (
            f"in namespace {self.api.namespace} you may not: {', '.join(missing)}. docs/kubernetes.md,"
            ' "Permissions", has the Role that is enough.'
        )

    def _missing_rights(self, needed: tuple[tuple[str, str, str, tuple[str, ...]], ...]) -> list[str]:
        wanted = [(group, kind, sub, verb) for group, kind, sub, verbs in needed for verb in verbs]
        allowed = self.api.each(self._may, wanted)
        return [
            f"{verb} {kind}{f'/{sub}' if sub else ''}"
            for (_, kind, sub, verb), is_allowed in zip(wanted, allowed, strict=True)
            if not is_allowed
        ]

    def _may(self, right: tuple[str, str, str, str]) -> bool:
        group, kind, sub, verb = right
        asked: dict[str, Any] = {
            "namespace": self.api.namespace,
            "verb": verb,
            "group": group,
            "resource": kind,
            **({"subresource": sub} if sub else {}),
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        try:
            answer = self.api.post(paths.ACCESS, body)
        except ApiError as exc:
            if exc.status == _UNAUTHORIZED:
                raise
            # A cluster that does not tell may still allow it.
            return True
        return bool((answer.get("status") or {}).get("allowed"))

    def _namespace_trouble(self) -> str:
        namespace = self.api.namespace
        try:
            self.api.get(f"/api/v1/namespaces/{namespace}")
        except ApiError as exc:
            if exc.is_missing:
                return (
                    f"there is no namespace {namespace}. Name another (backend.namespace), or have it made."
                )
            if exc.status != _FORBIDDEN:
                raise
        return ""

    # One train.yaml

    def check(self, config: TrainConfig) -> Iterator[str]:
        """Yield what people should know before runs of a train.yaml start here.

        Raises:
            SpecError: the cluster refuses such a run.
            BackendUnavailableError: it did not answer.
        """
        try:
            context = self.submitter.context(self._image(config))
            yield from self._queue_notes(config)
            yield from self._volume_notes()
            yield from self._notes_on_place(config)
            if config.nodes > 1 and (missing := self._missing_rights((_SERVICES,))):
                message = f"{self._rights_words(missing)} Trials of several nodes need it."
                raise SpecError(message)
            self._try(config, context)
        except ApiError as exc:
            raise as_unavailable(exc, self.api.namespace) from None

    def _image(self, config: TrainConfig) -> str:
        wanted = config.environment
        if wanted is not None and wanted.docker_image is not None:
            return plain_image(wanted.docker_image.url)
        try:
            return require_image(self.settings)
        except UnfitJobError as exc:
            raise SpecError(str(exc), field="backend.image") from None

    def _notes_on_place(self, config: TrainConfig) -> Iterator[str]:
        wanted, kind = config.environment, config.compute.accelerator_type
        if wanted is not None and wanted.dependencies:
            yield "environment.dependencies is not installed on Kubernetes: the image must have it."
        place = self.settings.place(kind)
        if gpus_of(place, config.accelerators_per_node) and not place.node_selector:
            yield (
                f"nothing says which nodes are {kind} here: any node with GPUs is taken. Set"
                f" backend.accelerators.{kind}.node_selector, or `cpu: true` there for none."
            )
        if config.timeout_minutes is not None and place.queue is None:
            yield "timeout_minutes also counts the time that a trial waits for a node, though not in a queue."

    def _queue_notes(self, config: TrainConfig) -> Iterator[str]:
        """See that Kueue is there: without it the name of a queue has no effect, and Jobs start at once."""
        place = self.settings.place(config.compute.accelerator_type)
        queue, namespace = place.queue, self.api.namespace
        if queue is None:
            if config.nodes > 1:
                yield (
                    "without a queue of Kueue (backend.queue) the nodes of a trial start one by one: trials"
                    " that have got half of their nodes may wait for each other."
                )
            return
        version = self.reasons.kueue_version()
        if not version:
            message = f"Kueue is not installed in this cluster: queue {queue} would have no effect."
            raise SpecError(message, field="backend.queue", hint="Leave it out to start trials at once.")
        try:
            self.api.get(paths.kueue(version, namespace, "localqueues", queue))
        except ApiError as exc:
            if exc.status == _FORBIDDEN:
                yield f"whether there is a queue {queue} cannot be told: you may not read localqueues."
                return
            if not exc.is_missing:
                raise
            known = names_of(self.api.items(paths.kueue(version, namespace, "localqueues")))
            hint = f"There are: {', '.join(known[:_MOST_NAMED])}." if known else "It has none."
            message = f"there is no LocalQueue {queue} in namespace {namespace}."
            raise SpecError(message, field="backend.queue", hint=hint) from None
        if not (place.cpus and place.memory):
            yield "Kueue counts only what pods request: set `cpus` and `memory` of the backend."

    def _volume_notes(self) -> Iterator[str]:
        pvc, namespace = self.settings.pvc, self.api.namespace
        if pvc is None:
            return
        try:
            found = self.api.get(paths.core(namespace, "persistentvolumeclaims", pvc.claim))
        except ApiError as exc:
            if exc.status == _FORBIDDEN:
                return
            if not exc.is_missing:
                raise
            message = f"there is no PersistentVolumeClaim {pvc.claim} in namespace {namespace}."
            raise SpecError(message, field="backend.pvc") from None
        modes = (found.get("spec") or {}).get("accessModes") or ()
        if modes and "ReadWriteMany" not in modes:
            yield f"PersistentVolumeClaim {pvc.claim} is not ReadWriteMany: its pods must share a node."

    def _try(self, config: TrainConfig, context: Context) -> None:
        """Let the cluster look at such a Job without making it."""
        job = sample_job(config)
        try:
            body = job_object(job, context)
        except UnfitJobError as exc:
            raise SpecError(str(exc)) from None
        try:
            query = paths.strictness(context.version)
            self.api.post(paths.jobs(self.api.namespace), body, dryRun="All", **query)
        except ApiError as exc:
            if exc.is_final:
                message = f"Kubernetes refuses such a run: {in_words(exc, self.api.namespace)}"
                raise SpecError(message, field="backend") from None
            if not (exc.is_quota or exc.exists_already):
                raise


def sample_job(config: TrainConfig) -> Job:
    """Return a job such as a trial of a train.yaml is, for looking at."""
    files = {"command.sh": config.command.encode()}
    timeout = config.timeout_minutes
    return Job(
        token=Token("airflows-check-000000-0000-a0"),
        sweep="airflows-check-000000",
        number=0,
        attempt=0,
        launch_dir=Path(),
        files=files,
        nodes=config.nodes,
        accelerators_per_node=config.accelerators_per_node,
        accelerator_type=config.compute.accelerator_type,
        work_dir=None,
        env=dict(config.env_variables),
        secrets=dict(config.secrets),
        checkpoint_dir="",
        timeout_s=None if timeout is None else timeout * 60.0,
    )
