"""Sweeps on two places to their ends: a full queue, and a place behind it that may let nothing through."""

from collections import Counter
from dataclasses import dataclass

import pytest

from airflows.engine import record
from airflows.engine.observers import Silent
from airflows.engine.start import begin, require_backend
from airflows.engine.submission import Submission
from airflows.errors import (
    BackendUnavailableError,
    ConflictError,
    SubmitAmbiguousError,
    SubmitUnreachedError,
    SubmitUnsentError,
)
from airflows.ledger import open_ledger
from airflows.report.places import spent_by_place
from airflows.testing.bursting import CLOUD, QUEUE, SETTINGS, burst_world
from airflows.testing.fake import Script
from airflows.trial import Reason, State, Trial, advance

_MOST_TICKS = 300


@dataclass
class Counting(Silent):
    """Pauses a driver that does not come to an end."""

    ticks: int = 0
    drive: object = None

    def on_tick(self, _snapshot):
        self.ticks += 1
        if self.ticks > _MOST_TICKS:
            self.drive.pause()


def world_of(tmp_path, scripts, count, first=None, then=None, limits=None, **tree):
    space = {"parameters.lr": [n / 100 for n in range(1, count + 1)]}
    made = burst_world(tmp_path, scripts, {"space": space, "limits": limits or {}, **tree})
    at = {
        QUEUE: {"concurrent": 3} if first is None else first,
        CLOUD: {"concurrent": 2} if then is None else then,
    }
    places = {name: {"type": name, "name": name, **given} for name, given in at.items()}
    made.settings = {**SETTINGS, "first": places[QUEUE], "then": places[CLOUD]}
    return made


def run(made):
    drive = made.driving(made.site())
    drive.observer = Counting(drive=drive)
    row = begin(drive.site, now=made.cluster.clock()).row
    drive.run(row.id)
    attempts = made.ledger.attempts(row.id)
    return made.ledger.counts(row.id), Counter((each.backend, each.reason) for each in attempts)


def full(job):
    return Script(seconds=3) if job.place == CLOUD else Script(seconds=3, queued=1e9)


def refuse(made, place, answer):
    def prepare(name, fake):
        if name == place:
            fake.refuse = lambda _job: answer

    made.prepare = prepare


def away(made, place):
    def prepare(name, fake):
        fake.away = name == place

    made.prepare = prepare


@pytest.mark.parametrize(("limit", "cloud", "count"), [(1, 1, 2), (2, 2, 6), (4, 2, 8)])
def test_what_leaves_a_full_queue_runs_where_the_sweep_s_limit_is_no_more_than_the_queue(
    tmp_path, limit, cloud, count
):
    limits = {"concurrent": limit}
    made = world_of(tmp_path, full, count, {"concurrent": limit}, {"concurrent": cloud}, limits)

    counts, attempts = run(made)

    assert counts[State.SUCCEEDED] == count
    assert attempts == {(QUEUE, Reason.MOVED): count, (CLOUD, Reason.NONE): count}


def test_no_trial_loses_its_turn_again_and_again_for_a_place_that_refuses(tmp_path):
    made = world_of(tmp_path, lambda _job: Script(seconds=3, queued=20), 3)
    refuse(made, CLOUD, SubmitUnsentError("the quota is used up"))

    counts, attempts = run(made)

    assert counts[State.SUCCEEDED] == 3
    assert attempts[QUEUE, Reason.MOVED] <= 2


def test_nothing_is_sent_to_a_place_that_does_not_answer(tmp_path):
    made = world_of(tmp_path, lambda _job: Script(seconds=3, queued=20), 5)
    away(made, CLOUD)

    counts, attempts = run(made)

    assert (counts[State.SUCCEEDED], attempts) == (5, {(QUEUE, Reason.NONE): 5})


def test_a_place_that_never_lets_a_submission_through_keeps_no_trial(tmp_path):
    made = world_of(tmp_path, lambda _job: Script(seconds=3), 7)
    refuse(made, QUEUE, SubmitAmbiguousError("sbatch: Invalid authentication credential"))

    counts, attempts = run(made)

    assert counts[State.SUCCEEDED] == 7
    assert attempts == {(CLOUD, Reason.NONE): 7}


def test_a_place_that_was_not_reached_is_waited_for(tmp_path):
    """It may have room, so what goes to the next place goes there after `after`."""
    made = world_of(tmp_path, lambda _job: Script(seconds=3), 2)
    refuse(made, QUEUE, SubmitUnreachedError("the token has expired"))
    began = made.cluster.clock()

    counts, _ = run(made)

    assert counts[State.SUCCEEDED] == 2
    begun = [run.submitted_at for run in made.cluster.runs.values()]
    assert min(begun) - began >= SETTINGS["after"]


@pytest.mark.parametrize("reason", [Reason.MOVED, Reason.NO_ROOM])
def test_what_was_passed_on_stays_so_while_nothing_can_be_submitted(tmp_path, reason):
    site = world_of(tmp_path, full, 1).site()
    submission = Submission({}, lambda _place: None, site.tracker, site.backend, lambda: 0.0)
    claimed = Trial("s-000000", 0, 0, 0, State.SUBMITTING, reason, backend=CLOUD)

    ((_, event),) = submission.hold_back([claimed], "MLflow is away").events

    after = advance(claimed, event)
    assert (after.state, after.reason, after.backend) == (State.PENDING, reason, QUEUE)


def test_one_place_that_is_away_keeps_no_sweep_from_being_driven_on(tmp_path):
    made = world_of(tmp_path, lambda _job: Script(), 2, checkpoint={"dir": str(tmp_path)})
    away(made, QUEUE)

    with pytest.raises(BackendUnavailableError):
        require_backend(made.site())
    notes = require_backend(made.site(), known=True)

    assert any(QUEUE in note and "stays there" in note for note in notes)


def test_a_lost_sweep_is_known_whatever_the_order_of_its_places(tmp_path):
    made = world_of(tmp_path, lambda _job: Script(), 2)
    site = made.site()
    row = begin(site, now=0.0).row
    record.keep_all(site.roots, row, None)
    made.settings = {**made.settings, "first": made.settings["then"], "then": made.settings["first"]}
    other = open_ledger(tmp_path / "new")

    with pytest.raises(ConflictError, match="has run in"):
        begin(made.site(ledger=other), now=0.0)
    other.close()


def test_what_a_halt_took_back_did_not_move_on(tmp_path):
    def scripts(job):
        ends_badly = Script(seconds=1, exit_code=1, lines=("ValueError: x",))
        return ends_badly if job.place == CLOUD else Script(queued=900)

    made = world_of(tmp_path, scripts, 8, limits={"failed_trials": 2}, retry={"max": 0})
    made.settings = {**made.settings, "after": 1000}
    drive = made.driving(made.site())
    row = begin(drive.site, now=made.cluster.clock()).row
    drive.run(row.id)

    spent = spent_by_place(made.ledger.attempts(row.id), made.cluster.clock())
    assert {one.place: one.moved for one in spent} == {QUEUE: 0, CLOUD: 0}
