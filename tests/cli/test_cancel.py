"""`cancel`: exactly what was meant, and nothing else."""

import os
import subprocess

import pytest

from airflows.cli.cancelling import status_of
from airflows.errors import BackendUnavailableError, LedgerError, NotFoundError


@pytest.fixture
def driver(cli):
    """A driver with three trials that run, each with a child of its own."""
    file = cli.sweep_file(
        f"sleep 1000 & echo $! >{cli.directory}/$AIRFLOWS_TRIAL.pid; wait",
        limits={"concurrent": 3},
        backend={"type": "local", "grace": 1},
    )
    process = cli.start("sweep", file, "-o", "json")
    cli.wait_for(lambda: len(children(cli)) == 3, "three trials to run")
    cli.wait_for(lambda: cli.states().get("running") == 3, "three trials in the ledger")
    return process


def children(cli) -> list[int]:
    """Return the numbers of the trials whose child is alive."""
    pids = {int(path.stem): path.read_text().strip() for path in cli.directory.glob("*.pid")}
    return sorted(number for number, pid in pids.items() if pid and _is_alive(int(pid)))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return not state.stdout.startswith("Z")


def test_one_trial_is_cancelled_with_its_children(cli, driver):
    done = cli("cancel", "lr/1", "-o", "json")
    assert done.status == 0, done.err
    (cancelled,) = done.document["cancelled"]
    assert cancelled.endswith("/1")
    assert children(cli) == [0, 2]
    assert cli("get", "lr/1", "-o", "json").document["state"] == "cancelled"
    assert driver.poll() is None


@pytest.mark.parametrize("value", ["0.2", "2e-1", "0.20"])
@pytest.mark.usefixtures("driver")
def test_trials_are_chosen_by_the_value_of_an_override(cli, value):
    """O17."""
    done = cli("cancel", "lr", "--where", f"parameters.lr={value}")
    assert done.status == 0, done.err
    assert children(cli) == [0, 2]


def test_a_whole_sweep_is_cancelled(cli, driver):
    assert cli("cancel", "lr").status == 0
    assert children(cli) == []
    driver.communicate(timeout=30)
    assert driver.returncode == 1
    assert cli("list", "--all", "-o", "json").document["sweeps"][0]["state"] == "cancelled"


def test_a_sweep_that_nobody_drives_is_cancelled_too(cli, driver):
    driver.kill()
    driver.communicate()
    done = cli("cancel", "--all", "--yes", "-o", "json")
    assert done.status == 0, done.err
    assert len(done.document["cancelled"]) == 1
    assert children(cli) == []


@pytest.mark.usefixtures("driver")
def test_an_unknown_id_is_named_and_the_others_are_cancelled(cli):
    done = cli("cancel", "nope", "lr/0", "-o", "json")
    assert done.status == 1
    assert [failed["id"] for failed in done.document["failed"]] == ["nope"]
    assert children(cli) == [1, 2]


@pytest.mark.usefixtures("driver")
def test_nothing_that_matches_is_nothing_to_do(cli):
    done = cli("cancel", "lr", "--where", "parameters.lr=7", "-o", "json")
    assert (done.status, done.document) == (0, {"cancelled": [], "ended": [], "failed": []})
    assert children(cli) == [0, 1, 2]


def test_what_had_ended_is_said_to_have_ended_and_how(cli):
    assert cli("sweep", cli.sweep_file()).status == 0
    done = cli("cancel", "lr")
    assert (done.status, done.out.split(" ", 1)[1]) == (0, "had ended before: succeeded\n")
    document = cli("cancel", "lr/1", "-o", "json").document
    assert document["cancelled"] == document["failed"] == []
    assert [each["state"] for each in document["ended"]] == ["succeeded"]
    assert document["ended"][0]["id"].endswith("/1")
    assert cli("cancel", "lr", "--where", "parameters.lr=0.1").out == "Nothing was left to cancel.\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--all", "lr"],
        ["lr/0", "--where", "parameters.lr=0.1"],
        ["lr", "--where", "parameters.lr"],
        ["nope"],
    ],
)
@pytest.mark.usefixtures("driver")
def test_wrong_words_cancel_nothing(cli, words):
    assert cli("cancel", *words).status == 2
    assert children(cli) == [0, 1, 2]


NOT_FOUND = ("nope", NotFoundError("no such sweep."))
AWAY = ("lr", BackendUnavailableError("lr is not cancelled yet."))
LOCKED = ("lr", LedgerError("the ledger is locked."))


@pytest.mark.parametrize(
    ("cancelled", "failed", "status"),
    [
        ([], [], 0),
        (["lr"], [], 0),
        (["lr/0"], [AWAY], 1),
        (["lr/0"], [NOT_FOUND], 1),
        ([], [NOT_FOUND], 2),
        ([], [AWAY], 3),
        ([], [LOCKED], 3),
        ([], [NOT_FOUND, AWAY], 3),
    ],
)
def test_the_status_says_whether_asking_again_may_help(cancelled, failed, status):
    assert status_of(cancelled, failed) == status


def test_a_key_that_no_trial_overrides_is_an_error_and_cancels_nothing(cli):
    assert cli("sweep", cli.sweep_file("true"), "--yes").status == 0
    done = cli("cancel", "lr", "--where", "lr=0.1", "--yes")

    assert done.status == 2
    assert "Did you mean parameters.lr?" in " ".join(done.err.split())
