"""`resume --add`: what another file makes of a sweep, shown and agreed to, and then done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflows.cli import options
from airflows.cli.failure import FAILED, SUCCEEDED, UsageError
from airflows.cli.table import overrides_text, short_keys
from airflows.cli.terminal import Session, Style
from airflows.documents import Document

if TYPE_CHECKING:
    from airflows.cli.progress import Reporter
    from airflows.engine.drive import Drive
    from airflows.engine.editing import Adding
    from airflows.engine.operations import Driven
    from airflows.engine.start import Begun

_SHOWN = 10


def add_points(
    session: Session,
    wanted: str,
    file: Path,
    *,
    sets: Sequence[str],
    dry_run: bool,
    yes: bool,
    detach: bool,
) -> int:
    """Add the points of a file to a sweep, and drive it; return the exit status.

    Args:
        session: the command's manners.
        wanted: the sweep.
        file: a sweep.yaml.
        sets: changes of that file.
        dry_run: only show the difference.
        yes: do not ask.
        detach: a process in the background drives.
    """
    from airflows.cli.driving import drive  # noqa: PLC0415
    from airflows.cli.lookup import reading, the_sweep  # noqa: PLC0415
    from airflows.engine.editing import adding  # noqa: PLC0415
    from airflows.sweepfile import load_sweep  # noqa: PLC0415
    from airflows.vetting import validate_points  # noqa: PLC0415

    home = options.home()
    row = the_sweep(reading(home), wanted)
    loaded = load_sweep(file, sets=sets)
    validate_points(loaded)
    with adding(row.id, loaded, home=home) as found:
        lines = difference_lines(found, session.style)
        if dry_run:
            session.answer(difference_document(found), [*lines, "Nothing was changed."])
            return SUCCEEDED
        session.note(*(f"note: {notice}" for notice in loaded.notices), *lines)
        if not (yes or found.is_made or _is_agreed(session, found)):
            session.note("Nothing was changed.")
            return FAILED

        def work(reporter: Reporter, drives: bool, on_begun: Callable[[Begun, Drive], None]) -> Driven:
            return found.run(observer=reporter, drive=drives, on_begun=on_begun)

        return drive(session, home, work, detached=detach)


def _is_agreed(session: Session, found: Adding) -> bool:
    """Ask a person; without one only what cancels nothing may be done.

    Raises:
        UsageError: trials would be cancelled, and nobody can be asked.
    """
    if session.can_ask():
        return session.ask(f"Change {found.row.id} like this?")
    cancelled = len(found.difference.cancelled)
    if cancelled:
        message = f"the file no longer has {_points(cancelled)} of {found.row.id} that did not end yet."
        raise UsageError(message, hint="Their trials would be cancelled: say --yes, or look with --dry-run.")
    return True


def difference_document(found: Adding) -> Document:
    """Return what a file makes of a sweep."""
    return {
        "sweep": found.row.id,
        "is_made": found.is_made,
        **found.difference.to_dict(),
        "settings": list(found.settings),
        "again": found.again,
    }


def difference_lines(found: Adding, style: Style) -> list[str]:
    """Return what a file makes of a sweep, for people."""
    made = found.difference
    sweep = style.paint(found.row.id, "bold")
    if found.is_made:
        return [f"{sweep} has this file already; {made.added} of its points are still to be created."]
    waiting = f", {made.waiting} of them planned before" if made.waiting else ""
    back = f", {len(made.back)} of them orphaned before" if made.back else ""
    lines = [
        f"{sweep} with this file:",
        f"  added     {_points(made.added)}{waiting}",
        *_added_lines(found),
        f"  kept      {_points(len(made.kept))} with their results{back}",
        *([f"  again     {found.again} of their trials, cancelled with the sweep"] if found.again else []),
    ]
    if made.orphaned:
        words = "no longer in the file: kept in the history, and not ranked"
        lines.append(f"  orphaned  {_points(len(made.orphaned))} {words} ({_numbers(made.orphaned)})")
    if made.cancelled:
        words = "not ended yet, and so cancelled"
        lines.append(f"  cancelled {len(made.cancelled)} of these {words} ({_numbers(made.cancelled)})")
    if made.dropped:
        lines.append(f"  dropped   {_points(made.dropped)} that were planned, and never created")
    if found.settings:
        lines.append(f"  settings  {', '.join(found.settings)} as in the file")
    return lines


def _added_lines(found: Adding) -> list[str]:
    made = found.difference
    shown = made.first_added[:_SHOWN]
    names = short_keys(key for overrides in shown for key in overrides)
    lines = [f"            + {overrides_text(overrides, names)}" for overrides in shown]
    more = made.added - len(shown)
    return [*lines, f"            … and {more} more"] if more > 0 else lines


def _points(count: int) -> str:
    return f"{count} point{'s' * (count != 1)}"


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return f"point {shown}{', …' if len(numbers) > _SHOWN else ''}"
