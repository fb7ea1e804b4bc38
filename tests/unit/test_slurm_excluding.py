"""Keeping what waits in Slurm's queue from nodes that have turned out bad."""

import pytest

from airflows.backends.slurm.batches import Batches, Element
from airflows.backends.slurm.commands import Answer
from airflows.backends.slurm.excluding import keep_from
from airflows.backends.slurm.parsing import TaskId
from airflows.errors import BackendUnavailableError

BATCH, OTHER = "d-0a1b2c-b01234567", "d-0a1b2c-b89abcdef"
DONE = Answer(0, "", "")


class Slurm:
    """Commands that are answered as a test wants; what is asked is kept."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.answers = {"sbatch": DONE, "scontrol": DONE}

    def ask(self, *words: str) -> Answer:
        self.asked.append(words)
        return self.answers[words[0]]

    def updates(self) -> list[tuple[str, ...]]:
        return [words[2:] for words in self.asked if words[0] == "scontrol"]


@pytest.fixture
def slurm():
    return Slurm()


@pytest.fixture
def batches(tmp_path):
    made = Batches(tmp_path)
    for name, line in ((BATCH, "#SBATCH --exclude=n4\n"), (OTHER, "#SBATCH --exclusive\n")):
        made.directory(name).mkdir(parents=True)
        (made.directory(name) / "script.sh").write_text(f"#!/bin/bash\n{line}\necho '#SBATCH -x n9'\n")
    return made


def handles(*elements):
    return [Element(TaskId(array, index), batch).to_handle() for array, index, batch in elements]


def test_each_array_is_told_once_and_keeps_what_its_script_excludes(slurm, batches):
    keep_from(slurm, batches, handles((7, 0, BATCH), (7, 1, BATCH), (9, 0, OTHER)), ["n3"])

    assert slurm.updates() == [("JobId=7", "ExcNodeList=n4,n3"), ("JobId=9", "ExcNodeList=n3")]


def test_an_array_that_could_run_nowhere_then_is_left_as_it_is(slurm, batches):
    slurm.answers["sbatch"] = Answer(
        1, "", "allocation failure: Requested node configuration is not available"
    )

    keep_from(slurm, batches, handles((7, 0, BATCH)), ["n3"])

    script = str(batches.directory(BATCH) / "script.sh")
    assert slurm.asked == [("sbatch", "--test-only", "--exclude=n4,n3", script)]


def test_no_node_takes_an_earlier_request_back(slurm, batches):
    keep_from(slurm, batches, handles((7, 0, BATCH), (9, 0, OTHER)), [])

    assert slurm.updates() == [("JobId=7", "ExcNodeList=n4"), ("JobId=9", "ExcNodeList=")]


def test_tasks_that_run_already_are_no_error(slurm, batches):
    slurm.answers["scontrol"] = Answer(1, "", "7_0-1: Job is no longer pending execution\n7_2-39: No error")

    keep_from(slurm, batches, handles((7, 0, BATCH)), ["n3"])

    assert len(slurm.updates()) == 1


def test_a_controller_that_is_away_is_asked_again_later(slurm, batches):
    slurm.answers["scontrol"] = Answer(1, "", "slurm_update error: Unable to contact slurm controller")

    with pytest.raises(BackendUnavailableError, match="Slurm does not answer scontrol"):
        keep_from(slurm, batches, handles((7, 0, BATCH)), ["n3"])


def test_a_script_that_is_gone_excludes_nothing(slurm, tmp_path):
    keep_from(slurm, Batches(tmp_path), handles((7, 0, BATCH)), ["n3"])

    assert slurm.updates() == [("JobId=7", "ExcNodeList=n3")]
