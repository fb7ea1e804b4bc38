"""Drivers that are interrupted, told to end or killed, and what is left of their sweeps."""

import json
import signal

import pytest


@pytest.fixture
def gate(cli):
    """A sweep file whose trials wait for a file `go`, two at a time."""
    command = f"echo waiting; while ! test -e {cli.directory}/go; do sleep 0.05; done"
    return cli.sweep_file(command, limits={"concurrent": 2}, backend={"type": "local", "grace": 1})


def started(cli, *words):
    """Start a command and return once two trials wait."""
    process = cli.start(*words)
    logs = cli.home.glob
    cli.wait_for(
        lambda: (
            process.poll() is not None
            or (len(list(logs("runs/*/*/a*/logs/node_0.log"))) >= 2 <= _in_flight(cli))
        ),
        "two trials to run",
    )
    assert process.poll() is None, process.communicate()
    return process


def _in_flight(cli) -> int:
    states = cli.states()
    return states.get("running", 0) + states.get("queued", 0)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_go_and_leaves_trials_running(cli, gate, sign):
    process = started(cli, "sweep", gate, "-o", "json")
    process.send_signal(sign)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["state"] == "running"
    assert "2 trials go on running" in document["message"]
    for way_out in ("airflows resume lr-", "airflows cancel lr-"):
        assert way_out in err
    (row,) = cli("list", "-o", "json").document["sweeps"]
    assert row["driver"] is None
    assert "Traceback" not in err


def test_after_an_interrupt_the_sweep_is_resumed_without_running_anything_twice(cli, gate):
    process = started(cli, "sweep", gate)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    cli.write("go", "")
    done = cli("resume", "lr", "-o", "json")
    assert done.status == 0, done.err
    assert done.document["trials"]["succeeded"] == 3
    assert cli.launches() == ["0/a0", "1/a0", "2/a0"]


def test_a_killed_driver_is_replaced_at_once(cli, gate):
    process = started(cli, "sweep", gate)
    process.kill()
    process.communicate(timeout=20)
    cli.write("go", "")
    done = cli("sweep", gate, "-o", "json")
    assert done.status == 0, done.err
    assert "taken up where it stood" in done.err
    assert cli.launches() == ["0/a0", "1/a0", "2/a0"]


def test_a_second_interrupt_leaves_at_once_and_loses_nothing(cli, gate):
    process = started(cli, "sweep", gate)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
    cli.write("go", "")
    assert cli("resume", "lr").status == 0
    assert cli.launches() == ["0/a0", "1/a0", "2/a0"]


def test_a_second_driver_is_told_who_drives_and_offered_to_watch(cli, gate):
    """O10."""
    process = started(cli, "sweep", gate)
    for words in (["sweep", gate], ["resume", "lr"], ["sweep", gate, "--detach"]):
        done = cli(*words)
        assert done.status == 2, done.err
        assert f"process {process.pid} on " in done.error
        assert "since 20" in done.error
        assert "airflows watch lr-" in done.error
    cli.write("go", "")
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert len(cli.launches()) == 3


def test_watching_a_sweep_that_nobody_drives_says_so(cli, gate):
    process = started(cli, "sweep", gate)
    process.kill()
    process.communicate(timeout=20)
    done = cli("watch", "lr")
    assert done.status == 1
    assert "airflows resume lr-" in done.err


def test_interrupting_watch_leaves_the_driver_alone(cli, gate):
    driver = started(cli, "sweep", gate)
    watch = cli.start("watch", "lr", "-o", "json")
    first = json.loads(watch.stdout.readline())
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=20)
    assert watch.returncode == 130
    assert len(first["running"]) == 2
    cli.write("go", "")
    driver.communicate(timeout=20)
    assert driver.returncode == 0
