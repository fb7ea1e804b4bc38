"""What makes a sweep a rehearsal: one tag, which goes wherever the sweep goes. Pure.

Whoever drives the sweep (the command, `resume`, the janitor) finds it there, so that no trial of a rehearsal
ever runs to its end because the driver was another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

TAG = "airflows.rehearsal"
"""MLflow tag of every run of a rehearsal."""


@dataclass(frozen=True, slots=True)
class Script:
    """How the trials of a rehearsal are to be played.

    Attributes:
        of: name of the sweep that is rehearsed.
        branches: the first so many trials are killed and resumed; the others only begin.
        steps: steps that a trial has to log before it has logged enough.
        timeout_s: longest time that an attempt runs.
        metrics: those that decide in the sweep.
    """

    of: str
    branches: int
    steps: int
    timeout_s: float
    metrics: tuple[str, ...] = ()

    def to_tag(self) -> str:
        """Return it as the value of the tag."""
        return json.dumps(asdict(self))

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> Self | None:
        """Return the script that a sweep's tags hold; None for a sweep that is no rehearsal."""
        if TAG not in tags:
            return None
        try:
            known = json.loads(tags[TAG])
            return cls(**{**known, "metrics": tuple(known["metrics"])})
        except (ValueError, TypeError, KeyError):
            # Somebody else's tag of this name.
            return None
