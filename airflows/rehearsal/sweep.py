"""The sweep that a rehearsal is. Pure."""

from __future__ import annotations

import math
from typing import Any

from airflows.rehearsal.casting import Cast
from airflows.rehearsal.script import TAG, Script
from airflows.spec import SweepSpec
from airflows.sweepfile import LoadedSweep, sweep_from_mapping

_ENDING = "-rehearsal"
_LONGEST_NAME = 64
_ENV = "AIRFLOWS_REHEARSAL"
# The driver ends attempts in time; this is for when it is gone.
_SPARE_MINUTES = 2


def rehearsal_name(name: str) -> str:
    """Return the name of the rehearsals of a sweep."""
    return f"{name[: _LONGEST_NAME - len(_ENDING)]}{_ENDING}"


def rehearsal_of(sweep: LoadedSweep, cast: Cast, script: Script) -> LoadedSweep:
    """Return the sweep that has the trials of a rehearsal, on the same backend, with the same code.

    It has no objective, so nothing in it is ranked; nothing is tried again by itself; and an attempt ends
    after a while even if no driver is alive.
    """
    spec, base = sweep.spec, dict(sweep.base.tree)
    base["env_variables"] = {**(base.get("env_variables") or {}), _ENV: "1"}
    minutes = math.ceil(script.timeout_s / 60) + _SPARE_MINUTES
    base["timeout_minutes"] = min(minutes, int(base.get("timeout_minutes") or minutes))
    tree: dict[str, Any] = {
        "name": rehearsal_name(spec.name),
        "base": base,
        "include": cast.rows,
        "limits": _given(spec, "limits", "concurrent") | {"identical_failures": 0},
        "retry": {"max": 0, "wait": "0s"},
        "checkpoint": _given(spec, "checkpoint", "dir", "pattern"),
        "backend": spec.backend,
        "tracking": _given(spec, "tracking", "uri", "experiment")
        | {"tags": {**spec.tracking.tags, TAG: script.to_tag()}},
    }
    return sweep_from_mapping(tree, directory=sweep.directory, file=f"the rehearsal of {spec.name}")


def _given(spec: SweepSpec, part: str, *names: str) -> dict[str, Any]:
    values = {name: getattr(getattr(spec, part), name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
