"""Running the command the way a person does, in a home of its own, and measuring it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

AIRFLOWS = str(Path(sys.executable).parent / "airflows")
SLOTS = 2
_LOOK_S = 0.1
TRACKING: Mapping[str, Mapping[str, str]] = {"without MLflow": {"uri": "none"}, "with MLflow": {}}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a command.

    Attributes:
        seconds: from start to end, the interpreter's start included.
        peak_mb: most memory the process itself held at once, without its children, in MB of 10^6 bytes.
        cpu_seconds: processor time of the process and its children, which other programs disturb less.
    """

    seconds: float
    peak_mb: float
    cpu_seconds: float


def measure(command: Sequence[str], env: Mapping[str, str] | None = None, stdin: str = "") -> Measured:
    """Run a command to its end.

    Raises:
        SystemExit: it failed; the message is what it printed.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as given:
        given.write(stdin)
        given.seek(0)
        began, used = time.perf_counter(), _children_cpu_seconds()
        process = subprocess.Popen(command, env=env, stdin=given, stdout=output, stderr=output)
        with _watching(process.pid) as high_water_mb:
            process.wait()
        seconds, used = time.perf_counter() - began, _children_cpu_seconds() - used
        output.seek(0)
        printed = output.read()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{printed[-4000:]}")
    return Measured(seconds, max(high_water_mb, default=0.0), used)


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _watching(pid: int) -> Iterator[list[float]]:
    """Ask now and then: the rusage of a process that has ended counts its children too."""
    seen: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            with contextlib.suppress(OSError):
                seen.append(_high_water_mb(pid))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _high_water_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def environment(home: Path) -> dict[str, str]:
    """Return this environment with a home of its own and nothing else that steers airflows or MLflow."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOWS_", "MLFLOW_"))
    }
    # Compiling all modules anew at each start is no part of what users have.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {"AIRFLOWS_HOME": str(home)}


def sweep_of_true(trials: int, tracking: Mapping[str, str]) -> dict[str, Any]:
    """Return a sweep file whose trials do nothing."""
    return {
        "name": "nothing",
        "base": {
            "experiment_name": "nothing",
            "command": "true",
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"number": 0},
        },
        "space": {"parameters.number": {"min": 1, "max": trials, "step": 1}},
        "limits": {"concurrent": SLOTS},
        "tracking": dict(tracking),
    }


def drive_true(trials: int, tracking: Mapping[str, str], within: Path) -> Measured:
    """Drive a sweep of trials that do nothing, in a new home within a directory, to its end."""
    return drive_sweep(sweep_of_true(trials, tracking), within)[0]


def drive_sweep(sweep: Mapping[str, Any], within: Path) -> tuple[Measured, Path]:
    """Drive a sweep, all of whose trials succeed, in a new home within a directory; return its home too.

    The home is left there: for minutes after many files were deleted, ext4 takes several times as long to
    make a new one, because it does not give their inodes out again so soon. Whoever deletes one run's home
    before the next measures that.
    """
    directory = Path(tempfile.mkdtemp(dir=within))
    file = directory / "sweep.yaml"
    file.write_text(yaml.safe_dump(dict(sweep), sort_keys=False), encoding="utf-8")
    env = environment(directory / "home")
    measured = measure([AIRFLOWS, "sweep", str(file), "--yes", "-o", "json"], env)
    check_all_succeeded(env, sweep["space"]["parameters.number"]["max"])
    return measured, directory / "home"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Make a directory for all homes of a benchmark, removed when everything has been measured."""
    with tempfile.TemporaryDirectory(prefix="airflows-benchmark-") as directory:
        yield Path(directory)


def check_all_succeeded(env: Mapping[str, str], trials: int) -> None:
    """Refuse a figure of a sweep that did not do its work."""
    shown = subprocess.run(
        [AIRFLOWS, "get", "nothing", "-o", "json"], env=env, capture_output=True, check=True
    )
    counts = json.loads(shown.stdout)["trials"]
    if counts["succeeded"] != trials:
        sys.exit(f"{counts['succeeded']} of {trials} trials succeeded: {counts}")
