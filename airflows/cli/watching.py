"""`watch`: a sweep as it comes along, read from the ledger; whoever drives it is not disturbed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows.cli import options, render
from airflows.cli.forecasting import forecast_of, forecast_text
from airflows.cli.progress import LOOK_EVERY_S, PLAIN_EVERY_S, Pace, left_text
from airflows.cli.table import number_text
from airflows.cli.terminal import Session, can_draw
from airflows.documents import Document, sweep_row, trial_document
from airflows.trial import IN_FLIGHT

if TYPE_CHECKING:
    from airflows.engine.results import SweepResults
    from airflows.ledger import Ledger, SweepRow

_LOOK_EVERY_S = 1.0
_RANK_EVERY_S = 5.0
_DRIVERLESS_S = 3.0


def watch(session: Session, sweep_id: options.SweepId) -> int:
    """Watch a sweep until it ends or nobody drives it; ends as the sweep does."""
    from airflows.cli.interrupts import interrupted_once  # noqa: PLC0415
    from airflows.cli.lookup import reading, the_sweep  # noqa: PLC0415

    home = options.home()
    ledger = reading(home)
    row = the_sweep(ledger, sweep_id)
    with interrupted_once():
        view = _view_for(session, ledger, row, home)
        try:
            with view.stepping_aside():
                why = Watch(ledger, row.id, view).follow()
        finally:
            view.close()
    return _end(session, ledger, row.id, view, why)


def _end(session: Session, ledger: Ledger, sweep: str, view: View, notes: tuple[str, ...]) -> int:
    """Say why watching is over; return the exit status."""
    from airflows.engine.results import exit_status  # noqa: PLC0415

    session.note(*notes)
    if notes:
        return 1
    row = ledger.sweep(sweep)
    if not session.is_json and row.message and view.tells_of_end:
        session.note(row.message)
    return exit_status(view.results(row))


class View:
    """Shows a sweep as JSON lines, one for each change.

    Attributes:
        every_s: seconds from one look to the next.
        tells_of_end: the sentence about how the sweep ended is not on it yet.
    """

    every_s = _LOOK_EVERY_S
    tells_of_end = True

    def __init__(self, session: Session, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self.session = session
        self._ledger = ledger
        self._clock = clock
        self._pace = Pace()
        self._last: Any = None
        self._results: SweepResults | None = None
        self._rank_at = float("-inf")

    def look(self, row: SweepRow) -> None:
        """Look at the sweep and show what is new."""
        document = self._document(row)
        # What is expected changes with every second; that alone is no news.
        news = {key: value for key, value in document.items() if key != "forecast"}
        if news != self._last:
            self._last = news
            self.session.record(document)

    def results(self, row: SweepRow) -> SweepResults:
        """Return the results of a sweep, as old as a few seconds while it goes on."""
        from airflows.engine.results import gather  # noqa: PLC0415

        is_old = self._clock() >= self._rank_at
        if self._results is None or is_old or row.ended_at != self._results.row.ended_at:
            self._results = gather(self._ledger, row)
            self._rank_at = self._clock() + _RANK_EVERY_S
        return self._results

    def stepping_aside(self) -> AbstractContextManager[None]:
        """While it is entered, Ctrl-Z finds the terminal as it was."""
        return nullcontext()

    def close(self) -> None:
        """Leave the terminal as it was found."""

    def _document(self, row: SweepRow) -> Document:
        from airflows.cli.lookup import best_value, driver_of, overrides_of  # noqa: PLC0415

        results = self.results(row)
        running = self._ledger.trials(row.id, states=IN_FLIGHT)
        overrides = overrides_of(self._ledger, row, running)
        spent = sum(self._ledger.accelerator_seconds(row.id).values())
        return {
            **sweep_row(row, self._ledger.counts(row.id), best_value(results), driver_of(row)),
            "accelerator_hours": spent / 3600,
            "forecast": forecast_of(self._ledger, row, results),
            "running": [trial_document(trial, overrides[trial.number]) for trial in running],
        }


class PlainView(View):
    """Shows a sweep as a line now and then."""

    _due = float("-inf")

    def look(self, row: SweepRow) -> None:
        """Print a line when something changed, at most one in ten seconds, and one at the end."""
        document = self._document(row)
        words, left = _words(document), self._left(document)
        is_over = document["ended_at"] is not None or document["driver"] is None
        if words != self._last and (is_over or self._clock() >= self._due):
            self._last, self._due = words, self._clock() + PLAIN_EVERY_S
            self.session.text(f"{row.id}: {words}{left}")

    def _left(self, document: Document) -> str:
        trials = document["trials"]
        ended = sum(trials[state] for state in ("succeeded", "failed", "stopped", "cancelled"))
        expected = document["forecast"]
        if expected is not None and expected["limit"] is not None:
            return f"; {forecast_text(expected)}"
        return left_text(self._pace.left_s(ended, trials["total"], self._clock()))


class LiveView(View):
    """Shows a sweep on the whole terminal, as a pager does; the last picture stays when it is over."""

    every_s = LOOK_EVERY_S
    tells_of_end = False

    def __init__(self, session: Session, ledger: Ledger, row: SweepRow, home: Path) -> None:
        super().__init__(session, ledger)
        from airflows.cli.live import LiveDisplay  # noqa: PLC0415 - only a terminal needs it
        from airflows.engine.onlooker import Onlooker  # noqa: PLC0415
        from airflows.engine.site import reload  # noqa: PLC0415

        self._onlooker = Onlooker(ledger, row, reload(row).spec, home)
        self._display = LiveDisplay(sys.stdout, color=session.style.color, alone=True)

    def look(self, row: SweepRow) -> None:  # noqa: ARG002 - it follows the sweep by itself
        """Look again."""
        self._display.show(self._onlooker.look())

    def stepping_aside(self) -> AbstractContextManager[None]:
        """While it is entered, Ctrl-Z gives the terminal back, and takes it again afterwards."""
        from airflows.cli.interrupts import around_stops  # noqa: PLC0415

        return around_stops(self._display.step_aside, self._display.step_back)

    def close(self) -> None:
        """Leave the last picture standing."""
        self._onlooker.close()
        self._display.close()


def _view_for(session: Session, ledger: Ledger, row: SweepRow, home: Path) -> View:
    if session.is_json:
        return View(session, ledger)
    return LiveView(session, ledger, row, home) if can_draw(sys.stdout) else PlainView(session, ledger)


def _words(document: Document) -> str:
    best = "" if document["best"] is None else f", best {number_text(document['best'])}"
    state = "" if document["ended_at"] is None else f"{document['state']}: "
    return f"{state}{render.counts_text(document['trials'])}{best}"


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
    _driverless_since: float | None = None

    def follow(self) -> tuple[str, ...]:
        """Show the sweep until it ends, or nobody drives it any more; return what is to be said of that."""
        while True:
            row = self.ledger.sweep(self.sweep)
            self.view.look(row)
            if row.ended_at is not None:
                return ()
            if self._is_left_alone(row):
                return (
                    f"Nobody drives {self.sweep}; what runs goes on.",
                    f"Take it over with: airflows resume {self.sweep}",
                )
            self.sleep(self.view.every_s)

    def _is_left_alone(self, row: SweepRow) -> bool:
        """Whether nobody has driven it for a while: a driver may only just be starting."""
        from airflows.cli.lookup import driver_of  # noqa: PLC0415

        if driver_of(row) is not None:
            self._driverless_since = None
            return False
        if self._driverless_since is None:
            self._driverless_since = self.clock()
        return self.clock() - self._driverless_since >= _DRIVERLESS_S
