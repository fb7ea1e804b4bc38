"""`list`, `get`, `logs`: what is known, and what was printed."""

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def swept(shared_cli):
    """A sweep of three trials, the second of which failed at its second attempt; `swept.id` is its id."""
    command = (
        'echo "attempt $AIRFLOWS_ATTEMPT"; '
        'grep -q "lr: 0.2" "$HYPERPARAMETERS_PATH" && { echo "ValueError: no $AIRFLOWS_ATTEMPT"; exit 3; }; true'
    )
    file = shared_cli.sweep_file(command, retry={"max": 1, "wait": "0s"})
    done = shared_cli("sweep", file, "-o", "json")
    assert done.status == 1
    shared_cli.id = done.document["sweep"]
    return shared_cli


# Nothing yet


@pytest.mark.parametrize("words", [["list"], ["list", "--runs"], ["list", "--all"]])
def test_without_a_ledger_a_list_is_empty_and_makes_none(cli, words):
    done = cli(*words, "-o", "json")
    assert (done.status, list(done.document.values())) == (0, [[]])
    assert not cli.home.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["get", "x"],
        ["logs", "x/0"],
        ["results", "x"],
        ["best", "x"],
        ["watch", "x"],
        ["resume", "x"],
        ["cancel", "x"],
    ],
)
def test_without_a_ledger_nothing_is_found_and_none_is_made(cli, words):
    done = cli(*words, "-o", "json")
    assert done.status == 2
    assert done.document["error"]["kind"] == "not_found"
    assert not cli.home.exists()


# list


def test_list_shows_active_sweeps_unless_told_otherwise(swept):
    assert swept("list", "-o", "json").document == {"sweeps": []}
    (row,) = swept("list", "--all", "-o", "json").document["sweeps"]
    assert row["sweep"] == swept.id
    assert (row["state"], row["backend"], row["driver"]) == ("failed", "local", None)
    assert row["started_at"].endswith("Z")


def test_list_for_people_is_a_table(swept):
    header, row = swept("list", "--all").out.splitlines()
    assert header.split()[:2] == ["SWEEP", "STATE"]
    assert row.split()[:3] == [swept.id, "failed", "3/3"]


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        (["state=failed"], [1]),
        (["state=s*"], [0, 2]),
        (["parameters.lr=0.[12]"], [0, 1]),
        (["state=succeeded", "parameters.lr=0.3"], [2]),
        (["state=nothing"], []),
        (["value="], [0, 1, 2]),
    ],
)
def test_runs_are_filtered_by_state_or_override(swept, filters, numbers):
    words = [word for text in filters for word in ("--filter", text)]
    document = swept("list", "--runs", "--all", *words, "-o", "json").document
    assert [trial["number"] for trial in document["runs"]] == numbers


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["--filter", "stat=failed"], "best, ended_at"),
        (["--runs", "--filter", "state=failed", "--filter", "parameters.lrr=*"], "parameters.lr, reason"),
    ],
)
def test_a_filter_by_an_unknown_key_is_a_wrong_request(swept, words, known):
    done = swept("list", "--all", *words)
    assert (done.status, done.out) == (2, "")
    assert "no row has such a key" in done.error
    assert known in done.error


def test_a_limited_list_says_that_there_is_more(swept):
    done = swept("list", "--runs", "--all", "--limit", "2", "-o", "json")
    assert len(done.document["runs"]) == 2
    assert "more than these 2" in done.err


# get


def test_get_tells_everything_of_a_sweep(swept):
    document = swept("get", "lr", "-o", "json").document
    assert document["sweep"] == swept.id
    assert document["spec"]["space"] == {"parameters.lr": [0.1, 0.2, 0.3]}
    (cause,) = document["causes"]
    assert (cause["class"], cause["count"], cause["example"]) == ("error", 2, f"{swept.id}/1.0")
    assert set(document["accelerator_hours"]) == {"useful", "lost"}
    assert set(document) >= {"objective", "parent_run_id", "experiment_id", "trials", "best"}


