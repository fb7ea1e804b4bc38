"""Sweeps on a real Slurm, with what happens there: killed drivers, nodes and controllers, cancels, preemption."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

# As MLflow's client would log it, without the seconds that importing it takes two hundred times.
SCORE = """\
import os
import sqlite3
import yaml
with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
    seed = yaml.safe_load(file)["seed"]
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
row = {"key": "loss", "value": (seed - 5) ** 2, "run": os.environ["MLFLOW_RUN_ID"]}
with store:
    for table in ("metrics", "latest_metrics"):
        store.execute(
            f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
            " VALUES (:key, :value, 1, :run, 0, 0)",
            row,
        )
"""
# Saves a checkpoint a step; a first attempt goes on for ever, a second one ends when it has resumed.
SAVES = """\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"
trap 'echo "told to save"; exit 1' TERM
if [ "$AIRFLOWS_ATTEMPT" = 0 ]; then
  mkdir "$AIRFLOWS_CHECKPOINT_DIR/checkpoint-1"
  echo '{"global_step": 1}' >"$AIRFLOWS_CHECKPOINT_DIR/checkpoint-1/trainer_state.json"
  echo saved
  while :; do sleep 0.1 || :; done
fi
[ "$AIRFLOWS_RESUME_FROM" = "$AIRFLOWS_CHECKPOINT_DIR/checkpoint-1" ]
"""
# The parent of the command is the batch shell.
ENDS = f"""\
case $AIRFLOWS_TRIAL in
  0) ulimit -v 300000; exec "{sys.executable}" -c 'bytearray(400_000_000)' ;;
  1) exec "{sys.executable}" -c 'raise ValueError("bad fold")' ;;
  2) [ "$AIRFLOWS_ATTEMPT" = 1 ] || {{ kill -KILL $PPID; exit 1; }} ;;
