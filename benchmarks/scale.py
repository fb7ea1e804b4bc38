"""What a sweep of 10,000 trials costs: driving it, taking it up again, asking about it, watching it run.

Promised: at most 8 ms a trial over `xargs` without MLflow, the driver under 200 MB, and the last thousand no
slower than the first by more than 20 %; a driver that starts again acts within 2 s; `results` within 2 s and
`list` within 0.5 s; under 2 % of a processor while 1,000 trials run and nothing changes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import AIRFLOWS, SLOTS, TRACKING, drive_sweep, environment, measure, scratch, sweep_of_true

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_WATCHED_S = 30.0
_SETTLED_AFTER_S = 5.0
_LOOK_S = 0.005
_PATIENCE_S = 900.0
_PART = 1000
OBJECTIVE = {"metric": "loss", "goal": "minimize"}
RUNNING = "SELECT count(*) FROM trials WHERE state = 'running'"
ENDED = "SELECT count(*) FROM trials WHERE ended_at IS NOT NULL"
NEWEST = "SELECT max(id) FROM events"
QUESTIONS = {
    "results nothing": 2.0,
    "results nothing -o json": 2.0,
    "results nothing --format csv": 2.0,
    "get nothing": 2.0,
    "list": 0.5,
    "list --all": 0.5,
    "list --all --runs": 0.5,
}
"""What is asked of a sweep, and within how many seconds."""


def row(what: str, value: float, most: float | None, form: str = ".2f", *, cpu: float | None = None) -> None:
    """Print a line of the table; `cpu` is the same in processor time, which other programs disturb less."""
    promised = "" if most is None else f"at most {most:g}"
    kept = "" if most is None or value <= most else "NOT KEPT"
    used = "" if cpu is None else f"{cpu:.2f}"
    print(f"{what:58}{value:9{form}}{used:>9}   {promised:14}{kept}".rstrip(), flush=True)


def asked(home: Path, question: str) -> list[Any]:
    """Return the ledger's answer."""
    with contextlib.closing(sqlite3.connect(f"file:{home}/ledger.db?mode=ro", uri=True)) as connection:
        return connection.execute(question).fetchall()


