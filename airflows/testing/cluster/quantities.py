"""Quantities of resources, such as `200m` or `32Mi`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_SUFFIXES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)
}


def quantity(text: str | float) -> float:
    """Return a quantity as a number; not a number when it is none."""
    read = re.fullmatch(r"([\d.]+)([a-zA-Z]*)", str(text))
    return float(read[1]) * _SUFFIXES.get(read[2], 1.0) if read else math.nan


def written(value: float) -> str:
    """Return a number as a quantity."""
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"


def requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return what the containers of a pod ask for together."""
    total: dict[str, float] = {}
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, value in asked.items():
            total[name] = total.get(name, 0.0) + quantity(value)
    return total
