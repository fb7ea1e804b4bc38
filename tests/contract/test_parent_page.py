"""What a sweep's parent run shows in MLflow, and what results draw in a notebook."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import plotly.graph_objects as go
import pytest

import airflows
from airflows.engine import reporting
from airflows.errors import MissingExtraError, SpecError
from airflows.ledger import SweepState
from airflows.testing.crash import Boundaries, World, make_world
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.tracking import SweepEnd, embedded_uri

TREE = {"objective": {"metric": "loss", "goal": "minimize"}}


@dataclass
class EndTracker(FakeTracker):
    """Keeps how the sweep was ended."""

    ends: list[SweepEnd] = field(default_factory=list)

    def close_sweep(self, end: SweepEnd) -> tuple[str, ...]:
        self.ends.append(end)
        return super().close_sweep(end)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path, scripts=lambda _job: Script(seconds=360), tree=TREE)
    made.tracker = EndTracker(values={0: 0.5, 1: 0.25, 2: 0.75})
    return made


def ended(world: World) -> SweepEnd:
    assert world.drive(Boundaries(), dead_for_sure=True).state is SweepState.SUCCEEDED
    world.close()
    return world.tracker.ends[-1]


def test_the_end_of_a_sweep_brings_a_description_and_a_report(world: World) -> None:
    end = ended(world)
    assert "Trial 1 has the lowest loss: 0.25." in end.description
    assert "| 1 | 0.25 |" in end.description
    report = "".join(end.artifacts["report.html"])
    assert report.startswith("<!DOCTYPE html>")
    # As the sweep is about to be recorded, not as it stands while it is being finished.
    assert '<span class="state" data-state="succeeded">' in report
    assert {"sweep.yaml", "results.csv", "winner.yaml"} <= end.artifacts.keys()


def test_without_plotly_there_is_a_description_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_plotly_file", lambda: None)
    end = ended(world)
    assert "Trial 1 has the lowest loss" in end.description
    assert "report.html" not in end.artifacts
    assert "report.html" not in end.description


def test_a_report_that_cannot_be_made_does_not_fail_the_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> str:
        message = "no"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(reporting, "page", fail)
    end = ended(world)
    assert "The report could not be made (ZeroDivisionError)" in end.description
    assert "--html report.html" in end.description
    assert "report.html" not in end.artifacts
    assert {"sweep.yaml", "results.csv", "winner.yaml"} <= end.artifacts.keys()


def test_curves_that_cannot_be_read_are_a_note_in_the_report(world: World) -> None:
    class Blind(EndTracker):
        def curve(self, *_given: object) -> None:  # type: ignore[override]
            self.away = True
            try:
                self._answer("curve")
            finally:
                self.away = False

    world.tracker = Blind(values=dict(world.tracker.values))
    report = "".join(ended(world).artifacts["report.html"])
    assert "The learning curves could not be read: MLflow does not answer." in report


def test_a_real_store_has_both_on_the_parent_run(tmp_path: Path) -> None:
    world = make_world(tmp_path, scripts=lambda _job: Script(seconds=1), tree=TREE)
    world = replace(world, tracking_uri=embedded_uri(world.home))
    row = world.drive(Boundaries(), dead_for_sure=True)
    world.close()
    with closing(sqlite3.connect(world.home / "mlflow.db")) as store:
        notes = store.execute("SELECT run_uuid, value FROM tags WHERE key = 'mlflow.note.content'").fetchall()
    assert [run for run, _ in notes] == [row.parent_run_id]
    assert "There is no winner" in notes[0][1]
    (report,) = world.home.glob(f"mlartifacts/*/{row.parent_run_id}/artifacts/report.html")
    assert report.read_text(encoding="utf-8").endswith("</html>\n")


# In a notebook


@pytest.fixture
def results(world: World) -> airflows.Results:
    ended(world)
    return airflows.attach("crash", home=world.home)


def test_every_plot_is_a_figure_of_plotly(results: airflows.Results) -> None:
    names = [name for name in dir(results) if name.startswith("plot_")]
    assert len(names) == 10
    for name in names:
        figure = getattr(results, name)()
        assert isinstance(figure, go.Figure)
        # Something is drawn, or the figure says why nothing is.
        assert figure.data or figure.layout.annotations[0].text
    history = results.plot_history()
    assert list(history.data[0].y) == [0.5, 0.25, 0.75]
    assert results.plot_pareto().layout.annotations[0].text.startswith("There is one objective")


def test_a_contour_of_what_is_no_parameter_is_refused(results: airflows.Results) -> None:
    with pytest.raises(SpecError, match="takes two different parameters"):
        results.plot_contour("parameters.lr")
    with pytest.raises(SpecError, match="Give two of"):
        results.plot_contour("parameters.nothing", "lr")


def test_without_plotly_plots_name_the_extra(
    results: airflows.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtraError, match=r"airflows\[report\]"):
        results.plot_history()
