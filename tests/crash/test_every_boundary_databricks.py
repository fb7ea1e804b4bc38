"""Dying at every boundary on a fake Databricks workspace: one run for each token, nothing lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.ids import Token
from airflows.ledger import SweepState
from airflows.testing import crash
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.workspace import FakeWorkspace
from airflows.tracking import open_tracker

PLANS = {
    "*-0000-a0": {"run_s": 3.0, "result": "INTERNAL_ERROR"},
    "*-0001-a0": {"run_s": 2.0, "result": "FAILED", "exit_code": 1, "logs": ["ValueError: no luck"]},
}


@dataclass
class Cluster:
    """The workspace as the crash suite looks at it."""

    workspace: FakeWorkspace

    class Clock:
        def __init__(self, workspace):
            self._workspace = workspace

        def __call__(self):
            return self._workspace.clock.now()

        def advance(self, seconds):
            self._workspace.advance(seconds)

    @property
    def clock(self):
        return self.Clock(self.workspace)

    @property
    def runs(self):
        return {Token(run.submission.token): run for run in self.workspace.runs}

    @property
    def submissions(self):
        return [Token(run.submission.token) for run in self.workspace.runs]


@dataclass
class DatabricksWorld(World):
    def site(self, *given):
        self.tracker = open_tracker(self.tracking_uri, self.home, clock=self.cluster.clock, is_service=True)
        return super().site(*given)

    def connect(self):
        workspace = self.cluster.workspace
        return DatabricksBackend(
            DatabricksSettings(patience=1),
            self.home / "root",
            clock=self.cluster.clock,
            pause=lambda seconds: workspace.advance(max(seconds, 0.05)),
        )


@contextmanager
def world(home, monkeypatch, *, faults=(), tracking_uri="none") -> Iterator[DatabricksWorld]:
    with FakeWorkspace(default={"queue_s": 0.5, "run_s": 2.0}) as workspace:
        for name, value in workspace.environment.items():
            monkeypatch.setenv(name, value)
        for token, plan in PLANS.items():
            workspace.outcome(plan, token=token)
        for fault in faults:
            workspace.fault(**fault)
        made = make_world(home, scripts=lambda _job: None)
        fields = {name: getattr(made, name) for name in ("home", "sweep", "database")}
        there = DatabricksWorld(cluster=Cluster(workspace), tracking_uri=tracking_uri, **fields)
        yield there
        there.close()
        made.close()


def count_boundaries(home, monkeypatch, **fields):
    boundaries = Boundaries()
    with world(home, monkeypatch, **fields) as there:
        row = there.drive(boundaries, dead_for_sure=True)
        check(there, row.id)
    return len(boundaries.names)


def die_and_go_on(home, monkeypatch, die_at, **fields):
    """Die at the k-th boundary, then start again; return whether there was a k-th one."""
    with world(home, monkeypatch, **fields) as there:
        died = False
        try:
            row = there.drive(Boundaries(die_at), dead_for_sure=True)
        except Died:
            died = True
            row = there.drive(Boundaries(), dead_for_sure=True)

        assert row.state is SweepState.SUCCEEDED
        check(there, row.id)
        assert [len(run.attempts) for run in there.cluster.workspace.runs] == [1] * 5
    return died


def test_dying_at_every_boundary_loses_and_repeats_nothing(tmp_path, monkeypatch):
    count = count_boundaries(tmp_path / "count", monkeypatch)
    died = [die_and_go_on(tmp_path / str(k), monkeypatch, k) for k in range(1, count + 1)]

    # Threads submit in any order, so a run or two of the sweep may take a tick less.
    assert sum(died) > 50


def test_dying_with_lost_replies_submits_nothing_twice(tmp_path, monkeypatch):
    lost = {"kind": "bad_gateway", "when": "after", "route": "jobs/runs/submit", "times": 2}
    count = count_boundaries(tmp_path / "count", monkeypatch, faults=[lost])
    died = [die_and_go_on(tmp_path / str(k), monkeypatch, k, faults=[lost]) for k in range(1, count + 1, 3)]

    assert sum(died) > 20


def test_dying_with_mlflow_keeps_each_attempt_s_run(tmp_path, monkeypatch):
    monkeypatch.setattr(crash, "TRACKING", (*crash.TRACKING, "adopt"))
    count = count_boundaries(tmp_path / "count", monkeypatch, tracking_uri="databricks")

    for die_at in range(3, count + 1, 9):
        die_and_go_on(tmp_path / str(die_at), monkeypatch, die_at, tracking_uri="databricks")
