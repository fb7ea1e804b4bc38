"""`watch`: a sweep as it comes along, read from the ledger; whoever drives it is not disturbed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflows.cli import options, render
from airflows.cli.forecasting import forecast_of, forecast_text
from airflows.cli.progress import PLAIN_EVERY_S, Pace, left_text
from airflows.cli.table import number_text, overrides_text, table
from airflows.cli.terminal import Session, Style
from airflows.documents import Document, sweep_row, trial_document
from airflows.trial import IN_FLIGHT

if TYPE_CHECKING:
    from airflows.engine.results import SweepResults
    from airflows.ledger import Ledger, SweepRow

_LOOK_EVERY_S = 1.0
_RANK_EVERY_S = 5.0
_DRIVERLESS_S = 3.0
_SHOWN_TRIALS = 12


def watch(session: Session, sweep_id: options.SweepId) -> int:
    """Watch a sweep until it ends or nobody drives it; ends as the sweep does."""
    from airflows.cli.lookup import reading, the_sweep  # noqa: PLC0415

    ledger = reading(options.home())
    row = the_sweep(ledger, sweep_id)
    view = _view_for(session)
    try:
        return Watch(ledger, row.id, view).follow()
    finally:
        view.close()


class View:
    """Shows a sweep as JSON lines, one for each change."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._last: Any = None

    def show(self, document: Document, pace: str) -> None:  # noqa: ARG002 - the other views use it
        """Print the document when it is new."""
        # What is expected changes with every second; that alone is no news.
        news = {key: value for key, value in document.items() if key != "forecast"}
        if news != self._last:
            self._last = news
            self.session.record(document)

    def close(self) -> None:
        """Leave the terminal as it was found."""


class PlainView(View):
    """Shows a sweep as a line now and then."""

    _due = float("-inf")

    def show(self, document: Document, pace: str) -> None:
        """Print a line when something changed, at most one in ten seconds, and one at the end."""
        words = _words(document)
        is_over = document["ended_at"] is not None or document["driver"] is None
        if words != self._last and (is_over or time.monotonic() >= self._due):
            self._last, self._due = words, time.monotonic() + PLAIN_EVERY_S
            self.session.text(f"{document['sweep']}: {words}{pace}")


class LiveView(View):
    """Shows a sweep as a screen that changes."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
        from rich.live import Live  # noqa: PLC0415

        console = Console(file=sys.stdout, no_color=not session.style.color, highlight=False)
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, document: Document, pace: str) -> None:
        """Draw it anew."""
        from rich.text import Text  # noqa: PLC0415

        lines = screen_lines(document, pace, self.session.style)
        self._live.update(Text.from_ansi("\n".join(lines)), refresh=True)

    def close(self) -> None:
        """Leave the last screen standing."""
        self._live.stop()


def _view_for(session: Session) -> View:
    if session.is_json:
        return View(session)
    return LiveView(session) if session.shows_progress and sys.stdout.isatty() else PlainView(session)


def _words(document: Document) -> str:
    best = "" if document["best"] is None else f", best {number_text(document['best'])}"
    state = "" if document["ended_at"] is None else f"{document['state']}: "
    return f"{state}{render.counts_text(document['trials'])}{best}"


def screen_lines(document: Document, pace: str, style: Style) -> list[str]:
    """Return what a person sees of a sweep at one time."""
    trials = document["trials"]
    ended = sum(trials[state] for state in ("succeeded", "failed", "stopped", "cancelled"))
    head = f"{style.paint(document['sweep'], 'bold')}  {render.state_text(document['state'], style)}"
    hours = f"{document['accelerator_hours']:.3g} accelerator-hours"
    so_far = f"{render.took_text(document)} so far, {hours}, driver {render.driver_text(document)}"
    lines = [
        f"{head}  {bar_text(ended, trials['total'])}  {_words(document)}{pace}",
        style.paint(so_far, "dim"),
    ]
    if document["running"]:
        rows = [
            (
                str(trial["number"]),
                str(trial["state"]),
                render.took_text(trial),
                overrides_text(trial["overrides"]),
            )
            for trial in document["running"][:_SHOWN_TRIALS]
        ]
        lines += ["", *table(("TRIAL", "STATE", "FOR", "OVERRIDES"), rows, style, right=frozenset({"FOR"}))]
        hidden = len(document["running"]) - _SHOWN_TRIALS
        lines += [f"… and {hidden} more"] if hidden > 0 else []
    return lines


def bar_text(ended: int, total: int | None, width: int = 24) -> str:
    """Return a bar of characters."""
    filled = 0 if not total else round(width * min(1.0, ended / total))
    return "█" * filled + "░" * (width - filled)


@dataclass(slots=True)
class Watch:
    """One look after another, until the sweep ends.

    Attributes:
        ledger: what is looked at.
        sweep: its id.
        view: where it is shown.
        clock: seconds that only go forward.
        sleep: waits.
    """

    ledger: Ledger
    sweep: str
    view: View
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _results: SweepResults | None = None
    _rank_at: float = float("-inf")
    _driverless_since: float | None = None

    def follow(self) -> int:
        """Show the sweep until it ends; return its exit status."""
        from airflows.engine.results import exit_status  # noqa: PLC0415

        pace = Pace()
        while True:
            row = self.ledger.sweep(self.sweep)
            document = self._look(row)
            self.view.show(document, self._left(pace, document))
            if row.ended_at is not None and self._results is not None:
                if not self.view.session.is_json and row.message:
                    self.view.session.note(row.message)
                return exit_status(self._results)
            if self._is_left_alone(document):
                self.view.session.note(
                    f"Nobody drives {self.sweep}; what runs goes on.",
                    f"Take it over with: airflows resume {self.sweep}",
                )
                return 1
            self.sleep(_LOOK_EVERY_S)

    def _look(self, row: SweepRow) -> Document:
        from airflows.cli.lookup import best_value, driver_of, overrides_of  # noqa: PLC0415
        from airflows.engine.results import gather  # noqa: PLC0415

        if self._results is None or row.ended_at is not None or self.clock() >= self._rank_at:
            self._results, self._rank_at = gather(self.ledger, row), self.clock() + _RANK_EVERY_S
        counts = self.ledger.counts(row.id)
        running = self.ledger.trials(row.id, states=IN_FLIGHT)
        overrides = overrides_of(self.ledger, row, running)
        spent = sum(self.ledger.accelerator_seconds(row.id).values())
        return {
            **sweep_row(row, counts, best_value(self._results), driver_of(row)),
            "accelerator_hours": spent / 3600,
            "forecast": forecast_of(self.ledger, row, self._results),
            "running": [trial_document(trial, overrides[trial.number]) for trial in running],
        }

    def _is_left_alone(self, document: Document) -> bool:
        """Whether nobody has driven it for a while: a driver may only just be starting."""
        if document["driver"] is not None:
            self._driverless_since = None
            return False
        if self._driverless_since is None:
            self._driverless_since = self.clock()
        return self.clock() - self._driverless_since >= _DRIVERLESS_S

    def _left(self, pace: Pace, document: Document) -> str:
        trials = document["trials"]
        ended = sum(trials[state] for state in ("succeeded", "failed", "stopped", "cancelled"))
        expected = document["forecast"]
        if expected is not None and expected["limit"] is not None:
            return f"; {forecast_text(expected)}"
        return left_text(pace.left_s(ended, trials["total"], self.clock()))
