"""What is wrong is one clear paragraph with the right exit status, and leaves nothing half-written."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from airflows.cli.app import run
from airflows.ledger.opening import connect

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
AS_NOBODY = ["setpriv", "--reuid=nobody", "--clear-groups", "--"]


def sweep_with(**fields):
    """Return how to write a sweep file with other fields."""
    return lambda cli: cli.sweep_file(**fields)


def text(content):
    """Return how to write a file that holds a text."""
    return lambda cli: cli.write("sweep.yaml", content)


def binary(cli):
    path = cli.directory / "sweep.yaml"
    path.write_bytes(bytes(range(256)) * 4)
    return path


def directory(cli):
    path = cli.directory / "sweep.yaml"
    path.mkdir()
    return path


NAMED = "name: lr\nbase: {experiment_name: a, command: b, compute: {accelerator_type: GPU_1xA10, num_accelerators: 1}}\n"
FILES = {
    "unknown key": (sweep_with(objctive={}), ["objctive", "objective"]),
    "unknown key of the base": (
        sweep_with(base={"experiment_nme": "a"}),
        ["experiment_nme", "experiment_name"],
    ),
    "unknown override key": (
        sweep_with(space={"compute.num_acelerators": [1, 2]}),
        ["did you mean compute.num_accelerators"],
    ),
    "wrong type": (sweep_with(limits={"concurrent": "many"}), ["limits.concurrent"]),
    "duplicate key": (
        text(NAMED + "space:\n  parameters.lr: [1]\n  parameters.lr: [2]\n"),
        [":5", ":4", "line 4", "parameters.lr"],
    ),
    "unquoted on and off": (text(NAMED + "space: {parameters.ema: [on, off]}\n"), ["sweep.yaml:3", "true"]),
    "empty file": (text(""), ["empty"]),
    "only comments": (text("# nothing\n"), ["empty"]),
    "a list": (text("- 1\n- 2\n"), ["mapping"]),
    "no YAML": (text("a: [1, 2\nb: }"), ["sweep.yaml:"]),
    "a directory": (directory, ["directory"]),
    "binary": (binary, ["binary"]),
    "ten megabytes": (text("a: 1\n" + "# filler\n" * 1_200_000), ["sweep.yaml"]),
    "anchors bomb": (text(BOMB), ["sweep.yaml"]),
    "deep nesting": (text("[" * 5000 + "]" * 5000), ["nesting", "nested"]),
    "missing file": (lambda cli: cli.directory / "nope.yaml", ["nope.yaml"]),
    "missing base": (sweep_with(base="nope.yaml"), ["nope.yaml"]),
    "nothing to run": (sweep_with(space={}), ["space"]),
    "0 trials left": (
        sweep_with(space={"parameters.lr": [1]}, exclude=[{"parameters.lr": 1}]),
        ["0 trials left"],
    ),
    "coupled lists of different lengths": (
        sweep_with(space={"parameters.lr, parameters.opt": [[0.1, "a"], [0.2]]}),
        ["parameters.lr", "parameters.opt"],
    ),
    "no goal": (sweep_with(objective={"metric": "loss"}), ["goal"]),
    "an unknown goal": (sweep_with(objective={"metric": "loss", "goal": "DESC"}), ["goal", "DESC"]),
    "a trial that cannot be": (
        sweep_with(space={"compute.num_accelerators": [8, 3], "compute.accelerator_type": ["GPU_8xH100"]}),
        ["num_accelerators", "3"],
    ),
    "text for a method that knows numbers": (
        sweep_with(
            space={"parameters.opt": ["sgd", "adam"]},
            search={"method": "cmaes", "trials": 3},
            objective={"metric": "a", "goal": "min"},
        ),
        ["parameters.opt", "numbers only"],
    ),
    "an unknown backend": (sweep_with(backend="locl"), ["locl", "local"]),
    "an unknown option of a backend": (sweep_with(backend={"type": "local", "slotz": 3}), ["slotz", "slots"]),
}


@pytest.mark.parametrize(("make", "words"), FILES.values(), ids=FILES)
def test_a_wrong_file_is_refused_before_anything_is_written(cli, make, words):
    done = cli("sweep", make(cli))
    assert done.status == 2, done.err
    assert done.out == ""
    assert any(word.lower() in done.error.lower() for word in words), done.error
    assert len(done.error) < 1000
    assert not cli.home.exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--override", "parameters.lr"], "="),
        (["--override", "compute.num_acelerators=2"], "num_accelerators"),
        (["--override", "compute.num_accelerators=[1"], "compute.num_accelerators"),
        (["--set", "limts.concurrent=2"], "limits"),
        (["--set", "limits.concurrent=none"], "limits.concurrent"),
        (["--backend", "burst"], "burst"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(cli, words, expected):
    done = cli("sweep", cli.sweep_file(), *words)
    assert done.status == 2, done.err
    assert expected in done.error
    assert not cli.home.exists()


def test_errors_as_documents_have_file_line_field_and_hint(cli):
    done = cli("sweep", cli.write("sweep.yaml", NAMED + "spce: {}\n"), "-o", "json")
    error = done.document["error"]
    assert done.status == 2
    assert (error["kind"], error["line"], error["field"]) == ("invalid", 3, "spce")
    assert error["file"].endswith("sweep.yaml")
    assert set(error) >= {"kind", "message", "file", "line", "field", "hint"}


# What the machine says


@pytest.fixture
def as_nobody(tmp_path):
    """The command as a user who may not write everywhere."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("running as root without setpriv (util-linux), and root may do everything")
    for path in (tmp_path, *tmp_path.parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    return AS_NOBODY


def as_user(cli, before, *words):
    """Run a command after `before`; return (status, the error)."""
    done = subprocess.run(
        [*before, Path(sys.executable).parent / "airflows", *words],
        cwd=cli.directory,
        env={**cli.env, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return done.returncode, error


def test_a_file_that_may_not_be_read(cli, as_nobody):
    file = cli.sweep_file()
    file.chmod(0o000)
    status, error = as_user(cli, as_nobody, "sweep", file)
    assert status == 2
    assert "sweep.yaml" in error
    assert "permission" in error.lower()


def test_a_home_that_may_not_be_written(cli, as_nobody):
    cli.home.mkdir(mode=0o555)
    status, error = as_user(cli, as_nobody, "sweep", cli.sweep_file())
    assert status == 3
    assert str(cli.home) in error
    assert list(cli.home.iterdir()) == []


def test_a_home_that_is_a_file(cli):
    cli.home.write_text("in the way")
    done = cli("sweep", cli.sweep_file())
    assert done.status == 3, done.err
    assert str(cli.home) in done.error


def test_a_ledger_that_is_no_database(cli):
    cli.home.mkdir()
    (cli.home / "ledger.db").write_text("not a database, " * 100)
    for words in (["sweep", cli.sweep_file()], ["list"]):
        done = cli(*words)
        assert done.status == 3
        assert "not a database" in done.error


def test_a_ledger_of_a_newer_airflows(cli):
    assert cli("sweep", cli.sweep_file()).status == 0
    with sqlite3.connect(cli.home / "ledger.db") as ledger:
        ledger.execute("UPDATE meta SET value = '999' WHERE key = 'schema'")
    done = cli("list")
    assert done.status == 2
    assert "999" in done.error


def test_a_locked_ledger(cli, capsys, monkeypatch):
    monkeypatch.setitem(connect.__kwdefaults__, "busy_timeout_s", 0.1)
    assert cli("sweep", cli.sweep_file()).status == 0
    with sqlite3.connect(cli.home / "ledger.db", isolation_level=None) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        status = run(["sweep", str(cli.sweep_file()), "--new"])
        holder.execute("ROLLBACK")
    assert status == 3
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "locked" in error
    assert len(cli("list", "--all", "-o", "json").document["sweeps"]) == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of half a megabyte."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", where]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here (needs root)")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


def test_a_full_disk_is_said_and_what_was_written_goes_on_later(cli, small_disk):
    cli.env["AIRFLOWS_HOME"] = str(small_disk)
    cli.home = small_disk
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 400_000)
    space = {"parameters.seed": {"min": 1, "max": 200, "step": 1}}
    file = cli.sweep_file(space=space)
    done = cli("sweep", file, "-o", "json")
    assert done.status in {1, 3}, done.err
    assert "no space left" in done.error.lower() or "full" in done.error.lower(), done.error
    filler.unlink()
    small = cli.sweep_file(name="small")
    assert cli("sweep", small).status == 0


def test_an_mlflow_server_that_is_away(cli):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"http://me:secret@127.0.0.1:{port}"
    done = cli(
        "sweep",
        cli.sweep_file(tracking={"uri": uri}),
        "-o",
        "json",
        env={"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"},
    )
    assert done.status == 3, done.err
    assert "secret" not in done.out + done.err
    assert json.loads(done.out)["error"]["kind"] == "tracking_unavailable"
    assert cli("list", "--all", "-o", "json").document == {"sweeps": []}


def test_a_directory_of_files_is_no_mlflow_store(cli):
    done = cli("sweep", cli.sweep_file(tracking={"uri": "file:/tmp/x"}))
    assert done.status == 2
    assert "sqlite" in done.error
