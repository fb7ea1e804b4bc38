"""Where trials go when there are several places, and when they are moved on."""

from dataclasses import replace

import pytest

from airflows.backends.base import Observation, Phase
from airflows.ledger.records import Wish
from airflows.planner import CANCELLED, Limits, Rules, Sighting, Tally, View, plan
from airflows.planning import PlaceRule, Refusals
from airflows.retry import RetryPolicy
from airflows.trial import EventKind, Handle, Reason, State, Trial

NOW = 10_000.0
QUEUED = Observation(Phase.QUEUED)
RULES = Rules(
    limits=Limits(concurrent=100),
    retry=RetryPolicy(3, 3, 10.0),
    since=0.0,
    settle_s=0.0,
    idempotent=False,
    backend="burst",
    places=(PlaceRule("slurm", 2), PlaceRule("kubernetes", 1), PlaceRule("databricks", 3)),
    after_s=600.0,
    withdraws=frozenset({"slurm"}),
)


def pending(number, **fields):
    return Trial("s-000000", number, number, 0, **fields)


def at(number, place, state=State.QUEUED, waited_s=0.0, **fields):
    handle = Handle(f"{place}:{number}")
    return pending(number, state=state, backend=place, handle=handle, submitted_at=NOW - waited_s, **fields)


def view(ready=(), in_flight=(), seen=None, **fields):
    observed = {trial.number: QUEUED for trial in in_flight} if seen is None else seen
    return View(
        **{
            "now": NOW,
            "began_at": 0.0,
            "wish": Wish.RUN,
            "halted": "",
            "in_flight": in_flight,
            "sightings": {number: Sighting(each) for number, each in observed.items()},
            "ready": ready,
            "waiting": len(ready),
            "exhausted": True,
            "cancels": frozenset(),
            "tally": Tally(),
            "running_accelerator_s": 0.0,
            "rules": RULES,
            **fields,
        }
    )


def moves(made):
    return [trial.number for trial, event in made.events if event.reason is Reason.MOVED]


def test_trials_go_to_the_first_place_that_has_room():
    made = plan(view([pending(n) for n in range(8)]))

    assert made.places == {
        0: "slurm",
        1: "slurm",
        2: "kubernetes",
        3: "databricks",
        4: "databricks",
        5: "databricks",
    }
    assert [trial.number for trial in made.claims] == [*range(6)]


def test_what_is_in_flight_takes_the_room_of_its_own_place():
    made = plan(view([pending(9)], [at(0, "slurm"), at(1, "databricks"), at(2, "slurm")]))

    assert made.places == {9: "kubernetes"}


def test_the_sweep_s_own_limit_holds_for_all_places_together():
    rules = replace(RULES, limits=Limits(concurrent=3))

    assert list(plan(view([pending(n) for n in range(8)], rules=rules)).places) == [0, 1, 2]


@pytest.mark.parametrize("reason", [Reason.MOVED, Reason.NO_ROOM])
def test_what_was_passed_on_goes_behind_the_place_that_it_left(reason):
    left = [pending(0, backend="slurm", reason=reason), pending(1, backend="databricks", reason=reason)]

    assert plan(view(left)).places == {0: "kubernetes", 1: "slurm"}


@pytest.mark.parametrize("reason", [Reason.ERROR, Reason.UNSENT, Reason.PREEMPTED])
def test_what_failed_or_was_not_sent_begins_again_at_the_first_place(reason):
    again = pending(0, backend="databricks", reason=reason, attempt=1)

    assert plan(view([again])).places == {0: "slurm"}


def test_what_waits_for_long_is_moved_when_a_later_place_has_room():
    old = [at(n, "slurm", waited_s=700.0 + n) for n in range(5)]

    # The longest first, and one more than the next place has room for goes to the one behind.
    assert moves(plan(view(in_flight=old))) == [4, 3, 2, 1]


def test_what_waits_a_little_or_in_the_last_place_stays():
    made = plan(view(in_flight=[at(0, "slurm", waited_s=599.0), at(1, "databricks", waited_s=9e5)]))

    assert moves(made) == []


def test_where_no_later_place_has_room_everything_stays():
    full = [at(n, "databricks") for n in range(1, 4)] + [at(4, "kubernetes")]

    assert moves(plan(view(in_flight=[at(0, "slurm", waited_s=9e5), *full]))) == []


@pytest.mark.parametrize("seen", [None, Observation(Phase.UNKNOWN), Observation(Phase.RUNNING)])
def test_nothing_is_moved_that_is_not_seen_waiting(seen):
    made = plan(view(in_flight=[at(0, "slurm", waited_s=9e5)], seen={0: seen} if seen else {}))

    assert moves(made) == []


def test_nothing_is_moved_while_the_sweep_halts_or_is_left():
    old = [at(0, "slurm", waited_s=9e5)]

    assert moves(plan(view(in_flight=old, wish=Wish.PAUSED))) == []
    # What waits is taken back then, and starts nowhere.
    assert moves(plan(view(in_flight=old, halted="failed: enough", wish=Wish.HALT))) == [0]


def test_room_is_kept_for_what_is_on_its_way():
    leaving = at(0, "slurm", State.STOPPING, reason=Reason.MOVED)
    rules = replace(RULES, places=(PlaceRule("slurm", 1), PlaceRule("databricks", 1)))

    assert plan(view([pending(1)], [leaving], rules=rules)).places == {}
    arrived = pending(2, backend="slurm", reason=Reason.MOVED, attempt=1)
    assert plan(view([pending(1), arrived], rules=rules)).places == {2: "databricks", 1: "slurm"}


