"""How long a person waits for an answer that needs no work.

Promised: `--help` and `--dry-run` of a small sweep within 0.3 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import AIRFLOWS, environment, measure

DEMO = str(Path(__file__).parents[1] / "sweeps" / "digits" / "sweep.yaml")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "airflows --help": [AIRFLOWS, "--help"],
    "airflows --version": [AIRFLOWS, "--version"],
    "airflows sweep --dry-run": [AIRFLOWS, "sweep", DEMO, "--dry-run"],
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat

    print(f"{'':26}{'seconds':>8}{'CPU':>8}   median and least of {repeat}")
    with tempfile.TemporaryDirectory(prefix="airflows-benchmark-") as directory:
        env = environment(Path(directory, "home"))
        for name, command in COMMANDS.items():
            measure(command, env)
            runs = [measure(command, env) for _ in range(repeat)]
            seconds = statistics.median(run.seconds for run in runs)
            print(f"{name:26}{seconds:8.3f}{min(run.cpu_seconds for run in runs):8.3f}", flush=True)


if __name__ == "__main__":
    main()
