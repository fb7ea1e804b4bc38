"""Optuna's samplers, asked one point at a time. The only module that imports Optuna.

Each question goes to a new sampler with a seed of its own, on a study in memory that holds what was told:
so a study that was rebuilt from the ledger gives the same answers as one that was kept.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from airflows.axes import Overrides, Space
from airflows.domains import Number
from airflows.search.adaptive import Notes, Outcome, Past, Proposal, Setting
from airflows.search.coding import Coding, Parameter
from airflows.search.draws import Draws

# So many proposals in a row that a rule removes, and the point is drawn instead.
_TRIES = 20
# CMA-ES begins from the best tenth of an earlier sweep, which needs one trial at least.
_FEWEST_SOURCES = 10
_GENERATION = "NSGAIISampler:generation"
# What a running trial was offered, before conditions and rounding; the study has its parameters.
_NOT_KEPT = "relative_params"


class StudySampler:
    """A sampler of `airflows.search.adaptive`, by Optuna."""

    def __init__(self, space: Space, base: Mapping[str, Any], setting: Setting, past: Sequence[Past]) -> None:
        self._space = space
        self._setting = setting
        self._coding = Coding(space, base, ordered=setting.method == "cmaes")
        self._distributions = {each.name: _distribution(each) for each in self._coding.parameters}
        self._draws = Draws(space, "random", setting.seed, None)
        self._storage = InMemoryStorage()
        self._known: dict[int, bool] = {}
        with _quiet():
            self._study = optuna.create_study(
                storage=self._storage, directions=list(setting.directions), sampler=self._sampler(0, 0)
            )
            self._sources = [trial for trial in map(self._of_past, past) if trial is not None]
            for trial in self._sources:
                self._study.add_trial(trial)

    @property
    def sources(self) -> int:
        """How many points of earlier sweeps are points of this space too."""
        return len(self._sources)

    def add(self, overrides: Mapping[str, Any], notes: Notes | None = None) -> Notes:
        """Tell of a point that runs; see `Sampler`."""
        if notes is None:
            notes = Notes({_GENERATION: 0}) if self._setting.method == "nsga2" else Notes()
        params = self._coding.encode(overrides)
        self._known[len(self._known)] = params is not None
        with _quiet():
            self._study.add_trial(
                self._trial(params or {}, state=TrialState.RUNNING, system_attrs=dict(notes.trial))
            )
        self._set_study(notes.study)
        return notes

    def finish(self, number: int, outcome: Outcome) -> None:
        """Tell what became of a point; see `Sampler`."""
        trial_id = len(self._sources) + number
        state, values = self._told(outcome) if self._known[number] else (TrialState.FAIL, None)
        if state is TrialState.PRUNED and outcome.step is not None and outcome.score is not None:
            self._storage.set_trial_intermediate_value(trial_id, outcome.step, outcome.score)
        if state is TrialState.COMPLETE:
            with _quiet():
                trial = Trial(self._study, trial_id)
                for name, violation in outcome.violations.items():
                    trial.set_constraint(name, violation)
        self._storage.set_trial_state_values(trial_id, state, values)

    def ask(self) -> Proposal:
        """Return the next point; see `Sampler`."""
        number = len(self._known)
        known = self._storage.get_study_system_attrs(self._study._study_id)  # noqa: SLF001 - nowhere public
        with _quiet():
            trial_id = self._storage.create_new_trial(self._study._study_id)  # noqa: SLF001
            overrides = self._chosen(number, trial_id)
        for name, value in (self._coding.encode(overrides) or {}).items():
            distribution = self._distributions[name]
            internal = distribution.to_internal_repr(value)
            self._storage.set_trial_param(trial_id, name, internal, distribution)
        self._known[number] = True
        trial = self._attrs_of(trial_id)
        now = self._storage.get_study_system_attrs(self._study._study_id)  # noqa: SLF001
        return Proposal(overrides, Notes(trial, {k: v for k, v in now.items() if k not in known}))

    def _attrs_of(self, trial_id: int) -> dict[str, Any]:
        """Return what a sampler noted of a new point, and drop what would not be there after a rebuild."""
        attrs = self._storage.get_trial(trial_id).system_attrs
        for key in [key for key in attrs if _NOT_KEPT in key]:
            # An empty text is as good as none, and there is no way to remove it.
            self._storage.set_trial_system_attr(trial_id, key, "")
        return {key: value for key, value in attrs.items() if _NOT_KEPT not in key}

    def _chosen(self, number: int, trial_id: int) -> Overrides:
        for attempt in range(_TRIES):
            made = self._proposed(trial_id, self._sampler(number, attempt))
            if not self._space.is_excluded(made):
                return made
        drawn = replace(self._draws, seed=_seed(self._setting.seed, number, _TRIES)).points()
        return next(drawn, made)

    def _proposed(self, trial_id: int, sampler: BaseSampler) -> Overrides:
        """Return what one sampler proposes, asked as `Study.ask` and `Trial.suggest_…` would ask it."""
        # A study keeps the trials it has once seen; a new one on the same storage sees them as they are.
        study = optuna.load_study(study_name=None, storage=self._storage, sampler=sampler)
        trial = self._storage.get_trial(trial_id)
        sampler.before_trial(study, trial)
        together = sampler.infer_relative_search_space(study, trial)
        found = sampler.sample_relative(study, trial, together)
        walk = self._coding.walk()
        while (parameter := walk.following()) is not None:
            name, distribution = parameter.name, self._distributions[parameter.name]
            if name in found and together.get(name) == distribution:
                value = found[name]
            else:
                value = sampler.sample_independent(study, trial, name, distribution)
            walk.choose(value)
        return walk.overrides

    def _sampler(self, number: int, attempt: int) -> BaseSampler:
        seed = _seed(self._setting.seed, number, attempt)
        is_single = len(self._setting.directions) == 1
        match self._setting.method:
            case "tpe":
                # Of several objectives each parameter is chosen by itself, where conditions do no harm.
                return TPESampler(seed=seed, group=self._coding.is_conditional and is_single)
            case "gp":
                return GPSampler(seed=seed, warn_independent_sampling=False)
            case "cmaes":
                sources = getattr(self, "_sources", [])
                return CmaEsSampler(
                    seed=seed,
                    warn_independent_sampling=False,
                    source_trials=sources if len(sources) >= _FEWEST_SOURCES else None,
                )
            case "nsga2":
                return NSGAIISampler(seed=seed)

    def _told(self, outcome: Outcome) -> tuple[TrialState, Sequence[float] | None]:
        match outcome.state:
            case "complete":
                return TrialState.COMPLETE, outcome.values
            case "stopped" | "diverged" if len(self._setting.directions) == 1:
                return TrialState.PRUNED, None
            case _:
                # Optuna knows no pruning with several objectives.
                return TrialState.FAIL, None

    def _of_past(self, past: Past) -> FrozenTrial | None:
        params = self._coding.encode(past.overrides)
        if params is None or past.outcome.state != "complete":
            return None
        attrs = {_GENERATION: 0} if self._setting.method == "nsga2" else {}
        return self._trial(
            params,
            values=list(past.outcome.values),
            constraints=dict(past.outcome.violations),
            system_attrs=attrs,
        )

    def _trial(self, params: Mapping[str, Number], **fields: Any) -> FrozenTrial:
        distributions = {name: self._distributions[name] for name in params}
        return create_trial(params=dict(params), distributions=distributions, **fields)

    def _set_study(self, attrs: Mapping[str, Any]) -> None:
        for key, value in attrs.items():
            self._storage.set_study_system_attr(self._study._study_id, key, value)  # noqa: SLF001


def _distribution(parameter: Parameter) -> BaseDistribution:
    match parameter.kind:
        case "float":
            return FloatDistribution(float(parameter.low), float(parameter.high), log=parameter.is_log)
        case "int":
            return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.is_log)
        case "choice":
            return CategoricalDistribution(range(int(parameter.high) + 1))


def _seed(seed: int, number: int, attempt: int) -> int:
    text = f"{seed}:{number}:{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from telling people what only its developers want to know."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
