"""Where attempts are. Their handles say it, so that no other cluster is asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflows.backends.kubernetes.client import Api, as_unavailable
from airflows.backends.kubernetes.manifest import sweep_label
from airflows.backends.kubernetes.refusals import ApiError
from airflows.errors import BackendUnavailableError
from airflows.ids import digest
from airflows.trial import Handle

_KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
_FORBIDDEN = 403
_HINT = (
    "Go back with `kubectl config use-context`, or name backend.context and backend.namespace. What runs"
    " there is not touched until then."
)


@dataclass(slots=True)
class Place:
    """One namespace of one cluster.

    A handle is `JOB@NAMESPACE/CLUSTER`; inside the backend, and for people, the Job's name alone is enough.

    Attributes:
        api: which is asked who it is.
    """

    api: Api
    _cluster: str = ""
    _elsewhere: dict[str, BackendUnavailableError] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        """What tells this cluster from others: its first namespace, else its address; asked once.

        Raises:
            BackendUnavailableError: it did not answer.
        """
        if not self._cluster:
            try:
                uid = str(((self.api.get(_KUBE_SYSTEM)).get("metadata") or {}).get("uid") or "")
            except ApiError as exc:
                # Few may read it.
                if not (exc.is_missing or exc.status == _FORBIDDEN):
                    raise as_unavailable(exc, self.api.namespace) from None
                uid = ""
            self._cluster = f"uid-{uid}" if uid else f"address-{digest(self.api.host)[:12]}"
        return self._cluster

    def handle(self, job: str) -> Handle:
        """Return the handle of a Job that is here."""
        return Handle(f"{job}@{self.api.namespace}/{self.cluster}")

    def job(self, handle: Handle) -> Handle:
        """Return the name of an attempt's Job.

        Raises:
            BackendUnavailableError: it is in another namespace or cluster, or this one did not answer.
        """
        job, at, place = handle.partition("@")
        if not at:
            # As a person types it, of a Job that nobody here has submitted.
            return Handle(job)
        namespace, _, cluster = place.partition("/")
        if (namespace, cluster) == (self.api.namespace, self.cluster):
            return Handle(job)
        there = f"namespace {namespace} of another cluster"
        if cluster == self.cluster:
            there = f"namespace {namespace}"
        message = (
            f"attempt {job} is in {there}, and context {self.api.context} leads to namespace"
            f" {self.api.namespace} of {self.api.host}."
        )
        error = BackendUnavailableError(message, hint=_HINT)
        self._elsewhere[sweep_label(job)] = error
        raise error

    def jobs(self, handles: Iterable[Handle]) -> Mapping[Handle, Handle]:
        """Return the handles of attempts by the names of their Jobs.

        Raises:
            BackendUnavailableError: one of them is elsewhere, or the cluster did not answer.
        """
        return {self.job(handle): handle for handle in handles}

    def require(self, tokens: Iterable[str]) -> None:
        """See that none of these belongs to a sweep that is known to run elsewhere.

        Raises:
            BackendUnavailableError: one does, or the cluster did not answer.
        """
        for token in tokens:
            if (error := self._elsewhere.get(sweep_label(token))) is not None:
                raise BackendUnavailableError(str(error), hint=error.hint)
        _ = self.cluster
