"""airflows: sweeps over a train.yaml, run exactly once, resumed when something fails, with honest winners.

Everything here is imported on first use, so that `import airflows` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflows.api import (
        Observer,
        Promotion,
        Results,
        Sweep,
        add,
        attach,
        cancel,
        carry_on,
        load_sweep,
        plan,
        promote,
        resume,
        run,
        unattended,
    )
    from airflows.errors import AirflowsError, BackendError, LedgerError, SpecError
    from airflows.train import TrainConfig

__all__ = [
    "AirflowsError",
    "BackendError",
    "LedgerError",
    "Observer",
    "Promotion",
    "Results",
    "SpecError",
    "Sweep",
    "TrainConfig",
    "__version__",
    "add",
    "attach",
    "cancel",
    "carry_on",
    "load_sweep",
    "plan",
    "promote",
    "resume",
    "run",
    "unattended",
]

__version__ = "0.1.0"

_HOMES = {
    "AirflowsError": "airflows.errors",
    "BackendError": "airflows.errors",
    "LedgerError": "airflows.errors",
    "Observer": "airflows.api",
    "Promotion": "airflows.api",
    "Results": "airflows.api",
    "SpecError": "airflows.errors",
    "Sweep": "airflows.api",
    "TrainConfig": "airflows.train",
    "add": "airflows.api",
    "attach": "airflows.api",
    "cancel": "airflows.api",
    "carry_on": "airflows.api",
    "load_sweep": "airflows.api",
    "plan": "airflows.api",
    "promote": "airflows.api",
    "resume": "airflows.api",
    "run": "airflows.api",
    "unattended": "airflows.api",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'airflows' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
