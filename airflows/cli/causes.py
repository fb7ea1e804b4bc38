"""Why trials failed, as `get`, `results` and the end of a sweep tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows.cli.places import roots_of
from airflows.cli.table import one_line, shortened
from airflows.cli.terminal import Style
from airflows.documents import Document, cause_document
from airflows.report.causes import Cause, causes
from airflows.trial import Reason

if TYPE_CHECKING:
    from airflows.ledger import AttemptRow, Ledger, SweepRow

_LAST_LINES = 3
_TAIL_BYTES = 8192
_LINE_CHARS = 500
_WIDTH = 160
_SHOWN = 8
_WITH_LINES = 20


def causes_story(
    ledger: Ledger, row: SweepRow, attempts: Sequence[AttemptRow] | None = None
) -> list[Document]:
    """Return why trials of a sweep failed, with the last lines of a log of each cause.

    Args:
        ledger: where the sweep is.
        row: the sweep.
        attempts: all of its attempts, where they are known.
    """
    from airflows.cli.lookup import overrides_of  # noqa: PLC0415

    made = ledger.attempts(row.id) if attempts is None else attempts
    if not any(attempt.reason for attempt in made):
        return []
    trials = ledger.trials(row.id)
    overrides = overrides_of(ledger, row, trials)
    found = causes(row.id, made, [(trial, overrides[trial.number]) for trial in trials])
    return [
        cause_document(cause, _last_lines(row, cause) if at < _WITH_LINES else ())
        for at, cause in enumerate(found)
    ]


def _last_lines(row: SweepRow, cause: Cause) -> list[str]:
    """Return the end of the example's log, of the node that named the error, where this machine has it."""
    tails = [_tail(path) for path in log_files(row, cause.example)]
    said = cause.said.partition("; ")[0][:60]
    telling = (tail for tail in tails if said and any(said in line for line in tail))
    return next(telling, tails[0] if tails else [])[-_LAST_LINES:]


def log_files(row: SweepRow, attempt: AttemptRow) -> list[Path]:
    """Return the logs of an attempt that there are on this machine, by node."""
    logs = launch_dir(row, attempt).glob("logs/node_*.log")
    return sorted(logs, key=lambda path: (len(path.name), path.name))


def launch_dir(row: SweepRow, attempt: AttemptRow) -> Path:
    """Return where an attempt's files are."""
    root = roots_of(row).get(attempt.backend, Path(row.root))
    return root / "runs" / row.id / str(attempt.number) / f"a{attempt.attempt}"


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line[:_LINE_CHARS] for line in text.splitlines() if line.strip()]


def causes_lines(
    told: Sequence[Mapping[str, Any]],
    style: Style,
    *,
    known: str = "",
    avoided: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Return why trials failed, each cause once, and on which hosts they kept failing.

    Args:
        told: from `causes_story`.
        style: how it looks.
        known: what was said already; a cause in it is not named again.
        avoided: hosts, as documents have them.
    """
    hosts = [style.paint(f"avoided host {one['host']}: {one['message']}", "yellow") for one in avoided]
    if not told:
        return ["", *hosts] if hosts else []
    trials = sum(cause["failed"] for cause in told)
    what = f"{trials} failed" if trials else "failed attempts"
    title = f"{what}, {len(told)} cause{'s' * (len(told) != 1)}"
    lines = ["", style.paint(title, "bold")]
    for cause in told[:_SHOWN]:
        lines += _cause_lines(cause, style, is_known=cause["signature"] and cause["signature"] in known)
    if len(told) > _SHOWN:
        lines.append(f"  and {len(told) - _SHOWN} more")
    return lines + hosts


def _cause_lines(cause: Mapping[str, Any], style: Style, *, is_known: Any) -> list[str]:
    kind = str(cause["class"] or cause["reason"]).replace("_", " ")
    where = f" at {cause['where']}" if cause["where"] else ""
    attempts = f" ({cause['count']} attempts)" if cause["count"] > cause["trials"] else ""
    said = _said(cause)
    why = "" if is_known else f": {one_line(said or cause['signature'])}"
    lines = [f"{cause['trials']:>5} x {kind}{where}{attempts}{why}"]
    shown = [] if is_known else [line for line in cause["last_lines"] if line.strip() not in said]
    lines += [style.paint(f"        | {shortened(one_line(line), _WIDTH)}", "dim") for line in shown]
    return [*lines, style.paint(f"        {cause['next']}", "dim")]


def _said(cause: Mapping[str, Any]) -> str:
    """Return the message without the sentence of its class, which the line has already."""
    known = Reason(cause["class"]).sentence if cause["class"] else ""
    return str(cause["message"]).removeprefix(known).strip()


def code_lines(versions: Sequence[Document], style: Style) -> list[str]:
    """Return a warning where trials ran different versions of the code, whose results are compared."""
    if len(versions) < 2:  # noqa: PLR2004 - a mixture
        return []
    words = ", ".join(f"{each['trials']} with {(each['code'] or 'none')[:12]}" for each in versions)
    return [
        style.paint(f"{len(versions)} versions of the code: {words} (trials, the oldest first)", "yellow")
    ]
