"""What a run is to do: plans, and rules that choose one for each submission."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True, slots=True)
class Submission:
    """A run as rules and metric functions see it.

    Attributes:
        nth: counted from 0 over all submissions.
        run_name: as submitted.
        token: the idempotency token, empty for none.
        experiment: of the AI Runtime task.
        user: who submitted it.
        accelerator_type: of the first deployment.
        parameters: of `hyperparameters.yaml` beside the command.
        env: of `env_vars.json` beside the command.
        attempt: which attempt, for metric functions.
    """

    nth: int
    run_name: str
    token: str
    experiment: str
    user: str
    accelerator_type: str
    parameters: Mapping[str, Any]
    env: Mapping[str, str]
    attempt: int = 0


class AttemptPlan(BaseModel):
    """What one attempt does, in seconds of the workspace's clock."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue_s: float = Field(1.0, ge=0, description="waits at least this long, whatever capacity there is")
    run_s: float | None = Field(5.0, ge=0, description="runs this long; null: until told to end")
    result: str = Field(
        "SUCCESS",
        description="SUCCESS, FAILED, TIMEDOUT, CANCELED, INTERNAL_ERROR, SKIPPED or a word of your own",
    )
    exit_code: int | None = Field(None, description="of the command, for the message; FAILED has 1")
    message: str | None = Field(None, description="state_message in the end; made up when absent")
    waits: str = Field("STATUS:waiting for GPUs", description="status_message while it waits")
    waiting_word: str = Field("PENDING", description="life_cycle_state of the task while it waits")
    run_waiting_word: str | None = Field(None, description="the same of the run, where it differs")
    running_word: str = Field("RUNNING", description="life_cycle_state while it runs")
    code: str | None = Field(None, description="termination_details.code, where it differs")
    retry_s: float = Field(5.0, ge=0, description="time to the next attempt, if there is one")
    ignores_cancel_s: float = Field(1.0, ge=0, description="time from the request to cancel to the end")
    logs: Sequence[str] | Mapping[int, Sequence[str]] = Field(
        (), description="lines of node 0, or of each node, spread over its time"
    )
    metrics: Mapping[str, Sequence[float]] | str | Callable[[Submission], Mapping[str, Sequence[float]]] = (
        Field(
            {}, description="name to values, spread over its time; or what returns them, as module:function"
        )
    )


class RunPlan(AttemptPlan):
    """What a run does: the fields for all attempts, or those of each."""

    attempts: Sequence[AttemptPlan] = Field((), description="one by one; the last repeats")

    def of(self, attempt: int) -> AttemptPlan:
        """Return the plan of an attempt."""
        return self.attempts[min(attempt, len(self.attempts) - 1)] if self.attempts else self


class Outcome(BaseModel):
    """A rule: which submissions, and what they do. The first that fits is taken."""

    model_config = ConfigDict(extra="forbid")

    run_name: str = Field("*", description="a glob")
    token: str = Field("*", description="a glob, such as *-0003-a0")
    experiment: str = Field("*", description="a glob")
    user: str = Field("*", description="a glob")
    accelerator_type: str = Field("*", description="a glob")
    nth: Sequence[int] | None = Field(None, description="which submissions, counted from 0")
    probability: float = Field(1.0, ge=0, le=1, description="chance, drawn from the seed and the token")
    times: int | None = Field(None, ge=0, description="for how many runs at most")
    plan: RunPlan = Field(description="what they do")

    def fits(self, submission: Submission, seed: int) -> bool:
        """Whether it concerns a submission. The same submission is always answered the same."""
        words = ("run_name", "token", "experiment", "user", "accelerator_type")
        if not all(fnmatchcase(getattr(submission, word), getattr(self, word)) for word in words):
            return False
        if self.nth is not None and submission.nth not in self.nth:
            return False
        if self.probability >= 1:
            return True
        draw = random.Random(f"{seed}/{submission.token or submission.nth}").random()  # noqa: S311
        return draw < self.probability


class Plans:
    """The rules in order, and the plan of all that none fits."""

    def __init__(self, seed: int, default: RunPlan, outcomes: Sequence[Outcome]) -> None:
        self.default = default
        self._seed = seed
        self._rules = [[outcome, 0] for outcome in outcomes]

    def add(self, outcome: Outcome) -> None:
        """Add a rule before the others: what was said last counts."""
        self._rules.insert(0, [outcome, 0])

    def clear(self) -> None:
        """Take all rules away."""
        self._rules.clear()

    def choose(self, submission: Submission) -> RunPlan:
        """Return the plan of a submission."""
        for rule in self._rules:
            outcome, count = cast("Outcome", rule[0]), cast("int", rule[1])
            if outcome.times is not None and count >= outcome.times:
                continue
            if outcome.fits(submission, self._seed):
                rule[1] = count + 1
                return outcome.plan
        return self.default


def metrics_of(plan: AttemptPlan, submission: Submission) -> Mapping[str, Sequence[float]]:
    """Return the values that an attempt logs."""
    metrics = plan.metrics
    if isinstance(metrics, str):
        module, _, name = metrics.partition(":")
        metrics = getattr(import_module(module), name)
    if isinstance(metrics, Mapping):
        return metrics
    return cast("Mapping[str, Sequence[float]]", metrics(submission))
