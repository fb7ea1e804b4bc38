"""`retry.on_out_of_memory`: what another attempt changes, when it is worth one, and how it is told."""

from types import SimpleNamespace

import pytest

from airflows.engine.submission import Submission
from airflows.failures import Verdict
from airflows.ranking import Aim, Scored, rank
from airflows.relief import relief_in, relief_note, relief_words
from airflows.retry import NO_PROGRESS, Progress, RetryPolicy, after_failure
from airflows.trial import EventKind, Handle, Reason, State, Trial

BASE = {"compute": {"num_accelerators": 1}, "parameters": {"batch": 64, "lr": 0.1}}
MEMORY = Verdict(Reason.OUT_OF_MEMORY, "out_of_memory: CUDA", "CUDA out of memory")
ERROR = Verdict(Reason.ERROR, "error: ValueError", "ValueError")
CHANGED = {"parameters.batch": 8, "parameters.opt": "a, b"}


def running(**fields):
    return Trial("digits-3fa9c1", 12, 4, 0, state=State.RUNNING, handle=Handle("h"), claimed_at=1.0, **fields)


def submission(relief):
    backend = SimpleNamespace(name="fake", capabilities=SimpleNamespace(makes_mlflow_run=False))
    return Submission(BASE, None, None, backend, None, relief)


def follow(verdict, progress=NO_PROGRESS, *, relieves=False, most=3, **fields):
    policy = RetryPolicy(most, 3, 10, relieves)
    return after_failure(running(**fields), verdict, progress, policy, 5.0)


@pytest.mark.parametrize("changed", [CHANGED, {"parameters.model": {"layers": [1, 2]}}])
def test_what_was_changed_is_read_back_from_the_event(changed):
    assert relief_in(relief_words(changed)) == changed


def test_an_attempt_as_searched_says_nothing():
    assert (relief_words({}), relief_in(""), relief_in("cluster full"), relief_note({})) == ("", {}, {}, "")


def test_only_trials_that_ran_out_of_memory_get_other_values():
    made = submission({"parameters.batch": 8})
    made.ran_out_of_memory([3])
    assert (made.relief(3), made.relief(4)) == ({"parameters.batch": 8}, {})


@pytest.mark.parametrize(
    ("relief", "overrides", "expected"),
    [
        ({"parameters.batch": 8}, {"parameters.batch": 32}, True),
        ({"parameters.batch": 8}, {"parameters.lr": 1.0}, True),
        ({"parameters.batch": 8}, {"parameters.batch": 8}, False),
        ({"parameters.batch": 64}, {"parameters.lr": 1.0}, False),
        ({}, {"parameters.batch": 32}, False),
    ],
)
def test_the_same_values_again_are_no_relief(relief, overrides, expected):
    assert submission(relief).would_relieve(0, overrides) is expected


def test_a_trial_is_relieved_once():
    made = submission({"parameters.batch": 8})
    made.ran_out_of_memory([0])
    assert not made.would_relieve(0, {"parameters.batch": 32})


def test_out_of_memory_is_tried_again_only_with_other_values():
    assert follow(MEMORY, relieves=True).kind is EventKind.RETRIED
    unchanged = follow(MEMORY)
    assert (unchanged.kind, unchanged.detail.rpartition("; ")[2]) == (
        EventKind.FAILED,
        "not retried unchanged",
    )


def test_it_counts_as_a_failure_of_the_program():
    assert follow(MEMORY, relieves=True).changes["errors"] == 1
    assert follow(MEMORY, relieves=True, errors=3).kind is EventKind.FAILED


def test_what_is_relieved_does_not_halt_a_sweep_as_an_identical_failure():
    assert "signature" not in follow(MEMORY, relieves=True).changes
    assert "signature" in follow(MEMORY).changes


def test_a_result_with_other_values_is_marked_and_may_win():
    scored = [
        Scored(0, 0, {"parameters.batch": 64}, State.SUCCEEDED, value=0.1, changed={"parameters.batch": 8}),
        Scored(1, 1, {"parameters.batch": 16}, State.SUCCEEDED, value=0.2),
    ]
    ranking = rank(Aim("loss", "minimize"), scored)
    assert [group.note for group in ranking.ranked] == [
        "ran out of memory, then ran with parameters.batch = 8",
        "",
    ]
    assert (ranking.winner.number, ranking.winner.changed) == (0, {"parameters.batch": 8})
    assert all(group.feasible for group in ranking.ranked)


# A later step of the metric


def test_a_later_step_of_the_metric_is_progress():
    twice = {"errors": 1, "signature": "error: ValueError"}
    assert follow(ERROR, **twice).kind is EventKind.FAILED
    event = follow(ERROR, Progress(metric_step=30), value_step=20, **twice)
    assert (event.kind, event.changes["value_step"]) == (EventKind.RETRIED, 30)


def test_a_step_that_was_reached_before_is_none():
    timed_out = Verdict(Reason.TIMED_OUT, "timed_out", "out of time")
    assert follow(timed_out, Progress(metric_step=20), value_step=20).kind is EventKind.FAILED
    assert follow(timed_out, Progress(metric_step=21), value_step=20).kind is EventKind.RETRIED


def test_a_later_step_leaves_the_known_checkpoint():
    event = follow(ERROR, Progress(metric_step=3), checkpoint="c", checkpoint_step=2)
    assert (event.changes["checkpoint"], event.changes["checkpoint_step"]) == ("c", 2)
