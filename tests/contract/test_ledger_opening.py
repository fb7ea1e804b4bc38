"""Opening a ledger: making it, finding it, and what a database server can say against it."""

import sqlite3
import subprocess
import sys
import threading

import psycopg
import pytest
import sqlalchemy as sa

from airflows.errors import LedgerError, MissingExtraError, SchemaTooNewError
from airflows.ledger import Ledger, open_ledger, schema
from airflows.ledger.changes import Prepared
from airflows.ledger.opening import connect, shown, translated

PATIENCE_S = 60

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


def test_a_database_without_a_ledger_is_not_made_one_by_asking(database_url, refusal):
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


def test_a_plain_postgresql_url_will_do(postgres_url, refusal):
    name = postgres_url.replace("postgresql+psycopg://", "postgres://")

    assert "there is no ledger at postgresql+psycopg://airflows@/postgres?host=" in str(
        refusal(name, create=False)
    )


def test_many_first_starts_at_once_make_one_ledger(database_url):
    script = "import sys\nfrom airflows.ledger.opening import connect\nprint('ready', flush=True)\nsys.stdin.readline()\nconnect(sys.argv[1])"
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


def as_written_by_the_first_version(url) -> None:
    engine = connect(url)
    with engine.begin() as connection:
        for column in ("plan", "edits"):
            connection.exec_driver_sql(f"ALTER TABLE sweeps DROP COLUMN {column}")
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("ALTER TABLE attempts ALTER COLUMN accelerators TYPE integer")
        connection.execute(schema.meta.update().values(value="1"))
    engine.dispose()


def columns(engine) -> dict[str, list[tuple[str, str]]]:
    found = sa.inspect(engine)
    return {
        name: sorted((each["name"], str(each["type"])) for each in found.get_columns(name))
        for name in found.get_table_names()
    }


def test_a_ledger_of_an_older_airflows_is_brought_up_to_date_once(database_url):
    engine = connect(database_url)
    fresh = columns(engine)
    engine.dispose()
    as_written_by_the_first_version(database_url)
    engines: list[sa.Engine] = []
    threads = [threading.Thread(target=lambda: engines.append(connect(database_url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert len(engines) == 4
    for each in engines:
        assert columns(each) == fresh
        each.dispose()
    ledger = Ledger(connect(database_url, create=False))
    assert ledger.sweeps() == []
    ledger.close()


def test_a_ledger_of_a_newer_airflows_is_refused_and_left_alone(database_url, refusal):
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.execute(sa.update(schema.meta).values(value="99"))
    error = refusal(database_url)

    assert isinstance(error, SchemaTooNewError)
    assert error.exit_code == 2
    assert (
        "has schema 99; this airflows knows schemas up to 2. Use the airflows that wrote it, or a newer one."
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


def test_sqlite_reads_anew_only_what_somebody_else_wrote(tmp_path):
    engine = connect(f"sqlite:///{tmp_path}/ledger.db")
    with engine.connect(), engine.connect():
        pass  # such as the driver's and that of the thread that renews its lease

    used = set()
    for _ in range(4):
        with engine.begin() as connection:
            used.add(id(connection.connection.driver_connection))
    engine.dispose()

    assert len(used) == 1, "another connection knows nothing of what this one has read"


def test_on_a_network_file_system_sqlite_keeps_a_rollback_journal(tmp_path, monkeypatch):
    # The package's attribute of that name is the function.
    monkeypatch.setattr(sys.modules["airflows.ledger.opening"], "is_on_network", lambda _path: True)
    assert pragmas(tmp_path) == ["delete", 1, 1]


def test_what_the_driver_itself_refuses_is_told_in_one_paragraph(database_url):
    engine = connect(database_url)
    nowhere = Prepared(sa.delete(sa.Table("nowhere", sa.MetaData(), sa.Column("x", sa.Integer))))

    with (
        pytest.raises(LedgerError, match="cannot be used: ") as caught,
        translated(engine),
        engine.begin() as connection,
    ):
        nowhere.run(connection, [{}])

    engine.dispose()
    assert "nowhere" in str(caught.value)
    assert "DELETE" not in str(caught.value)


# Servers


@pytest.mark.parametrize(
    "url",
    ["", "ledger.db", "/srv/ledger.db", "sqlite://", "sqlite:///", "mysql://u:hunter2@h/d", "oracle+x://u:hunter2@h", "postgresql://u:hunter2@h:port/d"],
)  # fmt: skip
def test_what_is_no_url_of_a_ledger(url, refusal):
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
def test_a_server_that_does_not_answer_is_named_without_its_password(url, refusal):
    error = refusal(url)

    assert "127.0.0.1" in str(error)
    assert error.hint == "Check that the database server is up and that you may use it."
    assert "hunter2" not in repr(error)
    assert "hunter2" not in shown(url)
    assert error.exit_code == 3


def test_a_database_that_is_not_there(postgres_url, refusal):
    url = postgres_url.replace("/postgres?", "/nothing?").replace("airflows@", "airflows:hunter2@")

    assert 'database "nothing" does not exist' in str(refusal(url))


def test_a_role_that_may_not_make_tables(postgres_url, refusal):
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
