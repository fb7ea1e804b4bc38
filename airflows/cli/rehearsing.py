"""`rehearse`, and `sweep --rehearse`: a sweep's short trials, and the go/no-go table of what they show."""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflows.cli import options
from airflows.cli.failure import FAILED, INTERRUPTED, SUCCEEDED, UsageError
from airflows.cli.terminal import Session, Style

if TYPE_CHECKING:
    from types import FrameType

    from airflows.documents import Document
    from airflows.engine.drive import Drive
    from airflows.engine.planned import Wanted
    from airflows.engine.rehearsals import Rehearsed, Request
    from airflows.engine.start import Begun
    from airflows.rehearsal.rows import Row
    from airflows.sweepfile import LoadedSweep

_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("NO", "red"), "info": ("-", "dim")}


def rehearse(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep.yaml.", readable=False)],
    *,
    override: options.Override = None,
    sets: options.Set = None,
    backend: options.BackendName = None,
    profile: options.Profile = None,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=1, help="Steps that a trial logs once it was resumed.")
    ] = 3,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Longest time that an attempt runs.")
    ] = "10m",
    branches: Annotated[
        int, typer.Option("--branches", metavar="N", min=1, help="Most branches of the space to rehearse.")
    ] = 8,
    full_steps: Annotated[
        int | None,
        typer.Option("--full-steps", metavar="N", min=1, help="Steps of a whole trial, for the estimate."),
    ] = None,
    require_checkpoint: Annotated[
        bool, typer.Option("--require-checkpoint", help="No-go unless trials are seen to resume.")
    ] = False,
    no_effect_yet: options.NoEffectYet = None,
) -> int:
    """Try a sweep with short trials that are killed and resumed, and say whether it would go well."""
    from airflows.cli.start import profile_sets  # noqa: PLC0415
    from airflows.engine.rehearsals import Request  # noqa: PLC0415
    from airflows.sweepfile import load_sweep  # noqa: PLC0415

    changes = [*(sets or ()), *profile_sets(profile, backend)]
    loaded = load_sweep(file, sets=changes, overrides=override or (), backend=None if profile else backend)
    session.note(*(f"note: {notice}" for notice in loaded.notices))
    keys = frozenset(no_effect_yet or ())
    request = Request(steps, _seconds(timeout), branches, full_steps, require_checkpoint, keys)
    done, status = play(session, loaded, options.home(), request)
    session.answer(document_of(done), lines_of(done, session.style))
    return status


def _seconds(text: str) -> float:
    from airflows.durations import parse_duration  # noqa: PLC0415

    try:
        seconds = parse_duration(text)
    except ValueError as exc:
        message = f"--timeout: {exc}"
        raise UsageError(message) from exc
    if not seconds:
        message = "--timeout 0 is no time at all."
        raise UsageError(message, hint="Give some minutes, such as --timeout 10m.")
    return seconds


def play(session: Session, loaded: LoadedSweep, home: Path, request: Request) -> tuple[Rehearsed, int]:
    """Rehearse a sweep with progress and signals; return what came of it, and the exit status."""
    from airflows.cli.driving import begun_lines  # noqa: PLC0415
    from airflows.cli.interrupts import Interrupts  # noqa: PLC0415
    from airflows.cli.progress import Reporter  # noqa: PLC0415
    from airflows.engine import operations, rehearsals  # noqa: PLC0415

    class Patient(Interrupts):
        """A second Ctrl-C does not leave: nobody would end the trials."""

        def on_signal(self, number: int, frame: FrameType | None) -> None:
            if self.drive is None:
                super().on_signal(number, frame)
                return
            self.happened = True
            self.drive.pause()
            text = "Ending its trials… (Ctrl-\\ leaves at once, and leaves them running)"
            if not self.remark(text):
                self._say(f"\n{text}\n")

    reporter = Reporter(session)
    with Patient(session) as interrupts:

        def on_begun(begun: Begun, driving: Drive) -> None:
            interrupts.drive, reporter.site = driving, driving.site
            reporter.note(*begun_lines(begun, driving, detached=False))
            reporter.note("Its trials are killed, resumed and ended early: this takes no whole trial.")

        try:
            done = rehearsals.rehearse(loaded, request, home=home, observer=reporter, on_begun=on_begun)
        finally:
            reporter.close()
        if interrupts.happened and not done.is_over:
            # Trials of a rehearsal that nobody watches would run on to no purpose.
            operations.cancel([done.row.id], home=home)
    if interrupts.happened:
        return done, INTERRUPTED
    return done, SUCCEEDED if done.is_go else FAILED


