"""What tracking costs: milliseconds per trial by how many go into a call, and the memory of 10,000 trials.

Promised: at most 8 ms of the 15 that a trial of `true` may cost over `xargs` with the embedded store.
A server is measured too where the whole of MLflow is installed (or `$AIRFLOWS_TEST_MLFLOW` names a Python).
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflows.testing.mlflow_server import interpreter, mlflow_server
from airflows.tracking import EndedRun, SweepEnd, SweepRun, Tracker, TrialRun, open_tracker
from airflows.trial import State

BATCHES = (1, 10, 50)
TRAINED, STEPS = 100, 20
LAST = SimpleNamespace(metric="loss", goal="minimize", take="last")
BEST = SimpleNamespace(metric="loss", goal="minimize", take="best")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if options.memory is not None:
            fill(directory, options.memory)
            return
        seconds, tracker = timed(lambda: open_tracker(None, directory, environment={}))
        print(f"opened for the first time, MLflow's import and migrations included: {seconds:.2f} s")
        print(f"opened again: {timed(lambda: open_tracker(None, directory, environment={}))[0]:.2f} s\n")
        print(f"{'ms per trial':34}{'create':>9}{'read':>9}{'close':>9}{'sum':>9}{'read best of 20':>17}")
        tracker.open_sweep(SweepRun("bench-123456", "bench"))
        for batch in BATCHES:
            row(f"embedded store, {batch} in a call", through_tracker(tracker, options.trials, batch))
        row("embedded store, MLflow's own calls", through_client(tracker, options.trials))
        python = interpreter()
        if python is not None:
            with mlflow_server(directory, python=python) as address:
                remote = open_tracker(address, directory, environment={})
                remote.open_sweep(SweepRun("bench-123456", "bench"))
                row("server on this machine, 10 in a call", through_tracker(remote, options.trials // 10, 10))
    print(f"\n{'peak memory, trials':26}{'MB':>8}")
    for trials in (0, 10_000):
        print(f"{trials:26,}{peak_mb(trials):8.0f}", flush=True)


def row(name: str, costs: Sequence[float]) -> None:
    """Print one line of the table."""
    *parts, best = costs
    print(
        f"{name:34}" + "".join(f"{cost:9.2f}" for cost in (*parts, sum(parts))) + f"{best:17.2f}", flush=True
    )


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return (seconds, answer) of a call."""
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, answer


def trial(number: int) -> TrialRun:
    """Return a trial as a small sweep has it."""
    overrides = {"parameters.lr": number * 1e-3, "parameters.batch": 32}
    parameters = {"lr": number * 1e-3, "batch": 32, "seed": 0, "model": {"width": 64, "act": "relu"}}
    return TrialRun(number, f"bench-123456-{number:04d}-a0", overrides, parameters, number)


def through_tracker(tracker: Tracker, trials: int, batch: int) -> Sequence[float]:
    """Return ms per trial of create, read, close and a read with histories, `batch` trials in a call."""
    made: dict[int, str] = {}
    pages = [range(start, min(start + batch, trials)) for start in range(0, trials, batch)]
    calls: Sequence[Callable[[range], Any]] = (
        lambda page: made.update(tracker.create_runs([trial(n) for n in page], uncertain=False)),
        lambda page: tracker.read([made[n] for n in page], LAST),
        lambda page: tracker.close([EndedRun(made[n], State.SUCCEEDED) for n in page]),
    )
    costs = [timed(lambda call=call: [call(page) for page in pages])[0] / trials * 1e3 for call in calls]
    trained = [made[n] for n in range(min(trials, TRAINED))]
    for run_id in trained:
        train(tracker, run_id)
    pages = [range(start, min(start + batch, len(trained))) for start in range(0, len(trained), batch)]
    seconds, _ = timed(lambda: [tracker.read([made[n] for n in page], BEST) for page in pages])
    return [*costs, seconds / len(trained) * 1e3]


def train(tracker: Tracker, run_id: str) -> None:
    """Log a curve as training code does."""
    from mlflow import MlflowClient  # noqa: PLC0415
    from mlflow.entities import Metric  # noqa: PLC0415

    client: Any = MlflowClient(tracking_uri=tracker.job_env()["MLFLOW_TRACKING_URI"])
    client.log_batch(run_id, metrics=[Metric("loss", 1 / (step + 1), step, step) for step in range(STEPS)])


def through_client(tracker: Tracker, trials: int) -> Sequence[float]:
    """Return the same for MLflow's client, on the same store."""
    # The client is not imported by its users: it comes with the tracker that was opened.
    from airflows.tracking.client import ClientRuns  # noqa: PLC0415
    from airflows.tracking.tracker import MlflowTracker  # noqa: PLC0415

    uri = tracker.job_env()["MLFLOW_TRACKING_URI"]
    plain = MlflowTracker(uri, ClientRuns(uri, "bench"), time.time, {})
    plain.open_sweep(SweepRun("plain-123456", "bench"))
    return through_tracker(plain, trials // 4, 1)


def fill(directory: Path, trials: int) -> None:
    """Track a sweep of so many trials from end to end and print this process's peak memory in MB."""
    tracker = open_tracker(None, directory, environment={})
    tracker.open_sweep(SweepRun("bench-123456", "bench"))
    run_ids: list[str] = []
    for start in range(0, trials, 32):
        made: Mapping[int, str] = tracker.create_runs(
            [trial(n) for n in range(start, start + 32)], uncertain=False
        )
        run_ids += made.values()
        tracker.read(list(made.values()), BEST)
        tracker.close([EndedRun(run_id, State.SUCCEEDED) for run_id in made.values()])
    tracker.verify(run_ids)
    tracker.close_sweep(SweepEnd("succeeded", run_ids=run_ids))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


def peak_mb(trials: int) -> float:
    """Return the peak memory of a process that does nothing but track so many trials."""
    command = [sys.executable, __file__, "--memory", str(trials)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
