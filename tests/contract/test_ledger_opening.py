"""Opening a ledger, and everything that can be in the way: one clear paragraph each, and what to do."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from airflows.errors import LedgerError, MissingExtraError, SchemaTooNewError
from airflows.ledger import Ledger, open_ledger, schema
from airflows.ledger.connect import connect, shown

NOBODY = 65534
PATIENCE_S = 60
# Runs in a process of its own: as somebody without rights, or where files cannot grow.
PROBE = """
import json, os, resource, sys
from airflows.errors import AirflowsError
from airflows.ledger import Ledger, Lease
from airflows.ledger.connect import connect
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
    for number in range(2000):
        ledger.wish("nothing" * 2000 + str(number), "run")
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


def is_clear(text):
    """Check that an error is one paragraph for people, without SQL or values; return it."""
    assert "\n" not in text
    # A hint may end with a command to type.
    assert text.endswith((".", "'airflows[postgres]'", "sweep.yaml"))
    assert not re.search(
        r"\b(SELECT|INSERT|UPDATE|BEGIN|PRAGMA)\b|\[SQL|sqlalche\.me|hunter2|Traceback|Error\)", text
    )
    return text


def refusal(*args, **kwargs):
    """Return the error with which a ledger cannot be opened."""
    with pytest.raises(LedgerError) as caught:
        connect(*args, busy_timeout_s=0.1, **kwargs)
    assert caught.value.hint
    is_clear(str(caught.value))
    return caught.value


@pytest.fixture
def open_to_all(tmp_path) -> Path:
    """A directory that somebody without rights can reach."""
    for parent in tmp_path.parents:
        if parent.stat().st_mode & 0o005 != 0o005 and parent.owner() != "nobody":
            with contextlib.suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    return tmp_path


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


# Making and finding it


@pytest.mark.usefixtures("clean_env")
def test_a_new_ledger_makes_its_home(tmp_path):
    ledger = open_ledger(tmp_path / "not" / "there")
    assert ledger.sweeps() == []
    ledger.close()

    assert (tmp_path / "not" / "there" / "ledger.db").is_file()


@pytest.mark.usefixtures("clean_env")
def test_a_ledger_that_is_not_there_is_not_made_by_asking(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger at sqlite:///") as caught:
        open_ledger(tmp_path / "home", create=False)

    assert caught.value.hint == "Start a sweep first: airflows sweep sweep.yaml"
    assert not (tmp_path / "home").exists()


def test_a_database_without_a_ledger_is_not_made_one_by_asking(database_url):
    if database_url.startswith("sqlite"):
        sqlite3.connect(database_url.removeprefix("sqlite:///")).close()

    assert "there is no ledger at" in str(refusal(database_url, create=False))


def test_a_ledger_is_found_again(database_url):
    connect(database_url).dispose()
    ledger = Ledger(connect(database_url, create=False))

    assert ledger.sweeps() == []
    ledger.close()


def test_the_environment_may_name_another_database(tmp_path, clean_env, database_url):
    clean_env.setenv("AIRFLOWS_LEDGER_URL", database_url)
    ledger = open_ledger(tmp_path / "home")

    assert ledger.is_shared is database_url.startswith("postgresql")
    assert not (tmp_path / "home").exists()
    ledger.close()


def test_a_plain_postgresql_url_will_do(postgres_url):
    name = postgres_url.replace("postgresql+psycopg://", "postgres://")

    assert "there is no ledger at postgresql+psycopg://airflows@/postgres?host=" in str(
        refusal(name, create=False)
    )


def test_many_first_starts_at_once_make_one_ledger(database_url):
    script = "import sys\nfrom airflows.ledger.connect import connect\nprint('ready', flush=True)\nsys.stdin.readline()\nconnect(sys.argv[1])"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, database_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]  # fmt: skip
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    ended = [(*child.communicate(timeout=PATIENCE_S), child.returncode) for child in children]

    assert ended == [("", "", 0)] * 4
    engine = connect(database_url)
    with engine.connect() as connection:
        assert connection.execute(sa.select(schema.meta)).all() == [("schema", str(schema.VERSION))]
    engine.dispose()


def test_of_two_first_starts_on_a_server_one_waits(postgres_url):
    plain = postgres_url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("CREATE DATABASE waiting")
    url, made = postgres_url.replace("/postgres?", "/waiting?"), threading.Event()

    def start():
        connect(url).dispose()
        made.set()

    with psycopg.connect(plain.replace("/postgres?", "/waiting?")) as first:
        first.execute("SELECT pg_advisory_xact_lock(7261944)")
        thread = threading.Thread(target=start)
        thread.start()
        assert not made.wait(0.3)
    thread.join()
    assert made.is_set()


def test_a_ledger_of_a_newer_airflows_is_refused_and_left_alone(database_url):
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.execute(sa.update(schema.meta).values(value="99"))
    error = refusal(database_url)

    assert isinstance(error, SchemaTooNewError)
    assert error.exit_code == 2
    assert (
        "has schema 99; this airflows knows schemas up to 1. Use the airflows that wrote it, or a newer one."
        in str(error)
    )
    with engine.connect() as connection:
        assert connection.execute(sa.select(schema.meta.c.value)).scalar() == "99"
    engine.dispose()


