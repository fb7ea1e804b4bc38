"""`results --html FILE`: the whole sweep as one page that opens anywhere."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows.cli.failure import UsageError
from airflows.errors import AirflowsError

if TYPE_CHECKING:
    from airflows.engine.results import SweepResults
    from airflows.ledger import Ledger


def refuse_mixtures(given: Mapping[str, Any]) -> None:
    """Refuse options that a report has no use for.

    Args:
        given: the other options, by name; falsy ones were not given.

    Raises:
        UsageError: there is one.
    """
    for name, value in given.items():
        if value:
            message = f"{name} does not go with --html: the report has every trial, and a table of its own."
            raise UsageError(message, hint="Leave one of the two out.")


def write_report(ledger: Ledger, found: SweepResults, target: Path, home: Path) -> int:
    """Write the report of a sweep; return its size in bytes.

    Args:
        ledger: where the sweep is.
        found: its results, perhaps ranked by another metric.
        target: the file; it is replaced as a whole or not at all.
        home: `$AIRFLOWS_HOME`.

    Raises:
        MissingExtraError: plotly is not installed.
        UsageError: there can be no such file.
    """
    from airflows.engine.reporting import facts_of, read_curves, report  # noqa: PLC0415
    from airflows.engine.results import trials_with_overrides  # noqa: PLC0415

    target = _checked_place(target)
    rows = list(trials_with_overrides(ledger, found.row))
    tracker, why_not = _tracker(found, home)
    curves = read_curves(tracker, found, rows) if not why_not else _none(why_not)
    facts = facts_of(ledger, found, now=time.time(), rows=rows, curves=curves)
    return _write_whole(target, report(facts))


def _tracker(found: SweepResults, home: Path) -> tuple[Any, str]:
    """Return MLflow for the learning curves, None where the sweep has none, and why it cannot be had."""
    from airflows.engine.reporting import attached_tracker  # noqa: PLC0415
    from airflows.tracking import OFF  # noqa: PLC0415

    if found.row.tracking_uri in {"", OFF}:
        return None, ""
    try:
        return attached_tracker(found.row, found.sweep.spec, home), ""
    except AirflowsError as exc:
        return None, f"The learning curves could not be read: {exc}"


def _none(why_not: str) -> Any:
    from airflows.report.facts import Curves  # noqa: PLC0415

    return Curves(note=why_not)


def _checked_place(target: Path) -> Path:
    """Return where the file is to be, symbolic links followed."""
    try:
        target = target.resolve()
    except (OSError, RuntimeError) as exc:
        message = f"{target} is no file: its symbolic links lead nowhere."
        raise UsageError(message, hint="Name another file.") from exc
    if target.is_dir():
        message = f"{target} is a directory, and --html takes the name of a file."
        raise UsageError(message, hint=f"Say --html {target / 'report.html'}")
    if not target.parent.is_dir():
        message = f"there is no directory {target.parent} for the report."
        raise UsageError(message, hint="Make it first, or name another place.")
    if target.exists() and not target.is_file():
        message = f"{target} is no regular file, and --html would replace it."
        raise UsageError(message, hint="Name a file, such as --html report.html")
    return target


def _write_whole(target: Path, parts: Iterable[str]) -> int:
    """Write a file aside and put it in place; return its size."""
    handle, aside = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        size = Path(aside).stat().st_size
        # Made for its owner alone; a report is for whom the other files here are for.
        mask = os.umask(0)
        os.umask(mask)
        Path(aside).chmod(0o666 & ~mask)
        Path(aside).replace(target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return size