def driven(trials: int, directory: Path) -> Path:
    """Measure driving; return the home of the sweep."""
    numbers = "\n".join(map(str, range(trials)))
    bare = measure(["xargs", f"-P{SLOTS}", "-n1", "true"], stdin=numbers)
    sweep = sweep_of_true(trials, TRACKING["without MLflow"]) | {"objective": OBJECTIVE}
    run, home = drive_sweep(sweep, directory)
    over, cpu = run.seconds - bare.seconds, run.cpu_seconds - bare.cpu_seconds
    each = bare.seconds / trials * 1000
    row(
        f"a trial over `xargs -P{SLOTS}` ({each:.2f} ms), ms",
        over / trials * 1000,
        8,
        cpu=cpu / trials * 1000,
    )
    row("driver's memory at its most, MB", run.peak_mb, 200, ".0f")
    part = min(_PART, trials // 4)
    ended = [at for (at,) in asked(home, "SELECT ended_at FROM trials ORDER BY ended_at")]
    first, last = ended[part - 1] - ended[0], ended[-1] - ended[-part]
    row(f"the last {part} trials over the first {part}, time", last / first, 1.2)
    return home


def looked_at(trials: int, home: Path) -> None:
    """Measure asking about a sweep that has ended, with values as MLflow would have had them."""
    chance = random.Random(0)  # noqa: S311 - the same table every time
    with contextlib.closing(sqlite3.connect(home / "ledger.db")) as connection, connection:
        values = [(chance.random(), 100, number) for number in range(trials)]
        connection.executemany("UPDATE trials SET value = ?, value_step = ? WHERE number = ?", values)
    _ask(home, "")
    with contextlib.closing(sqlite3.connect(home / "ledger.db")) as connection, connection:
        connection.execute("UPDATE sweeps SET ended_at = NULL, state = 'running'")
    _ask(home, ", going on")


def _ask(home: Path, when: str) -> None:
    env = environment(home)
    for words, most in QUESTIONS.items():
        runs = [measure([AIRFLOWS, *words.split()], env) for _ in range(3)]
        seconds, cpu = min(run.seconds for run in runs), min(run.cpu_seconds for run in runs)
        row(f"`airflows {words}`{when}, least of 3, s", seconds, most, cpu=cpu)


@contextlib.contextmanager
def driving(sweep: Mapping[str, Any], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a driver; it is killed at the end."""
    home.mkdir(exist_ok=True)
    file = home / "sweep.yaml"
    file.write_text(json.dumps(sweep), encoding="utf-8")
    command = [AIRFLOWS, "sweep", str(file), "--yes", "-o", "json"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment(home), stdout=quiet, stderr=quiet) as driver:
        try:
            yield driver
        finally:
            driver.kill()


def wait_until(driver: subprocess.Popen[bytes], holds: Callable[[], bool], every_s: float = 0.1) -> float:
    """Return after how many seconds something holds.

    Raises:
        SystemExit: the driver has ended, or it takes too long.
    """
    began = time.perf_counter()
    while time.perf_counter() - began < _PATIENCE_S:
        with contextlib.suppress(sqlite3.OperationalError):
            if holds():
                return time.perf_counter() - began
        if driver.poll() is not None:
            sys.exit(f"the driver ended with {driver.returncode}")
        time.sleep(every_s)
    sys.exit("it takes too long")


def restarted(trials: int, directory: Path) -> None:
    """Measure from the start of a driver to its first transition, after another one was killed."""
    home = directory / "restart"
    sweep = sweep_of_true(trials, TRACKING["without MLflow"])
    with driving(sweep, home) as driver:
        wait_until(driver, lambda: asked(home, ENDED)[0][0] >= trials * 0.9)
    before = asked(home, NEWEST)
    with driving(sweep, home) as driver:
        seconds = wait_until(driver, lambda: asked(home, NEWEST) != before, _LOOK_S)
        row("a killed driver starts again: first action, s", seconds, 2)
        driver.send_signal(signal.SIGTERM)
        driver.wait(_PATIENCE_S)


@dataclass(frozen=True, slots=True)
class Idle:
    """A sweep whose trials all run."""

    home: Path
    running: int
    driver: subprocess.Popen[bytes]

    def share(self) -> float:
        """Return the driver's share of a processor once all run, in percent."""
        wait_until(self.driver, lambda: asked(self.home, RUNNING)[0][0] == self.running)
        time.sleep(_SETTLED_AFTER_S)
        used = cpu_seconds(self.driver.pid)
        time.sleep(_WATCHED_S)
        return (cpu_seconds(self.driver.pid) - used) / _WATCHED_S * 100

    def cancelled(self) -> float:
        """Cancel all; return how long it took."""
        began = time.perf_counter()
        command = [AIRFLOWS, "cancel", "nothing", "--yes"]
        subprocess.run(command, env=environment(self.home), check=False, capture_output=True)
        wait_until(self.driver, lambda: asked(self.home, ENDED)[0][0] == self.running)
        return time.perf_counter() - began


def watched(running: int, directory: Path) -> None:
    """Measure a driver whose trials all run, and how long it takes to cancel them."""
    for name, tracking in TRACKING.items():
        sweep = sweep_of_true(running, tracking) | {"limits": {"concurrent": running}, "objective": OBJECTIVE}
        # They end by themselves, whatever becomes of this measurement.
        sweep["base"]["command"] = "sleep 300"
        sweep["backend"] = {"type": "local", "slots": running}
        with driving(sweep, directory / f"run-{running}-{len(tracking)}") as driver:
            idle = Idle(directory / f"run-{running}-{len(tracking)}", running, driver)
            share = idle.share()
            seconds = idle.cancelled()
        row(f"{running} trials run, {name}: % of a processor", share, 2)
        row(f"{running} trials cancelled, {name}, s", seconds, None, ".1f")


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=1000)
    parser.add_argument("--only", choices=["drive", "restart", "run"], help="one part alone")
    options = parser.parse_args()
    print(f"{options.trials} trials of `true`; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'':58}{'':>9}{'CPU':>9}")
    with scratch() as directory:
        if options.only in {None, "drive"}:
            looked_at(options.trials, driven(options.trials, directory))
        if options.only in {None, "restart"}:
            restarted(options.trials, directory)
        if options.only in {None, "run"}:
            watched(options.running, directory)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
