"""Submitting attempts: files, one Job by its name, for several nodes a Service; and what the answer means."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from airflows.backends.base import Job
from airflows.backends.kubernetes import paths, states
from airflows.backends.kubernetes.client import Api
from airflows.backends.kubernetes.manifest import (
    SPEC,
    Context,
    Object,
    Parcel,
    UnfitJobError,
    job_object,
    service_object,
    sweep_label,
)
from airflows.backends.kubernetes.parcels import Parcels, tools_name
from airflows.backends.kubernetes.refusals import ApiError, in_words
from airflows.backends.kubernetes.settings import KubernetesSettings
from airflows.errors import (
    BackendUnavailableError,
    SubmitAmbiguousError,
    SubmitError,
    SubmitRejectedError,
    SubmitUnreachedError,
    SubmitUnsentError,
)
from airflows.trial import Handle
from airflows.yamlio import dump, parse

_log = logging.getLogger("airflows.kubernetes")


class _UndecidedError(Exception):
    """Nobody knows whether the cluster has taken a Job."""


class Submitter:
    """Submits jobs to one namespace.

    Args:
        api: where to.
        settings: of the backend.
    """

    def __init__(self, api: Api, settings: KubernetesSettings) -> None:
        self._api = api
        self._settings = settings
        self._parcels = Parcels(api, settings)
        self._version: tuple[int, int] | None = None

    @property
    def version(self) -> tuple[int, int]:
        """The cluster's version; asked once.

        Raises:
            ApiError: it refuses to say.
            BackendUnavailableError: it did not answer.
        """
        if self._version is None:
            self._version = version_of(self._api.get("/version"))
        return self._version

    def submit(self, jobs: Sequence[Job]) -> list[Handle | SubmitError]:
        """Submit jobs, a few at once; answer in their order."""
        return self._api.each(self._one, jobs)

    def _one(self, job: Job) -> Handle | SubmitError:
        try:
            context = self._context(job)
            body = job_object(job, context)
        except UnfitJobError as exc:
            return SubmitRejectedError(str(exc))
        except ApiError as exc:
            return self._refused(exc)
        except BackendUnavailableError as exc:
            return SubmitUnreachedError(str(exc))
        return self._make(job, body)

    def _make(self, job: Job, body: Object) -> Handle | SubmitError:
        try:
            answer = self._create(job, body)
            if job.nodes > 1:
                self._serve(answer)
        except SubmitError as exc:
            return exc
        except ApiError as exc:
            return self._refused(exc)
        except (BackendUnavailableError, _UndecidedError) as exc:
            return SubmitAmbiguousError(str(exc))
        return Handle(str(job.token))

    def _refused(self, exc: ApiError) -> SubmitError:
        words = f"Kubernetes: {in_words(exc, self._api.namespace)}"
        return SubmitRejectedError(words) if exc.is_final else SubmitUnsentError(words)

    def context(self, image: str, *, code: Parcel | None = None) -> Context:
        """Return what manifests are made with, without sending anything."""
        return Context(
            self._settings, self._api.namespace, self.version, image, tools_name(), code or Parcel()
        )

    def preview(self, job: Job) -> dict[str, str]:
        """Return a Job's manifest as file name to text; empty when the cluster or the file does not allow it.

        What is not known before it is submitted is not there: the code, and MLflow's variables.
        """
        try:
            body = job_object(job, self.context(image_of(job, self._settings)))
        except (UnfitJobError, ApiError, BackendUnavailableError):
            # Why it would be refused is said elsewhere.
            return {}
        return {"job.yaml": dump(body)}

    def _context(self, job: Job) -> Context:
        image = image_of(job, self._settings)
        code, code_path = self._parcels.code(job.code, sweep_label(job.token))
        tools = self._parcels.tools()
        return Context(self._settings, self._api.namespace, self.version, image, tools, code, code_path)

    # The Job

    def _create(self, job: Job, body: Object) -> Mapping[str, Any]:
        """Make the Job, or adopt the one there is.

        Raises:
            SubmitError: it is not to be had, or not yet.
            ApiError: the cluster refuses it.
            _UndecidedError: nobody knows.
        """
        query = paths.strictness(self.version)
        try:
            answer = self._api.post(paths.jobs(self._api.namespace), body, **query)
        except ApiError as exc:
            if exc.exists_already:
                return self._adopt(job, body, exc)
            if exc.is_busy:
                return self._look(job, body, str(exc))
            raise
        except BackendUnavailableError as exc:
            return self._look(job, body, str(exc))
        self._check(body, answer, job)
        return answer

    def _look(self, job: Job, body: Object, why: str) -> Mapping[str, Any]:
        """Return the Job whose making was not answered, if it was made; it may still be on its way."""
        try:
            return self._adopt(job, body)
        except (ApiError, BackendUnavailableError):
            message = f"the answer to the submission was lost: {why}"
            raise _UndecidedError(message) from None

    def _adopt(self, job: Job, body: Object, taken: ApiError | None = None) -> Mapping[str, Any]:
        try:
            found = self._api.get(paths.jobs(self._api.namespace, job.token))
        except ApiError as exc:
            if taken is not None and exc.is_missing:
                message = f"Job {job.token} was there, and is gone now."
                raise SubmitAmbiguousError(message) from None
            raise
        metadata = found.get("metadata") or {}
        if metadata.get("deletionTimestamp"):
            message = f"the earlier Job {job.token} is still being deleted."
            # Its pods may run still: nothing may follow it elsewhere.
            raise SubmitAmbiguousError(message)
        if (metadata.get("labels") or {}).get(SPEC) != body["metadata"]["labels"][SPEC]:
            message = (
                f"namespace {self._api.namespace} has another Job called {job.token}, which runs something"
                " else than this attempt. Delete it, name another namespace, or start the sweep with --new."
            )
            raise SubmitRejectedError(message)
        return found

    def _check(self, body: Object, answer: Mapping[str, Any], job: Job) -> None:
        """See that the cluster knows the fields on which everything rests."""
        lost = lost_fields(body, answer)
        if "completionMode" in lost:
            self._withdraw(answer)
            message = (
                f"Kubernetes {'.'.join(map(str, self.version))} has no Indexed Jobs; 1.24 is the oldest."
            )
            raise SubmitRejectedError(message)
        if lost:
            _log.debug("the cluster dropped %s of Job %s", ", ".join(lost), job.token)

    def _withdraw(self, made: Mapping[str, Any]) -> None:
        metadata = made["metadata"]
        where = paths.jobs(self._api.namespace, metadata["name"])
        self._api.delete(where, paths.deletion(metadata.get("uid")))

    # The Service

    def serve_found(self, made: Mapping[str, Any]) -> None:
        """See that a Job which was found has its Service: whoever made it may have died between the two.

        Raises:
            ApiError: the cluster refuses it.
            BackendUnavailableError: nobody knows.
        """
        if int((made.get("spec") or {}).get("completions") or 1) < 2:  # noqa: PLR2004 - alone
            return
        if states.is_over(made) or states.is_going(made):
            return
        try:
            self._post_service(made)
        except ApiError as exc:
            if not exc.exists_already:
                raise

    def _post_service(self, made: Mapping[str, Any]) -> None:
        self._api.post(paths.core(self._api.namespace, "services"), service_object(made))

    def _serve(self, made: Mapping[str, Any]) -> None:
        """Make the name under which nodes find each other; pods wait for it.

        Raises:
            ApiError: the cluster refuses it, and the Job with it.
            _UndecidedError: nobody knows; submitting again makes it.
        """
        try:
            self._post_service(made)
        except ApiError as exc:
            if exc.exists_already:
                return
            if exc.is_final:
                self._withdraw(made)
                raise
            message = f"the Service of Job {made['metadata']['name']} could not be made: {exc}"
            raise _UndecidedError(message) from None


def lost_fields(sent: Object, answer: Mapping[str, Any]) -> Sequence[str]:
    """Return the fields that matter and that the cluster dropped without a word."""
    got = answer.get("spec") or {}
    names = ("completionMode", "podFailurePolicy", "podReplacementPolicy")
    return [name for name in names if name in sent["spec"] and not got.get(name)]


def image_of(job: Job, settings: KubernetesSettings) -> str:
    """Return the image of a job's pods.

    Raises:
        UnfitJobError: none is named.
    """
    text = job.files.get("training_config.yaml", b"").decode(errors="replace")
    tree = parse(text, file="training_config.yaml", dialect="train").value if text else None
    named: Any = tree
    for key in ("environment", "docker_image", "url"):
        named = named.get(key) if isinstance(named, dict) else None
    return plain_image(str(named)) if named else require_image(settings)


def require_image(settings: KubernetesSettings) -> str:
    """Return the image that the settings name.

    Raises:
        UnfitJobError: they name none.
    """
    if settings.image is None:
        message = "no image is named: set backend.image, or environment.docker_image in the train.yaml."
        raise UnfitJobError(message)
    return settings.image


def plain_image(url: str) -> str:
    """Return an image's address as a pod takes it."""
    return url.removeprefix("docker://").removeprefix("https://")


def version_of(answer: Mapping[str, Any]) -> tuple[int, int]:
    """Return the version of a cluster; vendors write such as `27+`."""
    parts = ("".join(c for c in str(answer.get(key) or "") if c.isdigit()) for key in ("major", "minor"))
    major, minor = (int(part or 0) for part in parts)
    return major, minor
