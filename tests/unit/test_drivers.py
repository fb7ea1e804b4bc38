"""Whether the driver that holds a lease is still alive."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import psutil

from airflows import drivers
from airflows.drivers import Owner, boot_id, current_owner, start_ticks

HERE = current_owner()
UNUSED_PID = 2**22 + 5


def test_this_process_is_alive():
    assert not current_owner().is_dead()


def test_an_owner_survives_the_ledger():
    text = HERE.to_text()

    assert Owner.from_text(text) == HERE
    assert set(json.loads(text)) == {"host", "boot", "namespace", "pid", "started"}


def test_a_process_that_has_ended_is_dead():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        owner = replace(HERE, pid=child.pid, started=start_ticks(child.pid))
        alive = owner.is_dead()
        child.stdin.close()
    assert (alive, owner.is_dead()) == (False, True)


def test_a_process_that_nobody_has_waited_for_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    owner = replace(HERE, pid=child.pid, started=start_ticks(child.pid))
    child.stdin.close()
    # Waits for the end, and leaves the process a zombie.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert process.status() == psutil.STATUS_ZOMBIE
    assert owner.is_dead()
    child.wait()


def test_no_process_with_that_pid_is_dead():
    assert replace(HERE, pid=UNUSED_PID).is_dead()


def test_another_process_with_the_same_pid_is_not_the_owner():
    assert replace(HERE, started=HERE.started - 3600).is_dead()


def test_another_boot_may_be_another_machine_of_the_same_name():
    assert not replace(HERE, boot="00000000-0000-0000-0000-000000000000", pid=UNUSED_PID).is_dead()


def test_a_pid_of_another_namespace_says_nothing():
    assert not replace(HERE, namespace="pid:[1]", pid=UNUSED_PID).is_dead()


def test_nothing_is_certain_about_another_host():
    elsewhere = replace(HERE, host="elsewhere", pid=UNUSED_PID, boot="another")

    assert not elsewhere.is_dead()


def test_a_process_that_cannot_be_looked_at_may_be_alive(monkeypatch):
    monkeypatch.setattr(drivers, "start_ticks", {os.getpid(): HERE.started}.get)

    assert not replace(HERE, pid=1).is_dead()


def test_boot_id_is_the_same_for_every_process():
    command = [sys.executable, "-c", "from airflows.drivers import boot_id; print(boot_id(), end='')"]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == boot_id()
