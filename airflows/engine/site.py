"""What one sweep works with, opened from its spec: ledger, backend, MLflow, launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.backends.base import Backend, ChecksPaths, MakesRuns, Packing, keeper_of, service_of
from airflows.backends.places import Place, places_of
from airflows.backends.registry import open_backend
from airflows.codechanges import CodeChanges, code_changes, code_digests
from airflows.drivers import Owner, current_owner
from airflows.edits import Edits, edited
from airflows.engine.sharing import shared_checkpoints
from airflows.errors import BackendUnavailableError, SpecError
from airflows.file_system import is_on_network
from airflows.hiding import public_source
from airflows.ids import digest
from airflows.launch import Launcher
from airflows.ledger import Ledger, SweepRow, Wish, open_ledger
from airflows.planner import Limits
from airflows.retry import RetryPolicy
from airflows.snapshot import root_directory, snapshot
from airflows.spec import SweepSpec
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.tracking import (
    OFF,
    FoundRun,
    OpenedSweep,
    SweepRun,
    Tracker,
    choose_uri,
    open_tracker,
    shown_uri,
)
from airflows.trial import IN_FLIGHT
from airflows.yamlio import parse

_DEFAULT_RETRIES = 3


@dataclass(slots=True)
class Site:
    """Everything one sweep is driven with.

    Attributes:
        home: `$AIRFLOWS_HOME`.
        sweep: the sweep as it was loaded.
        ledger: the durable record.
        backend: where its trials run.
        tracker: MLflow, or none.
    """

    home: Path
    sweep: LoadedSweep
    ledger: Ledger
    backend: Backend
    tracker: Tracker

    @property
    def spec(self) -> SweepSpec:
        """The sweep file."""
        return self.sweep.spec

    def open_tracking(self, row: SweepRow) -> OpenedSweep:
        """Return the sweep's MLflow experiment and parent run, which is running again."""
        return self.tracker.open_sweep(self._run_of(row), OpenedSweep(row.experiment_id, row.parent_run_id))

    def attach_tracking(self, row: SweepRow) -> None:
        """Turn to the sweep's MLflow runs without asking MLflow."""
        self.tracker.attach(self._run_of(row), OpenedSweep(row.experiment_id, row.parent_run_id))

    def _run_of(self, row: SweepRow) -> SweepRun:
        tracking = self.spec.tracking
        config = self.sweep.base.config
        service = self.service
        own = tracking.experiment or config.experiment_name
        return SweepRun(
            sweep=row.id,
            experiment=own if service is None or row.experiment_id else service.experiment(config),
            source=public_source(row.source),
            tags=tracking.tags,
            owner=row.nonce,
            definition=row.definition,
            instance=row.instance,
        )

    def known_sweeps(self) -> tuple[str, Sequence[FoundRun]]:
        """Return the id of the MLflow experiment, and the parent runs of all sweeps in it."""
        config, service = self.sweep.base.config, self.service
        own = self.spec.tracking.experiment or config.experiment_name
        return self.tracker.known_sweeps(own if service is None else service.experiment(config))

    @property
    def service(self) -> MakesRuns | None:
        """What the backend says of its own MLflow and checkpoints; None where the engine sees to both."""
        return next(filter(None, (service_of(place.own) for place in self.places)), None)

    @property
    def places(self) -> Sequence[Place]:
        """Where trials may go, in order."""
        return places_of(self.backend)

    @property
    def roots(self) -> Sequence[Path]:
        """The directories with launch files and code, each once."""
        return list(dict.fromkeys(place.own.root for place in self.places))

    @property
    def room(self) -> int:
        """Trials in flight: the file's `limits.concurrent`, else what the backend has room for."""
        each = self.spec.pack if self.backend.capabilities.packing is Packing.SLOTS else 1
        return self.spec.limits.concurrent or self.backend.room_for(self.sweep.base.config) * each

    @property
    def host(self) -> str:
        """The only machine that may drive a sweep of this backend: this one, or empty where any may."""
        return current_owner().host if self.backend.capabilities.shares_host else ""

    @property
    def base_dir(self) -> Path:
        """The directory that the base's relative paths start from."""
        path = self.sweep.base.path
        return self.sweep.directory if path is None else path.parent.absolute()

    def prepare_code(self) -> str:
        """Pack the code as it is now; return its digest, empty when the base names no code.

        Raises:
            SpecError: it cannot be packed as the train.yaml says.
        """
        made = [snapshot(self.sweep.base.config, self.base_dir, root) for root in self.roots]
        return "" if made[0] is None else made[0].digest

    def code_changes(self, before: str, now: str) -> CodeChanges | None:
        """Return what differs between two states of the code; None when it can no longer be told.

        The sweep file and the train.yaml may lie among the code. They do not count: what they say is
        compared as such.

        Args:
            before: digest of the code that was kept.
            now: digest of the code as it is.
        """
        old, new = (self._kept_code(digest) for digest in (before, now))
        if old is None or new is None:
            return None
        try:
            return code_changes(old, new, without=self._own_files)
        except OSError:
            return None

    def code_identity(self, code: str) -> str:
        """Return a digest of kept code in which the sweep file, the train.yaml and a plan do not count.

        Args:
            code: digest of the code that was kept, empty for none.

        Raises:
            OSError: a file cannot be read.
        """
        kept = self._kept_code(code)
        return code if kept is None else digest(code_digests(kept, without=self._own_files))

    @property
    def _code_root(self) -> Path | None:
        source = self.sweep.base.config.code_source
        if source is None or source.snapshot is None:
            return None
        return root_directory(source.snapshot.root_path, self.base_dir)

    @property
    def _own_files(self) -> list[Path]:
        """The files among the code that are compared as what they say."""
        root = self._code_root
        own = [path.resolve() for path in (self.sweep.path, self.sweep.base.path) if path is not None]
        return [] if root is None else [path.relative_to(root) for path in own if path.is_relative_to(root)]

    def _kept_code(self, code: str) -> Path | None:
        root = self._code_root
        kept = None if root is None or not code else self.backend.root / "snapshots" / code / root.name
        return kept if kept is not None and kept.is_dir() else None

    def launcher(self, row: SweepRow, place: Place) -> Launcher:
        """Return what writes this sweep's launch directories in a place, with the code that was recorded."""
        keeper = keeper_of(place.own)
        return Launcher.open(
            sweep=row.id,
            base=self.sweep.base,
            backend=place.own,
            tracker_env=self.tracker.job_env(),
            tracker_secrets=self.tracker.job_secrets(),
            experiment_id=row.experiment_id,
            checkpoint=shared_checkpoints(self.spec.checkpoint, self.places),
            base_dir=self.base_dir,
            code=row.code,
            checkpoint_root=None if keeper is None else keeper.checkpoint_root,
            path_hint=place.own.path_hint if isinstance(place.own, ChecksPaths) else None,
            is_single=row.single,
            place=place.name if len(self.places) > 1 else "",
        )