def test_get_tells_the_story_of_a_trial(swept):
    document = swept("get", f"{swept.id}/1", "-o", "json").document
    assert (document["state"], document["class"], document["attempt"]) == ("failed", "error", 1)
    assert [(attempt["state"], attempt["exit_code"]) for attempt in document["attempts"]] == [
        ("failed", 3)
    ] * 2
    states = [(event["from"], event["to"]) for event in document["events"]]
    assert states[0] == ("pending", "submitting")
    assert states[-1][1] == "failed"
    assert document["config"]["parameters"]["lr"] == 0.2
    (log,) = document["attempts"][1]["log_paths"]
    assert "ValueError: no 1" in Path(log).read_text()


def test_the_story_is_told_in_words(swept):
    told = swept("get", f"{swept.id}/1").out
    for words in (
        "attempt 0",
        "to be tried again",
        "attempt 1",
        "failed for good",
        "ValueError",
        "exit code",
    ):
        assert words in told


def test_one_attempt_can_be_asked_for(swept):
    document = swept("get", f"{swept.id}/1.0", "-o", "json").document
    assert [attempt["attempt"] for attempt in document["attempts"]] == [0]


def test_a_backends_own_id_is_accepted(swept):
    handle = swept("get", f"{swept.id}/2", "-o", "json").document["handle"]
    assert swept("get", f"local:{handle}", "-o", "json").document["trial"] == f"{swept.id}/2"
    shown = f"local:{handle.partition(':')[0]}"
    assert f"handle  {shown}\n".replace(" ", "") in swept("get", f"{swept.id}/2").out.replace(" ", "")
    assert swept("get", shown, "-o", "json").document["trial"] == f"{swept.id}/2"


@pytest.mark.parametrize("wanted", ["nope", "lr/99", "lr/1.7", "lr/x", "local:77", ""])
def test_an_unknown_id_is_a_wrong_request(swept, wanted):
    done = swept("get", wanted, "-o", "json")
    assert done.status == 2
    assert done.document["error"]["hint"]


# logs


def test_logs_are_those_of_the_last_attempt(swept):
    assert swept("logs", "lr/1").out == "attempt 1\nValueError: no 1\n"
    assert swept("logs", "lr/1", "--attempt", "0").out == "attempt 0\nValueError: no 0\n"
    assert swept("logs", "lr/1.0").out == "attempt 0\nValueError: no 0\n"
    assert swept("logs", "lr/1", "--lines", "1").out == "ValueError: no 1\n"


def test_logs_as_documents_are_lines(swept):
    (record,) = swept("logs", "lr/0", "-o", "json").records
    assert record == {"trial": f"{swept.id}/0", "attempt": 0, "node": 0, "line": "attempt 0"}


def test_logs_of_all_trials_are_prefixed(swept):
    lines = swept("logs", "lr", "--all-trials").out.splitlines()
    assert sorted(lines) == [
        "0.0 | attempt 0",
        "1.0 | ValueError: no 0",
        "1.0 | attempt 0",
        "1.1 | ValueError: no 1",
        "1.1 | attempt 1",
        "2.0 | attempt 0",
    ]


def test_logs_can_be_copied(swept):
    done = swept("logs", "lr", "--download-to", "copies", "-o", "json")
    assert len(done.document["files"]) == 4
    assert (swept.directory / "copies" / "1.1" / "node_0.log").read_text() == "attempt 1\nValueError: no 1\n"


@pytest.mark.parametrize("words", [["lr"], ["lr/0", "--node", "1"], ["lr/0", "--all-trials"], ["lr/9"]])
def test_a_log_that_cannot_be_meant_is_a_wrong_request(swept, words):
    assert swept("logs", *words).status == 2


def test_logs_follow_a_trial_while_it_runs(cli):
    file = cli.sweep_file(f"echo first; while ! test -e {cli.directory}/go; do sleep 0.05; done; echo last")
    cli.start("sweep", file)
    cli.wait_for(lambda: cli.states().get("running"), "a trial to run")
    process = cli.start("logs", "lr/2", "-o", "json")
    assert "waiting for it to start" in process.stderr.readline()
    cli.write("go", "")
    out, _ = process.communicate(timeout=30)
    assert [json.loads(line)["line"] for line in out.splitlines()] == ["first", "last"]
    assert process.returncode == 0


def test_nobody_reading_is_no_error(swept):
    process = swept.start("logs", "lr", "--all-trials")
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert "Traceback" not in process.stderr.read()
