"""What a real Slurm refuses, holds back or does not see; and what people are told of it."""

import json
import signal
import subprocess

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

COUNTS = 'echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"; '


def refused(sweeping) -> tuple[int, str]:
    """Start a sweep that cannot be; return the exit status and what was said."""
    process = sweeping.start()
    process.communicate(timeout=90)
    return process.returncode, (sweeping.directory / "driver.log").read_text()


def nothing_was_started(sweeping) -> bool:
    return not (sweeping.home / "runs").exists() and not sweeping.arrays()


# Refused before anything is started


def test_missing_commands_are_named_and_nothing_is_started(sweeping, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    sweeping.write("true", 2)

    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "bin"))
        code, said = refused(sweeping)

    assert code == 3
    assert "sbatch, squeue, scancel, scontrol not found: these are the commands of a Slurm cluster" in said
    assert nothing_was_started(sweeping)


def test_a_machine_outside_the_cluster_is_told_so(sweeping, monkeypatch):
    sweeping.write("true", 2)

    with monkeypatch.context() as patch:
        patch.delenv("SLURM_CONF")
        code, said = refused(sweeping)

    assert code == 3
    assert "Could not establish a configuration source" in said


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"account": "nosuch"}, "Invalid account"),
        ({"qos": "nosuch"}, "Invalid qos"),
        ({"time": "3d"}, "Requested time limit is invalid"),
        ({"gpu_type": "h100", "accelerators": {}}, "Requested node configuration is not available"),
    ],
)
def test_what_the_site_refuses_is_an_error_of_the_file(sweeping, setting, words):
    sweeping.write("true", 2, backend=setting)

    code, said = refused(sweeping)

    assert code == 2
    assert words in said
    assert nothing_was_started(sweeping)


def test_a_breach_of_policy_is_told_from_a_full_queue(sweeping, slurm):
    slurm.run("sacctmgr", "-i", "add", "qos", "tight", "flags=DenyOnLimit", "maxtresperjob=cpu=1")
    slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=tight")
    sweeping.write("true", 2, backend={"qos": "tight", "cpus": 2})

    code, said = refused(sweeping)

    assert code == 2
    assert "QOSMaxCpuPerJobLimit" in said


# Refused, or held back, at the submission


def test_a_trial_that_alone_is_refused_fails_alone(sweeping):
    tree = {"space": {"timeout_minutes": [1, 10_000, 2]}, "retry": {"max": 0}, "limits": {}}
    sweeping.write(COUNTS, 0, **tree)

    code, document = sweeping.drive()

    assert (code, document["state"]) == (1, "failed")
    assert sweeping.runs() == {"0.0": 1, "2.0": 1}
    refused = next(one for one in sweeping.attempts() if one.number == 1)
    assert (refused.state, refused.reason) == ("failed", "invalid")
    assert "Requested time limit is invalid" in sweeping.ask("get", "live/1").stdout


def test_a_limit_on_jobs_is_waited_for_and_said(sweeping, slurm):
    slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "maxsubmit=0")
    try:
        sweeping.write(COUNTS, 3)
        process = sweeping.start()
        sweeping.until(lambda: "AssocMaxSubmitJobLimit" in sweeping.ask("get", "live/0").stdout)
    finally:
        slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "maxsubmit=-1")

    code, document = sweeping.end(process)

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == {"0.0": 1, "1.0": 1, "2.0": 1}


def test_a_controller_that_is_away_at_the_start_is_an_error_and_nothing_is_started(sweeping, slurm):
    sweeping.write("true", 2)
    slurm.kill("slurmctld", signal.SIGTERM)
    try:
        code, said = refused(sweeping)
    finally:
        slurm.up()

    assert code == 3
    assert "Slurm did not answer scontrol within 5 s" in said
    assert nothing_was_started(sweeping)


# Waiting, and not seeing


def test_people_are_told_what_slurm_has_and_why_it_waits(sweeping, slurm, tmp_path):
    sweeping.write(f"{COUNTS} sleep 300", 3, limits={"concurrent": 1})
    process = sweeping.start()
    sweeping.until(sweeping.runs)
    (array,) = sweeping.arrays()
    slurm.run("scontrol", "hold", f"{array}_2")

    def waits() -> str:
        return json.loads(sweeping.ask("get", f"slurm:{array}_2", "-o", "json").stdout)["waiting"] or ""

    sweeping.until(lambda: "JobHeld" in waits())
    assert "does not go away by itself" in waits()
    whole = json.loads(sweeping.ask("get", f"slurm:{array}", "-o", "json").stdout)
    assert (whole["name"], sum(one["count"] for one in whole["waiting"])) == ("live", 2)
    listed = json.loads(sweeping.ask("list", "--remote", "-o", "json").stdout)["remote"]
    assert [(one["state"], one["trial"] == f"{whole['sweep']}/{n}") for n, one in enumerate(listed)] == [
        ("running", True),
        ("queued", True),
        ("queued", True),
    ]
    # The same of a ledger that knows nothing.
    sweeping.home = tmp_path / "another"
    unknown = json.loads(sweeping.ask("list", "--remote", "-o", "json").stdout)["remote"]
    assert [(one["handle"], one["trial"]) for one in unknown] == [(one["handle"], None) for one in listed]
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_setup_that_leaves_the_shell_is_no_success(sweeping):
    sweeping.write(COUNTS, 2, backend={"setup": ["exit 0"]})

    status, document = sweeping.drive()

    assert (status, document["state"]) == (1, "failed")
    assert {attempt.reason for attempt in sweeping.attempts()} == {"invalid"}
    assert not sweeping.runs()
    for attempt in sweeping.attempts():
        assert "ended with exit code 0 before the command" in attempt.message
        assert "see the backend's `setup`" in attempt.message


def test_a_node_that_does_not_see_the_root_is_named(sweeping, slurm):
    # It is away while the job starts, as on a node that does not share the disk.
    sweeping.write("true", 1, backend={"extra": ["--begin=now+4"], "patience": 5}, retry={"max": 0})
    process = sweeping.start()
    sweeping.until(sweeping.arrays)
    (array,) = sweeping.arrays()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    away = sweeping.home.with_name("away")
    sweeping.home.rename(away)
    sweeping.until(lambda: "FAILED" in slurm.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", array))
    if sweeping.home.exists():
        subprocess.run(["rm", "-rf", sweeping.home], check=True)
    away.rename(sweeping.home)

    code, document = sweeping.drive()

    (attempt,) = sweeping.attempts()
    assert (code, document["state"], attempt.reason) == (1, "failed", "invalid")
    assert "does not see" in attempt.message
    assert "must be on a disk that all nodes share" in attempt.message
