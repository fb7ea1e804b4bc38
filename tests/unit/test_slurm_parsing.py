"""What Slurm's commands print, read as values."""

from pathlib import Path

import pytest

from airflows.backends.base import Phase
from airflows.backends.slurm.parsing import (
    REST,
    Refusal,
    Site,
    TaskId,
    indices_of,
    job_id_of,
    last_words,
    max_submit_of,
    own_limits_of,
    phase_of,
    ranges,
    refusal_of,
    sacct_rows,
    site_of,
    squeue_rows,
)

POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    " (job submit limit, user's size and/or time limits)"
)
DATA = Path(__file__).parents[1] / "data" / "slurm"


def read(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_squeue_lists_elements_of_arrays_by_array_and_index():
    rows = squeue_rows(read("squeue.txt"))

    running = rows[TaskId(1, 0)]
    assert (running.state, running.started, running.nodes, running.reason) == (
        "RUNNING",
        1796027631.0,
        "n1",
        "",
    )
    assert (rows[TaskId(1, 1)].started, rows[TaskId(1, 1)].reason) == (None, "JobArrayTaskLimit")


def test_what_was_cancelled_before_it_ran_leaves_one_row_without_index():
    rows = squeue_rows(read("squeue.txt"))

    assert (rows[TaskId(2, REST)].state, rows[TaskId(2, REST)].name) == ("CANCELLED", "one|with|bars")


def test_bracketed_indices_are_spread():
    rows = squeue_rows(read("squeue.txt"))

    assert {task.index for task in rows if task.array == 3} == {4, 5, 9}


def test_a_job_that_is_no_array_is_left_out():
    assert {row.name for row in squeue_rows(read("squeue.txt")).values()}.isdisjoint({"no-array"})


def test_sacct_gives_each_start_of_an_element_in_order():
    rows = sacct_rows(read("sacct.txt"))

    assert [(row.state, row.exit_code) for row in rows[TaskId(1, 0)]] == [("NODE_FAIL", 1), ("COMPLETED", 0)]
    assert [row.state for row in rows[TaskId(1, 5)]] == ["PENDING"]


def test_what_sacct_puts_behind_a_state_is_dropped():
    rows = sacct_rows(read("sacct.txt"))

    assert rows[TaskId(2, REST)][0].state == "CANCELLED"
    assert (rows[TaskId(3, 8)][0].state, rows[TaskId(3, 8)][0].name) == ("CANCELLED", "a|b")


def test_exit_code_and_signal_are_told_apart():
    row = sacct_rows(read("sacct.txt"))[TaskId(3, 7)][0]

    assert (row.exit_code, row.signal) == (0, 53)


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", Phase.QUEUED),
        ("REQUEUED", Phase.QUEUED),
        ("SPECIAL_EXIT", Phase.QUEUED),
        ("RUNNING", Phase.RUNNING),
        ("COMPLETING", Phase.RUNNING),
        ("SUSPENDED", Phase.RUNNING),
        ("COMPLETED", Phase.ENDED),
        ("OUT_OF_MEMORY", Phase.ENDED),
        ("NODE_FAIL", Phase.ENDED),
        ("RECONFIG_FAIL", Phase.UNKNOWN),
        ("?", Phase.UNKNOWN),
        ("", Phase.UNKNOWN),
    ],
)
def test_a_state_nobody_knows_is_never_an_end(state, phase):
    assert phase_of(state) is phase


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("7", [7]),
        ("[0-2,4]", [0, 1, 2, 4]),
        ("[6-12:2%8]", [6, 8, 10, 12]),
        ("[0-2,4...", [0, 1, 2]),
        ("N/A", []),
    ],
)
def test_index_lists_are_read(text, indices):
    assert list(indices_of(text)) == indices


@pytest.mark.parametrize(
    ("indices", "text"), [([0], "0"), ([0, 1, 2, 4], "0-2,4"), ([3, 5, 6], "3,5-6"), ([], "")]
)
def test_index_lists_are_written(indices, text):
    assert ranges(indices) == text


def test_the_site_tells_its_limits():
    assert site_of(read("config.txt")) == Site("22.05.8", 5000, 50000, 300.0, accounts=True)


def test_a_site_that_says_nothing_has_slurms_defaults():
    assert site_of("") == Site()


def test_a_site_without_slurmdbd_has_no_accounts():
    assert not site_of("AccountingStorageType = accounting_storage/none").accounts


@pytest.mark.parametrize(("text", "limit"), [("\n5\n100\n", 5), ("\n", None), ("", None)])
def test_the_smallest_submit_limit_counts(text, limit):
    assert max_submit_of(text) == limit


def test_the_controller_shows_the_limits_of_ones_own_associations():
    shown = read("assoc_mgr.txt")

    assert own_limits_of(shown, "root") == [77, None]
    assert own_limits_of(shown, "roo") == own_limits_of("", "root") == []


@pytest.mark.parametrize(
    ("out", "job"),
    [
        ("4711\n", 4711),
        ("4711;cluster2\n", 4711),
        ("a word of the site\n4711\n", 4711),
        ("Submitted batch job 7\n", 7),
        ("", None),
        ("sbatch: warning: 12 things\n", None),
    ],
)
def test_the_id_of_an_accepted_job_is_read(out, job):
    assert job_id_of(out) == job


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", Refusal.REJECTED),
        ("sbatch: error: invalid partition specified: nosuch", Refusal.REJECTED),
        ("sbatch: unrecognized option '--container-image=x'", Refusal.REJECTED),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", Refusal.REJECTED),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", Refusal.FULL),
        (f"sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}", Refusal.FULL),
        (f"sbatch: error: QOSMaxCpuPerJobLimit\n{POLICY}", Refusal.REJECTED),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", Refusal.REJECTED),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", Refusal.FULL),
        (POLICY, Refusal.FULL),
        ("sbatch: error: Batch job submission failed: Resource temporarily unavailable", Refusal.FULL),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            Refusal.DOUBTFUL,
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            Refusal.DOUBTFUL,
        ),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", Refusal.DOUBTFUL),
    ],
)
def test_a_refusal_is_told_from_a_full_queue_and_from_a_lost_answer(words, refusal):
    assert refusal_of(words) is refusal


def test_complaints_are_one_line_without_the_commands_name():
    said = (
        "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid\n"
    )

    assert last_words(said) == "invalid partition specified: x; Batch job submission failed: Invalid"