def open_site(sweep: LoadedSweep, home: Path, *, row: SweepRow | None = None) -> Site:
    """Open ledger, backend and tracker for a sweep.

    Args:
        sweep: the sweep as it was loaded.
        home: `$AIRFLOWS_HOME`.
        row: the sweep as it was recorded; its MLflow is taken, unless the file or a `--set` names another.

    Raises:
        SpecError: a backend setting is wrong.
        LedgerError: the ledger cannot be opened.
        MissingExtraError: a package is missing.
    """
    backend = open_backend(sweep.spec.backend, home)
    wanted = sweep.spec.tracking.uri or recorded_uri(row)
    makes_runs = [service_of(place.own) is not None for place in places_of(backend)]
    for place in places_of(backend):
        service = service_of(place.own)
        if service is not None:
            wanted = _service_uri(wanted, service, place.name)
    uri = choose_uri(wanted, os.environ, home)
    ledger = open_ledger(home)
    tracker = open_tracker(
        uri,
        home,
        on_network=is_on_network(home),
        is_service=any(makes_runs),
        is_shared=not all(makes_runs),
    )
    return Site(home, sweep, ledger, backend, tracker)


def is_of_this_host(row: SweepRow) -> bool:
    """Whether this machine may drive a sweep."""
    return row.host in {"", current_owner().host}


