"""What airflows adds to a trial: many trials of `true` on two slots, beside `xargs -P2`.

Promised: at most 5 ms a trial over xargs without MLflow, at most 15 ms with its embedded store.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

from measuring import SLOTS, TRACKING, Measured, drive_true, measure, scratch


def xargs(trials: int) -> Measured:
    """Start `true` that often, as the shell would."""
    numbers = "\n".join(map(str, range(trials)))
    return measure(["xargs", f"-P{SLOTS}", "-n1", "true"], stdin=numbers)


def median(run: Callable[[], Measured], repeat: int) -> Measured:
    """Return the median time, the largest memory and the least processor time of several runs."""
    runs = [run() for _ in range(repeat)]
    return Measured(
        statistics.median(one.seconds for one in runs),
        max(one.peak_mb for one in runs),
        min(one.cpu_seconds for one in runs),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    trials, repeat = options.trials, options.repeat

    print(f"{trials} trials of `true` on {SLOTS} slots, median of {repeat}")
    print(f"{'':26}{'ms a trial':>12}{'over xargs':>12}{'ratio':>8}{'CPU, ms':>10}{'driver, MB':>12}")
    base = median(lambda: xargs(trials), repeat)
    each, cpu = base.seconds / trials * 1000, base.cpu_seconds / trials * 1000
    print(f"{f'xargs -P{SLOTS}':26}{each:12.2f}{'':12}{1:8.1f}{cpu:10.2f}", flush=True)
    with scratch() as directory:
        for name, tracking in TRACKING.items():
            run = median(lambda tracking=tracking: drive_true(trials, tracking, directory), repeat)
            ms, cpu = run.seconds / trials * 1000, run.cpu_seconds / trials * 1000
            over = f"{ms - each:12.2f}{ms / each:8.1f}"
            print(f"{f'airflows {name}':26}{ms:12.2f}{over}{cpu:10.2f}{run.peak_mb:12.0f}", flush=True)


if __name__ == "__main__":
    main()
