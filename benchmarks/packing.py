"""What packing gains: small trials on the GPUs of a real Slurm, one to a GPU and several to a GPU.

The cluster is one machine that pretends to have sixteen GPUs, and the trials sleep, so that they take as long
however many share a GPU: what is measured is the wait for GPUs that packing saves.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from measuring import AIRFLOWS, environment, measure

from airflows.testing.slurm_cluster import Cluster, running, why_not

SCRIPTS = Path(__file__).parents[1] / "tests" / "live" / "slurm"
SECONDS = 2


def swept(cluster: Cluster, directory: Path, trials: int, pack: int) -> tuple[float, dict[str, Any]]:
    """Run a sweep; return the time, and what `get` says of it."""
    sweep = {
        "name": "bench",
        "base": {
            "experiment_name": "bench",
            "command": f"sleep {SECONDS}",
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"seed": 0},
        },
        "space": {"parameters.seed": {"min": 1, "max": trials, "step": 1}},
        "backend": {"type": "slurm", "accelerators": {"GPU_1xA10": {"gpus": 1}}},
        "tracking": {"uri": "none"},
        "pack": pack,
    }
    directory.mkdir()
    path = directory / "sweep.yaml"
    path.write_text(json.dumps(sweep), encoding="utf-8")
    env = environment(directory / "home") | {"SLURM_CONF": cluster.conf}
    seconds = measure([AIRFLOWS, "sweep", str(path), "--yes"], env=env).seconds
    told = subprocess.run([AIRFLOWS, "get", "bench", "-o", "json"], env=env, capture_output=True, check=True)
    return seconds, json.loads(told.stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--pack", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"not measured: {reason}")
        return
    os.environ.pop("SLURM_CONF", None)
    took: dict[int, list[float]] = {1: [], options.pack: []}
    hours: dict[int, float] = {}
    with running(SCRIPTS, port=17400) as cluster, tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o755)
        for number in range(options.repeat):
            for pack, times in took.items():
                seconds, story = swept(cluster, directory / f"{number}-{pack}", options.trials, pack)
                times.append(seconds)
                hours[pack] = story["accelerator_hours"]["useful"]
    print(f"{options.trials} trials of {SECONDS} s on 16 GPUs, median of {options.repeat}")
    for pack, times in took.items():
        each = " ".join(f"{one:.1f}" for one in times)
        middle = statistics.median(times)
        print(f"pack {pack:<4}{middle:8.1f} s{hours[pack]:9.4f} accelerator-hours   {each}")
    print(f"{'ratio':9}{statistics.median(took[1]) / statistics.median(took[options.pack]):8.2f}")


if __name__ == "__main__":
    main()
