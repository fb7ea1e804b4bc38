"""Which sweep is lost: found by its record, or by its file and its parent run in MLflow."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airflows import ids
from airflows.drivers import Owner
from airflows.engine import record
from airflows.engine.record import Record
from airflows.engine.site import Site, open_site, reload
from airflows.engine.start import changed_keys
from airflows.errors import ConflictError, LeaseHeldError, NotFoundError
from airflows.ledger import SweepRow
from airflows.sweepfile import load_sweep
from airflows.tracking import FoundRun


@dataclass(frozen=True, slots=True)
class Lost:
    """A sweep that is looked for.

    Attributes:
        row: what it is.
        is_recorded: its record was found, so this is where it was driven.
        driver: who drove it last and has not let go of it, as far as is known.
        parents: its parent runs in MLflow.
        notices: what people should know.
    """

    row: SweepRow
    is_recorded: bool
    driver: Owner | None = None
    parents: Sequence[FoundRun] = ()
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Record, notices: tuple[str, ...] = ()) -> Lost:
        """Return the sweep of a record."""
        return cls(found.row, True, found.driver, notices=notices)


def look_for(wanted: str, home: Path) -> tuple[Site, Lost]:
    """Return what a lost sweep works with, and what is known of it without asking its backend.

    Args:
        wanted: its sweep.yaml; or its id or name, where its record lies under `home`.
        home: `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: there is no such record.
    """
    path = Path(wanted)
    if path.suffix in {".yaml", ".yml"} or path.is_file():
        return _by_file(path, home)
    found = next(record.records_named(home, wanted), None)
    if found is None:
        message = f"nothing under {home / 'runs'} tells of a sweep {wanted!r}."
        raise NotFoundError(message, hint="Give its file: airflows resume sweep.yaml --rebuild")
    return open_site(reload(found.row), home, row=found.row), Lost.of(found)


def _by_file(path: Path, home: Path) -> tuple[Site, Lost]:
    loaded = load_sweep(path)
    site = open_site(loaded, home)
    found_there = (one for root in site.roots for one in record.records_named(root, loaded.spec.name))
    named = sorted(found_there, key=lambda one: -one.row.created_at)
    for found in named:
        if found.row.definition == loaded.definition_digest and not found.row.single:
            changed = changed_keys(found.row.source, loaded.source)
            site.ledger.close()
            site = open_site(reload(found.row), home, row=found.row)
            return site, Lost.of(found, _notices(found.row.id, changed))
    try:
        return site, in_mlflow(site)
    except BaseException:
        site.ledger.close()
        raise


def _notices(sweep: str, changed: Sequence[str]) -> tuple[str, ...]:
    if not changed:
        return ()
    what = f"the file differs from the sweep in {', '.join(changed)}, and the sweep goes on as it was."
    return (f"{what} Change it later: airflows resume {sweep} --set KEY=VALUE",)


def in_mlflow(site: Site) -> Lost:
    """Return the sweep of a file, by the newest parent run in MLflow of the same definition."""
    sweep = site.sweep
    name, definition = sweep.spec.name, sweep.definition_digest
    experiment_id, runs = ("", ()) if site.tracker.is_off else site.known_sweeps()
    same = [run for run in runs if run.tags.get("airflows.definition") == definition]
    newest = max(same, key=lambda run: run.start_ms, default=None)
    instance = "" if newest is None else newest.tags.get("airflows.instance", "")
    sweep_id = ids.sweep_id(name, definition, instance)
    parents = [run for run in runs if run.tags.get("airflows.sweep") == sweep_id]
    row = record.fresh_row(
        id=sweep_id,
        name=name,
        definition=definition,
        instance=instance,
        source=sweep.source,
        directory=str(sweep.directory),
        backend=site.backend.name,
        tracking_uri=site.tracker.uri,
        experiment_id=experiment_id,
        single=sweep.is_single,
        host=site.host,
    )
    return Lost(row, is_recorded=False, parents=parents)


def with_parent(site: Site, lost: Lost) -> Lost:
    """Return the sweep with its parent run in MLflow, when it has one.

    Raises:
        ConflictError: there are several, and nobody knows which is its own.
    """
    row, parents = lost.row, lost.parents
    if lost.is_recorded and not site.tracker.is_off:
        experiment_id, runs = site.known_sweeps()
        own = {"airflows.sweep": row.id, "airflows.owner": row.nonce}
        parents = [run for run in runs if own.items() <= dict(run.tags).items()]
        if not parents:
            row = replace(row, experiment_id=experiment_id, parent_run_id="")
    if not parents:
        return replace(lost, row=replace(row, nonce=row.nonce or uuid.uuid4().hex), parents=())
    known = [run for run in parents if run.run_id == row.parent_run_id] or parents
    owners = {run.tags.get("airflows.owner", "") for run in known}
    if len(owners) > 1:
        listed = ", ".join(sorted(run.run_id for run in known))
        message = f"MLflow has several sweeps {row.id}, of different ledgers; their parent runs are {listed}."
        hint = "Delete those that are not this sweep's in MLflow, their trials too; then try again."
        raise ConflictError(message, hint=hint)
    parent = min(known, key=lambda run: run.run_id)
    row = replace(
        row,
        nonce=parent.tags.get("airflows.owner", ""),
        parent_run_id=parent.run_id,
        created_at=row.created_at or parent.start_ms / 1000,
    )
    return replace(lost, row=row, parents=[parent])


def require_nobody(lost: Lost) -> None:
    """Check that nobody drives the sweep with the ledger that was lost, as far as this machine can tell."""
    driver = lost.driver
    if driver is None or driver.is_dead() or not driver.is_of_here:
        return
    message = f"sweep {lost.row.id} is still driven by process {driver.pid} on {driver.host}."
    hint = f"End that one first (kill {driver.pid}): its trials go on."
    raise LeaseHeldError(message, owner=f"{driver.host}:{driver.pid}", hint=hint)
