"""Which hosts are avoided: those on which different trials keep failing while others do well elsewhere."""

import time

import pytest

from airflows.hosts import AvoidedHost, EndedAttempt, HostRecord, avoided_hosts, avoiding_words
from airflows.trial import Event, EventKind, Reason, State, Trial

ERROR = "error: RuntimeError: the driver does not answer"


def failed(number, host="gpu-7", reason="error", signature=ERROR):
    return EndedAttempt(number, host, "failed", reason, signature)


def well(number, host):
    return EndedAttempt(number, host, "succeeded", "", "")


def names(attempts):
    return [each.host for each in avoided_hosts(attempts)]


def succeeded_elsewhere(count=9, hosts=3):
    return [well(100 + n, f"gpu-{n % hosts}") for n in range(count)]


def test_a_host_on_which_different_trials_keep_failing_is_avoided_and_named():
    (found,) = avoided_hosts([*(failed(n) for n in range(3)), *succeeded_elsewhere()])

    assert found == AvoidedHost("gpu-7", failed=3, well=0, elsewhere=9)
    assert found.sentence == "3 trials failed there and none did well, while 9 did well elsewhere"


@pytest.mark.parametrize("reason", ["node_failed", "lost", "no_rendezvous", "code_damaged"])
def test_what_the_place_does_to_a_run_counts_whatever_its_words(reason):
    # The same words elsewhere: such an end has no error of its own.
    attempts = [*(failed(n, reason=reason, signature="") for n in range(4)), failed(9, "gpu-1", reason, "")]

    assert names([*attempts, *succeeded_elsewhere(12)]) == ["gpu-7"]


def test_two_trials_are_no_proof():
    attempts = [*(failed(n % 2) for n in range(20)), *succeeded_elsewhere(50)]

    assert names(attempts) == []


def test_one_trial_that_fails_everywhere_is_not_the_fault_of_any_host():
    attempts = [failed(0, f"gpu-{n}") for n in range(8)]

    assert names([*attempts, *succeeded_elsewhere()]) == []


def test_trials_that_fail_on_a_second_host_too_are_at_fault_themselves():
    attempts = [failed(n, host) for n in range(5) for host in ("gpu-7", f"gpu-{n % 3}")]

    assert names([*attempts, *succeeded_elsewhere(30)]) == []


def test_the_only_host_is_never_avoided():
    attempts = [failed(n) for n in range(50)] + [well(n, "gpu-7") for n in range(50, 60)]

    assert names(attempts) == []


def test_a_host_is_not_avoided_while_nothing_has_done_well_elsewhere():
    attempts = [failed(n) for n in range(50)]

    assert (
        names([*attempts, *(well(n, "gpu-7") for n in range(50, 99)), failed(99, "gpu-1", signature="x")])
        == []
    )


def test_an_error_of_the_program_on_all_hosts_blames_none():
    attempts = [failed(n, f"gpu-{n % 4}") for n in range(40)] + [
        well(100 + n, f"gpu-{n % 4}") for n in range(40)
    ]

    assert names(attempts) == []


def test_an_error_that_also_comes_up_where_trials_do_well_blames_no_host():
    """A block of bad points that one host got as a whole."""
    attempts = [failed(n) for n in range(8)]

    assert names([*attempts, *succeeded_elsewhere(24)]) == ["gpu-7"]
    assert names([*attempts, failed(50, "gpu-1"), *succeeded_elsewhere(24)]) == []


def test_trials_that_did_well_elsewhere_afterwards_prove_it_though_the_error_is_met_elsewhere():
    attempts = [each for n in range(4) for each in (failed(n), well(n, f"gpu-{n % 3}"))]

    assert names([*attempts, failed(50, "gpu-1"), *succeeded_elsewhere(12)]) == ["gpu-7"]


def test_a_trial_that_did_well_on_the_same_host_in_the_end_holds_nothing_against_it():
    attempts = [each for n in range(6) for each in (failed(n), well(n, "gpu-7"))]

    assert names([*attempts, *succeeded_elsewhere(30)]) == []


