"""Only one driver at a time: taking, keeping and losing the lease, with real processes."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from airflows.drivers import Owner, current_owner
from airflows.errors import LeaseHeldError, LeaseLostError, NotFoundError
from airflows.trial import EventKind

NOW = 1_700_000_000.0
ALICE = Owner("alice.example.org", "boot-a", "pid:[1]", 11, 1)
BOB = Owner("bob.example.org", "boot-b", "pid:[1]", 22, 2)
UNUSED_PID = 2**22 + 5
PATIENCE_S = 30

CONTENDER = """
import sys, time
from airflows.drivers import current_owner
from airflows.errors import LeaseHeldError
from airflows.ledger import Ledger
from airflows.ledger.opening import connect

url, sweep, token = sys.argv[1:]
ledger = Ledger(connect(url))
print("ready", flush=True)
sys.stdin.readline()
try:
    lease = ledger.hold(sweep, current_owner(), now=time.time(), ttl_s=3600, token=token)
    print("won", not lease.doubt_until, flush=True)
except LeaseHeldError as exc:
    print("held by", exc.owner, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def contend(book):
    """Start processes that all reach for a lease at the same instant; they live until told to end."""
    children = []

    def start(sweep, count=3):
        for number in range(count):
            command = [sys.executable, "-c", CONTENDER, book.url, sweep, f"contender-{number}"]
            children.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            )
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("\n")
        return {child.pid: child.stdout.readline().split() for child in children}

    yield start
    for child in children:
        child.communicate(input="\n", timeout=PATIENCE_S)


@pytest.fixture
def sweep(book) -> str:
    row = book.row()
    book.ledger.create_sweep(row)
    return row.id


# Taking it


def test_a_free_lease_is_taken_and_nobody_else_is_at_work(book, sweep):
    lease = book.hold(sweep, ALICE)

    assert (lease.sweep, lease.owner, lease.doubt_until) == (sweep, ALICE.to_text(), 0.0)
    row = book.ledger.sweep(sweep)
    assert (row.lease_owner, row.lease_token) == (ALICE.to_text(), lease.token)
    assert (row.lease_since, row.lease_until) == (NOW, NOW + 30)


def test_a_held_lease_says_who_holds_it_and_since_when(book, sweep):
    lease = book.hold(sweep, ALICE)

    with pytest.raises(LeaseHeldError) as caught:
        book.hold(sweep, BOB, now=NOW + 29)
    assert caught.value.owner == "alice.example.org:11"
    assert str(caught.value) == (
        f"sweep {sweep} is driven by process 11 on alice.example.org, since 2023-11-14T22:13:20.000Z. "
        f"Look on with: airflows watch {sweep}"
    )
    assert book.ledger.sweep(sweep).lease_token == lease.token


def test_an_expired_lease_is_taken_over_but_its_holder_may_be_at_work(book, sweep):
    book.hold(sweep, ALICE)

    assert book.hold(sweep, BOB, now=NOW + 30).doubt_until == NOW + 60


def test_the_doubt_about_an_old_holder_outlasts_the_holders_in_between(book, sweep):
    book.hold(sweep, ALICE)
    between = book.hold(sweep, BOB, now=NOW + 30)
    book.ledger.release(between)

    assert book.hold(sweep, ALICE, now=NOW + 31).doubt_until == NOW + 60


def test_a_holder_that_is_dead_on_this_host_is_replaced_at_once(book, sweep):
    book.hold(sweep, replace(current_owner(), pid=UNUSED_PID))

    assert book.hold(sweep, BOB, now=NOW + 1).doubt_until == 0.0


def test_an_expired_lease_of_a_dead_holder_leaves_nobody_at_work(book, sweep):
    book.hold(sweep, replace(current_owner(), pid=UNUSED_PID))

    assert book.hold(sweep, BOB, now=NOW + 3600).doubt_until == 0.0


