"""What a multirun command says of Hydra itself: launcher, sweeper, directories. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflows.migrate.report import Report

_LAUNCHER, _SWEEPER = "hydra.launcher.", "hydra.sweeper."
# Slurm's option of submitit's launcher to ours, and what its value becomes.
_SLURM: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "partition": ("partition", str),
    "account": ("account", str),
    "qos": ("qos", str),
    "constraint": ("constraint", str),
    "mem_gb": ("memory", lambda text: f"{text}G"),
    "cpus_per_task": ("cpus", int),
}
_SLURM_ONLY = frozenset(f"{_LAUNCHER}{name}" for name in (*_SLURM, "array_parallelism"))
_LAUNCHERS = ("basic", "joblib", "submitit_local", "submitit_slurm")
_METHODS = {
    "tpe": "tpe",
    "random": "random",
    "cmaes": "cmaes",
    "nsgaii": "nsga2",
    "grid": "grid",
    "gp": "gp",
    "qmc": "sobol",
}
_ADAPTIVE = frozenset({"tpe", "gp", "cmaes", "nsga2"})
_TRIALS = 20
"""What the Optuna sweeper takes where nothing is said."""


@dataclass(slots=True)
class Settings:
    """What the overrides of Hydra's own configuration say.

    Attributes:
        name: of the job, empty for none.
        gpus: of one node, None where nothing says so.
    """

    name: str = ""
    gpus: int | None = None
    _launcher: str = ""
    _sweeper: str = ""
    _of_launcher: list[str] = field(default_factory=list)
    _of_sweeper: list[str] = field(default_factory=list)
    _sampler: str = "tpe"
    _concurrent: int | None = None
    _minutes: int | None = None
    _trials: int = _TRIALS
    _seed: int = 0
    _goal: str = "minimize"
    _slurm: dict[str, Any] = field(default_factory=dict)

    @property
    def is_adaptive(self) -> bool:
        """Whether the next points depend on what the earlier ones gave."""
        return self._method in _ADAPTIVE

    @property
    def _method(self) -> str:
        return _METHODS[self._sampler] if self._is_optuna else "grid"

    @property
    def _is_optuna(self) -> bool:
        return self._sweeper == "optuna" or (not self._sweeper and bool(self._of_sweeper))

    @property
    def _is_slurm(self) -> bool:
        return self._launcher == "submitit_slurm" or (not self._launcher and bool(self._of_launcher))

    def take(self, key: str, value: str, report: Report) -> None:
        """Take one override.

        Args:
            key: without a sign in front.
            value: its text.
            report: gets what has no counterpart.
        """
        try:
            is_known = self._took(key, value)
        except ValueError:
            is_known = False
        if not is_known:
            report.warn("hydra", 1, f"{key}={value} has no counterpart and was left out.")

    def _took(self, key: str, value: str) -> bool:
        if key.startswith(_LAUNCHER):
            return self._took_launcher(key.removeprefix(_LAUNCHER), value)
        if key.startswith(_SWEEPER):
            return self._took_sweeper(key.removeprefix(_SWEEPER), value)
        match key:
            case "hydra/launcher" if value in _LAUNCHERS:
                self._launcher = value
            case "hydra/sweeper" if value in ("basic", "optuna"):
                self._sweeper = value
            case "hydra/sweeper/sampler" if value in _METHODS:
                self._sampler = value
                self._of_sweeper.append(key)
            case "hydra.job.name":
                self.name = value
            case _:
                return False
        return True

    def _took_launcher(self, name: str, value: str) -> bool:
        match name:
            case "n_jobs" | "array_parallelism":
                self._concurrent = int(value) if int(value) > 0 else None
            case "timeout_min":
                self._minutes = int(value)
            case "gpus_per_node" if int(value) >= 0:
                self.gpus = int(value)
            case _ if name in _SLURM:
                option, made = _SLURM[name]
                self._slurm[option] = made(value)
            case _:
                return False
        if name != "n_jobs":
            self._of_launcher.append(f"{_LAUNCHER}{name}")
        return True

    def _took_sweeper(self, name: str, value: str) -> bool:
        match name:
            case "n_trials":
                self._trials = int(value)
            case "n_jobs":
                self._concurrent = int(value) if int(value) > 0 else None
            case "direction" if value in ("minimize", "maximize"):
                self._goal = value
            case "sampler.seed":
                self._seed = int(value)
            case _:
                return False
        self._of_sweeper.append(f"{_SWEEPER}{name}")
        return True

    def train(self) -> dict[str, Any]:
        """Return what the train.yaml gets of it."""
        return {} if self._minutes is None else {"timeout_minutes": self._minutes}

    def sweep(self, report: Report, metric: str) -> dict[str, Any]:
        """Return what the sweep.yaml gets of it.

        Args:
            report: gets what is worth knowing.
            metric: what an objective is called.
        """
        made: dict[str, Any] = {}
        self._remark(report)
        if self._is_optuna:
            made["search"] = {"method": self._method, "trials": self._trials}
            made["search"] |= {} if self._method == "grid" else {"seed": self._seed}
        if self.is_adaptive:
            made["objective"] = {"metric": metric, "goal": self._goal}
        if self._concurrent is not None:
            made["limits"] = {"concurrent": self._concurrent}
        elif self._launcher in ("", "basic") and not self._is_slurm:
            report.note(
                "launcher", 1, "Hydra ran one after the other; here limits.concurrent says how many run."
            )
        if self._is_slurm:
            made["backend"] = {"type": "slurm", **self._slurm}
        return made

    def _remark(self, report: Report) -> None:
        """Say what was concluded, what is left out, and what nothing here has read."""
        message = (
            "`hydra:` in the program's config files is not read: what it says of sweeper, its params,"
            " launcher and directories has to be on the command line."
        )
        report.note("config", 1, message)
        if self._is_optuna and not self._sweeper:
            message = f"{self._of_sweeper[0]} is the Optuna sweeper's, so hydra/sweeper=optuna was taken."
            report.note("sweeper", 1, message)
        elif not self._is_optuna:
            for name in self._of_sweeper:
                report.warn(
                    "hydra", 1, f"{name} is the Optuna sweeper's, which is not used: it was left out."
                )
        if self._is_slurm and not self._launcher:
            message = f"{self._of_launcher[0]} is submitit's, so hydra/launcher=submitit_slurm was taken."
            report.note("launcher", 1, message)
        elif not self._is_slurm:
            for name in self._of_launcher:
                if name in _SLURM_ONLY:
                    message = f"{name} is Slurm's, which {self._launcher} does not use: it was left out."
                    report.warn("hydra", 1, message)
