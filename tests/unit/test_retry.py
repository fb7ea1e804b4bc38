"""Which failures are followed by another attempt, and when."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.backends.base import Observation, Phase
from airflows.failures import Verdict, classify
from airflows.planner import is_first_failure
from airflows.retry import NO_PROGRESS, NO_RETRIES, Progress, RetryPolicy, after_failure, wait_s
from airflows.trial import Event, EventKind, Handle, Reason, State, Trial, advance

NOW = 1_700_000_000.0
POLICY = RetryPolicy(max=3, max_without_progress=3, wait_s=10)
EVENT_CLAIMED = Event(EventKind.CLAIMED, NOW)
EVENT_ACCEPTED = Event(EventKind.ACCEPTED, NOW, facts={"handle": Handle("h")})
INFRASTRUCTURE = [Reason.PREEMPTED, Reason.NODE_FAILED, Reason.LOST, Reason.NO_RENDEZVOUS]


def running(**fields):
    return Trial("digits-3fa9c1", 12, 4, 0, state=State.RUNNING, handle=Handle("h"), claimed_at=NOW, **fields)


def verdict(reason=Reason.ERROR, line="ValueError: x"):
    return Verdict(reason, f"{reason}: {line}", line)


def fail(trial, reason=Reason.ERROR, line="ValueError: x", progress=NO_PROGRESS, policy=POLICY):
    """Return (kind of event, trial after it, running again when it is retried)."""
    event = after_failure(trial, verdict(reason, line), progress, policy, NOW)
    after = advance(trial, event)
    if after.state is State.PENDING:
        after = advance(after, EVENT_CLAIMED)
        after = advance(after, EVENT_ACCEPTED)
    return event.kind, after


def kinds(*failures, policy=POLICY):
    """Return what follows each failure (reason, line, step of the newest checkpoint) of one trial."""
    trial, found = running(), []
    for reason, line, step in failures:
        progress = NO_PROGRESS if step < 0 else Progress(f"ckpt-{step}", step)
        kind, trial = fail(trial, reason, line, progress, policy)
        found.append(kind.value)
        if trial.state.is_final:
            break
    return found


# Each class


@pytest.mark.parametrize("reason", INFRASTRUCTURE)
def test_what_the_place_did_is_retried_without_using_up_the_budget(reason):
    kind, after = fail(running(errors=3), reason)

    assert kind is EventKind.RETRIED
    assert (after.errors, after.stalled, after.attempt) == (3, 1, 1)


@pytest.mark.parametrize("reason", INFRASTRUCTURE)
def test_three_in_a_row_without_progress_are_enough(reason):
    assert kinds(*[(reason, "x", -1)] * 9) == ["retried"] * 3 + ["failed"]


def test_while_the_checkpoint_advances_preemptions_go_on_for_ever():
    assert kinds(*[(Reason.PREEMPTED, "x", step) for step in range(50)]) == ["retried"] * 50


def test_progress_of_any_kind_begins_the_count_anew():
    preempted, error = (Reason.PREEMPTED, "x", 0), (Reason.ERROR, "e", 1)

    assert kinds(preempted, *[(Reason.LOST, "x", 0)] * 3, error, *[(Reason.LOST, "x", 1)] * 4) == [
        *["retried"] * 5,
        *["retried"] * 3,
        "failed",
    ]


def test_a_time_limit_is_worth_another_attempt_only_after_progress():
    assert kinds((Reason.TIMED_OUT, "x", -1)) == ["failed"]
    assert kinds(*[(Reason.TIMED_OUT, "x", step) for step in range(9)], (Reason.TIMED_OUT, "x", 8)) == [
        *["retried"] * 9,
        "failed",
    ]


def test_a_time_limit_does_not_use_up_the_budget():
    _, after = fail(running(errors=2), Reason.TIMED_OUT, progress=Progress("c", 1))

    assert after.errors == 2


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (Reason.OUT_OF_MEMORY, "not retried unchanged"),
        (Reason.INVALID, "not retried"),
        (Reason.CODE_DAMAGED, "not retried"),
        (Reason.DUPLICATE, "not retried while the other copy may run"),
    ],
)
def test_what_would_only_happen_again_is_not_retried(reason, why):
    event = after_failure(running(), verdict(reason, "the words"), Progress("c", 9), POLICY, NOW)

    assert event.kind is EventKind.FAILED
    assert event.detail == f"{reason.sentence} the words; {why}"


def test_a_second_copy_is_no_failure_of_the_program():
    """Neither budget nor signature: three of them are no systematic error of the sweep."""
    event = after_failure(running(errors=1), verdict(Reason.DUPLICATE), NO_PROGRESS, POLICY, NOW)

    assert event.changes["errors"] == 1
    assert not is_first_failure(running(), event)
    assert "signature" not in event.changes


def test_why_a_trial_failed_reads_on_without_brackets_in_brackets():
    seen = Observation(Phase.ENDED, 137, detail="node 1 failed first")
    event = after_failure(running(), classify(seen, []), NO_PROGRESS, RetryPolicy(0, 3, 10), NOW)
    with_log = after_failure(
        running(), classify(seen, ["ValueError: f(x)."]), NO_PROGRESS, RetryPolicy(0, 3, 10), NOW
    )

    assert event.detail == "The command exited with an error. node 1 failed first; no retries allowed"
    assert with_log.detail == (
        "The command exited with an error. ValueError: f(x).; node 1 failed first; no retries allowed"
    )


def test_an_error_is_tried_once_more_and_not_again_when_it_is_the_same():
    assert kinds((Reason.ERROR, "e", -1), (Reason.ERROR, "e", -1)) == ["retried", "failed"]


def test_the_same_error_twice_on_a_host_where_nobody_does_well_may_be_the_hosts():
    policy = replace(POLICY, suspects_host=True)
    # All the same there is an end.
    assert kinds(*[(Reason.ERROR, "ValueError: x", -1)] * 6, policy=policy) == ["retried"] * 3 + ["failed"]


def test_the_same_error_counts_as_new_after_progress():
    assert kinds(*[(Reason.ERROR, "e", step) for step in range(5)]) == ["retried"] * 3 + ["failed"]


def test_different_errors_use_up_the_budget():
    assert kinds(*[(Reason.ERROR, f"e{n}", -1) for n in range(9)]) == ["retried"] * 3 + ["failed"]


def test_a_preemption_between_does_not_make_an_error_new():
    """Else a sweep on a busy partition would try a missing module for ever."""
    assert kinds((Reason.ERROR, "e", -1), (Reason.PREEMPTED, "x", -1), (Reason.ERROR, "e", -1)) == [
        "retried",
        "retried",
        "failed",
    ]


@pytest.mark.parametrize(
    ("most", "made"), [(0, ["failed"]), (1, ["retried", "failed"]), (2, ["retried"] * 2 + ["failed"])]
)
def test_retry_max(most, made):
    policy = RetryPolicy(most, 3, 10)

    assert kinds(*[(Reason.ERROR, f"e{n}", -1) for n in range(9)], policy=policy) == made


@pytest.mark.parametrize("reason", [*INFRASTRUCTURE, Reason.TIMED_OUT, Reason.ERROR, Reason.OUT_OF_MEMORY])
def test_where_the_service_tries_again_nothing_is_retried_however_far_it_came(reason):
    policy = replace(NO_RETRIES, relieves=True)
    event = after_failure(running(), verdict(reason, "the words"), Progress("c", 9, 10), policy, NOW)

    assert event.kind is EventKind.FAILED
    assert event.detail.endswith("the words; not tried again here: retries are left to the service")
    assert event.changes["checkpoint_step"] == 9


def test_no_retries_of_errors_leaves_those_of_the_place():
    policy = RetryPolicy(0, 3, 10)

    assert kinds((Reason.PREEMPTED, "x", -1), (Reason.ERROR, "e", -1), policy=policy) == ["retried", "failed"]


@pytest.mark.parametrize(
    ("exit_code", "word", "lines", "made"),
    [
        (137, "OUT_OF_MEMORY", [], ["failed"]),
        (143, "PREEMPTED", [], ["retried"] * 3 + ["failed"]),
        (1, "", ["Traceback (most recent call last):", "  File", "ValueError: 3"], ["retried", "failed"]),
        (None, "NODE_FAIL", [], ["retried"] * 3 + ["failed"]),
    ],
)
def test_what_a_backend_may_say_and_what_follows(exit_code, word, lines, made):
    found = classify(Observation(Phase.ENDED, exit_code, word), lines)
    trial, events = running(), []
    while not trial.state.is_final:
        event = after_failure(trial, found, NO_PROGRESS, POLICY, NOW)
        events.append(event.kind.value)
        assert event.detail.startswith(found.reason.sentence)
        assert "\n" not in event.detail
        trial = advance(trial, event)
        if not trial.state.is_final:
            trial = advance(advance(trial, EVENT_CLAIMED), EVENT_ACCEPTED)

    assert events == made


# Progress


@pytest.mark.parametrize(
    ("before", "found", "is_beyond"),
    [
        (("", -1), ("", -1), False),
        (("", -1), ("a", -1), True),
        (("", -1), ("a", 0), True),
        (("a", 5), ("a", 5), False),
        (("a", 5), ("b", 6), True),
        (("a", 5), ("b", 5), True),
        (("a", 5), ("b", 4), False),
        (("a", 5), ("", -1), False),
    ],
)
def test_progress_is_a_newer_checkpoint(before, found, is_beyond):
    assert Progress(*found).is_beyond(running(checkpoint=before[0], checkpoint_step=before[1])) is is_beyond


def test_the_newest_checkpoint_is_remembered_and_never_forgotten():
    _, after = fail(running(), progress=Progress("ckpt-5", 5))
    _, later = fail(after, line="other", progress=NO_PROGRESS)

    assert (after.checkpoint, after.checkpoint_step) == ("ckpt-5", 5)
    assert (later.checkpoint, later.checkpoint_step) == ("ckpt-5", 5)


# Signatures: what further trials would repeat


@pytest.mark.parametrize("reason", INFRASTRUCTURE)
def test_what_the_place_did_is_no_sign_of_a_common_mistake(reason):
    """A reboot that loses every run must not end the sweep as failing systematically."""
    event = after_failure(running(), verdict(reason), NO_PROGRESS, POLICY, NOW)

    assert not is_first_failure(running(), event)


def test_a_time_limit_is_one_only_without_progress():
    def event(progress):
        return after_failure(running(), verdict(Reason.TIMED_OUT), progress, POLICY, NOW)

    assert is_first_failure(running(), event(NO_PROGRESS))
    assert not is_first_failure(running(), event(Progress("c", 1)))


def test_only_the_first_failure_of_its_own_counts():
    event = after_failure(running(), verdict(), NO_PROGRESS, POLICY, NOW)

    assert is_first_failure(running(), event)
    assert is_first_failure(running(stalled=2), event)
    assert not is_first_failure(running(errors=1), event)


# Waits


def test_waits_grow_to_ten_minutes_and_differ_by_trial():
    waits = [wait_s(running(attempt=attempt), POLICY) for attempt in range(12)]
    others = {wait_s(Trial("digits-3fa9c1", n, n, 0), POLICY) for n in range(20)}

    assert waits[:6] == sorted(waits[:6])
    assert all(8 * 2**n <= wait <= 10 * 2**n for n, wait in enumerate(waits[:6]))
    assert all(480 <= wait <= 600 for wait in waits[6:])
    assert len(others) == 20


@given(st.integers(0, 10_000), st.floats(0, 1e9))
def test_no_wait_is_longer_than_ten_minutes(attempt, first):
    wait = wait_s(running(attempt=attempt), RetryPolicy(3, 3, first))

    assert 0 <= wait <= 600
    assert wait == wait_s(running(attempt=attempt), RetryPolicy(3, 3, first))


def test_a_retry_waits_and_a_failure_does_not():
    retried = after_failure(running(), verdict(), NO_PROGRESS, POLICY, NOW)
    failed = after_failure(running(), verdict(Reason.INVALID), NO_PROGRESS, POLICY, NOW)

    assert NOW + 8 <= retried.changes["not_before"] <= NOW + 10
    assert "not_before" not in failed.changes


@given(
    st.sampled_from(Reason),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(-1, 3),
    st.integers(-1, 3),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_every_failure_ends_or_is_retried_and_comes_to_an_end(
    reason, errors, stalled, had, has, most, patience
):
    trial = running(errors=errors, stalled=stalled, checkpoint="c" * (had >= 0), checkpoint_step=had)
    progress = Progress("c" * (has >= 0), has)
    policy = RetryPolicy(most, patience, 10)
    event = after_failure(trial, verdict(reason), progress, policy, NOW)
    after = advance(trial, event)

    assert event.kind in {EventKind.RETRIED, EventKind.FAILED}
    assert (after.reason, after.message) == (reason, event.detail)
    if event.kind is EventKind.RETRIED:
        advanced = progress.is_beyond(trial)
        assert after.errors > trial.errors or after.stalled > trial.stalled or advanced
        assert after.errors <= max(most, errors)
        assert after.stalled <= max(patience, stalled)
