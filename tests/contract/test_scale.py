"""A sweep of twice as many trials takes twice as much work, and no question reads what it need not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflows.backends.base import Capabilities, Job
from airflows.cli.ranked import results_lines
from airflows.cli.terminal import Style
from airflows.documents import results_document
from airflows.engine import judging
from airflows.engine.following import Follower
from airflows.engine.observers import Snapshot
from airflows.engine.results import gather, trials_with_overrides, verdict_document, winning_value
from airflows.engine.site import reload
from airflows.ledger import Ledger, Wish
from airflows.report.tables import results_csv
from airflows.scores import MetricPoint
from airflows.testing.crash import Ticks, World, make_world
from airflows.testing.effort import Counted, counting
from airflows.testing.fake import FakeBackend, Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import State

FEW = 240
# Twice as much, and something for trees that have grown deeper.
MOST_TIMES = 2.4
LOSS = {"metric": "loss", "goal": "minimize"}


class QueuingBackend(FakeBackend):
    """Takes all trials at once, as Slurm does."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine needs to know."""
        return Capabilities(
            idempotent_submit=False,
            max_batch=1000,
            queues_itself=True,
            visibility_lag_s=0.0,
            makes_mlflow_run=False,
            slots=100_000,
            shares_host=False,
        )


@dataclass
class Curves(FakeTracker):
    """On which each run logs a value a second."""

    started: dict[int, float] = field(default_factory=dict)
    clock: Callable[[], float] = lambda: 0.0

    def latest(self, run_ids):
        now = self.clock()
        return {run_id: {"loss": self._point(self.numbers[run_id], now)} for run_id in run_ids}

    def curve(self, run_ids, metric):
        del metric
        for run_id, logged in self.latest(run_ids).items():
            last = logged["loss"]
            yield run_id, [MetricPoint(step, last.value, step) for step in range(1, last.step + 1)]

    def _point(self, number: int, now: float) -> MetricPoint:
        step = max(1, int(now - self.started.get(number, now)))
        return MetricPoint(step, float(number * 7919 % 1009), step)


def world_of(home: Path, trials: int, scripts: Callable[[Job], Script], **tree: Any) -> World:
    tracker = Curves(values={number: float(number * 7919 % 1009) for number in range(trials)})
    space = {"parameters.seed": {"min": 0, "max": trials - 1, "step": 1}}
    usual = {"space": space, "limits": {"concurrent": 20}, "objective": LOSS}
    world = make_world(home, scripts=scripts, tree={**usual, **tree}, tracker=tracker)
    tracker.clock = world.cluster.clock
    return world


def ten_seconds(job: Job) -> Script:
    """Of each ten trials one ends in each second."""
    return Script(seconds=1 + job.number % 10)


def one_second(_job: Job) -> Script:
    return Script(seconds=1)


def drive(world: World, backend: FakeBackend, ticks: Ticks | None = None) -> Counted:
    sweep = world.begin()
    with counting(world.ledger) as found:
        world.driving(world.site(backend), ticks or Ticks(most=100_000)).run(sweep)
    return found


def in_slots(home: Path, trials: int) -> Counted:
    world = world_of(home, trials, one_second)
    found = drive(world, FakeBackend(world.cluster, home / "root", slots=20))
    assert world.ledger.counts(world.begin()) == {State.SUCCEEDED: trials}
    return found


def queued_whole(home: Path, trials: int) -> Counted:
    world = world_of(home, trials, ten_seconds)
    return drive(world, QueuingBackend(world.cluster, home / "root"))


def stopped_early(home: Path, trials: int) -> Counted:
    rule = {"method": "asha", "min_steps": 2, "reduction": 2, "max_steps": 16}
    world = world_of(home, trials, lambda _job: Script(seconds=16), stop=rule)

    def script(job: Job) -> Script:
        world.tracker.started[job.number] = world.cluster.clock()
        return Script(seconds=16)

    world.cluster.scripts = script
    found = drive(world, FakeBackend(world.cluster, home / "root", slots=20))
    assert world.ledger.counts(world.begin())[State.STOPPED] > trials / 4
    return found


def started_again_and_cancelled(home: Path, trials: int) -> Counted:
    world = world_of(home, trials, lambda _job: Script(seconds=1000))
    backend = QueuingBackend(world.cluster, home / "root")
    sweep = world.begin()
    world.drive_for(sweep, 3, backend=backend)
    world.ledger.wish(sweep, Wish.STOP)
    found = drive(world, backend)
    assert world.ledger.counts(sweep) == {State.CANCELLED: trials}
    return found


class Onlooker(Ticks):
    """Looks at the sweep now and then, the same number of times however large it is."""

    def __init__(self, world: World, sweep: str, every: int) -> None:
        super().__init__(most=100_000)
        self._every = every
        row = world.ledger.sweep(sweep)
        self._follower = Follower(world.ledger, row, reload(row).spec, world.cluster.clock)

    def on_tick(self, snapshot: Snapshot) -> None:
        super().on_tick(snapshot)
        if self.count % self._every == 0:
            self._follower.look()