def test_what_was_moved_has_its_room_before_anything_else_is_moved_there():
    rules = replace(RULES, places=(PlaceRule("slurm", 1), PlaceRule("databricks", 1)))
    arrived = pending(2, backend="slurm", reason=Reason.MOVED, attempt=1)
    made = plan(view([arrived], [at(0, "slurm", waited_s=9e5)], rules=rules))

    assert (made.places, moves(made)) == ({2: "databricks"}, [])


def test_what_was_passed_on_takes_its_room_before_that_is_kept_for_what_is_still_leaving():
    rules = replace(
        RULES, places=(PlaceRule("slurm", 1), PlaceRule("databricks", 1)), limits=Limits(concurrent=2)
    )
    leaving = at(0, "slurm", State.STOPPING, reason=Reason.MOVED)
    left = pending(1, backend="slurm", reason=Reason.MOVED, attempt=1)

    assert plan(view([left], [leaving], rules=rules)).places == {1: "databricks"}


def test_nothing_takes_the_turn_of_what_has_left_the_queue():
    gone = Observation(Phase.ENDED, word=CANCELLED, ended_at=NOW)
    rules = replace(RULES, limits=Limits(concurrent=1))
    leaving = at(0, "slurm", State.STOPPING, reason=Reason.MOVED)

    made = plan(view([pending(1)], [leaving], seen={0: gone}, rules=rules))

    assert ([event.kind for _, event in made.events], made.places) == ([EventKind.GONE], {})


def test_nothing_is_taken_out_of_a_queue_for_a_place_that_refuses_but_ever_more_seldom():
    def moved(first_at, last_at, waits=2):
        old = [at(n, "slurm", waited_s=9e5) for n in range(waits)]
        refused = {"kubernetes": Refusals(0.0, NOW), "databricks": Refusals(first_at, last_at)}
        return moves(plan(view(in_flight=old, refused=refused)))

    assert moved(NOW - 600, NOW - 599) == []
    # One is enough to see.
    assert moved(NOW - 600, NOW - 600) == [0]
    assert moved(NOW - 4000, NOW - 1900) == []
    assert moved(NOW - 4000, NOW - 2000) == [0]


def test_a_silent_place_is_waited_for_and_passed_over_in_the_end():
    fresh = [pending(0)]

    assert plan(view(fresh, silent={"slurm": NOW - 60})).places == {}
    assert plan(view(fresh, silent={"slurm": NOW - 600})).places == {0: "kubernetes"}
    assert moves(plan(view(in_flight=[at(0, "kubernetes", waited_s=9e5)], silent={"databricks": NOW}))) == []


def event_of(trial, observation):
    ((_, event),) = plan(view(in_flight=[trial], seen={trial.number: observation})).events
    return event


def test_what_was_taken_out_of_the_queue_is_followed_by_another_attempt():
    leaving = at(0, "slurm", State.STOPPING, reason=Reason.MOVED)
    gone = Observation(Phase.ENDED, word=CANCELLED, started_at=NOW - 1, ended_at=NOW, host="node-1")

    event = event_of(leaving, gone)

    assert (event.kind, event.reason) == (EventKind.GONE, Reason.MOVED)
    # It never ran, whatever the scheduler tells as its start.
    assert event.facts == {"ended_at": NOW}


@pytest.mark.parametrize(
    "seen", [Observation(Phase.RUNNING, started_at=NOW), Observation(Phase.ENDED, 1, started_at=NOW)]
)
def test_what_started_before_it_was_taken_out_stays(seen):
    event = event_of(at(0, "slurm", State.STOPPING, reason=Reason.MOVED), seen)

    assert event.kind is EventKind.STARTED
    assert event.facts["started_at"] == NOW


def test_where_runs_can_only_be_cancelled_what_had_started_goes_on_elsewhere():
    leaving = at(0, "kubernetes", State.STOPPING, reason=Reason.MOVED)
    killed = Observation(Phase.ENDED, 143, "killed", started_at=NOW - 1, ended_at=NOW)

    assert plan(view(in_flight=[leaving], seen={0: Observation(Phase.RUNNING)})).events == []
    event = event_of(leaving, killed)
    assert (event.kind, event.reason, event.facts["started_at"]) == (EventKind.GONE, Reason.MOVED, NOW - 1)


def test_what_ended_well_meanwhile_is_done():
    leaving = at(0, "slurm", State.STOPPING, reason=Reason.MOVED)

    assert event_of(leaving, Observation(Phase.ENDED, 0)).kind is EventKind.SUCCEEDED


@pytest.mark.parametrize(("place", "again"), [("local", [0]), ("databricks", []), ("gone", [])])
def test_what_cannot_be_found_is_sent_again_once_its_own_place_would_know_it(place, again):
    places = (PlaceRule("local", 1), PlaceRule("databricks", 1, settle_s=60.0))
    lost = pending(0, state=State.SUBMITTING, backend=place, claimed_at=NOW - 30)
    rules = replace(RULES, places=places, settle_s=60.0)

    made = plan(view(in_flight=[lost], rules=rules, sightings={0: Sighting(absent=True)}))

    assert [trial.number for trial in made.resubmits] == again


@pytest.mark.parametrize(("since", "kind"), [(599, EventKind.RECLAIMED), (600, EventKind.UNSENT)])
def test_what_a_place_lets_through_in_no_way_is_offered_to_the_next(since, kind):
    lost = pending(0, state=State.SUBMITTING, backend="slurm", claimed_at=NOW - 1)
    sighting = Sighting(absent=True, doubted_since=NOW - since)

    ((_, event),) = plan(view(in_flight=[lost], sightings={0: sighting})).events

    assert event.kind is kind
    assert (event.reason is Reason.NO_ROOM) is (kind is EventKind.UNSENT)
