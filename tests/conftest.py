"""What all tests share: a home of their own, and databases to keep a ledger in."""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

FOREIGN_VARIABLES = ("AIRFLOWS_", "MLFLOW_", "DATABRICKS_")
START_LIMIT_S = 60
_numbers = itertools.count()


@pytest.fixture
def clean_env(monkeypatch):
    """The environment without what steers airflows and MLflow, also inside this test's children."""
    for name in [name for name in os.environ if name.startswith(FOREIGN_VARIABLES)]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def home(tmp_path, clean_env) -> Path:
    """A fresh AIRFLOWS_HOME that does not exist yet."""
    path = tmp_path / "home"
    clean_env.setenv("AIRFLOWS_HOME", str(path))
    return path


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of the maintenance database of a PostgreSQL server that lives as long as the tests."""
    with _postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request, tmp_path) -> Iterator[str]:
    """URL of an empty database, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    server = request.getfixturevalue("postgres_url")
    name = f"test_{next(_numbers)}"
    _execute(server, f"CREATE DATABASE {name}")
    yield server.replace("/postgres?", f"/{name}?")
    _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def _postgres() -> Iterator[str]:
    programs = _programs()
    # Not under pytest's own directory: only root may enter that, and a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        with _server(programs, _as_owner(directory), directory) as process:
            url = f"postgresql+psycopg://airflows@/postgres?host={directory}"
            _wait_until_up(process, url, directory / "log")
            yield url
    finally:
        shutil.rmtree(directory)


@contextlib.contextmanager
def _server(programs: Path, as_owner: list[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    cluster, log = directory / "cluster", directory / "log"
    options = ["--no-sync", "--auth=trust", "--username=airflows", "--locale=C", "--encoding=UTF8"]
    initdb = [programs / "initdb", *options, cluster]
    server = [programs / "postgres", "-D", cluster, "-k", directory, "-c", "listen_addresses=", "-F"]
    with log.open("wb") as file:
        subprocess.run([*as_owner, *initdb], cwd=directory, stdout=file, stderr=file, check=False)
        process = subprocess.Popen([*as_owner, *server], cwd=directory, stderr=file)
    try:
        yield process
    finally:
        # The fast way down: it waits for no connection that a test forgot.
        process.send_signal(signal.SIGINT)
        process.wait()


def _programs() -> Path:
    """Return the directory of PostgreSQL's programs; Debian keeps the server's off the PATH."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(versions, key=lambda path: float(path.parts[-3]))[-1:]
    on_path = shutil.which("initdb")
    if not newest and on_path is None:
        pytest.skip("PostgreSQL's server is not installed (apt-get install postgresql)")
    return newest[0].parent if newest else Path(on_path).resolve().parent


def _as_owner(directory: Path) -> list[str]:
    """Return what to put before a command so that PostgreSQL, which refuses root, does not see it."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("running as root without setpriv (util-linux), and PostgreSQL refuses root")
    names = {user.pw_name for user in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    shutil.chown(directory, user)
    # The signal ends the server even when the test process is killed.
    return ["setpriv", f"--reuid={user}", "--clear-groups", "--pdeathsig=INT", "--"]


def _wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(START_LIMIT_S * 20):
        try:
            _execute(url, "SELECT 1")
        except psycopg.OperationalError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
        else:
            return
        if process.returncode is not None:
            break
    pytest.fail(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True) as connection:
        connection.execute(statement)
