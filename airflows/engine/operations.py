"""What people ask for: start, resume, cancel. Shared by the command line, Python and the flows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflows import ids
from airflows.drivers import Owner
from airflows.engine.drive import Drive
from airflows.engine.driver import LEASE_TTL_S
from airflows.engine.observers import Observer, Silent
from airflows.engine.planned import Wanted
from airflows.engine.reopen import reopen
from airflows.engine.replicating import add_replicates
from airflows.engine.site import Site, is_of_this_host, open_site, recorded_uri, reload, require_host
from airflows.engine.source import Replicates, open_overrides
from airflows.engine.start import Begun, begin, require_backend, require_same_store
from airflows.engine.unmoved import require_same_backend
from airflows.errors import AirflowsError, BackendUnavailableError, ConflictError, LeaseHeldError, SpecError
from airflows.keys import nearest
from airflows.ledger import Ledger, SweepRow, SweepState, Wish, open_ledger
from airflows.sweepfile import LoadedSweep
from airflows.trial import State

_CANCEL_PATIENCE_S = 120.0
_ASK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Driven:
    """A sweep after it was driven.

    Attributes:
        row: as it stands now.
        is_new: this call created it.
    """

    row: SweepRow
    is_new: bool


def _no_news(_begun: Begun, _drive: Drive) -> None:
    return


def start(
    loaded: LoadedSweep,
    *,
    home: Path,
    observer: Observer | None = None,
    new: bool = False,
    instance: str = "",
    plan: Wanted | None = None,
    drive: bool = True,
    on_begun: Callable[[Begun, Drive], None] = _no_news,
) -> Driven:
    """Start a sweep, or attach to it, and drive it to its end.

    Args:
        loaded: the sweep.
        home: `$AIRFLOWS_HOME`.
        observer: is told what happens.
        new: another sweep of the same definition.
        instance: what names one sweep of the definition, such as an idempotency key.
        plan: what it has to be, and nothing else.
        drive: False only writes it into the ledger, for a driver in the background.
        on_begun: is called once the sweep is in the ledger, with the drive that can be paused.

    Raises:
        SpecError: something in the file is wrong.
        ConflictError: the sweep is there with other code, backend or settings; or it is not what was planned.
        LeaseHeldError: somebody else drives it.
        BackendUnavailableError: the backend cannot be used, or the trials are another machine's; nothing
            was written.
        TrackingUnavailableError: MLflow does not answer; nothing was written, or nothing is lost.
    """
    site = open_site(loaded, home)
    try:
        notices = require_backend(site, new=new)
        code = site.prepare_code()
        planned = "" if plan is None else plan.require(site, code)
        begun = begin(site, now=time.time(), new=new, instance=instance, code=code, plan=planned)
        begun = replace(begun, notices=notices)
        return _driven(site, begun, observer, drive=drive, on_begun=on_begun)
    finally:
        site.ledger.close()


def resume(
    sweep: str,
    *,
    home: Path,
    observer: Observer | None = None,
    failed: bool = False,
    classes: Collection[str] = (),
    trials: int | None = None,
    replicates: int | None = None,
    sets: Sequence[str] = (),
    backend: str | None = None,
    drive: bool = True,
    on_begun: Callable[[Begun, Drive], None] = _no_news,
) -> Driven:
    """Take over a sweep whose driver is gone; with `failed` retry what failed, with `trials` extend it.

    Args:
        sweep: id or name.
        home: `$AIRFLOWS_HOME`.
        observer: is told what happens.
        failed: failed and cancelled trials are tried again, with the code as it is now.
        classes: with `failed` only trials that failed with one of these reasons; empty for all.
        trials: new value of `search.trials`.
        replicates: so many more of each point that may have won, once the sweep has ended.
        sets: `KEY=VALUE` changes of settings that may change, such as `limits.concurrent=4`.
        backend: where it is to run from now on; its options stay if it is there already.
        drive: False leaves the driving to somebody else.
        on_begun: as in `start`.

    Raises:
        NotFoundError: no such sweep.
        ConflictError: a change that makes it another sweep, or nothing says which replicates to add.
        LeaseHeldError: somebody else drives it.
        BackendUnavailableError: the backend cannot be used, or the trials are another machine's.
    """
    with closing(open_ledger(home, create=False)) as ledger:
        row, _, _ = ledger.resolve(sweep)
        if backend is None or backend == row.backend:
            require_host(ledger, row, now=time.time())
    changes = [*sets, *([] if trials is None else [f"search.trials={trials}"])]
    loaded = reload(row, tuple(changes), backend=backend)
    if loaded.definition_digest != row.definition:
        message = f"these changes would make {row.id} another sweep: its points, search or base differ."
        raise ConflictError(message, hint="Start another one instead: airflows sweep FILE --new")
    site = open_site(loaded, home, row=row)
    try:
        require_backend(site, known=True)
        require_same_store(site.tracker, row)
        require_same_backend(site, row)
        code = site.prepare_code() if failed else row.code
        done = "" if replicates is None else add_replicates(site, row.id, replicates, now=time.time())
        row = reopen(site, row, failed=failed, classes=classes, code=code, now=time.time())
        begun = Begun(row, is_new=False, done=done)
        return _driven(site, begun, observer, drive=drive, on_begun=on_begun)
    finally:
        site.ledger.close()


def carry_on(
    sweep: str,
    *,
    home: Path,
    observer: Observer | None = None,
    on_begun: Callable[[Begun, Drive], None] = _no_news,
) -> Driven:
    """Drive a sweep on as it is wanted, from where its last driver left it; nothing else changes.

    Unlike `resume` it tries nothing again that has failed, and finishes a cancellation or a halt.

    Args:
        sweep: id or name.
        home: `$AIRFLOWS_HOME`.
        observer: is told what happens.
        on_begun: as in `start`.

    Raises:
        NotFoundError: no such sweep.
        LeaseHeldError: somebody else drives it.
        BackendUnavailableError: the backend cannot be used, or the trials are another machine's.
    """
    with closing(open_ledger(home, create=False)) as ledger:
        row, _, _ = ledger.resolve(sweep)
        require_host(ledger, row, now=time.time())
    site = open_site(reload(row), home, row=row)
    try:
        if row.ended_at is None and row.wish is not Wish.STOP:
            require_backend(site, known=True)
            require_same_store(site.tracker, row)
        elif row.ended_at is None:
            # What is to be cancelled must not go on because MLflow is away.
            _require_known_store(site, row)
        return _driven(site, Begun(row, is_new=False), observer, drive=True, on_begun=on_begun)
    finally:
        site.ledger.close()


def unattended(*, home: Path, now: float) -> list[SweepRow]:
    """Return the sweeps that are wanted but that nobody drives any more, the oldest first.

    A sweep that a person let go of (Ctrl-C) is not among them, nor one that only another machine can drive.

    Args:
        home: `$AIRFLOWS_HOME`.
        now: seconds since the epoch, UTC.
    """
    with closing(open_ledger(home)) as ledger:
        rows = ledger.sweeps(active_only=True)
    return [
        row
        for row in reversed(rows)
        if row.wish is not Wish.PAUSED and is_of_this_host(row) and _is_left(row, now)
    ]


def _is_left(row: SweepRow, now: float) -> bool:
    owner = driver_of(row)
    if owner is None:
        # One that was just written down is about to be driven.
        return now - (row.resumed_at or row.created_at) > LEASE_TTL_S
    return owner.is_dead() or (row.lease_until or 0.0) < now


def _require_known_store(site: Site, row: SweepRow) -> None:
    if row.tracking_uri and recorded_uri(row) is None:
        # Only the environment knows its password: without it another MLflow would be told.
        require_same_store(site.tracker, row)


def _driven(
    site: Site,
    begun: Begun,
    observer: Observer | None,
    *,
    drive: bool,
    on_begun: Callable[[Begun, Drive], None],
) -> Driven:
    driving = Drive(site, observer or Silent())
    on_begun(begun, driving)
    row = driving.run(begun.row.id) if drive else begun.row
    return Driven(row, begun.is_new)


@dataclass(slots=True)
class CancelOutcome:
    """What became of a request to cancel.

    Attributes:
        cancelled: ids.
        failed: (id, what was wrong).
        ended: (id, state) of what had ended otherwise before it could be cancelled.
    """

    cancelled: list[str] = field(default_factory=list)
    failed: list[tuple[str, AirflowsError]] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)


def cancel(wanted: Sequence[str], *, home: Path, where: Mapping[str, Any] | None = None) -> CancelOutcome:
    """Cancel sweeps and trials, and wait until their runs are gone.

    The wishes are written first, so nothing is lost when this process dies. A living driver carries
    them out; without one, this call does.

    Args:
        wanted: `SWEEP`, `SWEEP/12` or `SWEEP/12.0`.
        home: `$AIRFLOWS_HOME`.
        where: override key to value; of each sweep only the trials that have these.
    """
    outcome = CancelOutcome()
    with closing(open_ledger(home, create=False)) as ledger:
        for text in wanted:
            try:
                _cancel_one(ledger, home, text, where, outcome)
            except AirflowsError as exc:
                outcome.failed.append((text, exc))
    return outcome


def _cancel_one(
    ledger: Ledger, home: Path, text: str, where: Mapping[str, Any] | None, outcome: CancelOutcome
) -> None:
    row, number, _ = ledger.resolve(text)
    if number is None and where is None:
        _cancel_sweep(ledger, home, row, outcome)
        return
    numbers = {number} if number is not None else _matching(ledger, row, where or {})
    trials = ledger.trials(row.id, numbers=numbers) if numbers else []
    going = {trial.number for trial in trials if not trial.state.is_final}
    if going:
        ledger.request_cancel(row.id, going)
        _carry_out(ledger, home, row, whole=False)
    # Of those that were chosen by their values only what went on is of interest.
    told = sorted(going if number is None else numbers)
    for trial in ledger.trials(row.id, numbers=told) if told else ():
        if trial.number in going and trial.state in {State.CANCELLED, State.PENDING}:
            outcome.cancelled.append(trial.id)
        else:
            outcome.ended.append((trial.id, trial.state.value))


def _cancel_sweep(ledger: Ledger, home: Path, row: SweepRow, outcome: CancelOutcome) -> None:
    was_open = row.ended_at is None
    if was_open:
        ledger.wish(row.id, Wish.STOP)
        _carry_out(ledger, home, row, whole=True)
        row = ledger.sweep(row.id)
    if was_open and row.state is SweepState.CANCELLED:
        outcome.cancelled.append(row.id)
    else:
        outcome.ended.append((row.id, row.state.value))


def _matching(ledger: Ledger, row: SweepRow, where: Mapping[str, Any]) -> set[int]:
    trials = ledger.trials(row.id)
    overrides = open_overrides(ledger, row.id, trials, Replicates(reload(row).spec))
    known = sorted({key for each in overrides.values() for key in each})
    for key in where:
        if trials and key not in known:
            close = nearest(key, known) or next((k for k in known if k.endswith(f".{key}")), None)
            hint = f"Did you mean {close}?" if close else f"Its trials differ in: {', '.join(known)}."
            message = f"no trial of {row.id} overrides {key}."
            raise SpecError(message, field="--where", hint=hint)
    wanted = {key: ids.canonical_json(value) for key, value in where.items()}
    return {
        trial.number
        for trial in trials
        if all(_same(overrides[trial.number].get(key), value) for key, value in wanted.items())
    }


def _same(value: Any, wanted: str) -> bool:
    if ids.canonical_json(value) == wanted:
        return True
    return isinstance(value, float) and value.is_integer() and ids.canonical_json(int(value)) == wanted


def _carry_out(ledger: Ledger, home: Path, row: SweepRow, *, whole: bool) -> None:
    """Drive the cancellation, or wait for the living driver to do it; give up after two minutes.

    Raises:
        BackendUnavailableError: it is not done yet, or only another machine can do it; the request stands.
    """
    deadline = time.monotonic() + _CANCEL_PATIENCE_S
    why = "its driver has not carried the request out"
    while not _is_carried_out(ledger, row.id, whole=whole) and time.monotonic() < deadline:
        require_host(ledger, ledger.sweep(row.id), now=time.time())
        try:
            why = _drive_cancels(home, row, deadline, whole=whole) or why
        except LeaseHeldError:
            time.sleep(_ASK_AGAIN_S)
    if not _is_carried_out(ledger, row.id, whole=whole):
        message = f"{row.id} is not cancelled yet: {why.rstrip('.')}."
        raise BackendUnavailableError(message, hint="The request stands; the next driver carries it out.")


def _drive_cancels(home: Path, row: SweepRow, deadline: float, *, whole: bool) -> str:
    """Drive what is to be cancelled until it is gone or time is up; return what was waited for.

    Raises:
        ConflictError: somebody else wants the whole sweep to go on, or its MLflow is another one.
    """
    site = open_site(reload(row), home, row=row)
    drive = Drive(site, Silent(), only_cancels=not whole)
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), drive.pause)
    timer.daemon = True
    timer.start()
    try:
        if whole and site.ledger.sweep(row.id).wish is not Wish.STOP:
            message = f"{row.id} was resumed before it was cancelled."
            raise ConflictError(message)
        _require_known_store(site, row)
        drive.run(row.id)
    finally:
        timer.cancel()
        site.ledger.close()
    return drive.waits_for


def _is_carried_out(ledger: Ledger, sweep: str, *, whole: bool) -> bool:
    # Nothing runs in a sweep that has ended, whatever waits there for a resume.
    has_ended = ledger.sweep(sweep).ended_at is not None
    return has_ended or not (whole or ledger.cancel_requests(sweep))


def driver_of(row: SweepRow) -> Owner | None:
    """Return who drives a sweep, None when nobody does."""
    return Owner.from_text(row.lease_owner) if row.lease_owner else None