def pragmas(directory):
    engine = connect(f"sqlite:///{directory}/ledger.db")
    names = ("journal_mode", "synchronous", "foreign_keys")
    with engine.connect() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]
    engine.dispose()
    return found


def test_sqlite_waits_for_no_reader_and_no_disk(tmp_path):
    assert pragmas(tmp_path) == ["wal", 1, 1]


def test_on_a_network_file_system_sqlite_keeps_a_rollback_journal(tmp_path, monkeypatch):
    # The package's attribute of that name is the function.
    monkeypatch.setattr(sys.modules["airflows.ledger.connect"], "is_on_network", lambda _path: True)
    assert pragmas(tmp_path) == ["delete", 1, 1]


# Files in the way


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "ledger.db"
    path.write_text("a shopping list\n" * 100)

    assert "cannot be used: file is not a database. The file is not a database; move it away" in str(
        refusal(f"sqlite:///{path}")
    )
    assert path.read_text().startswith("a shopping list")


def test_a_damaged_database(tmp_path):
    path = tmp_path / "ledger.db"
    url = filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))

    assert "The file is damaged; restore a copy" in str(refusal(url))


def test_a_directory_in_the_place_of_the_file(tmp_path):
    (tmp_path / "ledger.db").mkdir()

    assert "unable to open database file. Check that the directory exists" in str(
        refusal(f"sqlite:///{tmp_path}/ledger.db")
    )


def test_a_file_in_the_place_of_the_home(tmp_path):
    (tmp_path / "home").write_text("")

    assert "cannot be used: " in str(refusal(f"sqlite:///{tmp_path}/home/ledger.db"))


def test_a_directory_that_one_may_not_write_to(open_to_all):
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


def test_somebody_elses_ledger_is_no_less_clear(open_to_all):
    url = filled(open_to_all / "ledger.db")
    open_to_all.chmod(0o555)
    *_, answer = probe(url, uid=NOBODY, create=False)

    assert answer[:2] == ["LedgerError", 3]
    assert "set AIRFLOWS_HOME" in answer[2]
    is_clear(answer[3])


def test_a_ledger_that_another_process_keeps_locked(tmp_path):
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


def test_a_new_ledger_that_another_process_keeps_locked(tmp_path):
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


def test_a_full_disk_loses_nothing(small_disk):
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


def test_a_file_that_may_not_grow_loses_nothing(tmp_path):
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


# Servers


@pytest.mark.parametrize(
    "url",
    ["", "ledger.db", "/srv/ledger.db", "sqlite://", "sqlite:///", "mysql://u:hunter2@h/d", "oracle+x://u:hunter2@h", "postgresql://u:hunter2@h:port/d"],
)  # fmt: skip
def test_what_is_no_url_of_a_ledger(url):
    assert "sqlite:///PATH or postgresql://USER@HOST/DATABASE" in str(refusal(url))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@127.0.0.1:1/d",
        "postgresql+psycopg2://u:hunter2@127.0.0.1:1/d",
        "postgres://u@127.0.0.1:1/d?password=hunter2",
        "postgresql://u@127.0.0.1:1/d?sslpassword=hunter2&options=-c%20x%3Dhunter2",
    ],
)
def test_a_server_that_does_not_answer_is_named_without_its_password(url):
    error = refusal(url)

    assert "127.0.0.1" in str(error)
    assert error.hint == "Check that the database server is up and that you may use it."
    assert "hunter2" not in repr(error)
    assert "hunter2" not in shown(url)
    assert error.exit_code == 3


def test_a_database_that_is_not_there(postgres_url):
    url = postgres_url.replace("/postgres?", "/nothing?").replace("airflows@", "airflows:hunter2@")

    assert 'database "nothing" does not exist' in str(refusal(url))


def test_a_role_that_may_not_make_tables(postgres_url):
    plain = postgres_url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN")
        connection.execute("CREATE DATABASE guarded")
    with psycopg.connect(plain.replace("/postgres?", "/guarded?"), autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")

    url = postgres_url.replace("/postgres?", "/guarded?").replace("airflows@", "guest@")
    assert "permission denied for schema public" in str(refusal(url))


def test_a_server_that_was_restarted_is_found_again(postgres_url):
    name = "restarted"
    plain = postgres_url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        ledger = Ledger(connect(postgres_url.replace("/postgres?", f"/{name}?")))
        assert ledger.sweeps() == []
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )

    assert ledger.sweeps() == []
    ledger.close()


@pytest.mark.parametrize("missing", ["psycopg", "psycopg.pq"])
def test_a_missing_package_names_the_extra(monkeypatch, missing):
    for name in [name for name in sys.modules if name.split(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(MissingExtraError) as caught:
        connect("postgresql://u:hunter2@h/d")
    assert str(caught.value) == (
        f"the ledger's URL needs the package {missing}, which is not installed. Run: pip install 'airflows[postgres]'"
    )
    assert caught.value.exit_code == 2
