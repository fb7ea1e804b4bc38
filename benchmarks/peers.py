"""What a trial costs, beside other ways to run many of them.

Every way runs a program that does nothing: two at a time on this machine, or as a job array on a Slurm
of its own. Printed is the time of a trial over that of the bare command (`xargs`, `sbatch --array`),
and the most memory that whoever drives them held at once with all of its processes, those of the trials
included. Peers are installed into an environment that is thrown away; of what cannot be had the table
says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import yaml
from measuring import AIRFLOWS, SLOTS, TRACKING, check_all_succeeded, environment, scratch, sweep_of_true

from airflows.testing.slurm_cluster import Cluster, running, why_not

PROGRAMS = Path(__file__).parent / "peers_run"
SLURM = Path(__file__).parents[1] / "tests" / "live" / "slurm"
_LOOK_S = 0.1
_PORT = 17500

PINNED: Mapping[str, Sequence[str]] = {
    "submitit": ["submitit==1.5.4"],
    "optuna": ["optuna==5.0.0"],
    "ray": ["ray[tune]==2.60.0"],
    "hydra": ["hydra-core==1.3.8", "hydra-joblib-launcher==1.2.0", "joblib==1.6.0"],
}
"""What is installed for each peer."""

NOTES = """
- xargs, GNU parallel, sbatch: each command is run once. Of these only parallel can go on after it was
  killed, from a log that must be asked for. No metrics.
- airflows: each attempt is run once, even if its driver is killed in the middle. It resumes. Metrics by
  MLflow, measured here with and without.
- Optuna: threads that run the command, and a study in SQLite that keeps the values it is told. A driver
  that is killed leaves its trials running in the study; another one makes new ones.
- Hydra with joblib: processes that call a function. No record to go on from, no metrics.
- submitit: a function is pickled and called in a Python of its own, whose start is in the figure. The
  handles are pickled too, if the caller sees to it; it does not know what was submitted before it was
  killed. No metrics. Its local executor starts everything at once, so the program here keeps it at two.
- Ray Tune: a worker for each trial, and a cluster of its own. It restores an experiment from its last
  snapshot and runs those again that had not ended. It keeps the values it is told.
"""


@dataclass(slots=True)
class Way:
    """One way to run trials.

    Attributes:
        name: of it.
        trials: in one run; fewer where each takes long.
        run: returns what runs so many in a directory.
        on_slurm: it runs on Slurm.
        seconds: of each run that was measured.
        peak_mb: of each run.
        why_not: why there is no figure.
    """

    name: str
    trials: int
    run: Callable[[int, Path], Started]
    on_slurm: bool = False
    seconds: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    why_not: str = ""

    @property
    def ms(self) -> float:
        """Milliseconds a trial, the median."""
        return statistics.median(self.seconds) / self.trials * 1000


@dataclass(frozen=True, slots=True)
class Started:
    """A command to measure. `check` raises when it did not do its work."""

    command: Sequence[str]
    env: Mapping[str, str] | None = None
    stdin: str = ""
    check: Callable[[], None] = lambda: None


# Memory


def tree_mb(root: int) -> float:
    """Return what a process and all its children hold, in MB of 10^6 bytes; shared pages count in parts."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    members = {root}
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return sum(map(_own_mb, members))


def _own_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def measured(started: Started, directory: Path) -> tuple[float, float]:
    """Run a command; return seconds and the most memory of its processes.

    Raises:
        RuntimeError: it failed, with the end of what it printed.
    """
    log = directory / "output"
    with log.open("w+") as output, tempfile.TemporaryFile("w+") as given:
        given.write(started.stdin)
        given.seek(0)
        began = time.perf_counter()
        process = subprocess.Popen(
            started.command, env=started.env, cwd=directory, stdin=given, stdout=output, stderr=output
        )
        seen, over = [0.0], threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_S):
                seen.append(tree_mb(process.pid))

        watcher = threading.Thread(target=look)
        watcher.start()
        process.wait()
        seconds = time.perf_counter() - began
        over.set()
        watcher.join()
    if process.returncode:
        message = f"ended with {process.returncode}: {log.read_text(errors='replace')[-600:]}"
        raise RuntimeError(message)
    started.check()
    return seconds, max(seen)


# The ways


