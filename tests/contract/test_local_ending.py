"""Ending runs on this machine: everything of a run goes, nothing else does, and the exit file says why."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflows.backends.base import Phase
from airflows.backends.local import LocalBackend, LocalSettings
from airflows.backends.local.processes import marked
from airflows.errors import BackendUnavailableError
from airflows.testing.jobs import BackendSuite, MakeJob

pytestmark = pytest.mark.usefixtures("clean_env")


@pytest.fixture
def settings():
    return LocalSettings(grace=1, slots=4)


@pytest.fixture
def backend(tmp_path, settings):
    return LocalBackend(settings, tmp_path / "home")


@pytest.fixture
def make_job(backend):
    return MakeJob(backend)


@pytest.fixture
def suite():
    return BackendSuite()


def pid_of(handle):
    return int(handle.split(":")[0])


def exit_file(job):
    return json.loads((job.launch_dir / "exit.json").read_text())


def wait_gone(pid, limit_s=20):
    """Wait for the end of a process that need not be a child."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        ended = select.select([descriptor], [], [], limit_s)[0]
        os.close(descriptor)
        assert ended, f"{pid} has not ended"


def processes(*arguments):
    """Return the processes with exactly this command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:-1] == [argument.encode() for argument in arguments]:
                found.append(int(path.parent.name))
    return found


def test_cancelling_two_of_six_ends_their_children_and_nothing_else(backend, make_job, suite):
    command = "setsid sleep 600 & sleep 600 & echo $! $(exec sh -c 'echo $PPID'); echo started; wait"
    jobs = [make_job(command) for _ in range(6)]
    handles = list(backend.submit(jobs))
    for handle in handles:
        suite.until_logged(backend, handle, "started")
    assert all(len(marked(str(job.launch_dir))) >= 3 for job in jobs)

    backend.cancel(handles[:2])
    ended = [suite.end(backend, handle) for handle in handles[:2]]

    assert [set(), set()] == [marked(str(job.launch_dir)) for job in jobs[:2]]
    assert all(len(marked(str(job.launch_dir))) >= 3 for job in jobs[2:])
    assert {"killed"} == {seen.word for seen in ended}
    assert {Phase.RUNNING} == {seen.phase for seen in backend.poll(handles[2:]).values()}
    backend.cancel(handles[2:])
    for handle in handles[2:]:
        suite.end(backend, handle)


def test_a_command_that_ignores_the_signal_is_killed_after_the_grace_time(backend, make_job, suite):
    job = make_job("trap '' TERM; echo started; while :; do sleep 0.05; done")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")

    backend.cancel([handle])
    seen = suite.end(backend, handle)

    assert (seen.exit_code, seen.word) == (137, "killed")
    assert exit_file(job) == {"exit_code": 137, "word": "killed", "node": 0, "resumed_from": ""}
    assert set() == marked(str(job.launch_dir))


def test_a_child_gets_its_grace_time_though_the_shell_around_it_is_gone(backend, make_job, suite):
    program = (
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.3); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save); print('started', flush=True); time.sleep(600)"
    )
    job = make_job(f"{sys.executable} -c '{program.replace(chr(39), chr(34))}'; true")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")

    backend.cancel([handle])
    suite.end(backend, handle)

    assert "saved" in suite.lines(backend, handle)


def test_an_exit_after_the_signal_keeps_its_own_code(backend, make_job, suite):
    job = make_job("trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")

    backend.cancel([handle])
    seen = suite.end(backend, handle)

    assert (seen.exit_code, seen.word) == (0, "killed")


def test_what_a_command_leaves_behind_is_killed_when_it_ends(backend, make_job, suite):
    job = make_job("sleep 600 & echo $!; exit 0")
    handle = suite.start(backend, job)
    assert suite.end(backend, handle).exit_code == 0

    wait_gone(int(suite.lines(backend, handle)[0]))


def test_what_a_failed_command_left_in_another_session_is_killed(backend, make_job, suite):
    job = make_job("setsid sleep 600 & sleep 0.1; exit 3")
    assert suite.end(backend, suite.start(backend, job)).exit_code == 3

    assert set() == marked(str(job.launch_dir))


def test_a_run_whose_preamble_was_killed_leaves_no_process_and_no_exit_status(backend, make_job, suite):
    limit_s = 20_000 + os.getpid()
    job = make_job("setsid sleep 600 & sleep 600 & echo started; wait", timeout_s=limit_s)
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")

    os.kill(pid_of(handle), signal.SIGKILL)
    seen = suite.end(backend, handle)
    assert processes("sleep", str(limit_s)) == []

    assert (seen.exit_code, seen.word) == (None, "")
    assert "no exit status" in seen.detail
    assert set() == marked(str(job.launch_dir))


def test_a_cancel_after_the_preamble_was_killed_ends_the_rest(backend, make_job, suite):
    job = make_job("echo started; sleep 600")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")

    os.kill(pid_of(handle), signal.SIGKILL)
    backend.cancel([handle])

    assert suite.end(backend, handle).exit_code is None
    assert set() == marked(str(job.launch_dir))


def test_a_run_cancelled_before_its_preamble_can_take_the_signal_says_so(backend, make_job, suite):
    words = set()
    for _ in range(20):
        handle = suite.start(backend, make_job("sleep 600"))
        backend.cancel([handle])
        seen = suite.end(backend, handle)
        words.add(seen.word)
        assert seen.exit_code in {None, 143}

    assert {"killed"} == words


def test_a_preamble_that_hangs_is_killed_long_after_the_grace_time(tmp_path, suite):
    times = [1000.0]
    backend = LocalBackend(LocalSettings(grace=1), tmp_path, clock=lambda: times[0])
    job = MakeJob(backend)("echo started; sleep 600")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")
    os.kill(pid_of(handle), signal.SIGSTOP)

    backend.cancel([handle])
    assert backend.poll([handle])[handle].phase is Phase.RUNNING
    times[0] += 60
    backend.poll([handle])

    assert suite.end(backend, handle).word == "killed"
    assert set() == marked(str(job.launch_dir))


def test_the_grace_time_and_the_limit_need_no_driver(tmp_path):
    """A driver submits, asks one run to end, and dies; both runs end by themselves."""
    driver = f"""
