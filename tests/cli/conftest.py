"""The command as a person types it: a process of its own, in a directory and a home of its own."""

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflows.cli.app import run
from airflows.testing.waiting import until

AIRFLOWS = Path(sys.executable).parent / "airflows"
PATIENCE_S = 60

TRAIN = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01, "opt": "adam", "seed": 0},
}


@dataclass(frozen=True)
class Done:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The documents on stdout, a line each."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> str:
        """What a person is told of an error: one paragraph."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in self.err
        return line


class Cli:
    """Runs `airflows` in a directory."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.directory = directory
        self.home = home
        foreign = ("AIRFLOWS_", "MLFLOW_", "DATABRICKS_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.env = {**kept, "AIRFLOWS_HOME": str(home), "TERM": "dumb", "TZ": "UTC"}
        # Compiling all modules anew for every command would take most of the time.
        for name in ("PYTHONDONTWRITEBYTECODE", "COLUMNS", "LINES"):
            self.env.pop(name, None)
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Done:
        done = subprocess.run(
            [AIRFLOWS, *words],
            cwd=self.directory,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start a command that is ended with the test."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            # A test run in the background ignores SIGINT, and so would its children.
            ["env", "--default-signal=INT", AIRFLOWS, *words],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        self.processes.append(process)
        return process

    def write(self, name: str, content: Any) -> Path:
        """Write a file: a tree as YAML, text as it is."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return path

    def sweep_file(self, command: str = "true", *, file: str = "sweep.yaml", **fields: Any) -> Path:
        """Write a sweep of three trials without MLflow, its base inline."""
        tree = {
            "name": "lr",
            "base": {**TRAIN, "command": command},
            "space": {"parameters.lr": [0.1, 0.2, 0.3]},
            "tracking": {"uri": "none"},
            "retry": {"max": 0},
        }
        return self.write(file, tree | fields)

    def train_file(self, file: str = "train.yaml", **fields: Any) -> Path:
        """Write a train.yaml; a field that is None is left out."""
        tree = {key: value for key, value in (TRAIN | fields).items() if value is not None}
        return self.write(file, tree)

    def wait_for(self, is_so: Any, what: str) -> None:
        """Return when something is so.

        Args:
            is_so: asked again and again.
            what: for the message when it never is.
        """
        until(is_so, what, patience_s=PATIENCE_S)

    def states(self) -> dict[str, int]:
        """Return how many trials the ledger has in each state, without the slow command."""
        path = self.home / "ledger.db"
        if not path.exists():
            return {}
        with (
            contextlib.closing(sqlite3.connect(path)) as ledger,
            contextlib.suppress(sqlite3.DatabaseError),
        ):
            return dict(ledger.execute("SELECT state, count(*) FROM trials GROUP BY state").fetchall())
        return {}

    def launches(self) -> list[str]:
        """Return the attempts that were ever launched, as NUMBER/aATTEMPT."""
        return sorted("/".join(path.parts[-3:-1]) for path in self.home.glob("runs/*/*/a*/exit.json"))


class InProcess(Cli):
    """Runs `airflows` in this process: quick, for hundreds of commands whose output is all that counts."""

    def __call__(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), self.variables(**(env or {})):
            status = run([str(word) for word in words])
        return Done(status, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def variables(self, **more: str) -> Iterator[None]:
        """Be in its directory, with its environment."""
        with pytest.MonkeyPatch.context() as patch:
            for name in os.environ.keys() - self.env.keys():
                patch.delenv(name)
            for name, value in {**self.env, **more}.items():
                patch.setenv(name, value)
            patch.chdir(self.directory)
            yield


@pytest.fixture(scope="session")
def airflows_program() -> Path:
    """The command's file."""
    return AIRFLOWS


@pytest.fixture
def cli(tmp_path, home) -> Iterator[Cli]:
    """The command in an empty directory, with a home that does not exist yet."""
    with _in_directory(tmp_path, home) as made:
        yield made


@pytest.fixture(scope="module")
def shared_cli(tmp_path_factory) -> Iterator[Cli]:
    """The same for all tests of a module, which only look."""
    directory = tmp_path_factory.mktemp("shared")
    with _in_directory(directory, directory / "home") as made:
        yield made


@pytest.fixture(scope="module")
def in_process(tmp_path_factory) -> Iterator[Cli]:
    """The command in this process, in a directory and a home that all tests of a module share."""
    directory = tmp_path_factory.mktemp("inside")
    with _in_directory(directory, directory / "home", InProcess) as made:
        yield made


@contextlib.contextmanager
def _in_directory(directory: Path, home: Path, kind: type[Cli] = Cli) -> Iterator[Cli]:
    work = directory / "work"
    work.mkdir()
    made = kind(work, home)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()
    if made.states().keys() & {"submitting", "queued", "running", "stopping"}:
        made("cancel", "--all", "--yes")
