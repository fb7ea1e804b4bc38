"""What packing saves, from what a sweep's attempts were; and in how many calls packs go to a backend."""

from dataclasses import fields

import pytest

from airflows.engine.batching import batches
from airflows.ledger import AttemptRow
from airflows.report.packed import gain_of, gain_text, planned_gain
from airflows.trial import State, Trial


def attempt(number, handle, began=0.0, ended=3600.0, accelerators=0.25):
    usual = {field.name: "" for field in fields(AttemptRow)}
    given = {"number": number, "handle": handle, "started_at": began, "ended_at": ended}
    return AttemptRow(**{**usual, "attempt": 0, "accelerators": accelerators, **given})


def in_elements(*slots):
    return [attempt(n, f"7_{index}/{slot}@d-b0") for n, (index, slot) in enumerate(slots)]


def test_array_elements_are_counted_and_the_shares_of_their_trials_summed():
    gain = gain_of(in_elements((0, 0), (0, 1), (0, 2), (1, 0)), 4)

    assert (gain.used, gain.alone, gain.kind, gain.accelerator_s) == (2, 4, "array elements", 3600)
    assert gain_text(gain.to_dict()) == ("2 array elements in place of 4, 1 accelerator-hours in place of 4")


def test_elsewhere_slots_are_those_that_were_used_at_once():
    local = "1:2:boot:host:token:/dir"
    ran = [
        attempt(0, local, 0, 10),
        attempt(1, local, 5, 15),
        attempt(2, local, 6, None),
        attempt(3, local, 15, 20),
    ]

    gain = gain_of(ran, 2)

    assert (gain.used, gain.alone, gain.kind) == (2, 3, "slots")


def test_what_never_ran_counts_for_nothing():
    assert gain_of([attempt(0, None), attempt(1, "7_0/0@b", None, None)], 4) is None
    assert gain_of(in_elements((0, 0)), 1) is None


@pytest.mark.parametrize(
    ("trials", "at_once", "allocates", "expected"),
    [
        (13, 100, True, (4, 13)),
        (13, 2, True, (7, 13)),
        (13, 8, False, (2, 8)),
        (3, 8, False, (1, 3)),
    ],
)
def test_what_packing_will_save_is_known_beforehand(trials, at_once, allocates, expected):
    gain = planned_gain(4, trials, at_once, allocates=allocates)

    assert (gain.used, gain.alone) == expected


def test_where_nobody_knows_how_many_trials_there_are_nothing_is_said():
    assert planned_gain(4, None, 8, allocates=True) is None
    assert planned_gain(1, 8, 8, allocates=True) is None


@pytest.mark.parametrize(
    ("count", "size", "pack", "expected"),
    [
        (300, 1000, 1, [64, 236]),
        (300, 1000, 7, [70, 230]),
        (20, 10, 4, [8, 8, 4]),
        (5, 2, 4, [2, 2, 1]),
    ],
)
def test_packs_are_not_torn_apart_where_the_size_of_a_call_allows_it(count, size, pack, expected):
    trials = [Trial("d-0a1b2c", number, number, 0, state=State.SUBMITTING) for number in range(count)]

    assert [len(batch) for batch in batches(trials, size, 0, pack)] == expected
