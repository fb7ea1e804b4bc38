"""`airflows resume --rebuild`: a ledger that was deleted, with real processes and the embedded MLflow store."""

import signal
import sys
from collections import Counter

import pytest

# As MLflow's client would log it, without the seconds that importing it takes.
SCORE = """\
import os, sqlite3, yaml
with open(os.environ["HYPERPARAMETERS_PATH"]) as file:
    p = yaml.safe_load(file)
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
row = {"key": "loss", "value": abs(p["lr"] - 0.2) + p["seed"] / 10, "run": os.environ["MLFLOW_RUN_ID"]}
with store:
    for table in ("metrics", "latest_metrics"):
        store.execute(
            f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
            " VALUES (:key, :value, 1, :run, 0, 0)",
            row,
        )
"""
# Trial 0 fails once, trial 3 for good; trial 4 waits until it is let go.
COMMAND = """\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"{directory}/runs.txt"
case "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" in
  0.0 | 3.*) echo "ValueError: no luck"; exit 3 ;;
  4.*) while [ ! -e "{directory}/go" ]; do sleep 0.05; done ;;
esac
"{python}" "{directory}/score.py"
"""
FIELDS = {
    "space": {"parameters.lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]},
    "objective": {"metric": "loss", "goal": "minimize"},
    "tracking": {},
    "retry": {"max": 1, "wait": "0s"},
}
ALL_RUNS = {"0.0": 1, "0.1": 1, "1.0": 1, "2.0": 1, "3.0": 1, "3.1": 1, "4.0": 1, "5.0": 1}


def scored_sweep(cli, **fields):
    (cli.directory / "score.py").write_text(SCORE)
    command = COMMAND.format(directory=cli.directory, python=sys.executable)
    return cli.sweep_file(command, **(FIELDS | fields))


def runs(cli):
    path = cli.directory / "runs.txt"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def lose(cli):
    for path in cli.home.glob("ledger.db*"):
        path.unlink()


def told(cli, sweep):
    """What people see of a sweep, without what was only measured by the driver's own clock."""
    results = cli("results", sweep, "-o", "json").document
    trials = cli("list", "--runs", "--all", "-o", "json").document["runs"]
    for trial in trials:
        del trial["started_at"], trial["ended_at"]
        # Of a process that has gone nobody knows any more when exactly it began.
        trial["handle"] = trial["handle"].partition(":")[0]
    known = {key: results[key] for key in ("sweep", "objective", "complete", "winner", "ranked", "unranked")}
    return known, [cause["example"] for cause in results.get("causes", [])], trials


@pytest.mark.parametrize("wanted", ["id", "name", "file"])
def test_a_finished_sweep_is_rebuilt_as_it_was(cli, wanted):
    file = scored_sweep(cli)
    (cli.directory / "go").touch()
    ended = cli("sweep", file, "--yes", "-o", "json").document
    before = told(cli, "lr")
    lose(cli)

    what = {"id": ended["sweep"], "name": "lr", "file": file}[wanted]
    done = cli("resume", what, "--rebuild", "-o", "json")

    assert done.status == 1, done.err
    assert done.document == ended
    assert told(cli, "lr") == before
    assert runs(cli) == ALL_RUNS
    assert f"{ended['sweep']} is in the ledger again: 6 of 6 trials had ended" in done.err


def test_a_ledger_lost_in_the_middle_is_rebuilt_and_what_runs_is_adopted(cli):
    file = scored_sweep(cli, limits={"concurrent": 2})
    driver = cli.start("sweep", file, "--yes")
    cli.wait_for(lambda: {"3.1", "4.0"} <= runs(cli).keys(), "trial 4 to run and trial 3 to have failed")
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    lose(cli)

    again = cli.start("resume", "lr", "--rebuild", "-o", "json")
    cli.wait_for(lambda: cli.states().get("running"), "the running trial to be adopted")
    again.send_signal(signal.SIGKILL)
    again.communicate()
    (cli.directory / "go").touch()
    # It was killed after it had rebuilt: the same words go on with what there is.
    done = cli("resume", "lr", "--rebuild", "-o", "json")

    assert (done.status, done.document["state"]) == (1, "failed")
    assert done.document["winner"]["overrides"] == {"parameters.lr": 0.2}
    assert runs(cli) == ALL_RUNS
    assert {key: done.document["trials"][key] for key in ("succeeded", "failed")} == {
        "succeeded": 5,
        "failed": 1,
    }


def test_without_mlflow_the_backend_alone_tells(cli):
    file = scored_sweep(cli, tracking={"uri": "none"}, limits={"concurrent": 3})
    command = COMMAND.format(directory=cli.directory, python="true")
    cli.sweep_file(command, **FIELDS | {"tracking": {"uri": "none"}, "limits": {"concurrent": 3}})
    (cli.directory / "go").touch()
    cli("sweep", file, "--yes")
    before = cli("list", "--runs", "--all", "-o", "json").document["runs"]
    lose(cli)
    for path in cli.home.glob("runs/*/sweep.json"):
        path.unlink()

    done = cli("resume", file, "--rebuild", "-o", "json")

    after = cli("list", "--runs", "--all", "-o", "json").document["runs"]
    kept = ("trial", "overrides", "state", "reason", "class", "attempt")
    assert [[t[k] for k in kept] for t in after] == [[t[k] for k in kept] for t in before]
    assert (done.status, done.document["trials"]["failed"]) == (1, 1)
    assert runs(cli) == ALL_RUNS


def test_replicates_that_were_added_are_there_again(cli):
    (cli.directory / "score.py").write_text(SCORE)
    file = cli.sweep_file(
        f'"{sys.executable}" "{cli.directory}/score.py"',
        **FIELDS | {"space": {"parameters.lr": [0.1, 0.2]}},
        replicates={"key": "parameters.seed", "values": [0, 1]},
    )
    cli("sweep", file, "--yes")
    added = cli("resume", "lr", "--replicates", "1", "-o", "json").document
    assert added["trials"]["total"] > 4
    before = told(cli, "lr")
    lose(cli)

    done = cli("resume", "lr", "--rebuild", "-o", "json")

    assert (done.status, done.document["trials"]) == (0, added["trials"])
    assert told(cli, "lr") == before


def test_what_a_person_cancelled_stays_cancelled(cli):
    file = cli.sweep_file("sleep 600", limits={"concurrent": 3})
    driver = cli.start("sweep", file, "--yes")
    cli.wait_for(lambda: cli.states().get("running") == 3, "all trials to run")
    cli("cancel", "lr", "--yes")
    driver.communicate()
    lose(cli)

    done = cli("resume", "lr", "--rebuild", "-o", "json")

    assert (done.status, done.document["state"]) == (1, "cancelled")
    assert done.document["trials"]["cancelled"] == 3


def test_a_sweep_that_is_in_the_ledger_is_left_alone(cli):
    file = cli.sweep_file()
    ended = cli("sweep", file, "--yes", "-o", "json").document
    ledger = (cli.home / "ledger.db").read_bytes()

    for wanted in ("lr", file):
        done = cli("resume", wanted, "--rebuild")

        assert done.status == 2
        assert done.error == (
            f"error: sweep {ended['sweep']} is in the ledger, so nothing of it is lost and nothing was rebuilt."
            f" Take it up with: airflows resume {ended['sweep']}"
        )
    assert (cli.home / "ledger.db").read_bytes() == ledger


def test_a_sweep_with_a_living_driver_is_not_rebuilt(cli):
    file = cli.sweep_file(f'while [ ! -e "{cli.directory}/go" ]; do sleep 0.05; done')
    driver = cli.start("sweep", file, "--yes")
    cli.wait_for(lambda: cli.states().get("running"), "a trial to run")
    lose(cli)

    done = cli("resume", "lr", "--rebuild")

    assert done.status == 2
    assert f"is still driven by process {driver.pid}" in done.error
    (cli.directory / "go").touch()
    driver.communicate()


def test_commands_on_a_lost_sweep_say_how_to_rebuild_it(cli):
    file = cli.sweep_file()
    sweep = cli("sweep", file, "--yes", "-o", "json").document["sweep"]
    lose(cli)

    for words in (("resume", "lr"), ("resume", sweep), ("sweep", file, "--yes")):
        done = cli(*words)

        assert done.status == 2
        assert f"Rebuild it: airflows resume {sweep} --rebuild" in done.error


def test_changed_settings_of_the_file_wait_for_a_resume(cli):
    file = cli.sweep_file()
    cli("sweep", file, "--yes")
    lose(cli)
    cli.sweep_file(limits={"concurrent": 1})

    done = cli("resume", file, "--rebuild")

    assert done.status == 0
    assert "the file differs from the sweep in limits, and the sweep goes on as it was" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "tells of a sweep 'nowhere'"),
        (("sweep.yaml",), "knows anything of sweep lr-"),
        (("lr", "--failed"), "takes no other changes"),
        (("lr", "--set", "limits.concurrent=2"), "takes no other changes"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused(cli, words, message):
    cli.sweep_file()

    done = cli("resume", *words, "--rebuild")

    assert done.status == 2
    assert message in done.error
