"""Sweeps inside Prefect flow runs: what the flows in `flows/` are made of. Needs the extra `prefect`.

Prefect starts, schedules, cancels and shows sweeps. What a trial is and whether it ran, the ledger says.
Everything here is imported on first use; Prefect is imported nowhere else in airflows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflows.errors import MissingExtraError

if TYPE_CHECKING:
    from airflows.flowruns.hooks import stop_trials, take_up_again
    from airflows.flowruns.janitor import take_over
    from airflows.flowruns.promoting import promote_winner
    from airflows.flowruns.request import AtOnce, SweepParameter, SweepRequest
    from airflows.flowruns.running import run_sweep

__all__ = [
    "AtOnce",
    "SweepParameter",
    "SweepRequest",
    "promote_winner",
    "run_sweep",
    "stop_trials",
    "take_over",
    "take_up_again",
]

_HOMES = {
    "AtOnce": "request",
    "SweepParameter": "request",
    "SweepRequest": "request",
    "promote_winner": "promoting",
    "run_sweep": "running",
    "stop_trials": "hooks",
    "take_over": "janitor",
    "take_up_again": "hooks",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'airflows.flowruns' has no attribute {name!r}"
        raise AttributeError(message)
    try:
        return getattr(import_module(f"airflows.flowruns.{home}"), name)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "prefect":
            raise
        message = "flows need Prefect, which is not installed."
        raise MissingExtraError(message, hint="Run: pip install 'airflows[prefect]'") from exc
