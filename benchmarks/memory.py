"""What the driver of a large sweep holds in memory at most: 10,000 trials of `true`.

Promised: at most 150 MB without MLflow, 200 MB with its embedded store.
"""

from __future__ import annotations

import argparse

from measuring import TRACKING, drive_true, scratch


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    trials = parser.parse_args().trials

    print(f"{trials} trials of `true`")
    print(f"{'':26}{'driver, MB':>12}{'seconds':>10}")
    with scratch() as directory:
        for name, tracking in TRACKING.items():
            run = drive_true(trials, tracking, directory)
            print(f"{f'airflows {name}':26}{run.peak_mb:12.0f}{run.seconds:10.1f}", flush=True)


if __name__ == "__main__":
    main()
