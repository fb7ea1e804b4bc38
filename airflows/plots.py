"""The plots of a sweep's results, as plotly figures for a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from airflows.engine.reporting import attached_tracker, facts_of, read_curves
from airflows.engine.results import SweepResults, trials_with_overrides
from airflows.errors import MissingExtraError, SpecError
from airflows.home import home_directory
from airflows.ledger import open_ledger
from airflows.report.facts import Facts
from airflows.report.figures import curves, effort, fronts, history, parallel, space
from airflows.report.figures.drawing import Figure
from airflows.tracking import OFF

__all__ = ["Plots"]

PlotlyFigure = Any
"""A `plotly.graph_objects.Figure`; plotly has no types of its own, and is imported when a plot is made."""


class Plots:
    """What results can draw. Each method returns a `plotly.graph_objects.Figure`.

    Where there is nothing to draw, the figure says why. Every method raises `MissingExtraError` where plotly
    is not installed.
    """

    def __init__(self, gathered: SweepResults, home: Path | None) -> None:
        self._gathered = gathered
        self._home = home
        self._facts: Facts | None = None

    def plot_history(self) -> PlotlyFigure:
        """Return the value of each point in the order of the trials, and the best up to then."""
        return self._drawn(history.history)

    def plot_parallel(self) -> PlotlyFigure:
        """Return parallel coordinates: each point a line through its parameters to its value."""
        return self._drawn(parallel.parallel)

    def plot_importance(self) -> PlotlyFigure:
        """Return how much each parameter has to do with a point being among the best."""
        return self._drawn(space.importance)

    def plot_slices(self) -> PlotlyFigure:
        """Return the value over each parameter by itself."""
        return self._drawn(space.slices)

    def plot_contour(self, *keys: str) -> PlotlyFigure:
        """Return the value over two parameters.

        Args:
            *keys: override keys of the two; none for the two most important ones.

        Raises:
            SpecError: these are not two of the sweep's parameters.
        """
        if not keys:
            return self._drawn(lambda facts: space.contours(facts)[0])
        known = {key: one for one in self._read().parameters for key in (one.name, *one.keys)}
        if len(keys) != 2 or len(set(keys)) != 2 or not known.keys() >= set(keys):  # noqa: PLR2004 - a plane
            message = f"plot_contour() takes two different parameters, and got {', '.join(keys)}."
            raise SpecError(message, hint=f"Give two of: {', '.join(sorted(known))}.")
        return self._drawn(lambda facts: space.contour(facts, (known[keys[0]], known[keys[1]])))

    def plot_pareto(self) -> PlotlyFigure:
        """Return the points over the first two of several objectives, with the Pareto front."""
        return self._drawn(lambda facts: next(iter(fronts.fronts(facts)), fronts.NO_FRONT))

    def plot_curves(self) -> PlotlyFigure:
        """Return learning curves, of the best trials and some others; they are read from MLflow now."""
        return self._drawn(curves.curves, with_curves=True)

    def plot_timeline(self) -> PlotlyFigure:
        """Return when and where each attempt ran."""
        return self._drawn(effort.timeline)

    def plot_cost(self) -> PlotlyFigure:
        """Return accelerator-hours: useful ones, and lost ones by why."""
        return self._drawn(effort.cost)

    def plot_failures(self) -> PlotlyFigure:
        """Return how many trials had an attempt that failed, by cause."""
        return self._drawn(effort.failures)

    def _drawn(self, draw: Callable[[Facts], Figure], *, with_curves: bool = False) -> PlotlyFigure:
        try:
            go = import_module("plotly.graph_objects")
        except ModuleNotFoundError as exc:
            message = "plots need plotly, which is not installed."
            raise MissingExtraError(message, hint="Run: pip install 'airflows[report]'") from exc
        figure = draw(self._read(with_curves=with_curves))
        made = go.Figure(figure.to_dict())
        if figure.why_not:
            made.add_annotation(text=figure.why_not, showarrow=False)
            made.update_layout(xaxis_visible=False, yaxis_visible=False)
        return made.update_layout(title_text=figure.title, margin_t=64)

    def _read(self, *, with_curves: bool = False) -> Facts:
        """Return the facts, read again where curves are wanted, which takes longer."""
        if self._facts is not None and not with_curves:
            return self._facts
        gathered, home = self._gathered, self._home or home_directory()
        with closing(open_ledger(home, create=False)) as ledger:
            rows = list(trials_with_overrides(ledger, gathered.row))
            found = None
            if with_curves:
                has_mlflow = gathered.row.tracking_uri not in {"", OFF}
                tracker = attached_tracker(gathered.row, gathered.sweep.spec, home) if has_mlflow else None
                found = read_curves(tracker, gathered, rows)
            self._facts = facts_of(ledger, gathered, now=time.time(), rows=rows, curves=found)
        return self._facts
