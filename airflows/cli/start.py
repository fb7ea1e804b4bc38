"""The commands that start something: `run`, `sweep`, `resume`, and the driver in the background."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflows.cli import options
from airflows.cli.failure import UsageError
from airflows.cli.terminal import Session
from airflows.errors import NotFoundError

if TYPE_CHECKING:
    from airflows.cli.progress import Reporter
    from airflows.engine.drive import Drive
    from airflows.engine.operations import Driven
    from airflows.engine.planned import Wanted
    from airflows.engine.start import Begun
    from airflows.sweepfile import LoadedSweep

_DATABRICKS = "databricks"
_MANY_TRIALS = 100
_MANY_HOURS = 100.0


def sweep(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A sweep.yaml.", readable=False, show_default=False)
    ] = None,
    *,
    override: options.Override = None,
    sets: options.Set = None,
    backend: options.BackendName = None,
    profile: options.Profile = None,
    dry_run: options.DryRun = False,
    detach: options.Detach = False,
    new: Annotated[bool, typer.Option("--new", help="Start another sweep of the same definition.")] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="HASH|FILE", help="Run what this plan says, and nothing else."),
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Rehearse it first, and start it only if that goes well.")
    ] = False,
    no_effect_yet: options.NoEffectYet = None,
    yes: options.Yes = False,
) -> int:
    """Start a sweep, or attach to it, and drive it to its winner."""
    from airflows.vetting import validate_points  # noqa: PLC0415

    if no_effect_yet and not rehearse:
        message = "--no-effect-yet goes with --rehearse."
        raise UsageError(message, hint="It says which keys a rehearsal need not see at work.")
    changes = [*(sets or ()), *profile_sets(profile, backend)]
    loaded, planned = _sweep_of(file, plan, changes, override or (), None if profile else backend)
    validate_points(loaded)
    home = options.home()
    if planned is not None and (dry_run or rehearse):
        from airflows.engine.planned import require_planned  # noqa: PLC0415

        require_planned(loaded, planned, home=home, new=new)
    if dry_run:
        return _preview(session, loaded, new=new)
    session.note(*(f"note: {notice}" for notice in loaded.notices))
    if not yes and session.can_ask() and not _is_agreed(session, loaded, home, new=new):
        session.note("Nothing was started.")
        return 1
    if rehearse:
        from airflows.cli.rehearsing import keep_from_starting  # noqa: PLC0415

        found = keep_from_starting(
            session, loaded, home, new=new, no_effect_yet=no_effect_yet or (), plan=planned
        )
        if isinstance(found, int):
            return found
        planned = found
    return _start(session, loaded, home, new=new, instance="", detach=detach, plan=planned)


def _sweep_of(
    file: Path | None, plan: str | None, sets: Sequence[str], override: Sequence[str], backend: str | None
) -> tuple[LoadedSweep, Wanted | None]:
    """Return the sweep that is asked for, and the plan that it has to be, if any."""
    if plan is not None:
        from airflows.cli.plans import planned_sweep  # noqa: PLC0415

        return planned_sweep(file, plan, override=override, sets=sets, backend=backend)
    from airflows.sweepfile import load_sweep  # noqa: PLC0415

    if file is None:
        message = "no sweep.yaml is named."
        raise UsageError(message, hint="Write it like: airflows sweep sweep.yaml")
    return load_sweep(file, sets=sets, overrides=override, backend=backend), None


def run(
    session: Session,
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="A train.yaml.", readable=False)],
    *,
    override: options.Override = None,
    backend: options.BackendName = None,
    profile: options.Profile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Print the run's log while it runs.")] = False,
    dry_run: options.DryRun = False,
    detach: options.Detach = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key", metavar="KEY", help="Calls with the same key are the same run, started once."
        ),
    ] = None,
) -> int:
    """Run one train.yaml."""
    from airflows.sweepfile import sweep_of_run  # noqa: PLC0415
    from airflows.train import load_train  # noqa: PLC0415

    base = load_train(file, override or ())
    session.note(*base.changes)
    where = {"type": _DATABRICKS, "profile": profile} if profile_sets(profile, backend) else backend
    loaded = sweep_of_run(base, backend=where)
    if dry_run:
        return _preview(session, loaded, new=key is None)
    if watch and detach:
        message = "--watch and --detach exclude each other."
        raise UsageError(message, hint="Follow a detached run with `airflows logs`.")
    session.note(*(f"note: {notice}" for notice in loaded.notices))
    instance = key or loaded.idempotency_token
    return _start(
        session, loaded, options.home(), new=not instance, instance=instance, detach=detach, streams=watch
    )


def profile_sets(profile: str | None, backend: str | None) -> list[str]:
    """Return the changes of a sweep file that a profile means; it is kept with the sweep."""
    if profile is None:
        return []
    if backend not in {None, _DATABRICKS}:
        message = f"--profile is for Databricks, and you ask for backend {backend}."
        raise UsageError(message, hint="Leave one of the two out.")
    return [f"backend.type={_DATABRICKS}", f"backend.profile={json.dumps(profile)}"]


def resume(
    session: Session,
    sweep_id: options.SweepId,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Try failed and cancelled trials again.")] = False,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="CLASS",
            help="With --failed: only trials that failed like this, such as out_of_memory. Repeatable.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", min=1, help="New value of search.trials.")
    ] = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            "--replicates",
            metavar="N",
            min=1,
            help="So many more replicates of the points that may have won; see `airflows results`.",
        ),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="The ledger has lost it: write it anew from what the backend and MLflow know. SWEEP may be "
            "its sweep.yaml.",
        ),
    ] = False,
    add: Annotated[
        Path | None,
        typer.Option(
            "--add",
            metavar="FILE",
            help="Go on with the points of this sweep.yaml: new ones are added, those it lacks are orphaned.",
        ),
    ] = None,
    sets: options.Set = None,
    backend: options.BackendName = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --add: only show what would change.")
    ] = False,
    detach: options.Detach = False,
    yes: options.Yes = False,
) -> int:
    """Take over a sweep whose driver is gone; retry its failed trials, extend it, or confirm its winner."""
    from airflows.cli.driving import drive  # noqa: PLC0415
    from airflows.cli.lookup import reading, the_sweep  # noqa: PLC0415
    from airflows.engine import operations  # noqa: PLC0415

    if add is not None:
        from airflows.cli.adding import add_points  # noqa: PLC0415

        if failed or classes or rebuild or trials is not None or replicates is not None or backend:
            message = "--add goes on with the points of a file, and takes no other changes but --set."
            raise UsageError(message, hint="Add first, and resume again with the others.")
        how = {"dry_run": dry_run, "yes": yes, "detach": detach}
        return add_points(session, sweep_id, add, sets=sets or (), **how)
    if dry_run:
        message = "--dry-run of resume goes with --add."
        raise UsageError(message, hint=f"How the sweep stands: airflows get {sweep_id}")
    chosen = _classes(classes, failed=failed)
    if replicates is not None and (failed or trials is not None):
        message = "--replicates are added once all other trials have ended."
        raise UsageError(message, hint="First resume with --failed or --trials, and then with --replicates.")
    home = options.home()
    if rebuild:
        if failed or sets or backend is not None or trials is not None or replicates is not None:
            message = "--rebuild brings a sweep back as it was, and takes no other changes."
            raise UsageError(message, hint="Once it is back, resume it again with them.")
        return _rebuild(session, sweep_id, home, detach=detach)
    try:
        row = the_sweep(reading(home), sweep_id)
    except NotFoundError as exc:
        raise _if_lost(exc, sweep_id, home) from None

    def work(reporter: Reporter, drives: bool, on_begun: Callable[[Begun, Drive], None]) -> Driven:
        return operations.resume(
            row.id,
            home=home,
            observer=reporter,
            failed=failed,
            classes=chosen,
            trials=trials,
            replicates=replicates,
            sets=sets or (),
            backend=backend,
            drive=drives,
            on_begun=on_begun,
        )

    return drive(session, home, work, detached=detach)


def _if_lost(unknown: NotFoundError, wanted: str, home: Path) -> NotFoundError:
    """Return what to say of a sweep that the ledger does not know: perhaps it has lost it."""
    from airflows.engine.record import records_named  # noqa: PLC0415

    found = next(records_named(home, wanted), None)
    if found is None:
        return unknown
    message = f"sweep {found.row.id} has run under {home}, and the ledger has lost it."
    return NotFoundError(message, hint=f"Rebuild it: airflows resume {found.row.id} --rebuild")


def _rebuild(session: Session, wanted: str, home: Path, *, detach: bool) -> int:
    from airflows.cli.driving import drive  # noqa: PLC0415
    from airflows.engine.rebuild import rebuild  # noqa: PLC0415

    def work(reporter: Reporter, drives: bool, on_begun: Callable[[Begun, Drive], None]) -> Driven:
        def tell(begun: Begun, driving: Drive) -> None:
            reporter.note(*begun.notices)
            on_begun(begun, driving)

        return rebuild(wanted, home=home, observer=reporter, drive=drives, on_begun=tell)

    return drive(session, home, work, detached=detach)


def _classes(texts: Sequence[str] | None, *, failed: bool) -> frozenset[str]:
    """Return the classes of failure that are asked for."""
    from airflows.trial import FAILURE_CLASSES  # noqa: PLC0415

    if texts and not failed:
        message = "--class goes with --failed."
        raise UsageError(message, hint="It says which of the failed trials are tried again.")
    unknown = next((text for text in texts or () if text not in FAILURE_CLASSES), None)
    if unknown is not None:
        message = f"--class {unknown}: no failure is of this class."
        raise UsageError(message, hint=f"There are: {', '.join(sorted(FAILURE_CLASSES))}.")
    return frozenset(texts or ())


def drive_in_background(session: Session, sweep_id: options.SweepId) -> int:
    """Drive a sweep; what `--detach` starts."""
    return resume(session, sweep_id)


def _start(
    session: Session,
    loaded: LoadedSweep,
    home: Path,
    *,
    new: bool,
    instance: str,
    detach: bool,
    streams: bool = False,
    plan: Wanted | None = None,
) -> int:
    from airflows.cli.driving import drive  # noqa: PLC0415
    from airflows.engine import operations  # noqa: PLC0415

    def work(reporter: Reporter, drives: bool, on_begun: Callable[[Begun, Drive], None]) -> Driven:
        return operations.start(
            loaded,
            home=home,
            observer=reporter,
            new=new,
            instance=instance,
            plan=plan,
            drive=drives,
            on_begun=on_begun,
        )

    return drive(session, home, work, detached=detach, streams=streams)


def _preview(session: Session, loaded: LoadedSweep, *, new: bool) -> int:
    from airflows.cli import preview  # noqa: PLC0415

    return preview.show(session, loaded, new=new)


def _is_agreed(session: Session, loaded: LoadedSweep, home: Path, *, new: bool) -> bool:
    """Ask a person about a sweep that is big and not there yet; True when there is nothing to ask."""
    from airflows.cli.lookup import existing_ledger  # noqa: PLC0415
    from airflows.cli.preview import cost_of  # noqa: PLC0415

    cost = cost_of(loaded)
    is_big = cost.trials is None or cost.trials > _MANY_TRIALS or (cost.hours_max or 0) > _MANY_HOURS
    if not is_big:
        return True
    ledger = None if new else existing_ledger(home)
    if ledger is not None and ledger.newest_of(loaded.spec.name, loaded.definition_digest) is not None:
        return True
    hours = "" if cost.hours_max is None else f", at most {cost.hours_max:.4g} accelerator-hours"
    return session.ask(f"Start {cost.trials or 'an unknown number of'} trials{hours}?")