def require_host(ledger: Ledger, row: SweepRow, *, now: float) -> None:
    """Check that a sweep's trials are no processes of another machine, which alone can see them.

    What has ended may be taken up again anywhere, what has nothing in flight cancelled anywhere, and while
    the other machine drives, its lease says so.

    Raises:
        BackendUnavailableError: they are; the message names the machine.
    """
    if row.ended_at is not None or is_of_this_host(row):
        return
    holder = Owner.from_text(row.lease_owner) if row.lease_owner else None
    if holder is not None and holder.host == row.host and (row.lease_until or 0.0) > now:
        return
    if row.wish is Wish.STOP and not ledger.trials(row.id, states=IN_FLIGHT, limit=1):
        return
    here = current_owner().host
    message = f"sweep {row.id} runs on {row.host}, and this is {here}: only {row.host} can drive it."
    raise BackendUnavailableError(message, hint=f"Run the same command on {row.host}.")


def _service_uri(wanted: str | None, service: MakesRuns, name: str) -> str:
    """Return the MLflow that a service logs to.

    Raises:
        SpecError: the sweep wants another.
    """
    if wanted is None or wanted.lower() in {OFF, service.tracking_uri}:
        return wanted or service.tracking_uri
    message = f"runs on {name} log to the MLflow of their workspace, and not to {shown_uri(wanted)}."
    hint = f"Leave it out: it is {service.tracking_uri} there; or `none` for no metrics and no winner."
    raise SpecError(message, field="tracking.uri", hint=hint)


def recorded_uri(row: SweepRow | None) -> str | None:
    """Return the MLflow that a sweep's runs are in; None when it is not known or holds a password."""
    if row is None or "***" in row.tracking_uri:
        return None
    return row.tracking_uri or None


def reload(row: SweepRow, sets: tuple[str, ...] = (), *, backend: str | None = None) -> LoadedSweep:
    """Return a recorded sweep as it was loaded, with changes by `--set` and `--backend` applied."""
    document = parse(row.source, file=f"sweep {row.id}", dialect="sweep")
    loaded = sweep_from_mapping(
        document.value,
        directory=Path(row.directory),
        file=f"sweep {row.id}",
        sets=sets,
        backend=backend,
    )
    return edited(loaded, Edits.from_text(row.edits))


def limits_of(spec: SweepSpec, room: int, total: int | None) -> Limits:
    """Return the planner's limits of a sweep file.

    Args:
        spec: the sweep file.
        room: trials in flight.
        total: trials planned, for a percentage; None leaves a percentage without effect.
    """
    limits = spec.limits
    return Limits(
        concurrent=room,
        trials=limits.trials,
        failed_trials=limits.failed_count(total),
        identical_failures=limits.identical_failures,
        wall_time_s=limits.wall_time_s,
        accelerator_s=None if limits.accelerator_hours is None else limits.accelerator_hours * 3600,
        cancels=limits.on_limit == "cancel",
    )


def retry_of(spec: SweepSpec, base: Mapping[str, Any]) -> RetryPolicy:
    """Return the retry policy: the sweep's `retry.max`, else the train.yaml's max_retries, else 3."""
    most = spec.retry.max
    if most is None:
        configured = base.get("max_retries")
        most = _DEFAULT_RETRIES if configured is None else int(configured)
    return RetryPolicy(most, spec.retry.max_without_progress, spec.retry.wait_s)
