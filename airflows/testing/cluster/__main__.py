"""`python -m airflows.testing.cluster`: serve a fake cluster until interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from airflows.errors import AirflowsError
from airflows.testing.cluster.cluster import Cluster
from airflows.testing.cluster.settings import Settings, load_settings


def main(arguments: list[str] | None = None) -> int:
    """Serve; the first line of the output is the path of the kubeconfig."""
    options = _parser().parse_args(arguments)
    try:
        made = Cluster(_settings(options), directory=options.directory, port=options.port)
    except (AirflowsError, ValueError, TypeError, OSError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with made as cluster:
        sys.stdout.write(f"{cluster.kubeconfig}\n")
        sys.stdout.flush()
        sys.stderr.write(f"serves at {cluster.url}\nexport KUBECONFIG={cluster.kubeconfig}\n")
        over.wait()
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    # A test moves the clock by hand, a person expects it to go.
    named = {"clock_scale": options.scale, "seed": options.seed, "execute": options.execute or None}
    changes = {name: value for name, value in named.items() if value is not None}
    if options.script is None:
        return Settings.model_validate({"clock_scale": 1.0, **changes})
    settings = load_settings(options.script, **changes)
    if "clock_scale" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"clock_scale": 1.0})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflows.testing.cluster",
        description="A fake Kubernetes API server with a Job controller, on the loopback interface.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 for any that is free")
    parser.add_argument("--execute", action="store_true", help="really run the containers")
    parser.add_argument("--script", type=Path, help="settings in YAML: plans, faults, nodes and more")
    parser.add_argument("--scale", type=float, help="speed of the clock; 0: it stands still")
    parser.add_argument("--seed", type=int, help="of all chances and made-up names")
    parser.add_argument("--directory", type=Path, help="where its files go; removed in the end if not given")
    return parser


if __name__ == "__main__":
    sys.exit(main())
