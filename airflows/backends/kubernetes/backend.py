"""The Kubernetes backend: attempts become Indexed Jobs. What it knows is in the cluster."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflows import checkpoints
from airflows.backends.base import Capabilities, Job, Observation, Phase, Reach, RemoteRun
from airflows.backends.kubernetes import paths, states
from airflows.backends.kubernetes.checking import Checker
from airflows.backends.kubernetes.client import Api, as_unavailable, load_lightkube
from airflows.backends.kubernetes.listing import remote_run, story
from airflows.backends.kubernetes.logs import LogKeeper, LogReader
from airflows.backends.kubernetes.manifest import BECAUSE, MANAGED_BY, on_volume
from airflows.backends.kubernetes.place import Place
from airflows.backends.kubernetes.pods import Pod, pod_of
from airflows.backends.kubernetes.reasons import Reasons
from airflows.backends.kubernetes.refusals import ApiError
from airflows.backends.kubernetes.settings import KubernetesSettings
from airflows.backends.kubernetes.submitting import Submitter
from airflows.backends.kubernetes.watching import Watcher
from airflows.errors import BackendUnavailableError, NotFoundError, SubmitError, SubmitUnreachedError
from airflows.ids import Token
from airflows.train import TrainConfig
from airflows.trial import Handle

_BATCH = 50
_FEW, _MANY = 20, 500
_SOON_S = 5.0
# A server gives a request up after a minute: until then one whose answer was lost may be carried out.
_LAG_S = 60.0
_SCRATCH = "/tmp/airflows-checkpoints"  # noqa: S108 - in the container, where nobody else is


class KubernetesBackend:
    """Runs trials on a Kubernetes cluster.

    Args:
        settings: as in sweep.yaml.
        home: `$AIRFLOWS_HOME`, which is also the root unless the settings name one.
        clock: seconds since the epoch, UTC.
        pause: sleeps for seconds.
    """

    name = "kubernetes"
    Settings = KubernetesSettings

    def __init__(
        self,
        settings: KubernetesSettings,
        home: Path,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        load_lightkube()
        self._settings = settings
        self._root = (settings.root or home).expanduser().absolute()
        self._pause = pause
        self._api = self._open_api(settings.patience)
        self._place = Place(self._api)
        self._keeper = LogKeeper(self._api, self._root / "kept-logs")
        self._reasons = Reasons(self._api)
        self._submitter = Submitter(self._api, settings)
        self._watcher = Watcher(
            self._api,
            clock,
            self._keeper,
            self._reasons,
            self._delete,
            settings.start_patience,
            follows_all=settings.logs == "all",
        )

    def _open_api(self, patience_s: float) -> Api:
        settings = self._settings
        return Api(
            settings.kubeconfig, settings.context, settings.namespace, os.environ, patience_s, self._pause
        )

    # What it is

    @property
    def root(self) -> Path:
        """The directory on this machine with launch files, code snapshots and copied logs."""
        return self._root

    @property
    def capabilities(self) -> Capabilities:
        """What the engine needs to know."""
        return Capabilities(
            idempotent_submit=True,
            max_batch=_BATCH,
            queues_itself=False,
            visibility_lag_s=_LAG_S,
            makes_mlflow_run=False,
            slots=self._slots,
            shares_host=False,
            uploads=True,
        )

    @property
    def _slots(self) -> int:
        return self._settings.slots or (_MANY if self._settings.queue else _FEW)

    @property
    def checkpoint_root(self) -> Path:
        """Where pods keep checkpoints: the volume, else the container's own disk, which is lost with it."""
        pvc = self._settings.pvc
        return Path(_SCRATCH if pvc is None else f"{pvc.mount.rstrip('/')}/checkpoints")

    def secret_hint(self, names: Iterable[str]) -> str:
        """Return what to do about variables that others must not see; empty when they get to pods."""
        missing = sorted(set(names) - set(self._settings.env))
        if not missing or self._settings.tracking_secret is not None:
            return ""
        return f"Make a Secret with the keys {', '.join(missing)}, and name it as backend.tracking_secret."

    def path_hint(self, path: str) -> str:
        """Return what to do about a checkpoint directory that pods do not keep; empty when they do."""
        pvc = self._settings.pvc
        if pvc is None:
            return "Name a volume (backend.pvc), or leave it out."
        return "" if Path(path).is_relative_to(pvc.mount) else f"Name one below {pvc.mount}."

    def newest_checkpoint(self, directory: str, pattern: str) -> tuple[str, int] | None:
        """Return (path, step) of the newest complete checkpoint where this machine sees the volume."""
        pvc = self._settings.pvc
        here = on_volume(directory, pvc.mount, pvc.local) if pvc is not None and pvc.local else None
        found = None if here is None else checkpoints.newest(str(here), pattern)
        if found is None or here is None:
            return None
        return str(Path(directory) / Path(found.path).relative_to(here)), found.step

    def reach(self) -> Reach:
        """Say whether Jobs can be made from here now; never raises."""
        # A person waits for this answer.
        api = self._open_api(min(self._settings.patience, _SOON_S))
        return Checker(api, self._settings, Submitter(api, self._settings), Reasons(api)).reach()

    def check(self, config: TrainConfig, base_dir: Path = Path()) -> tuple[str, ...]:
        """Return what people should know before runs of a train.yaml start here; nothing is written.

        Raises:
            SpecError: the cluster refuses such a run.
            BackendUnavailableError: it did not answer.
        """
        del base_dir
        checker = Checker(self._api, self._settings, self._submitter, self._reasons)
        return tuple(checker.check(config))

    def room_for(self, config: TrainConfig) -> int:
        """Return how many trials may be in the cluster at once: it sees itself to how many run."""
        del config
        return self._slots

    # Starting

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Make a Job for each; the same token again is the same Job."""
        try:
            self._place.require(job.token for job in jobs)
        except BackendUnavailableError as exc:
            return [SubmitUnreachedError(str(exc), hint=exc.hint) for _ in jobs]
        answers = self._submitter.submit(jobs)
        self._watcher.hurry()
        return [one if isinstance(one, SubmitError) else self._place.handle(one) for one in answers]

    def preview(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Return the Job of the first of these as file name to text, without its code; nothing is written."""
        return self._submitter.preview(jobs[0])

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the handles of the tokens that the namespace has Jobs of."""
        if not tokens:
            return {}
        self._place.require(tokens)
        listed = (job for selector in paths.selectors(tokens) for job in self._list("jobs", selector))
        there = {str((job.get("metadata") or {}).get("name")): job for job in listed}
        found = [token for token in tokens if str(token) in there]
        try:
            self._api.each(lambda token: self._submitter.serve_found(there[str(token)]), found)
        except ApiError as exc:
            raise as_unavailable(exc, self._api.namespace) from None
        return {token: self._place.handle(token) for token in found}

    def _list(self, kind: str, selector: str) -> list[dict[str, Any]]:
        namespace = self._api.namespace
        path = paths.jobs(namespace) if kind == "jobs" else paths.core(namespace, kind)
        try:
            return self._api.items(path, labelSelector=selector)
        except ApiError as exc:
            raise as_unavailable(exc, namespace) from None

    # Watching

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe attempts; between two looks, which become rare when nothing changes, the last is told."""
        names = self._place.jobs(handles)
        return {names[job]: seen for job, seen in self._watcher.poll(list(names)).items()}

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s` seconds."""
        self._pause(timeout_s)

    # Ending

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Delete the Jobs of attempts: their pods get SIGTERM and the grace time; ended ones stay."""
        self._api.each(self._cancel, list(self._place.jobs(handles)))
        if handles:
            self._watcher.hurry()

    def _cancel(self, handle: Handle) -> None:
        pods = self._watcher.pods_of(handle) or self._pods_now(handle)
        for pod in pods:
            if not pod.is_running:
                continue
            if pod.index == 0 or self._settings.logs == "all":
                self._keeper.follow(handle, pod)
            if not self._keeper.is_followed(handle, pod.index):
                self._keeper.keep_tail(handle, pod)
        self._delete(handle)

    def _pods_now(self, handle: Handle) -> list[Pod]:
        return [pod_of(item) for item in self._list("pods", f"job-name={handle}")]

    def _delete(self, handle: Handle, because: str = "") -> None:
        """Delete a Job that has not ended, its pods first: it is there until they are gone.

        Raises:
            BackendUnavailableError: nobody knows whether it will.
        """
        where = paths.jobs(self._api.namespace, handle)
        self._watcher.asked_to_end([handle])
        try:
            job = self._api.get(where)
            if states.is_over(job) or states.is_going(job):
                return
            uid = (job.get("metadata") or {}).get("uid")
            if because and states.ended_because(job) != because:
                self._note(where, uid, because)
            self._api.delete(where, paths.deletion(uid))
        except ApiError as exc:
            if not exc.is_missing:
                raise as_unavailable(exc, self._api.namespace) from None

    def _note(self, where: str, uid: Any, because: str) -> None:
        """Write at a Job why it is ended, for a driver that sees it going and knows nothing else."""
        try:
            self._api.patch(where, {"metadata": {"uid": uid, "annotations": {BECAUSE: because}}})
        except ApiError as exc:
            # Without the right to it, only this driver knows why.
            if exc.is_busy:
                raise

    # Logs

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the log of one node; with `follow` until the attempt has ended."""
        job = self._place.job(handle)
        reader = LogReader(
            self._api,
            job,
            node,
            self._pause,
            lambda: self._has_ended(handle),
            self._keeper.path(job, node),
        )
        return reader.followed(lines=lines) if follow else reader.lines(lines=lines)

    def _has_ended(self, handle: Handle) -> bool:
        seen = self.poll([handle]).get(handle)
        return seen is not None and seen.phase is Phase.ENDED

    # What else is there

    def describe(self, handle: Handle) -> Mapping[str, Any]:
        """Return what the cluster knows of a Job.

        Raises:
            BackendUnavailableError: it did not answer.
            NotFoundError: the namespace has no such Job.
        """
        name, namespace = self._place.job(handle), self._api.namespace
        try:
            job = self._api.get(paths.jobs(namespace, name))
        except ApiError as exc:
            if not exc.is_missing:
                raise as_unavailable(exc, namespace) from None
            message = f"namespace {namespace} has no Job {name}."
            raise NotFoundError(
                message, hint="`airflows list --remote` shows those that wait or run."
            ) from None
        return story(job, self._pods_now(name))

    def logs_of(
        self, handle: Handle, *, node: int, follow: bool, lines: int | None, attempt: int | None
    ) -> Iterator[str]:
        """Yield the log of one node; a Job is a single attempt, so `attempt` says nothing."""
        del attempt
        return self.logs(handle, node=node, follow=follow, lines=lines)

    def remote_runs(self) -> Iterator[RemoteRun]:
        """Yield the Jobs of ours in the namespace that wait or run, whatever submitted them.

        Raises:
            BackendUnavailableError: nobody was asked, so nothing is known.
        """
        pods: dict[str, list[Pod]] = defaultdict(list)
        for item in self._list("pods", "airflows/sweep"):
            owner = (item["metadata"].get("labels") or {}).get("job-name")
            pods[str(owner)].append(pod_of(item))
        for job in self._list("jobs", f"{MANAGED_BY}=airflows"):
            run = remote_run(job, pods.get(str(job["metadata"].get("name")), ()))
            if run is not None:
                yield replace(run, handle=self._place.handle(run.name))
