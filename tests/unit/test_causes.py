"""Attempts that failed, grouped: how many trials, which values, and what to type next."""

import time

import pytest

from airflows.ledger import AttemptRow
from airflows.report.causes import causes
from airflows.trial import Reason, State, Trial

SWEEP = "lr-7f3a9c"


def attempt(number, at=0, reason="error", signature="error: ValueError: N", **changes):
    fields = dict.fromkeys(AttemptRow.__dataclass_fields__)
    fields |= {"number": number, "attempt": at, "reason": reason, "signature": signature, "state": "failed"}
    return AttemptRow(**(fields | {"handle": f"h{number}", "message": "ValueError: 3"} | changes))


def succeeded(number, at=0, **changes):
    return attempt(number, at, "", "", state="succeeded", **changes)


def trial(number, state=State.FAILED, **overrides):
    return Trial(SWEEP, number, number, 0, state), {f"parameters.{key}": v for key, v in overrides.items()}


def test_a_cause_counts_trials_attempts_and_those_that_failed_for_good():
    attempts = [attempt(0), attempt(0, 1), attempt(1), attempt(1, 1, "", ""), attempt(2, signature="other")]
    trials = [trial(0), trial(1, State.SUCCEEDED), trial(2)]
    first, second = causes(SWEEP, attempts, trials)
    assert (first.attempts, first.numbers, first.failed) == (3, {0, 1}, 1)
    assert (second.attempts, second.numbers, second.failed) == (1, {2}, 1)


def test_what_most_trials_failed_of_comes_first_whatever_one_trial_did_again_and_again():
    attempts = [*(attempt(0, at, signature="a") for at in range(5)), attempt(1), attempt(2)]
    assert [cause.signature for cause in causes(SWEEP, attempts)] == ["error: ValueError: N", "a"]


def test_the_values_that_all_of_them_share_and_no_other_are_told():
    trials = [
        trial(n, State.FAILED if n % 4 == 3 else State.SUCCEEDED, batch=8 * 2 ** (n % 4)) for n in range(24)
    ]
    attempts = [
        attempt(n, reason="out_of_memory", signature="oom") if n % 4 == 3 else succeeded(n) for n in range(24)
    ]
    (cause,) = causes(SWEEP, attempts, trials)
    assert cause.condition == "parameters.batch = 64"


def test_a_host_that_all_of_them_ran_on_is_named():
    trials = [trial(n, State.FAILED if n % 4 == 1 else State.SUCCEEDED, lr=n / 10) for n in range(24)]
    attempts = [
        attempt(n, host="gpu-7") if n % 4 == 1 else succeeded(n, host=f"gpu-{n % 4}") for n in range(24)
    ]
    (cause,) = causes(SWEEP, attempts, trials)
    assert cause.condition == "host = gpu-7"


def test_a_trial_that_went_on_elsewhere_failed_where_it_failed():
    trials = [trial(n, State.SUCCEEDED, lr=n / 10) for n in range(12)]
    rescued = [each for n in range(6) for each in (attempt(n, host="gpu-7"), succeeded(n, 1, host="gpu-1"))]
    attempts = [*rescued, *(succeeded(n, host="gpu-2") for n in range(6, 12))]
    (cause,) = causes(SWEEP, attempts, trials)
    assert cause.condition == "host = gpu-7"


def test_where_all_ran_in_one_place_no_host_is_told():
    trials = [trial(n, State.FAILED if n < 12 else State.SUCCEEDED, lr=n % 5) for n in range(24)]
    attempts = [attempt(n, host="vm") if n < 12 else succeeded(n, host="vm") for n in range(24)]
    (cause,) = causes(SWEEP, attempts, trials)
    assert cause.condition == ""


def test_trials_that_never_ended_tell_nothing():
    states = [State.FAILED] * 4 + [State.PENDING, State.CANCELLED] * 4
    trials = [trial(n, state, batch=64 if n < 4 else 8) for n, state in enumerate(states)]
    (cause,) = causes(SWEEP, [attempt(n) for n in range(4)], trials)
    assert cause.condition == ""


def test_one_exception_among_thousands_refutes_a_condition():
    """Those that are looked at first, a sample, say otherwise."""
    size = 10_000
    odd = 7_777
    trials = [
        trial(n, State.SUCCEEDED if n % 2 or n == odd - 1 else State.FAILED, batch=n % 2) for n in range(size)
    ]
    attempts = [attempt(n) for n in range(size) if trials[n][0].state is State.FAILED]
    (cause,) = causes(SWEEP, attempts, trials)
    assert (len(cause.numbers), cause.condition) == (size // 2 - 1, "")


def test_ten_thousand_trials_are_told_apart_in_a_moment():
    size = 10_000
    trials = [
        trial(
            n,
            State.FAILED if n % 100 >= 37 else State.SUCCEEDED,
            batch=n % 100,
            **{f"k{key}": (n * (key + 3)) % 97 / 10 for key in range(8)},
        )
        for n in range(size)
    ]
    attempts = [attempt(n) for n in range(size) if n % 100 >= 37]
    began = time.process_time()
    (cause,) = causes(SWEEP, attempts, trials)
    assert cause.condition == "parameters.batch >= 37"
    assert time.process_time() - began < 3


def test_what_the_place_did_is_a_cause_only_of_trials_that_failed_for_good():
    preempted = {"reason": "preempted", "signature": ""}
    attempts = [attempt(0, **preempted), succeeded(0), attempt(1, **preempted), attempt(1, 1, **preempted)]
    (cause,) = causes(SWEEP, attempts, [trial(0, State.SUCCEEDED), trial(1)])
    assert (cause.reason, cause.attempts, cause.failed) == ("preempted", 1, 1)


@pytest.mark.parametrize(
    ("reason", "handle", "told"),
    [
        (Reason.ERROR, "h", "airflows logs lr-7f3a9c/5 --attempt 2"),
        (Reason.OUT_OF_MEMORY, "h", "airflows logs lr-7f3a9c/5 --attempt 2"),
        (Reason.INVALID, None, "airflows get lr-7f3a9c/5"),
        (Reason.NODE_FAILED, "h", "airflows resume lr-7f3a9c --failed --class node_failed"),
    ],
)
def test_the_next_command_fits_the_class(reason, handle, told):
    (cause,) = causes(SWEEP, [attempt(5, 2, reason.value, "s", handle=handle)])
    assert cause.next == told
