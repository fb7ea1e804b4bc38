"""What airflows adds to a job array: a sweep of `exit 0` on a real Slurm, beside a bare `sbatch --array`.

Promised: at most 1.15 times the time of the bare array, at most 3 sbatch calls, and one squeue a poll.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from measuring import AIRFLOWS, environment, measure

from airflows.testing.slurm_cluster import Cluster, running, why_not

SCRIPTS = Path(__file__).parents[1] / "tests" / "live" / "slurm"
COUNTED = ("sbatch", "squeue", "sacct", "scancel")


def bare(cluster: Cluster, directory: Path, trials: int) -> float:
    """Run `exit 0` as an array, as one would by hand, and wait until the last task has gone."""
    script = directory / "bare.sh"
    script.write_text(
        f"#!/bin/bash\n#SBATCH --array=0-{trials - 1} --output=/dev/null\nexit 0\n", encoding="ascii"
    )
    began = time.perf_counter()
    cluster.run("sbatch", str(script))
    while cluster.run("squeue", "-h").strip():
        time.sleep(0.2)
    return time.perf_counter() - began


def counting(directory: Path) -> Path:
    """Return a directory whose commands write down that they were called."""
    commands = directory / "bin"
    commands.mkdir(parents=True)
    for name in COUNTED:
        path = commands / name
        path.write_text(
            f'#!/bin/sh\necho "$@" >>{commands}/{name}.calls\nexec {shutil.which(name)} "$@"\n',
            encoding="ascii",
        )
        path.chmod(0o755)
    return commands


def swept(cluster: Cluster, directory: Path, trials: int) -> tuple[float, Mapping[str, int]]:
    """Run the same as a sweep; return the time and how often each command was called."""
    commands = counting(directory)
    sweep = {
        "name": "bench",
        "base": {
            "experiment_name": "bench",
            "command": "exit 0",
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"seed": 0},
        },
        "space": {"parameters.seed": {"min": 0, "max": trials - 1, "step": 1}},
        "limits": {"concurrent": 1000},
        "backend": {"type": "slurm", "accelerators": {"GPU_1xA10": {"cpu": True}}},
        "tracking": {"uri": "none"},
    }
    path = directory / "sweep.yaml"
    path.write_text(json.dumps(sweep), encoding="utf-8")
    env = environment(directory / "home")
    env |= {"SLURM_CONF": cluster.conf, "PATH": f"{commands}{os.pathsep}{env['PATH']}"}
    seconds = measure([AIRFLOWS, "sweep", str(path), "--yes"], env=env).seconds
    calls = {}
    for name in COUNTED:
        log = commands / f"{name}.calls"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        calls[name] = len([line for line in lines if "--test-only" not in line])
    return seconds, calls


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"not measured: {reason}")
        return
    with running(SCRIPTS, port=17300) as cluster, tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o755)
        by_hand, ours, calls = [], [], {}
        for number in range(options.repeat):
            # Turn about: whatever slows a machine down, or a controller that remembers more jobs, slows both.
            for is_ours in (number % 2 == 1, number % 2 == 0):
                if is_ours:
                    seconds, calls = swept(cluster, directory / str(number), options.trials)
                    ours.append(seconds)
                else:
                    by_hand.append(bare(cluster, directory, options.trials))
    base, ratio = statistics.median(by_hand), statistics.median(ours) / statistics.median(by_hand)
    print(f"{options.trials} trials of `exit 0`, median of {options.repeat}")
    print(f"{'sbatch --array':20}{base:8.1f} s   {' '.join(f'{one:.1f}' for one in by_hand)}")
    print(f"{'airflows sweep':20}{statistics.median(ours):8.1f} s   {' '.join(f'{one:.1f}' for one in ours)}")
    print(f"{'ratio':20}{ratio:8.2f}")
    print(f"{'calls':20}{', '.join(f'{name} {count}' for name, count in calls.items())}")
    if calls["sbatch"] > 3:  # noqa: PLR2004 - what is promised
        sys.exit("more than 3 sbatch calls")


if __name__ == "__main__":
    main()
