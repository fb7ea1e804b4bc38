"""Drivers that are killed while they start a run: the next one adopts the run, or knows that there is none."""

import fcntl
import itertools
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflows import backends
from airflows.backends.local import LocalBackend, LocalSettings
from airflows.exits import OwnExit
from airflows.testing.jobs import BackendSuite, MakeJob

RANDOM_DEATHS = 40
PREAMBLE = Path(backends.__file__).with_name("preamble.sh")
BOUNDARIES = {
    os: ("open", "close", "read", "fstat", "mkdir", "pidfd_open"),
    fcntl: ("flock",),
    subprocess: ("_fork_exec",),
}

pytestmark = pytest.mark.usefixtures("clean_env")


def job_in(home, backend):
    return MakeJob(backend)(f"echo ran >>{home}/ran")


def drive(home, die_at=0, ready=None, job=None):
    """Be a driver that submits one job, and that dies at a boundary, counted from 1."""
    backend = LocalBackend(LocalSettings(grace=1), home)
    job = job or job_in(home, backend)
    calls = itertools.count(1)

    def dying(function):
        def call(*args, **kwargs):
            if next(calls) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            if next(calls) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for module, names in BOUNDARIES.items():
        for name in names:
            setattr(module, name, dying(getattr(module, name)))
    if ready is not None:
        os.write(ready, b".")
    backend.submit([job])


def fork_driver(home, **how):
    """Start a driver in a process of its own; return its pid."""
    home.mkdir(exist_ok=True)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            drive(home, **how)
            status = 0
        finally:
            os._exit(status)
    return pid


def exit_status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def count(home):
    try:
        return len((home / "ran").read_text().splitlines())
    except FileNotFoundError:
        return 0


def take_over(home):
    """Do what the next driver does; return whether it adopted the run."""
    suite = BackendSuite()
    backend = LocalBackend(LocalSettings(grace=1), home)
    token = "contract-0a1b2c-0000-a0"
    found = backend.find([token])
    if token in found:
        assert suite.end(backend, found[token]).exit_code == 0
        assert count(home) == 1
        return True
    assert count(home) == 0
    job = job_in(home, backend)
    assert job.token == token
    assert suite.end(backend, suite.start(backend, job)).exit_code == 0
    assert count(home) == 1
    return False


def test_a_driver_may_die_at_any_boundary(tmp_path):
    adopted = []
    for boundary in itertools.count(1):
        home = tmp_path / str(boundary)
        status = exit_status(fork_driver(home, die_at=boundary))
        if status == 0:
            break
        assert status == -signal.SIGKILL
        adopted.append(take_over(home))

    assert len(adopted) > 20
    assert {True, False} == set(adopted)
    assert sorted(adopted) == adopted, "once a run was started it stays started"


def test_a_driver_may_be_killed_at_any_moment(tmp_path):
    chance = random.Random(7)
    adopted, window_s = 0, 0.004
    for number in range(RANDOM_DEATHS):
        ready, told = os.pipe()
        driver = fork_driver(tmp_path / str(number), ready=told)
        os.read(ready, 1)
        # What it does now takes a few milliseconds, on a busy machine more: follow it.
        select.select([], [], [], chance.uniform(0, window_s))
        os.kill(driver, signal.SIGKILL)
        exit_status(driver)
        os.close(ready)
        os.close(told)
        was_started = take_over(tmp_path / str(number))
        window_s *= 0.8 if was_started else 1.3
        adopted += was_started

    assert 0 < adopted < RANDOM_DEATHS


def test_drivers_that_start_the_same_attempt_at_once_start_it_once(tmp_path):
    for number in range(20):
        home = tmp_path / str(number)
        home.mkdir()
        job = job_in(home, LocalBackend(LocalSettings(), home))
        drivers = [fork_driver(home, job=job) for _ in range(3)]
        assert [exit_status(driver) for driver in drivers] == [0, 0, 0]
        assert take_over(home)


def test_an_attempt_that_was_started_is_not_started_again(tmp_path):
    suite, backend = BackendSuite(), LocalBackend(LocalSettings(), tmp_path)
    job = job_in(tmp_path, backend)
    first = suite.start(backend, job)
    again = suite.start(backend, job)
    suite.end(backend, first)

    after_its_end = suite.start(LocalBackend(LocalSettings(), tmp_path), job)

    assert first.split(":")[0] == again.split(":")[0]
    assert suite.end(backend, after_its_end).exit_code == 0
    assert count(tmp_path) == 1


def test_a_preamble_that_finds_its_claim_taken_leaves_at_once(tmp_path):
    """Should a lock ever be lost, what is written in the claim still keeps a second copy from running."""
    suite, backend = BackendSuite(), LocalBackend(LocalSettings(), tmp_path)
    job = job_in(tmp_path, backend)
    suite.end(backend, suite.start(backend, job))
    exit_file = (job.launch_dir / "exit.json").read_bytes()

    (preamble,) = (tmp_path / "preambles").glob("*/preamble.sh")
    command = ["bash", "-p", preamble, job.launch_dir, job.token, "1", "1000", "0", "", sys.executable, ""]
    with (tmp_path / "claims" / job.token).open("r+b") as claim:
        second = subprocess.run(command, stdin=claim, capture_output=True, text=True, check=False)

    assert second.returncode == OwnExit.DUPLICATE
    assert "started a second time" in second.stderr
    assert count(tmp_path) == 1
    assert (job.launch_dir / "exit.json").read_bytes() == exit_file


def test_nothing_holds_the_claim_of_an_ended_run(tmp_path):
    suite, backend = BackendSuite(), LocalBackend(LocalSettings(), tmp_path)
    job = job_in(tmp_path, backend)
    suite.end(backend, suite.start(backend, job))

    with (tmp_path / "claims" / job.token).open("r+b") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_preamble_and_the_table_agree_on_exit_codes():
    text = PREAMBLE.read_text()

    assert f"INVALID={OwnExit.INVALID:d} CODE_DAMAGED={OwnExit.CODE_DAMAGED:d} " in text
    assert f" DUPLICATE={OwnExit.DUPLICATE:d} TIMED_OUT={OwnExit.TIMED_OUT:d}\n" in text
