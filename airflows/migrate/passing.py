"""From the parameters of another tool's sweep to keys of ours, and how a program is given them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflows.errors import SpecError
from airflows.keys import set_key, split_key
from airflows.migrate import files
from airflows.migrate.migration import Migration
from airflows.migrate.report import Report
from airflows.train import ACCELERATORS

_SMALLEST = "GPU_1xA10"
# A variable of that very name would be PATH, RANDOM or RANK for a parameter that is called so.
_PREFIX = "HP_"


def variables(keys: Iterable[str]) -> dict[str, str]:
    """Return the environment variable that carries each parameter, all different.

    Example:
        >>> variables(["optimizer.lr", "optimizer_lr", "path"])
        {'optimizer.lr': 'HP_OPTIMIZER_LR', 'optimizer_lr': 'HP_OPTIMIZER_LR_2', 'path': 'HP_PATH'}
    """
    made: dict[str, str] = {}
    for key in keys:
        name = _PREFIX + (re.sub(r"\W+", "_", key, flags=re.ASCII).strip("_").upper() or "VALUE")
        number, free = 2, name
        while free in made.values():
            free, number = f"{name}_{number}", number + 1
        made[key] = free
    return made


def first_value(domain: Any) -> Any:
    """Return a value of a domain, for a single run of the train.yaml."""
    if isinstance(domain, list):
        return domain[0]
    return domain["min"] if isinstance(domain, Mapping) else domain


@dataclass(slots=True)
class Imported:
    """What was read of another tool's sweep.

    Attributes:
        source: the file or command it comes from, for people.
        name: of the sweep.
        experiment: of MLflow.
        command: lines that start the program.
        space: our override keys with their domains, the slowest first.
        sweep: further parts of the sweep.yaml.
        train: further parts of the train.yaml.
        report: what is lost, and what to look at.
        root: directory of the code, relative to the files that are written.
        carried: facts of the original, for JSON.
    """

    source: str
    name: str
    experiment: str
    command: str
    space: dict[str, Any]
    report: Report
    root: str = "."
    sweep: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    carried: dict[str, Any] = field(default_factory=dict)

    def made(self, accelerator: str | None, gpus: int | None = None) -> Migration:
        """Return the files.

        Args:
            accelerator: the type to use, None for the smallest that has enough GPUs.
            gpus: of one node, None where nothing says so.

        Raises:
            SpecError: there is no such accelerator type.
        """
        kind = accelerator or (_SMALLEST if gpus is None or gpus <= 1 else "GPU_8xH100")
        if kind not in ACCELERATORS:
            message = f"there is no accelerator type {kind!r}."
            raise SpecError(message, field="--accelerator", hint=f"There are: {', '.join(ACCELERATORS)}.")
        self._say_accelerator(kind, gpus, is_given=accelerator is not None)
        train = {
            "experiment_name": _plain(self.experiment)[:100],
            "compute": {"accelerator_type": kind, "num_accelerators": ACCELERATORS[kind]},
            "code_source": {"type": "snapshot", "snapshot": {"root_path": self.root}},
            "command": self.command,
            **self._values(),
            **self.train,
        }
        sweep = {"name": _plain(self.name)[:64], "base": "train.yaml", "space": self.space, **self.sweep}
        return Migration(
            train=train,
            sweep=sweep,
            train_text=files.train_text(train, self.source),
            sweep_text=files.sweep_text(sweep, self.source),
            backend=dict(self.sweep.get("backend", {})),
            carried=self.carried,
            warnings=self.report.warnings,
            notes=self.report.notes,
        )

    def _say_accelerator(self, kind: str, gpus: int | None, *, is_given: bool) -> None:
        """Have Slurm give a node as many GPUs as it was asked for, and say what was chosen."""
        backend, has = self.sweep.get("backend", {}), ACCELERATORS[kind]
        chosen = "" if is_given else f"Nothing says which GPU a run needs, so {kind} was taken"
        if gpus is not None and gpus != has:
            if backend.get("type") == "slurm":
                backend["accelerators"] = {kind: {"gpus": gpus} if gpus else {"cpu": True}}
                words = f"on Slurm a node gets {gpus or 'no'} GPUs for it, as it was asked for"
            else:
                words = f"a run had {gpus} GPUs, {kind} has {has}: say so in `accelerators` of a backend"
                self.report.warn("gpus", 1, f"{words[0].upper()}{words[1:]}.")
                words = ""
            chosen = "; ".join(filter(None, (chosen, words)))
        if chosen:
            more = "" if is_given else "; --accelerator chooses another"
            self.report.note("accelerator", 1, f"{chosen[0].upper()}{chosen[1:]}{more}.")

    def _values(self) -> dict[str, Any]:
        """Return the base's values of the swept keys, so that the train.yaml also runs by itself."""
        tree: dict[str, Any] = {}
        for key, domain in self.space.items():
            parts, value = split_key(key), first_value(domain)
            is_variable = parts[0] == "env_variables" and not isinstance(value, str)
            set_key(tree, parts, str(value) if is_variable else value, strict=True)
        return tree


def looks_unlogged(text: str | None) -> bool:
    """Whether a program seems not to log to MLflow; False where its text is not known."""
    return text is not None and not re.search(r"\bmlflow\b|MLFlowLogger|report_to", text)


def ask_for_mlflow(report: Report, text: str | None, metric: str | None) -> None:
    """Say so where a program does not log to MLflow, from which metrics are read."""
    if looks_unlogged(text):
        call = f'mlflow.log_metric("{metric or "METRIC"}", value, step=step)'
        message = f"The program does not log to MLflow, from which metrics are read: add {call} to it."
        report.warn("metric", 1, message)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_") or "sweep"
