"""A sweep's runs in MLflow, on top of any store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from airflows.errors import AirflowsError
from airflows.scores import Measured, MetricPoint, Take, Taken, take_value
from airflows.tracking import params
from airflows.tracking.records import EndedRun, OpenedSweep, Reading, SweepEnd, SweepRun, TrialRun
from airflows.tracking.runs import FoundRun, NewRun, RunEnd, Runs
from airflows.tracking.trouble import RunsMissingError, TrackingRefusedError
from airflows.tracking.uris import job_variables, shown_uri

EARLIER = "airflows.earlier_run"
"""Tag of a run that a service made: the run of the attempt before."""
_DESCRIPTION = "mlflow.note.content"
_MOST_MESSAGE_CHARACTERS = 500
_FEW = 20
_SWEEP_ROLE, _TRIAL_ROLE = "sweep", "trial"
_STATUS = {"succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "cancelled": "KILLED"}


class MlflowTracker:
    """A tracker on any MLflow store. One sweep at a time: `open_sweep` or `attach` comes first."""

    is_off = False

    def __init__(
        self, uri: str, runs: Runs, clock: Callable[[], float], environment: Mapping[str, str] = os.environ
    ) -> None:
        self.uri = shown_uri(uri)
        self._runs = runs
        self._clock = clock
        self._job_env, self._job_secrets = job_variables(uri, environment)
        self._sweep = SweepRun("", "")
        self._opened: OpenedSweep | None = None
        self._notes: list[str] = []

    def check(self) -> None:
        """Return when MLflow answers."""
        self._runs.ping()

    def open_sweep(self, sweep: SweepRun, known: OpenedSweep | None = None) -> OpenedSweep:
        """Return the sweep's experiment and parent run; see `Tracker`."""
        self._sweep = sweep
        if known is not None and known.parent_run_id:
            self._opened = known
            self._runs.reopen([known.parent_run_id])
            return known
        experiment_id = self._runs.experiment(sweep.experiment)
        tags = self._tags(_SWEEP_ROLE)
        found = min((run.run_id for run in self._runs.find(experiment_id, tags)), default="")
        if found:
            self._runs.reopen([found])
        else:
            which = {"airflows.definition": sweep.definition, "airflows.instance": sweep.instance}
            which = {key: value for key, value in which.items() if value}
            all_tags = {**sweep.tags, **tags, **which, "mlflow.source.name": "airflows"}
            new = NewRun(sweep.sweep, self._now_ms(), all_tags)
            (found,) = self._runs.create(experiment_id, [new])
        self._opened = OpenedSweep(experiment_id, found)
        if sweep.source:
            self._store_artifact(found, "sweep.yaml", sweep.source)
        return self._opened

    def attach(self, sweep: SweepRun, known: OpenedSweep) -> None:
        """Turn to a sweep whose runs are there; see `Tracker`."""
        self._sweep, self._opened = sweep, known

    def create_runs(self, trials: Sequence[TrialRun], *, uncertain: bool) -> Mapping[int, str]:
        """Return the run id of each trial by number; see `Tracker`."""
        ids = self._adopt(trials) if uncertain else {}
        flat = {trial.number: params.flatten(trial.overrides, trial.parameters) for trial in trials}
        new = {trial.number: self._new_run(trial, flat[trial.number].values) for trial in trials}
        for number, run_id in ids.items():
            self._runs.complete(run_id, new[number])
        missing = [number for number in new if number not in ids]
        made = self._runs.create(self._at.experiment_id, [new[number] for number in missing])
        ids |= dict(zip(missing, made, strict=True))
        for number, run_id in ids.items():
            if flat[number].artifact:
                self._store_artifact(run_id, params.ARTIFACT, flat[number].artifact)
        return ids

    def adopt(self, run_id: str, trial: TrialRun, *, earlier: str = "") -> None:
        """Make a run that a service made known as a trial's; see `Tracker`."""
        flat = params.flatten(trial.overrides, trial.parameters)
        new = self._new_run(trial, flat.values)
        left_out = {"mlflow.source.name", "airflows.state"}
        tags = {name: value for name, value in new.tags.items() if name not in left_out}
        tags |= {EARLIER: earlier} if earlier else {}
        self._runs.adopt(run_id, replace(new, tags=tags))
        if flat.artifact:
            self._store_artifact(run_id, params.ARTIFACT, flat.artifact)

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set runs of trials that are taken up again to RUNNING."""
        self._runs.reopen(run_ids)

    def read(self, run_ids: Sequence[str], objective: Measured) -> Mapping[str, Reading]:
        """Return what MLflow knows of runs, by run id; see `Tracker`."""
        take = Take.of(objective.take)
        found = self._runs.latest(self._at.experiment_id, run_ids)
        taken = self._taken(found, objective, take)
        return {
            run_id: Reading(
                taken[run_id].value,
                taken[run_id].step,
                take.rule,
                {name: point.value for name, point in metrics.items()},
            )
            for run_id, metrics in found.items()
        }

    def latest(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the latest value of each metric of runs, by run id."""
        return self._runs.latest(self._at.experiment_id, run_ids)

    def curve(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Yield all values of a metric for each of these runs."""
        return self._runs.histories(run_ids, metric)

    def close(self, ended: Sequence[EndedRun]) -> None:
        """End runs: status, time and tags."""
        self._runs.end([self._end(run) for run in ended])

    def count_runs(self) -> int:
        """Return how many trials' runs of the sweep MLflow has."""
        return sum(1 for _ in self._trial_runs())

    def verify(self, run_ids: Collection[str]) -> None:
        """Return when MLflow has all these runs; see `Tracker`."""
        expected = set(run_ids)
        found = sum(1 for run in self._trial_runs() if run.run_id in expected)
        if found != len(expected):
            message = (
                f"MLflow at {self.uri} has {found:,} of the {len(expected):,} runs that the ledger counts "
                f"for sweep {self._sweep.sweep}."
            )
            hint = "Deleted runs can be restored in MLflow; it may also be another store than the sweep's."
            raise RunsMissingError(message, expected=len(expected), found=found, hint=hint)

    def known_sweeps(self, experiment: str) -> tuple[str, Sequence[FoundRun]]:
        """Return an experiment's id and the parent runs of all sweeps in it; see `Tracker`."""
        experiment_id = self._runs.known_experiment(experiment)
        if not experiment_id:
            return "", ()
        return experiment_id, list(self._runs.find(experiment_id, {"airflows.role": _SWEEP_ROLE}))

    def known_trials(self) -> Sequence[FoundRun]:
        """Return the runs of the sweep's trials; see `Tracker`."""
        return list(self._trial_runs())

    def close_sweep(self, end: SweepEnd) -> tuple[str, ...]:
        """Delete orphans, store the artifacts, end the parent run; see `Tracker`."""
        self._delete_orphans(end.run_ids)
        for name, content in end.artifacts.items():
            self._store_artifact(self._at.parent_run_id, name, content)
        tags = {"airflows.state": end.state, "airflows.message": _short(end.message)}
        tags |= {f"airflows.winner.{key}": value for key, value in end.winner.items()}
        self._describe(end.description)
        status = _STATUS.get(end.state, "FINISHED")
        self._runs.end([RunEnd(self._at.parent_run_id, status, self._now_ms(), tags)])
        notes, self._notes = tuple(dict.fromkeys(self._notes)), []
        return notes

    def job_env(self) -> Mapping[str, str]:
        """Return the variables that lead a job to the store."""
        return self._job_env

    def job_secrets(self) -> Mapping[str, str]:
        """Return the variables for jobs that are secrets."""
        return self._job_secrets

    @property
    def _at(self) -> OpenedSweep:
        if self._opened is None:
            message = "open_sweep or attach comes before anything else that concerns a sweep"
            raise RuntimeError(message)
        return self._opened

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _tags(self, role: str) -> dict[str, str]:
        tags = {"airflows.sweep": self._sweep.sweep, "airflows.role": role}
        return tags | ({"airflows.owner": self._sweep.owner} if self._sweep.owner else {})

    def _new_run(self, trial: TrialRun, values: Mapping[str, str]) -> NewRun:
        tags = {
            **self._sweep.tags,
            **self._tags(_TRIAL_ROLE),
            "airflows.trial": str(trial.number),
            "airflows.point": str(trial.point),
            "airflows.replicate": str(trial.replicate),
            "airflows.state": "pending",
            "mlflow.parentRunId": self._at.parent_run_id,
            "mlflow.source.name": "airflows",
        }
        return NewRun(trial.name, self._now_ms(), tags, values)

    def _adopt(self, trials: Sequence[TrialRun]) -> dict[int, str]:
        """Return the runs that trials have already; of several the first, the others are orphans."""
        wanted = {str(trial.number): trial.number for trial in trials}
        found: dict[int, str] = {}
        for run in sorted(self._candidates(wanted), key=lambda run: run.run_id):
            number = wanted.get(run.tags.get("airflows.trial", ""))
            if number is not None:
                found.setdefault(number, run.run_id)
        return found

    def _candidates(self, numbers: Iterable[str]) -> Iterator[FoundRun]:
        numbers = list(numbers)
        if len(numbers) > _FEW:
            yield from self._trial_runs()
            return
        for number in numbers:
            tags = {**self._tags(_TRIAL_ROLE), "airflows.trial": number}
            yield from self._runs.find(self._at.experiment_id, tags)

    def _trial_runs(self) -> Iterator[FoundRun]:
        return self._runs.find(self._at.experiment_id, self._tags(_TRIAL_ROLE))

    def _taken(
        self, found: Mapping[str, Mapping[str, MetricPoint]], objective: Measured, take: Take
    ) -> Mapping[str, Taken]:
        points = {run_id: metrics.get(objective.metric) for run_id, metrics in found.items()}
        taken = {run_id: _of(point) for run_id, point in points.items()}
        if take.needs_history:
            logged = [run_id for run_id, point in points.items() if point is not None]
            for run_id, history in self._runs.histories(logged, objective.metric):
                taken[run_id] = take_value(history, take, objective.goal)
        return taken

    def _end(self, run: EndedRun) -> RunEnd:
        tags = {
            "airflows.state": str(run.state),
            "airflows.reason": str(run.reason),
            "airflows.attempt": str(run.attempt),
        }
        if run.message:
            tags["airflows.message"] = _short(run.message)
        end_ms = self._now_ms() if run.ended_at is None else int(run.ended_at * 1000)
        return RunEnd(run.run_id, _STATUS.get(run.state, "FINISHED"), end_ms, tags)

    def _delete_orphans(self, known: Collection[str]) -> None:
        kept = {*known, self._at.parent_run_id}
        for role in (_TRIAL_ROLE, _SWEEP_ROLE):
            # The whole list first: deleting while reading would shift the pages.
            found = [run.run_id for run in self._runs.find(self._at.experiment_id, self._tags(role))]
            self._runs.delete([run_id for run_id in found if run_id not in kept])

    def _describe(self, text: str) -> None:
        # By itself: a store that takes no such text is told all the same how the sweep ended.
        if not text:
            return
        try:
            self._runs.end([RunEnd(self._at.parent_run_id, "", self._now_ms(), {_DESCRIPTION: text})])
        except TrackingRefusedError as exc:
            self._notes.append(f"The description was not stored in MLflow: {exc}")

    def _store_artifact(self, run_id: str, name: str, content: str | Iterable[str]) -> None:
        folder, _, file_name = name.rpartition("/")
        try:
            with tempfile.TemporaryDirectory(prefix="airflows-") as directory:
                path = Path(directory, file_name)
                with path.open("w", encoding="utf-8", newline="") as file:
                    file.writelines([content] if isinstance(content, str) else content)
                self._runs.log_file(run_id, str(path), folder)
        except (AirflowsError, OSError, UnicodeError) as exc:
            self._notes.append(f"{name} was not stored in MLflow: {exc}")


def _of(point: MetricPoint | None) -> Taken:
    return Taken() if point is None else Taken(point.value, point.step)


def _short(text: str) -> str:
    if len(text) <= _MOST_MESSAGE_CHARACTERS:
        return text
    return f"{text[: _MOST_MESSAGE_CHARACTERS - 1]}…"