def plain(*words: str) -> Callable[[int, Path], Started]:
    """Give a command a line for each trial."""
    return lambda trials, _directory: Started(words, stdin="\n".join(map(str, range(trials))))


def swept(tracking: str) -> Callable[[int, Path], Started]:
    """Sweep."""

    def start(trials: int, directory: Path) -> Started:
        env = environment(directory / "home")
        file = directory / "sweep.yaml"
        file.write_text(yaml.safe_dump(sweep_of_true(trials, TRACKING[tracking])), encoding="utf-8")
        command = [AIRFLOWS, "sweep", str(file), "--yes"]
        return Started(command, env, check=lambda: check_all_succeeded(env, trials))

    return start


def program(python: Path, name: str, *words: str, **variables: str) -> Callable[[int, Path], Started]:
    """Run one of the programs in `peers_run`, which marks that it has done its work."""

    def start(trials: int, directory: Path) -> Started:
        done = directory / "done"
        command = [str(python), str(PROGRAMS / f"{name}.py"), *(word.format(trials=trials) for word in words)]
        env = {**environment(directory / "home"), "TRIALS": str(trials), "DONE": str(done), **variables}
        return Started(command, env, check=lambda: _require(done.exists(), f"{name} did not get to its end"))

    return start


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(message)


def array(cluster: Cluster) -> Callable[[int, Path], Started]:
    """Submit a job array by hand and wait for it."""

    def start(trials: int, directory: Path) -> Started:
        script = directory / "bare.sh"
        script.write_text(
            f"#!/bin/bash\n#SBATCH --array=0-{trials - 1} --output=/dev/null\ntrue\n", encoding="ascii"
        )
        return Started(["sbatch", "--wait", str(script)], {**os.environ, "SLURM_CONF": cluster.conf})

    return start


def swept_on_slurm(cluster: Cluster) -> Callable[[int, Path], Started]:
    """Sweep on Slurm."""

    def start(trials: int, directory: Path) -> Started:
        sweep = sweep_of_true(trials, TRACKING["without MLflow"]) | {
            "limits": {"concurrent": 1000},
            "backend": {"type": "slurm", "accelerators": {"GPU_1xA10": {"cpu": True}}},
        }
        file = directory / "sweep.yaml"
        file.write_text(json.dumps(sweep), encoding="utf-8")
        env = environment(directory / "home") | {"SLURM_CONF": cluster.conf}
        return Started(
            [AIRFLOWS, "sweep", str(file), "--yes"], env, check=lambda: check_all_succeeded(env, trials)
        )

    return start