esac
"""
COUNTS = 'echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"; '


def once(trials: int) -> dict[str, int]:
    return {f"{number}.0": 1 for number in range(trials)}


def test_two_hundred_trials_come_to_their_winner(sweeping):
    (sweeping.directory / "score.py").write_text(SCORE)
    sweeping.write(
        f'"{sys.executable}" "{sweeping.directory}/score.py"',
        200,
        tracking={},
        objective={"metric": "loss", "goal": "minimize"},
        limits={"concurrent": 8},
    )

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    assert document["winner"]["overrides"] == {"parameters.seed": 5}
    assert len(sweeping.arrays()) == 1


def test_an_array_longer_than_the_site_takes_is_cut(sweeping):
    sweeping.write(COUNTS, 310, limits={"concurrent": 100})

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    # An overloaded node now and then loses a batch script before it has run: that trial is tried again.
    attempts = sweeping.attempts()
    assert {attempt.reason for attempt in attempts} <= {"", "node_failed"}
    assert Counter(run.partition(".")[0] for run in sweeping.runs().elements()) == {
        str(number): 1 for number in range(310)
    }
    assert len({attempt.handle.partition("_")[0] for attempt in attempts if attempt.attempt == 0}) == 2


@pytest.mark.parametrize("seed", range(2))
def test_a_driver_killed_at_any_moment_loses_and_repeats_nothing(sweeping, seed):
    sweeping.write(f"{COUNTS} sleep 0.5", 60)
    for number in range(4):
        process = sweeping.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(random.Random(f"{seed}-{number}").uniform(0.4, 2.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == once(60)
    assert len(sweeping.attempts()) == 60


def test_a_driver_killed_between_sbatch_and_its_answer_finds_the_array(sweeping, monkeypatch, tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    real = subprocess.check_output(["which", "sbatch"], text=True).strip()
    # Accepted, and the answer never comes.
    (commands / "sbatch").write_text(
        f'#!/bin/sh\ncase "$*" in *test-only*) exec {real} "$@" ;; esac\n{real} "$@" >/dev/null\n'
        f"touch {tmp_path}/accepted\nsleep 60\n"
    )
    (commands / "sbatch").chmod(0o755)
    sweeping.write(f"{COUNTS} sleep 1", 10)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
        process = sweeping.start()
        sweeping.until((tmp_path / "accepted").exists)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == once(10)


def test_a_sweep_ends_with_no_driver_alive(sweeping, slurm):
    sweeping.write(f"{COUNTS} sleep 0.5", 20, limits={"concurrent": 5})
    process = sweeping.start()
    sweeping.until(sweeping.runs)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    sweeping.until(lambda: not slurm.run("squeue", "-h").strip())

    assert sweeping.runs() == once(20)
    assert sweeping.drive()[1]["state"] == "succeeded"
    assert sweeping.runs() == once(20)


def test_a_controller_that_is_away_for_a_while_delays_and_nothing_else(sweeping, slurm):
    sweeping.write(f"{COUNTS} sleep 3", 12, limits={"concurrent": 6})
    process = sweeping.start()
    sweeping.until(lambda: len(sweeping.runs()) >= 2)
    slurm.kill("slurmctld", signal.SIGTERM)
    log = sweeping.directory / "driver.log"
    sweeping.until(lambda: "not answer squeue" in log.read_text())
    slurm.up()

    code, document = sweeping.end(process)

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == once(12)


def test_a_trial_on_a_node_that_fails_resumes_from_its_checkpoint(sweeping, slurm):
    sweeping.write(SAVES, 1)
    process = sweeping.start()
    sweeping.until(lambda: "saved" in sweeping.log(0, 0))
    node = slurm.run("squeue", "-h", "-o", "%N").strip()
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    code, document = sweeping.end(process)

    first, second = sweeping.attempts()
    assert (code, document["state"]) == (0, "succeeded")
    assert (first.reason, second.state) == ("node_failed", "succeeded")
    assert "Slurm says NODE_FAIL" in first.message
    assert second.resumed_from.endswith("checkpoint-1")


def test_a_preempted_trial_may_save_and_resumes_from_its_checkpoint(sweeping, slurm):
    sweeping.write(SAVES, 1, backend={"partition": "preempt"})
    process = sweeping.start()
    sweeping.until(lambda: "saved" in sweeping.log(0, 0))
    wanted = ["-p", "main", "-N4", "--exclusive", "--output=/dev/null"]
    slurm.run("sbatch", *wanted, "--wrap", "sleep 2")

    code, document = sweeping.end(process)

    first, second = sweeping.attempts()
    assert (code, document["state"]) == (0, "succeeded")
    assert (first.reason, second.state) == ("preempted", "succeeded")
    assert "Slurm says PREEMPTED" in sweeping.ask("get", "live/0").stdout
    assert "told to save" in sweeping.log(0, 0)


def test_a_trial_past_its_time_limit_may_save_and_resumes_from_its_checkpoint(sweeping):
    sweeping.write(SAVES, 1, base={"timeout_minutes": 1}, backend={"grace": 45})
    code, document = sweeping.drive()

    first, second = sweeping.attempts()
    assert (code, document["state"]) == (0, "succeeded")
    assert (first.reason, second.state) == ("timed_out", "succeeded")
    assert "told to save" in sweeping.log(0, 0)


def test_the_class_of_a_real_end_decides_about_the_next_attempt(sweeping):
    sweeping.write(ENDS, 4)

    code, document = sweeping.drive()

    made = [(one.number, one.attempt, one.reason, one.exit_code) for one in sweeping.attempts()]
    assert (code, document["trials"]["failed"], document["trials"]["succeeded"]) == (1, 2, 2)
    assert made == [
        (0, 0, "out_of_memory", 1),
        (1, 0, "error", 1),
        (1, 1, "error", 1),
        (2, 0, "error", 137),
        (2, 1, "", 0),
        (3, 0, "", 0),
    ]
    assert "MemoryError; not retried unchanged" in sweeping.ask("get", "live/0").stdout
    assert "not tried again: the same error twice without progress" in sweeping.ask("get", "live/1").stdout
    assert "its batch shell was killed" in sweeping.ask("get", "live/2").stdout


def test_a_node_on_which_trials_keep_failing_is_avoided_by_whoever_drives(sweeping, slurm):
    broken = '[ "$SLURMD_NODENAME" != n3 ] || { sleep 0.7; echo "RuntimeError: no driver"; exit 1; }'
    sweeping.write(f"{COUNTS} {broken}; sleep 0.4", 30, backend={"cpus": 8, "extra": ["--exclude=n4"]})
    process = sweeping.start()
    # What waits in the queue already is kept from it, too; what a person excludes stays excluded.
    sweeping.until(lambda: "ExcNodeList=n[3-4]" in slurm.run("scontrol", "show", "job", "-o"))
    process.send_signal(signal.SIGKILL)
    process.communicate()

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    made = sweeping.attempts()
    on_it = [attempt for attempt in made if attempt.host == "n3"]
    assert {attempt.reason for attempt in on_it} == {"error"}
    assert 3 <= len(on_it) <= 12
    again = max(sweeping.home.glob("batches/*/*/script.sh"), key=lambda path: path.stat().st_mtime)
    assert "#SBATCH --exclude=n4,n3\n" in again.read_text()
    assert "avoided host n3: " in sweeping.ask("get", "live").stdout
    last = max((attempt for attempt in made if attempt.attempt), key=lambda attempt: attempt.claimed_at)
    story = sweeping.ask("get", f"live/{last.number}").stdout
    assert "not on n3, where trials keep failing" in story
    told = [line.split()[1] for line in story.splitlines() if line.split()[:1] == ["host"]]
    assert told == [attempt.host for attempt in made if attempt.number == last.number]


def test_a_run_cancelled_outside_is_seen_as_cancelled(sweeping, slurm):
    # One of each: running and waiting.
    sweeping.write(f"{COUNTS} sleep 5", 4, limits={"concurrent": 2})
    process = sweeping.start()
    sweeping.until(lambda: len(sweeping.runs()) == 2)
    (array,) = sweeping.arrays()
    slurm.run("scancel", f"{array}_0", f"{array}_3")

    code, document = sweeping.end(process)

    states = {attempt.number: attempt.state for attempt in sweeping.attempts()}
    assert states == {0: "cancelled", 1: "succeeded", 2: "succeeded", 3: "cancelled"}
    assert (code, document["state"]) == (0, "succeeded")


def test_cancelling_a_sweep_takes_all_of_it_out_of_the_queue(sweeping, slurm):
    sweeping.write(f"{COUNTS} sleep 300", 50, limits={"concurrent": 3})
    process = sweeping.start()
    sweeping.until(lambda: len(sweeping.runs()) == 3)
    assert sweeping.ask("cancel", "live", "--yes").returncode == 0

    _, document = sweeping.end(process)

    assert document["state"] == "cancelled"
    assert not slurm.run("squeue", "-h").strip()


def test_identical_failures_take_the_rest_out_of_the_queue(sweeping, slurm):
    sweeping.write(f"{COUNTS} sleep 1; exit 3", 100, limits={"concurrent": 3}, retry={"max": 0})

    code, document = sweeping.drive()

    assert (code, document["state"]) == (1, "failed")
    assert len(sweeping.runs()) < 30
    assert not slurm.run("squeue", "-h").strip()


def test_a_wrong_partition_is_refused_before_anything_is_started(sweeping):
    sweeping.write("true", 2, backend={"partition": "nosuch"})
    process = sweeping.start()
    process.communicate(timeout=60)

    assert process.returncode == 2
    assert "artition" in (sweeping.directory / "driver.log").read_text()
    assert not (sweeping.home / "runs").exists()


def test_a_full_queue_is_waited_for(sweeping, slurm):
    slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "maxsubmit=5")
    try:
        sweeping.write(f"{COUNTS} sleep 0.2", 12, backend={"queue": 12, "account": "ml"})
        code, document = sweeping.drive()
    finally:
        slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "maxsubmit=-1")

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == once(12)


def test_a_site_without_accounts_that_forgets_at_once(slurm_without_accounts, new_sweeping):
    sweeping = new_sweeping()
    sweeping.write(f'{COUNTS} [ "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" != 3.0 ]', 20, limits={"concurrent": 4})
    process = sweeping.start()
    sweeping.until(sweeping.runs)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    # Long enough for Slurm to forget all of it.
    sweeping.until(lambda: not slurm_without_accounts.run("squeue", "-h", "-t", "all").strip())

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == once(20) | {"3.1": 1}