def test_a_living_holder_on_this_host_keeps_it(book, sweep):
    book.hold(sweep, current_owner())

    with pytest.raises(
        LeaseHeldError, match=f"driven by process {current_owner().pid} on {current_owner().host}"
    ):
        book.hold(sweep, BOB, now=NOW + 1)


def test_a_released_lease_is_free(book, sweep):
    book.ledger.release(book.hold(sweep, ALICE))

    row = book.ledger.sweep(sweep)
    assert (row.lease_owner, row.lease_token, row.lease_since, row.lease_until) == ("", "", None, None)
    assert book.hold(sweep, BOB, now=NOW + 1).doubt_until == 0.0


def test_there_is_no_lease_of_a_sweep_that_is_not_there(book):
    with pytest.raises(NotFoundError, match="there is no sweep 'nothing'"):
        book.hold("nothing")


# Keeping it


def test_a_renewed_lease_lasts_longer(book, sweep):
    lease = book.hold(sweep, ALICE)
    book.ledger.renew(lease, now=NOW + 20, ttl_s=30)

    with pytest.raises(LeaseHeldError):
        book.hold(sweep, BOB, now=NOW + 49)
    book.hold(sweep, BOB, now=NOW + 50)
    with pytest.raises(LeaseLostError, match="another driver has taken over"):
        book.ledger.renew(lease, now=NOW + 51, ttl_s=30)


def test_giving_back_a_lost_lease_leaves_the_new_holder_alone(book, sweep):
    lost = book.hold(sweep, ALICE)
    kept = book.hold(sweep, BOB, now=NOW + 31)
    book.ledger.release(lost)

    book.ledger.renew(kept, now=NOW + 32, ttl_s=30)
    assert book.ledger.sweep(sweep).lease_token == kept.token


def test_a_thread_may_renew_while_the_driver_writes(book):
    trials = book.open(60)
    trouble = []

    def renew():
        try:
            for second in range(60):
                book.ledger.renew(book.lease, now=NOW + second, ttl_s=30)
        except Exception as exc:  # noqa: BLE001 - shown by the test
            trouble.append(exc)

    thread = threading.Thread(target=renew)
    thread.start()
    for trial in trials:
        book.move(trial, EventKind.CLAIMED)
    thread.join()

    assert trouble == []
    assert book.ledger.sweep(book.lease.sweep).lease_until == NOW + 59 + 30
    assert len(book.ledger.attempts(book.lease.sweep)) == 60


# Races


def test_of_many_processes_exactly_one_gets_a_free_lease(sweep, contend):
    answers = contend(sweep)
    won = [pid for pid, words in answers.items() if words == ["won", "True"]]

    assert len(won) == 1
    others = {words[-1] for pid, words in answers.items() if pid not in won}
    assert others == {f"{current_owner().host}:{won[0]}"}


def test_of_many_processes_exactly_one_gets_an_expired_lease(book, sweep, contend):
    book.hold(sweep, ALICE)
    answers = contend(sweep)

    assert sorted(words[0] for words in answers.values()) == ["held", "held", "won"]
    assert ["won", "False"] in answers.values()


def test_a_killed_driver_is_replaced_without_waiting(book, sweep):
    command = [sys.executable, "-c", CONTENDER, book.url, sweep, "first"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        child.stdin.write("\n")
        assert [child.stdout.readline(), child.stdout.readline()] == ["ready\n", "won True\n"]
        with pytest.raises(LeaseHeldError):
            book.hold(sweep, BOB)
        child.kill()

    assert book.hold(sweep, BOB).doubt_until == 0.0


def test_a_takeover_waits_for_the_write_that_it_would_fence(book):
    """Else the old driver's rows would be committed after the new one has read them."""
    book.open()
    taken = threading.Event()

    def take():
        book.second().hold(book.lease.sweep, BOB, now=NOW + 31, ttl_s=30, token="taken")
        taken.set()

    with book.ledger._write() as connection:
        book.ledger._fence(connection, book.lease)
        thread = threading.Thread(target=take)
        thread.start()
        assert not taken.wait(0.3)
    thread.join()

    assert taken.is_set()