def local_ways(trials: int, python: Path, lacking: Mapping[str, str]) -> list[Way]:
    """Return the ways to run on this machine; bare first."""
    few = max(10, trials // 25)
    ways = [
        Way(f"xargs -P{SLOTS}", trials, plain("xargs", f"-P{SLOTS}", "-n1", "true")),
        Way(f"GNU parallel -j{SLOTS}", trials, plain("parallel", f"-j{SLOTS}", "true")),
        Way("airflows without MLflow", trials, swept("without MLflow")),
        Way("airflows with MLflow", trials, swept("with MLflow")),
        Way("Optuna with subprocess", trials, program(python, "optuna_subprocess")),
        Way("Hydra joblib", few, program(python, "hydra_joblib", *_HYDRA)),
        Way("submitit, local", few, program(python, "submitit_jobs", EXECUTOR="local")),
        Way("Ray Tune", few, program(python, "ray_tune", RAY_TMPDIR="/tmp")),  # noqa: S108 - sockets have short paths
    ]
    for way, package in zip(ways[4:], ("optuna", "hydra", "submitit", "ray"), strict=True):
        way.why_not = lacking.get(package, "")
    if shutil.which("parallel") is None:
        ways[1].why_not = "could not be installed"
    return ways


_HYDRA = ("-m", "hydra/launcher=joblib", f"hydra.launcher.n_jobs={SLOTS}", "number=range({trials})")


def slurm_ways(trials: int, cluster: Cluster, python: Path, lacking: Mapping[str, str]) -> list[Way]:
    """Return the ways to run on Slurm; bare first."""
    few = max(10, trials // 25)
    submitit = program(python, "submitit_jobs", EXECUTOR="slurm", SLURM_CONF=cluster.conf)
    return [
        Way("sbatch --array", trials, array(cluster), on_slurm=True),
        Way("airflows on Slurm", trials, swept_on_slurm(cluster), on_slurm=True),
        Way("submitit, Slurm", few, submitit, on_slurm=True, why_not=lacking.get("submitit", "")),
    ]


# The peers


def installed(directory: Path) -> tuple[Path, dict[str, str]]:
    """Make an environment of the peers; return its Python, and why there is none of a peer."""
    python, lacking = directory / "bin" / "python", dict[str, str]()
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        for peer, packages in PINNED.items():
            command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", *packages]
            if subprocess.run(command, check=False, capture_output=True).returncode:
                lacking[peer] = "could not be installed"
    return python, lacking


@contextlib.contextmanager
def slurm() -> Iterator[Cluster | None]:
    """Start a Slurm where that is possible."""
    if why_not():
        yield None
        return
    with running(SLURM, port=_PORT) as cluster:
        yield cluster


def run_all(ways: Sequence[Way], repeat: int, within: Path) -> None:
    """Measure all ways, one after another, so many times over."""
    for number in range(repeat):
        for way in ways:
            if way.why_not:
                continue
            directory = Path(tempfile.mkdtemp(dir=within))
            directory.chmod(0o755)
            try:
                seconds, peak_mb = measured(way.run(way.trials, directory), directory)
            except (RuntimeError, OSError) as exc:
                way.why_not = f"failed: {str(exc).strip().splitlines()[-1][:60]}"
                print(f"{way.name}: {exc}", file=sys.stderr)
                continue
            way.seconds.append(seconds)
            way.peak_mb.append(peak_mb)
            print(f"  {number + 1}. {way.name}: {seconds:.1f} s", file=sys.stderr, flush=True)


def lines(ways: Sequence[Way], repeat: int) -> Iterator[str]:
    """Yield the table, in Markdown."""
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    yield f"{datetime.now(UTC):%Y-%m-%d}, {machine()}; {load}."
    runs = min((len(way.seconds) for way in ways if not way.why_not), default=0)
    yield f"Medians of {runs} of {repeat} runs at least."
    yield ""
    yield "| way | trials | ms a trial | over the bare command, ms | ratio | driver, MB |"
    yield "|---|--:|--:|--:|--:|--:|"
    for base, of_kind in ((way, [w for w in ways if w.on_slurm is way.on_slurm]) for way in _bare(ways)):
        for way in of_kind:
            if not way.seconds:
                yield f"| {way.name} | | {way.why_not or 'not measured'} | | | |"
                continue
            over = f"{way.ms - base.ms:.2f} | {way.ms / base.ms:.1f}" if base.seconds else " | "
            peak_mb = statistics.median(way.peak_mb)
            yield f"| {way.name} | {way.trials} | {way.ms:.2f} | {over} | {peak_mb:.0f} |"
    yield ""
    yield NOTES.strip()


def _bare(ways: Sequence[Way]) -> Iterator[Way]:
    for kind in (False, True):
        yield from [way for way in ways if way.on_slurm is kind][:1]


def machine() -> str:
    """Return the machine in words."""
    total = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    memory = int(total.split()[1]) / 1024**2
    processors = f"{os.cpu_count()} processors ({platform.machine()})"
    return f"{processors}, {memory:.0f} GB, Python {platform.python_version()}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="ways whose name contains it, and the bare ones"
    )
    parser.add_argument("--environment", type=Path, help="keep the peers' environment here for the next time")
    parser.add_argument("--to", type=Path, help="write the table here too")
    options = parser.parse_args()
    with scratch() as directory, slurm() as cluster:
        directory.chmod(0o755)
        python, lacking = installed(options.environment or directory / "peers")
        ways = local_ways(options.trials, python, lacking)
        if cluster is not None:
            ways += slurm_ways(options.trials, cluster, python, lacking)
        ways = [way for way in ways if options.only in way.name or way in _bare(ways)]
        # Whoever cannot wait for the rest gets the table so far.
        with contextlib.suppress(KeyboardInterrupt):
            run_all(ways, options.repeat, directory)
        text = "\n".join(lines(ways, options.repeat))
    if cluster is None:
        text += f"\n\nWithout Slurm: {why_not()}."
    print(text)
    if options.to is not None:
        options.to.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
