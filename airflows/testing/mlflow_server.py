"""A real `mlflow server` in a process of its own, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PATIENCE_S = 120.0
INTERPRETER = "AIRFLOWS_TEST_MLFLOW"


def interpreter() -> str | None:
    """Return a Python that has the whole of MLflow: this one, or the one `$AIRFLOWS_TEST_MLFLOW` names.

    The core of airflows brings `mlflow-skinny`, which has no server; `pip install 'airflows[server]'` does.
    """
    named = os.environ.get(INTERPRETER)
    if named:
        return named
    try:
        version("mlflow")
    except PackageNotFoundError:
        return None
    return sys.executable


@contextlib.contextmanager
def mlflow_server(directory: Path, *, python: str, port: int | None = None) -> Iterator[str]:
    """Run a server on SQLite and files in `directory`; yield its address, such as `http://127.0.0.1:5001`.

    Raises:
        RuntimeError: it did not come up, with its last words.
    """
    port = port or free_port()
    address = f"http://127.0.0.1:{port}"
    log = directory / "server.log"
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{directory}/server.db"]
    command += ["--artifacts-destination", str(directory / "artifacts")]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=directory, start_new_session=True
        )
    try:
        _wait_until_up(address, process, log)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(address):
            return
        time.sleep(0.1)
    message = f"mlflow server did not come up: {log.read_text(errors='replace')[-2000:]}"
    raise RuntimeError(message)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:  # noqa: S310 - our own
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False