def keep_from_starting(
    session: Session,
    loaded: LoadedSweep,
    home: Path,
    *,
    new: bool,
    no_effect_yet: Collection[str] = (),
    plan: Wanted | None = None,
) -> int | Wanted | None:
    """Rehearse a sweep before it is started.

    Args:
        session: the command's manners.
        loaded: the sweep.
        home: `$AIRFLOWS_HOME`.
        new: it is to be another one, even if there is one.
        no_effect_yet: keys that need not change anything in the first steps.
        plan: what it has to be besides.

    Returns:
        The exit status where it must not be started, else what it has to be.
    """
    from airflows.cli.lookup import existing_ledger  # noqa: PLC0415
    from airflows.engine.rehearsals import AsRehearsed, Request  # noqa: PLC0415

    ledger = None if new else existing_ledger(home)
    there = None if ledger is None else ledger.newest_of(loaded.spec.name, loaded.definition_digest)
    if there is not None:
        session.note(f"{there.id} is there already, so it is not rehearsed.")
        return plan
    done, status = play(session, loaded, home, Request(excused=frozenset(no_effect_yet)))
    if status == SUCCEEDED:
        session.note(*lines_of(done, session.note_style), "")
        return AsRehearsed("", row=done.row, asked=plan)
    session.answer(document_of(done), [*lines_of(done, session.style), "Nothing of the sweep was started."])
    return status


def document_of(done: Rehearsed) -> Document:
    """Return the JSON document of a rehearsal."""
    return {
        "rehearsal": done.row.id,
        "go": done.is_go,
        "trials": len(done.cast.rows),
        "checks": [_check(row) for row in done.rows],
        **asdict(done.known),
        "kept": done.kept,
        "message": _verdict(done),
    }


def _check(row: Row) -> Document:
    return {
        "check": row.check,
        "result": row.mark.value,
        "branch": row.branch or None,
        "key": row.key or None,
        "message": row.words,
    }


def lines_of(done: Rehearsed, style: Style) -> list[str]:
    """Return the go/no-go table for people, and what is kept."""
    lines = [*_table(done.rows, style), ""] if done.rows else []
    looks = "green" if done.is_go else "red"
    lines.append(f"{style.paint('GO' if done.is_go else 'NO-GO', looks, 'bold')}  {_verdict(done)}")
    gone = "" if "checkpoints" in done.kept else " Its checkpoints were removed."
    kept = ", ".join(f"{what} {where}" for what, where in done.kept.items())
    return [*lines, f"Kept of {done.row.id}: {kept}.{gone}"] if kept else lines


def _verdict(done: Rehearsed) -> str:
    marks = [row.mark.value for row in done.rows]
    failed, warned = marks.count("fail"), marks.count("warn")
    if not done.is_over:
        return "the rehearsal was cancelled before it was over."
    warnings = f" ({warned} warning{'s' * (warned != 1)})" if warned else ""
    if failed:
        return f"{failed} of {len(marks)} checks failed{warnings}."
    return f"nothing speaks against the sweep{warnings}."


def _table(rows: list[Row], style: Style) -> list[str]:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from airflows.cli.table import one_line  # noqa: PLC0415

    has_branches = any(row.branch for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "check", *(("branch",) if has_branches else ()), "what was seen"):
        table.add_column(name, overflow="fold")
    for row in rows:
        word, look = _MARKS[row.mark.value]
        branch = (Text(one_line(row.branch)),) if has_branches else ()
        table.add_row(Text(word, style=look), Text(one_line(row.check)), *branch, Text(one_line(row.words)))
    out = io.StringIO()
    console = Console(file=out, width=style.width, no_color=not style.color, force_terminal=style.color)
    console.print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]