import sys
from pathlib import Path
from airflows.backends.local import LocalBackend, LocalSettings
from airflows.testing.jobs import BackendSuite, MakeJob
suite = BackendSuite()
backend = LocalBackend(LocalSettings(grace=0.3), Path({str(tmp_path)!r}))
make = MakeJob(backend)
stubborn = "trap '' TERM; echo started; while :; do sleep 0.05; done"
cancelled, limited = make(stubborn), make(stubborn, timeout_s=0.5)
handles = [suite.start(backend, job) for job in (cancelled, limited)]
suite.until_logged(backend, handles[0], "started")
backend.cancel(handles[:1])
print(*handles, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", driver], capture_output=True, text=True, check=True)
    cancelled, limited = done.stdout.splitlines()
    for handle in (cancelled, limited):
        wait_gone(pid_of(handle))

    backend = LocalBackend(LocalSettings(), tmp_path)
    seen = [backend.poll([handle])[handle] for handle in (cancelled, limited)]

    assert [(one.exit_code, one.word) for one in seen] == [(137, "killed"), (137, "timed_out")]


def test_the_limit_leaves_no_process_behind_when_the_command_is_quicker(backend, make_job, suite):
    limit_s = 10_000 + os.getpid()
    go = backend.root / "go"
    handle = suite.start(backend, make_job(f"until [ -e {go} ]; do sleep 0.01; done", timeout_s=limit_s))
    while not processes("sleep", str(limit_s)):
        backend.wait(0.01)
    (clock,) = processes("sleep", str(limit_s))

    go.touch()
    assert suite.end(backend, handle).exit_code == 0

    wait_gone(clock)


def test_a_node_that_fails_is_named(backend, make_job, suite):
    job = make_job(
        "if ((NODE_RANK == 2)); then exit 5; fi; trap '' TERM; while :; do sleep 0.05; done", nodes=3
    )
    handle = suite.start(backend, job)
    seen = suite.end(backend, handle)

    assert (seen.exit_code, seen.word, seen.detail) == (5, "", "node 2 failed first")
    assert set() == marked(str(job.launch_dir))


def test_cancelling_a_run_of_several_nodes_ends_them_all(backend, make_job, suite):
    job = make_job("echo started; sleep 600", nodes=3)
    handle = suite.start(backend, job)
    for node in range(3):
        suite.until_logged(backend, handle, "started", node)

    backend.cancel([handle])
    seen = suite.end(backend, handle)

    assert seen.word == "killed"
    assert set() == marked(str(job.launch_dir))


def test_waiting_returns_the_moment_a_run_ends(backend, make_job, suite):
    go = backend.root / "go"
    job = make_job(f"echo started; until [ -e {go} ]; do sleep 0.01; done")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")
    go.touch()

    backend.wait(60)

    assert backend.poll([handle])[handle].phase is Phase.ENDED


def test_waiting_also_returns_for_a_run_that_another_process_started(backend, make_job, suite, settings):
    go = backend.root / "go"
    job = make_job(f"echo started; until [ -e {go} ]; do sleep 0.01; done; exit 8")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")
    other = LocalBackend(settings, backend.root)
    assert other.poll([handle])[handle].phase is Phase.RUNNING
    go.touch()

    other.wait(60)

    assert other.poll([handle])[handle].exit_code == 8


@pytest.mark.parametrize("with_pidfd", [True, False])
def test_it_works_without_process_descriptors(backend, make_job, suite, monkeypatch, with_pidfd):
    if not with_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    quick, slow = suite.start(backend, make_job("exit 3")), suite.start(backend, make_job("sleep 600"))

    assert suite.end(backend, quick).exit_code == 3
    assert backend.poll([slow])[slow].phase is Phase.RUNNING
    backend.cancel([slow])
    assert suite.end(backend, slow).word == "killed"


def test_another_machine_refuses_to_drive_a_run(backend, make_job, suite):
    handle = suite.start(backend, make_job("exit 0"))
    suite.end(backend, handle)
    parts = handle.split(":")
    elsewhere = ":".join([*parts[:3], "elsewhere", *parts[4:]])

    with pytest.raises(BackendUnavailableError, match="is on elsewhere"):
        backend.poll([elsewhere])


def test_a_run_in_another_container_of_this_machine_is_not_taken_for_ended(backend, make_job, suite):
    handle = suite.start(backend, make_job("echo started; sleep 600"))
    suite.until_logged(backend, handle, "started")
    seen_from_there = ":".join(["4194304", *handle.split(":")[1:]])

    with pytest.raises(BackendUnavailableError, match="cannot be seen from here"):
        backend.poll([seen_from_there])

    backend.cancel([handle])
    suite.end(backend, handle)


def test_a_run_from_before_the_machine_was_started_anew_has_ended(backend, make_job, suite):
    job = make_job("echo started; sleep 600")
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")
    parts = handle.split(":")
    before = ":".join([*parts[:2], "another-boot", *parts[3:]])

    seen = backend.poll([before])[before]

    assert (seen.phase, seen.exit_code) == (Phase.ENDED, None)
    assert "started anew" in seen.detail
    assert len(marked(str(job.launch_dir))) > 0
    backend.cancel([handle])
    suite.end(backend, handle)


def test_an_exit_file_that_is_not_whole_is_no_exit_status(backend, make_job, suite):
    job = make_job("exit 0")
    handle = suite.start(backend, job)
    suite.end(backend, handle)
    (job.launch_dir / "exit.json").write_text('{"exit_code": 0, "wo')

    assert backend.poll([handle])[handle].exit_code is None


def test_every_process_gets_the_signal_once(backend, make_job, suite, tmp_path):
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('signal', os.getpid(), flush=True))\n"
        "print('started', os.getpid(), flush=True)\n"
        "while True: time.sleep(600)"
    )
    (tmp_path / "program.py").write_text(program)
    start = f"{sys.executable} {tmp_path}/program.py"
    handle = suite.start(backend, make_job(f"setsid {start} & {start} & {start}"))
    while len(suite.lines(backend, handle)) < 3:
        backend.wait(0.05)

    backend.cancel([handle])
    suite.end(backend, handle)

    lines = [line.split() for line in suite.lines(backend, handle)]
    started = sorted(words[1] for words in lines if words[0] == "started")
    assert len(started) == 3
    assert sorted(words[1] for words in lines if words[0] == "signal") == started