def watched(home: Path, trials: int) -> Counted:
    world = world_of(home, trials, one_second)
    backend = FakeBackend(world.cluster, home / "root", slots=20)
    return drive(world, backend, Onlooker(world, world.begin(), trials // FEW))


def ranked_and_told(home: Path, trials: int) -> Counted:
    world = world_of(home, trials, one_second)
    drive(world, FakeBackend(world.cluster, home / "root", slots=20))
    ledger = world.ledger
    with counting(ledger) as found:
        row = ledger.sweep(world.begin())
        results = gather(ledger, row)
        judged = verdict_document(ledger, results)
        document = results_document(results, results.ranking.ranked, verdict=judged)
        lines = results_lines(document, Style())
        table = list(results_csv(results, list(trials_with_overrides(ledger, row))))
        assert winning_value(ledger, row) == results.winner["value"]
    assert len(lines) > trials
    assert len(table) == trials + 1
    return found


WORK = (in_slots, queued_whole, stopped_early, started_again_and_cancelled, watched, ranked_and_told)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_twice_as_many_trials_take_twice_as_much_work(
    work: Callable[..., Counted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Curves are compared the more seldom the more there are, which shows from a thousand on.
    monkeypatch.setattr(judging, "_EVERY_S_PER_TRIAL", 0.02)
    few, many = (work(tmp_path / str(times), FEW * times) for times in (1, 2))
    assert many.times(few) <= MOST_TIMES, (few, many)


# What a question reads

LARGE = ("points", "trials", "attempts", "scores", "events")
MADE = re.compile(r"CREATE|DROP|ALTER|PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|INSERT", re.IGNORECASE)


def statements_of(world: World) -> set[str]:
    """Drive a sweep whose trials fail, are tried again and have several objectives, and ask all about it."""
    asked: set[str] = set()
    engine = world.ledger._engine

    def on_checkout(connection: Any, _record: Any, _proxy: Any) -> None:
        connection.set_trace_callback(asked.add)

    sa.event.listen(engine, "checkout", on_checkout)
    sweep = world.begin()
    backend = FakeBackend(world.cluster, world.home / "root")
    world.driving(world.site(backend), Onlooker(world, sweep, 1)).run(sweep)
    ask_everything(world.ledger, sweep)
    return asked


def ask_everything(ledger: Ledger, sweep: str) -> None:
    """Call whatever only reads."""
    row = ledger.sweep(sweep)
    results = gather(ledger, row)
    verdict_document(ledger, results)
    winning_value(ledger, row)
    ledger.request_cancel(sweep, [0])
    for question in (
        *(ledger.cancel_requests, ledger.counts, ledger.attempts, ledger.events, ledger.claim_details),
        *(ledger.ran_out_of_memory, ledger.ended_attempts, ledger.reopenings, ledger.code_versions),
        *(ledger.started_count, ledger.accelerator_seconds, ledger.objective_scores),
    ):
        question(sweep)
    for number in range(3):
        ledger.attempts(sweep, number)
        ledger.events(sweep, number)
        ledger.claim_details(sweep, number)
        ledger.point(sweep, number)
    ledger.first_failures(sweep, 0.0)
    ledger.ended_since(sweep, 0.0)
    ledger.curve_scores(sweep, "loss")
    ledger.constraint_scores(sweep, ["loss"])
    ledger.best_value(sweep, minimize=True)
    ledger.trials(sweep, open_only=True, limit=1)
    ledger.attempts_at(sweep, [0, 1])
    list(ledger.trials_by_page(sweep, [State.SUCCEEDED]))
    list(ledger.points(sweep))


def test_no_question_about_a_sweep_reads_the_rows_of_others(tmp_path: Path) -> None:
    """Each finds its rows by an index that begins with the sweep, and a driver's by the trial too."""
    rule = {"method": "asha", "min_steps": 1, "reduction": 2, "max_steps": 4}
    world = world_of(
        tmp_path,
        12,
        lambda job: Script(seconds=2, exit_code=job.number % 3 == 1),
        stop=rule,
        retry={"wait": "1s"},
    )
    scans = {}
    for statement in statements_of(world):
        if MADE.match(statement):
            continue
        with world.ledger._engine.connect() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}").all()
        steps = [row[3] for row in plan]
        found = [step for step in steps if re.match(rf"SCAN ({'|'.join(LARGE)})\b", step)]
        if found:
            scans[statement] = found
    world.close()
    assert not scans


def test_a_transition_is_written_by_the_key_of_its_trial(tmp_path: Path) -> None:
    world = world_of(tmp_path, 3, one_second)
    updates = {text for text in statements_of(world) if text.startswith("UPDATE trials SET state")}
    with world.ledger._engine.connect() as connection:
        plans = {connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()[0][3] for text in updates}
    world.close()
    assert plans == {"SEARCH trials USING INDEX sqlite_autoindex_trials_1 (sweep=? AND number=?)"}
