"""How the work grows with a sweep on each backend: what a trial takes, and what it takes of twice as many.

The clusters are the fakes of `airflows.testing`, whose clocks move instead of anybody waiting: one in
memory, a Kubernetes API server and a Databricks workspace over HTTP. What a trial takes there is mostly the
fake's own time; what counts is that it takes no more when there are twice as many.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import scratch

from airflows.backends.base import Backend
from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.backends.kubernetes import KubernetesBackend, KubernetesSettings
from airflows.engine.drive import Drive
from airflows.engine.observers import Silent
from airflows.engine.results import gather
from airflows.engine.site import Site
from airflows.engine.start import begin
from airflows.ledger import Ledger
from airflows.ledger.opening import connect, sqlite_url
from airflows.sweepfile import sweep_from_mapping
from airflows.testing.cluster import Cluster
from airflows.testing.fake import FakeBackend, FakeCluster
from airflows.testing.tracker import FakeTracker
from airflows.testing.workspace import FakeWorkspace
from airflows.tracking import Tracker, open_tracker
from airflows.trial import State

BASE = {
    "experiment_name": "many",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"number": 0},
}


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster to drive on.

    Attributes:
        backend: a connection to it.
        tracker: where its trials log.
        clock: its time.
        requests: how many it has answered.
    """

    backend: Backend
    tracker: Tracker
    clock: Callable[[], float]
    requests: Callable[[], int]


@contextmanager
def simulated(home: Path, trials: int) -> Iterator[Place]:
    """Make one in memory."""
    cluster = FakeCluster()
    tracker = FakeTracker(values={number: float(number) for number in range(trials)})
    backend = FakeBackend(cluster, home / "root", slots=100)
    backend.max_batch = 1000
    yield Place(backend, tracker, cluster.clock, lambda: sum(tracker.asked.values()))


@contextmanager
def kubernetes(home: Path, trials: int) -> Iterator[Place]:
    """Make a Kubernetes API server."""
    del trials
    with Cluster(namespaces=["ml"]) as cluster:
        cluster.pods.plan(run_s=20.0)
        settings = KubernetesSettings(kubeconfig=cluster.kubeconfig, image="python:3.11", patience=20)
        clock, moved = cluster.clock.now, cluster.clock.advance
        backend = KubernetesBackend(
            settings, home / "root", clock=clock, pause=lambda seconds: moved(max(seconds, 0.5))
        )
        yield Place(backend, open_tracker("none", home), clock, cluster.recorder.counts.total)


@contextmanager
def databricks(home: Path, trials: int) -> Iterator[Place]:
    """Make a Databricks workspace."""
    del trials
    with FakeWorkspace(default={"queue_s": 2.0, "run_s": 20.0, "metrics": {"loss": [1.0]}}) as workspace:
        os.environ.update(workspace.environment)
        clock = workspace.clock.now
        backend = DatabricksBackend(
            DatabricksSettings(patience=20),
            home / "root",
            clock=clock,
            pause=lambda seconds: workspace.advance(max(seconds, 0.5)),
        )
        tracker = open_tracker("databricks", home, clock=clock, is_service=True)
        yield Place(backend, tracker, clock, workspace.recorder.counts.total)


PLACES: Mapping[str, Any] = {"simulated": simulated, "kubernetes": kubernetes, "databricks": databricks}


def drive(name: str, trials: int, home: Path) -> tuple[float, float, float]:
    """Drive a sweep to its end; return ms and requests a trial, and the seconds of ranking it."""
    home.mkdir()
    mapping = {
        "name": "many",
        "base": BASE,
        "space": {"parameters.number": {"min": 1, "max": trials, "step": 1}},
        "objective": {"metric": "loss", "goal": "minimize"},
    }
    with PLACES[name](home, trials) as place:
        ledger = Ledger(connect(sqlite_url(home / "ledger.db")))
        site = Site(home, sweep_from_mapping(mapping, directory=home), ledger, place.backend, place.tracker)
        began = time.process_time()
        row = begin(site, now=place.clock(), code=site.prepare_code()).row
        row = Drive(site, Silent(), clock=place.clock).run(row.id)
        driven = time.process_time()
        counts = gather(ledger, row).counts
        ranked = time.process_time() - driven
        ledger.close()
        if counts != {State.SUCCEEDED: trials}:
            sys.exit(f"{name}: {dict(counts)} {row.message}")
        return (driven - began) / trials * 1000, place.requests() / trials, ranked


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="of the larger sweep")
    parser.add_argument("--only", choices=list(PLACES))
    options = parser.parse_args()
    print(f"{'backend':14}{'trials':>8}{'CPU, ms':>12}{'requests':>10}{'ranked in, s':>14}")
    with scratch() as directory:
        for name in [options.only] if options.only else PLACES:
            for trials in (options.trials // 2, options.trials):
                each, requests, ranked = drive(name, trials, directory / f"{name}-{trials}")
                print(f"{name:14}{trials:8}{each:12.2f}{requests:10.2f}{ranked:14.2f}", flush=True)


if __name__ == "__main__":
    main()
