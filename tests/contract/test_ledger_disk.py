"""A ledger on a disk that is in the way: no rights, other files, locks, no room. Nothing is lost."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflows.errors import LedgerError
from airflows.ledger import Ledger, schema
from airflows.ledger.opening import connect

NOBODY = 65534
PATIENCE_S = 60
# Runs in a process of its own: as somebody without rights, or where files cannot grow.
PROBE = """
import json, os, resource, sys
from airflows.errors import AirflowsError
from airflows.ledger import Ledger, Lease
from airflows.ledger.opening import connect
from airflows.trial import Trial
import sqlalchemy as sa

url, create, uid, most = json.loads(sys.argv[1])
sa.create_engine("sqlite://").connect().close()  # what is imported late cannot be imported without rights
if uid is not None and os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
if most is not None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    ledger = Ledger(connect(url, create=create, busy_timeout_s=0.2))
    print(json.dumps(["read", len(ledger.sweeps())]))
    lease = Lease("digits", "t", "", True)
    for number in range(2000):
        ledger.add_points(lease, [], [Trial("digits", number, 0, 0, message="hunter2 " * 200)])
    print(json.dumps(["wrote", 2000]))
except AirflowsError as exc:
    print(json.dumps([type(exc).__name__, exc.exit_code, exc.hint, str(exc)]))
"""


def probe(url, *, create=True, uid=None, most=None):
    """Return what a process says that opens a ledger, reads it and writes a lot into it."""
    arguments = json.dumps([url, create, uid, most])
    done = subprocess.run(
        [sys.executable, "-c", PROBE, arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def filled(path) -> str:
    """Make a ledger with a sweep whose driver's lease is `t`; return its URL."""
    url = f"sqlite:///{path}"
    engine = connect(url)
    values = dict.fromkeys(("definition", "source", "directory", "backend"), "x")
    with engine.begin() as connection:
        connection.execute(
            sa.insert(schema.sweeps).values(
                id="digits",
                name="digits",
                wish="run",
                state="running",
                created_at=1.0,
                lease_token="t",
                **values,
            )
        )
    engine.dispose()
    return url


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that somebody without rights can reach: pytest's own can be entered by its owner only."""
    with tempfile.TemporaryDirectory(prefix="ledger-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


# Files in the way


def test_a_file_that_is_no_database(tmp_path, refusal):
    path = tmp_path / "ledger.db"
    path.write_text("a shopping list\n" * 100)

    assert "cannot be used: file is not a database. The file is not a database; move it away" in str(
        refusal(f"sqlite:///{path}")
    )
    assert path.read_text().startswith("a shopping list")


def test_a_damaged_database(tmp_path, refusal):
    path = tmp_path / "ledger.db"
    url = filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))

    assert "The file is damaged; restore a copy" in str(refusal(url))


def test_a_directory_in_the_place_of_the_file(tmp_path, refusal):
    (tmp_path / "ledger.db").mkdir()

    assert "unable to open database file. Check that the directory exists" in str(
        refusal(f"sqlite:///{tmp_path}/ledger.db")
    )


def test_a_file_in_the_place_of_the_home(tmp_path, refusal):
    (tmp_path / "home").write_text("")

    assert "cannot be used: " in str(refusal(f"sqlite:///{tmp_path}/home/ledger.db"))


def test_a_directory_that_one_may_not_write_to(open_to_all, is_clear):
    open_to_all.chmod(0o555)
    (answer,) = probe(f"sqlite:///{open_to_all}/ledger.db", uid=NOBODY)

    assert answer[:2] == ["LedgerError", 3]
    assert (
        "unable to open database file. Check that the directory exists and that you may write there"
        in answer[3]
    )
    is_clear(answer[3])


def test_a_home_that_one_may_not_make(open_to_all):
    open_to_all.chmod(0o555)
    (answer,) = probe(f"sqlite:///{open_to_all}/home/ledger.db", uid=NOBODY)

    assert answer[:3] == ["LedgerError", 3, "Check the directory and its permissions."]
    assert "cannot be used: Permission denied." in answer[3]


def test_somebody_elses_ledger_is_no_less_clear(open_to_all, is_clear):
    url = filled(open_to_all / "ledger.db")
    open_to_all.chmod(0o555)
    *_, answer = probe(url, uid=NOBODY, create=False)

    assert answer[:2] == ["LedgerError", 3]
    assert "set AIRFLOWS_HOME" in answer[2]
    is_clear(answer[3])


def test_a_ledger_that_another_process_keeps_locked(tmp_path, is_clear):
    url = filled(tmp_path / "ledger.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        ledger = Ledger(connect(url, busy_timeout_s=0.1))
        # Readers are not disturbed by a writer.
        assert len(ledger.sweeps()) == 1
        with pytest.raises(
            LedgerError, match=r"database is locked\. Another process keeps it locked; see who"
        ) as caught:
            ledger.wish("digits", "stop")
        is_clear(str(caught.value))
    ledger.wish("digits", "stop")

    assert ledger.wishes("digits") == ("stop", 1)
    ledger.close()


def test_a_new_ledger_that_another_process_keeps_locked(tmp_path, refusal):
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE x (y)")
        assert "database is locked" in str(refusal(f"sqlite:///{tmp_path}/ledger.db"))


# Full disks


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte, or a skip."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "airflows-test", str(tmp_path)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_disk_loses_nothing(small_disk, is_clear):
    url = filled(small_disk / "ledger.db")
    *_, answer = probe(url)
    assert answer[:2] == ["LedgerError", 3]
    assert (
        "database or disk is full. The disk is full; make room, then start the same command again"
        in answer[3]
    )
    is_clear(answer[3])

    ledger = Ledger(connect(url))
    written = len(ledger.trials("digits"))
    assert 0 < written < 2000
    assert [t.number for t in ledger.trials("digits")] == list(range(written))
    ledger.close()


def test_a_file_that_may_not_grow_loses_nothing(tmp_path, is_clear):
    url = filled(tmp_path / "ledger.db")
    *_, answer = probe(url, most=300_000)
    assert answer[:2] == ["LedgerError", 3]
    assert "disk I/O error. The disk reported an error or is full" in answer[3]
    is_clear(answer[3])

    ledger = Ledger(connect(url))
    numbers = [t.number for t in ledger.trials("digits")]
    assert 0 < len(numbers) < 2000
    assert numbers == list(range(len(numbers)))
    ledger.close()