def test_two_broken_hosts_do_not_excuse_each_other():
    attempts = [failed(n, f"gpu-{7 + n % 2}") for n in range(8)]

    assert names([*attempts, *succeeded_elsewhere(30)]) == ["gpu-7", "gpu-8"]


def test_a_host_that_fails_now_and_then_as_all_do_is_not_avoided():
    attempts = [
        each for n in range(30) for each in (failed(n, f"gpu-{n % 5}"), well(n, f"gpu-{(n + 1) % 5}"))
    ]

    assert names(attempts) == []


def test_a_host_on_which_most_fail_is_avoided_though_some_do_well():
    attempts = [each for n in range(8) for each in (failed(n), well(n, f"gpu-{n % 3}"))]

    assert names([*attempts, well(50, "gpu-7"), well(51, "gpu-7"), *succeeded_elsewhere(30)]) == ["gpu-7"]


def test_chance_is_taken_for_what_it_is():
    # Of six trials on two hosts three failed on one of them: not seldom enough.
    few = [*(failed(n) for n in range(3)), *succeeded_elsewhere(3, hosts=1)]

    assert names(few) == []
    assert names([*few, *(well(200 + n, "gpu-0") for n in range(6))]) == ["gpu-7"]


@pytest.mark.parametrize("reason", ["out_of_memory", "timed_out", "preempted", "invalid", "duplicate"])
def test_what_hangs_on_values_or_on_the_scheduler_says_nothing_of_a_host(reason):
    assert names([*(failed(n, reason=reason) for n in range(9)), *succeeded_elsewhere(30)]) == []


def test_an_attempt_whose_host_is_not_known_says_nothing():
    assert names([*(failed(n, host="") for n in range(9)), *succeeded_elsewhere(30)]) == []


def test_trials_that_a_rule_stopped_early_did_well():
    stopped = [EndedAttempt(100 + n, f"gpu-{n % 3}", "stopped", "rule", "") for n in range(9)]
    moved = [EndedAttempt(100 + n, f"gpu-{n % 3}", "stopped", "moved", "") for n in range(9)]

    assert names([*(failed(n) for n in range(3)), *stopped]) == ["gpu-7"]
    assert names([*(failed(n) for n in range(3)), *moved]) == []


def test_later_attempts_may_clear_a_host():
    record = HostRecord()
    for attempt in [*(failed(n) for n in range(3)), *succeeded_elsewhere()]:
        record.add(attempt)
    assert [each.host for each in record.avoided] == ["gpu-7"]

    for number in range(3):
        record.add(failed(number, "gpu-1"))

    assert record.avoided == ()


def test_an_end_is_read_from_the_transition():
    trial = Trial("s-1", 4, 4, 0, State.RUNNING, host="gpu-7")
    end = Event(EventKind.RETRIED, 5.0, Reason.ERROR, changes={"signature": "error: x"})
    stopping = Trial("s-1", 4, 4, 0, State.STOPPING, Reason.RULE, host="gpu-7")

    assert EndedAttempt.of(trial, end) == EndedAttempt(4, "gpu-7", "failed", "error", "error: x")
    assert EndedAttempt.of(stopping, Event(EventKind.GONE, 5.0)) == EndedAttempt(
        4, "gpu-7", "stopped", "rule", ""
    )


def test_the_words_of_an_event_stay_short():
    assert avoiding_words([]) == ""
    assert avoiding_words(["n1"]) == "not on n1, where trials keep failing"
    assert (
        avoiding_words([f"n{k}" for k in range(5)])
        == "not on n0, n1, n2 and 2 more, where trials keep failing"
    )


def test_thousands_of_trials_cost_little():
    attempts = [failed(n, f"gpu-{n % 50}", signature=f"e{n % 7}") for n in range(10_000)]
    attempts += [well(n, f"gpu-{50 + n % 50}") for n in range(10_000, 20_000)]
    began = time.process_time()
    found = names(attempts)

    assert found
    assert time.process_time() - began < 1.0
