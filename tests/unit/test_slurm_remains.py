"""What is made of a run's exit status where it could leave no exit file."""

import re
from pathlib import Path

import pytest

import airflows.backends.slurm
from airflows.backends.slurm.parsing import Row
from airflows.backends.slurm.remains import ended
from airflows.exits import OwnExit
from airflows.failures import classify
from airflows.trial import Reason

PREAMBLE = Path(airflows.backends.slurm.__file__).parent / "preamble.sh"


def row(exit_code: int, state: str = "FAILED", signal: int = 0) -> Row:
    return Row(state, 1.0, 2.0, 3.0, "n1", "", "batch", exit_code, signal)


@pytest.mark.parametrize(
    ("exit_code", "reason"),
    [
        (OwnExit.TIMED_OUT, Reason.TIMED_OUT),
        (OwnExit.DUPLICATE, Reason.DUPLICATE),
        (143, Reason.ERROR),
        (1, Reason.ERROR),
    ],
)
def test_the_exit_status_tells_what_the_exit_file_could_not(exit_code, reason):
    seen = ended(row(exit_code), {}, None)

    assert classify(seen, []).reason is reason
    assert ("disk full" in seen.detail) == (reason is not Reason.DUPLICATE)


def test_without_an_exit_file_too_exit_0_is_a_success():
    seen = ended(row(0, "COMPLETED"), {}, None)

    assert (seen.exit_code, seen.word) == (0, "")


def test_the_preamble_and_the_table_agree_on_exit_codes():
    codes = dict(re.findall(r"\b([A-Z_]+)=(\d+)\b", PREAMBLE.read_text()))

    assert {name: int(code) for name, code in codes.items() if name in OwnExit.__members__} == {
        each.name: each.value for each in OwnExit if each is not OwnExit.NO_RENDEZVOUS
    }


@pytest.mark.parametrize(
    ("form", "reason", "words"),
    [
        # Where the site's cgroups tell of memory, and as older ones and those without have it.
        (row(0, "OUT_OF_MEMORY", 125), Reason.OUT_OF_MEMORY, "Slurm says OUT_OF_MEMORY"),
        (row(0, "FAILED", 125), Reason.OUT_OF_MEMORY, "Slurm says FAILED, and it left no exit file"),
        # A kill by anybody: no proof.
        (row(0, "FAILED", 9), Reason.ERROR, "its batch shell was killed"),
    ],
)
def test_the_forms_in_which_slurm_tells_of_a_kill(form, reason, words):
    found = classify(ended(form, {}, None), ["epoch 3"])

    assert (found.reason, found.message) == (reason, words)


def test_a_killed_batch_shell_is_out_of_memory_where_its_log_says_so():
    said = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed."

    assert classify(ended(row(0, "FAILED", 9), {}, None), [said]).reason is Reason.OUT_OF_MEMORY
