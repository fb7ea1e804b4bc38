"""`sweep`, `run` and `resume`: drive a sweep to its end, and tell how it went."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflows.addresses import has_secret
from airflows.cli import background, ranked, render
from airflows.cli.causes import causes_lines, causes_story
from airflows.cli.failure import INTERRUPTED
from airflows.cli.interrupts import Interrupts
from airflows.cli.lookup import reading
from airflows.cli.places import places_of
from airflows.cli.progress import Quiet, Reporter
from airflows.cli.terminal import Session
from airflows.documents import (
    counts_document,
    ended_document,
    results_document,
    without_passwords,
)
from airflows.edits import Edits
from airflows.engine.results import SweepResults, exit_status, gather, verdict_document
from airflows.errors import AirflowsError
from airflows.hosts import avoided_hosts
from airflows.ledger import Ledger, SweepRow, SweepState
from airflows.trial import IN_FLIGHT, EventKind, State

if TYPE_CHECKING:
    from airflows.engine.drive import Drive
    from airflows.engine.operations import Driven
    from airflows.engine.site import Site
    from airflows.engine.start import Begun
    from airflows.ledger import Change
    from airflows.trial import Handle

    Work = Callable[[Reporter, bool, Callable[[Begun, Drive], None]], Driven]

_LOG_PATIENCE_S = 5.0


def drive(session: Session, home: Path, work: Work, *, detached: bool = False, streams: bool = False) -> int:
    """Carry out `work` with progress and signals, then print what came of it.

    Args:
        session: the command's manners.
        home: `$AIRFLOWS_HOME`.
        work: starts or resumes a sweep; it is given an observer, whether to drive, and whom to tell of the
            drive that signals pause.
        detached: a process in the background drives.
        streams: the log of the sweep's trial is printed while it runs.

    Returns:
        The exit status.
    """
    reporter = Reporter(session)
    follower = LogFollower(session) if streams else None
    if follower is not None:
        reporter.gauge, reporter.on_attempt = Quiet(session), follower.follow
    with Interrupts(session) as interrupts:
        interrupts.remark = reporter.remark

        def on_begun(begun: Begun, driving: Drive) -> None:
            interrupts.drive, reporter.site = driving, driving.site
            reporter.note(*begun_lines(begun, driving, detached=detached))
            if follower is not None:
                follower.begin(begun.row, driving.site)

        try:
            driven = work(reporter, not detached, on_begun)
        finally:
            reporter.close()
        if follower is not None and not interrupts.happened:
            follower.finish()
    if detached and driven.row.ended_at is None:
        return _leave_to_background(session, driven.row, home, reporter.site)
    return _end(session, home, driven.row, interrupted=interrupts.happened)


def _end(session: Session, home: Path, row: SweepRow, *, interrupted: bool) -> int:
    """Print what came of a sweep; return the exit status."""
    ledger = reading(home)
    results = gather(ledger, row)
    if interrupted and row.ended_at is None:
        return _interrupted(session, results)
    _tell(session, ledger, results)
    return exit_status(results)


def begun_lines(begun: Begun, driving: Drive, *, detached: bool) -> list[str]:
    """Return what is said when a sweep is in the ledger."""
    row = begun.row
    if row.ended_at is not None:
        way = f"`airflows results {row.id}` shows what came of it"
        if row.state is not SweepState.SUCCEEDED:
            way = f"`airflows resume {row.id} --failed` tries again what failed or was cancelled"
        return [f"{row.id} has ended already. {way}; `sweep --new` starts anew."]
    total = "trials" if row.total is None else f"{row.total} trial{'s' * (row.total != 1)}"
    what = "started" if begun.is_new else "taken up where it stood"
    lines = [f"{row.id}: {what}; {total} on {row.backend}, {driving.site.room} at a time."]
    if begun.done:
        lines.insert(0, begun.done)
    if begun.is_new:
        notices = [*begun.notices, *_namesake(driving.site.ledger, row)]
        lines = [*(f"note: {notice}" for notice in notices), *lines]
    if not detached and not row.single:
        lines.append(f"Look on from elsewhere: airflows watch {row.id}")
    return lines


def _namesake(ledger: Ledger, row: SweepRow) -> list[str]:
    """Say so where an earlier sweep has the same name: with a changed space it was perhaps meant."""
    if row.single:
        return []
    others = [each for each in ledger.sweeps() if each.name == row.name and not each.single]
    earlier = next((each for each in others if each.definition != row.definition), None)
    if earlier is None:
        return []
    way = f"airflows resume {earlier.id} --add FILE"
    return [f"{earlier.id} has the same name and other points; to add points to that one instead: {way}"]


def _leave_to_background(session: Session, row: SweepRow, home: Path, site: Site | None) -> int:
    background.refuse_second_driver(row)
    ledger = reading(home)
    uri = site.spec.tracking.uri if site is not None else None
    driver = background.detach(ledger, row, home, uri if uri and has_secret(uri) else "")
    results = gather(ledger, ledger.sweep(row.id))
    text = f"{row.id} is driven in the background by process {driver['pid']}."
    document = {**ended_document(results), "driver": driver}
    document["message"] = document["message"] or text
    session.answer(document, [text, f"  look on: airflows watch {row.id}", f"  its log: {driver['log']}"])
    return 0


def _interrupted(session: Session, results: SweepResults) -> int:
    row = results.row
    trials = counts_document(results.counts, row.total)
    going = (trials["running"] or 0) + (trials["queued"] or 0)
    goes_on = {0: "nothing of it runs", 1: "1 trial goes on running"}.get(
        going, f"{going} trials go on running"
    )
    text = (
        f"Let go of {row.id}; {goes_on}. Resume it with: airflows resume {row.id}  "
        f"Cancel it with: airflows cancel {row.id}"
    )
    session.note(text)
    if session.is_json:
        session.document({**ended_document(results), "message": text})
    return INTERRUPTED


def _tell(session: Session, ledger: Ledger, results: SweepResults) -> None:
    if session.is_json:
        session.document(ended_document(results))
        return
    session.text(*ended_lines(session, ledger, results))


def ended_lines(session: Session, ledger: Ledger, results: SweepResults) -> list[str]:
    """Return how a sweep ended: ranked table, winner, why attempts failed, where to look."""
    row, style = results.row, session.style
    document = ended_document(results)
    has_failed = bool(document["trials"]["failed"]) or row.state is SweepState.FAILED
    told = causes_story(ledger, row) if has_failed else []
    lines: list[str] = []
    if results.ranking is not None and not row.single:
        versions, judged = ledger.code_versions(row.id), verdict_document(ledger, results)
        shown = results_document(results, results.ranking.ranked, told, versions, verdict=judged)
        shown["places"] = places_of(ledger, row)
        lines += ranked.results_lines(shown, style, top=20, causes=False)
        lines.append("")
    lines.append(
        f"{style.paint(row.id, 'bold')}  {render.state_text(row.state, style)}: "
        f"{render.counts_text(document['trials'])}."
    )
    if row.message:
        lines.append(row.message)
    avoided = [host.to_dict() for host in avoided_hosts(ledger.ended_attempts(row.id))]
    # The message names the cause already when identical failures stopped the sweep.
    lines += causes_lines(told, style, known=row.message, avoided=avoided)
    orphaned = Edits.from_text(row.edits).orphaned
    failed = ledger.trials(row.id, states=[State.FAILED]) if has_failed and orphaned else []
    # Of points that an edit left out `--failed` tries nothing again.
    if has_failed and not (failed and all(trial.point in orphaned for trial in failed)):
        lines.append(f"After a fix: airflows resume {row.id} --failed")
    return lines + look_lines(row)


def look_lines(row: SweepRow) -> list[str]:
    """Return how to look at a sweep in MLflow."""
    uri = without_passwords(row.tracking_uri)
    if uri in {"", "none"} or not row.experiment_id:
        return []
    if uri.startswith("sqlite:"):
        ui = f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
        link = f"http://localhost:5000/#/experiments/{row.experiment_id}"
        return [f"In MLflow: {ui}", f"           then {link}"]
    if uri.startswith(("http://", "https://")):
        run = f"/runs/{row.parent_run_id}" if row.parent_run_id else ""
        return [f"In MLflow: {uri.rstrip('/')}/#/experiments/{row.experiment_id}{run}"]
    return [f"In MLflow: {uri}, experiment {row.experiment_id}"]


@dataclass(slots=True)
class LogFollower:
    """Prints the log of each attempt while it runs: to stdout, or to stderr when that holds JSON."""

    session: Session
    site: Site | None = None
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self, row: SweepRow, site: Site) -> None:
        """Print what runs already, when the sweep was there before."""
        self.site = site
        for trial in site.ledger.trials(row.id, states=IN_FLIGHT):
            self._start(trial.handle)

    def follow(self, change: Change) -> None:
        """Begin to print an attempt that was just accepted."""
        if change.event.kind is EventKind.ACCEPTED:
            self._start(change.after.handle)

    def _start(self, handle: Handle | None) -> None:
        if handle is not None and self.site is not None:
            thread = threading.Thread(target=self._print, args=(handle, self.site), daemon=True, name="log")
            self._threads.append(thread)
            thread.start()

    def finish(self) -> None:
        """Wait for the last lines."""
        for thread in self._threads:
            thread.join(_LOG_PATIENCE_S)

    def _print(self, handle: Handle, site: Site) -> None:
        from airflows.backends.registry import open_backend  # noqa: PLC0415

        say = self.session.note if self.session.is_json else self.session.text
        try:
            # Another object than the driver's, which this thread must not disturb.
            backend = open_backend(site.spec.backend, site.home)
            for line in backend.logs(handle, node=0, follow=True):
                say(line)
        except (AirflowsError, OSError) as exc:
            self.session.note(f"The log cannot be followed any further: {exc}")
