"""The Python API: the same sweep as the file and the command line, as objects."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflows import sweepfile
from airflows.engine import operations, promotion
from airflows.engine.editing import adding
from airflows.engine.observers import Observer, Snapshot
from airflows.engine.planned import Planned, make_plan, wanted_plan
from airflows.engine.promotion import Promotion
from airflows.errors import SpecError
from airflows.home import home_directory
from airflows.ledger import open_ledger
from airflows.notebook import watched
from airflows.results import Results, TrialRecord, results_of
from airflows.sweepfile import LoadedSweep
from airflows.trial import FAILURE_CLASSES
from airflows.vetting import validate_points

__all__ = [
    "Observer",
    "Planned",
    "Promotion",
    "Results",
    "Snapshot",
    "Sweep",
    "TrialRecord",
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


class Sweep:
    """A sweep that was checked and may be run; built by the same model as a sweep.yaml.

    Example:
        >>> sweep = Sweep(
        ...     name="lr",
        ...     base={
        ...         "experiment_name": "lr",
        ...         "command": "true",
        ...         "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        ...         "parameters": {"lr": 0.1},
        ...     },
        ...     space={"parameters.lr": [0.1, 0.2]},
        ...     tracking={"uri": "none"},
        ... )
        >>> sweep.name
        'lr'
        >>> [dict(point) for point in sweep.points()]
        [{'parameters.lr': 0.1}, {'parameters.lr': 0.2}]
    """

    def __init__(
        self, *, name: str, base: str | Path | Mapping[str, Any], directory: Path | None = None, **fields: Any
    ) -> None:
        """Check a sweep given as keywords.

        Args:
            name: 1 to 64 letters, digits, `_` and `-`.
            base: path of a train.yaml, or its mapping.
            directory: what relative paths count from; default the working directory.
            **fields: the other keys of a sweep.yaml, such as `space`, `objective` and `limits`.

        Raises:
            SpecError: something is wrong; the message names the key.
        """
        tree = {"name": name, "base": str(base) if isinstance(base, Path) else base, **fields}
        self._loaded = sweepfile.sweep_from_mapping(tree, directory=directory or Path.cwd())

    @classmethod
    def of(cls, loaded: LoadedSweep) -> Sweep:
        """Wrap a sweep that was loaded already."""
        made = cls.__new__(cls)
        made._loaded = loaded  # noqa: SLF001 - its own class
        return made

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self._loaded.spec.name

    @property
    def loaded(self) -> LoadedSweep:
        """The checked spec and base."""
        return self._loaded

    @property
    def warnings(self) -> list[str]:
        """What a person should know before running it."""
        return [str(notice) for notice in self._loaded.notices]

    def points(self) -> Iterator[Mapping[str, Any]]:
        """Yield the overrides of each point, lazily, without the replicates.

        Of a method that learns only the first points are known in advance.
        """
        from airflows.space import expand  # noqa: PLC0415

        return (point.overrides for point in expand(self._loaded).points())


def load_sweep(
    path: str | Path, *, sets: Sequence[str] = (), overrides: Sequence[str] = (), backend: str | None = None
) -> Sweep:
    """Read and check a sweep.yaml.

    Args:
        path: the file.
        sets: `KEY=VALUE` changes of the sweep file, as `--set`.
        overrides: `KEY=VALUE` changes of the base, as `--override`.
        backend: in place of the file's.

    Raises:
        SpecError: something is wrong; the message names file, line and key.

    Example:
        >>> sweep = load_sweep("sweep.yaml", sets=["limits.concurrent=2"])
        >>> [dict(point) for point in sweep.points()]
        [{'parameters.lr': 0.1}, {'parameters.lr': 0.2}]
    """
    return Sweep.of(sweepfile.load_sweep(Path(path), sets=sets, overrides=overrides, backend=backend))


def run(
    sweep: Sweep,
    *,
    new: bool = False,
    instance: str = "",
    plan: str | Path | None = None,
    observer: Observer | None = None,
    home: Path | None = None,
) -> Results:
    """Start a sweep, or attach to it, drive it to its end and return the results.

    Calling it again with the same sweep attaches: a finished one returns its results at once, one whose
    driver died goes on where it stood. Nothing runs twice.

    Args:
        sweep: the sweep.
        new: start another sweep of the same definition.
        instance: names one sweep of the definition, such as a scheduled time.
        plan: hash of a plan or path of a plan.json: only if the sweep is just what that says, it is run.
        observer: is told what happens; without one a notebook shows progress.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        SpecError: a point is no valid train.yaml; nothing was started.
        LeaseHeldError: somebody else drives it.
        ConflictError: it is there with other code, backend or settings; or it is not what was planned.
        BackendError: the backend cannot be used.
        TrackingUnavailableError: MLflow does not answer.

    Example:
        >>> results = run(load_sweep("sweep.yaml"))
        >>> results.state
        'succeeded'
        >>> [(trial.number, trial.state) for trial in results.trials]
        [(0, 'succeeded'), (1, 'succeeded')]
    """
    where = home or home_directory()
    validate_points(sweep.loaded)
    wanted = None if plan is None else wanted_plan(str(plan), sweep.loaded.path)
    with watched(observer) as (who, on_begun):
        driven = operations.start(
            sweep.loaded,
            home=where,
            observer=who,
            new=new,
            instance=instance,
            plan=wanted,
            on_begun=on_begun,
        )
    return attach(driven.row.id, home=where)


def plan(sweep: Sweep, *, new: bool = False, home: Path | None = None) -> Planned:
    """Check a sweep as a start would, and return what it would run; see `airflows plan`.

    `hash` of what is returned goes to `run` as `plan`; `save` writes a plan.json.

    Args:
        sweep: the sweep.
        new: for another sweep of the same definition.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        SpecError: a point is no valid train.yaml.
        BackendError: the backend cannot be used.
        TrackingUnavailableError: MLflow does not answer.

    Example:
        >>> planned = plan(load_sweep("sweep.yaml"))
        >>> planned.trials
        2
        >>> run(load_sweep("sweep.yaml"), plan=planned.hash).state
        'succeeded'
    """
    path = sweep.loaded.path
    made_of = {} if path is None else {"file": str(path.absolute())}
    return make_plan(sweep.loaded, home=home or home_directory(), new=new, made_of=made_of)


def add(sweep: str, file: Sweep, *, observer: Observer | None = None, home: Path | None = None) -> Results:
    """Go on with a sweep with the points of another file, and return the results; see `resume --add`.

    Points that the file no longer has keep their results, and are not ranked; their trials that have not
    ended are cancelled. To be called again after a crash.

    Args:
        sweep: id, or name for the newest of that name.
        file: the sweep as it is to be from now on.
        observer: is told what happens.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: no such sweep.
        ConflictError: it would be another sweep, or runs other code.
        LeaseHeldError: somebody else drives it.
    """
    where = home or home_directory()
    validate_points(file.loaded)
    with adding(sweep, file.loaded, home=where) as found:
        driven = found.run(observer=observer)
    return attach(driven.row.id, home=where)


def resume(
    sweep: str,
    *,
    failed: bool = False,
    classes: Collection[str] = (),
    trials: int | None = None,
    replicates: int | None = None,
    sets: Sequence[str] = (),
    observer: Observer | None = None,
    home: Path | None = None,
) -> Results:
    """Take a sweep up again, drive it to its end and return the results; see `airflows resume`.

    Args:
        sweep: id, or name for the newest of that name.
        failed: try failed and cancelled trials again, with the code as it is now.
        classes: with `failed` only trials that failed with one of these reasons, as `--class`.
        trials: new value of `search.trials`.
        replicates: so many more of the winner's point and of those that may be as good, as `--replicates`.
        sets: `KEY=VALUE` changes of what may change, as `--set`.
        observer: is told what happens; without one a notebook shows progress.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: no such sweep.
        SpecError: no failure is of such a class, or classes are given without `failed`.
        ConflictError: a change would make it another sweep, or no replicates can be added.
        LeaseHeldError: somebody else drives it.

    Example:
        >>> resume("lr", failed=True, sets=["retry.max=5"]).state
        'succeeded'
    """
    where = home or home_directory()
    _check_classes(classes, failed=failed)
    _check_replicates(replicates, failed=failed, trials=trials)
    with watched(observer) as (who, on_begun):
        driven = operations.resume(
            sweep,
            home=where,
            observer=who,
            failed=failed,
            classes=classes,
            trials=trials,
            replicates=replicates,
            sets=sets,
            on_begun=on_begun,
        )
    return attach(driven.row.id, home=where)


def _check_classes(classes: Collection[str], *, failed: bool) -> None:
    if classes and not failed:
        message = "they say which of the failed trials are tried again."
        raise SpecError(message, field="classes", hint="Say failed=True too.")
    unknown = next((each for each in classes if each not in FAILURE_CLASSES), None)
    if isinstance(classes, str) or unknown is not None:
        message = f"no failure is of the class {classes if isinstance(classes, str) else unknown!r}."
        hint = f"Give a list of some of: {', '.join(sorted(FAILURE_CLASSES))}."
        raise SpecError(message, field="classes", hint=hint)


def _check_replicates(replicates: int | None, *, failed: bool, trials: int | None) -> None:
    if replicates is None:
        return
    if replicates < 1:
        message = f"{replicates} is no number of replicates to add."
        raise SpecError(message, field="replicates", hint="Give a number from 1.")
    if failed or trials is not None:
        message = "they are added to the points that may have won once all trials have ended."
        hint = "First resume with failed or trials, and then with replicates."
        raise SpecError(message, field="replicates", hint=hint)


def carry_on(sweep: str, *, observer: Observer | None = None, home: Path | None = None) -> Results:
    """Drive a sweep on whose driver is gone, as it is wanted, and return the results.

    Unlike `resume` it tries nothing again that has failed, and finishes a cancellation.

    Raises:
        NotFoundError: no such sweep.
        LeaseHeldError: somebody else drives it.
    """
    where = home or home_directory()
    driven = operations.carry_on(sweep, home=where, observer=observer)
    return attach(driven.row.id, home=where)


def unattended(*, home: Path | None = None) -> list[str]:
    """Return the ids of the sweeps that are wanted but that nobody drives any more, the oldest first.

    A sweep that a person let go of with Ctrl-C is not among them.
    """
    return [row.id for row in operations.unattended(home=home or home_directory(), now=time.time())]


def cancel(*sweeps: str, home: Path | None = None) -> list[str]:
    """Cancel sweeps (`SWEEP`) or trials (`SWEEP/12`), wait until their runs are gone; return their ids.

    May be called while another thread or process drives them: that one carries it out.

    Raises:
        NotFoundError: no such sweep or trial; the others are cancelled all the same.
        BackendUnavailableError: a run is not gone yet; the request stands.
    """
    outcome = operations.cancel(sweeps, home=home or home_directory())
    for _, error in outcome.failed:
        raise error
    return outcome.cancelled


def promote(
    sweep: str, *, model: str, alias: str = "champion", artifact: str = "model", home: Path | None = None
) -> Promotion:
    """Point the alias of a registered MLflow model at a sweep's winner, if that is better.

    Better is what the sweep's objective says. What has the alias now is known by the tags of its version,
    if a sweep put it there, else by the metric of the run that it was made from.

    Args:
        sweep: id or name of a finished sweep.
        model: the registered model; made when it is not there.
        alias: the alias.
        artifact: the name under which the training script logged its model.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: no such sweep, or the winner's run logged no such model.
        ConflictError: the sweep is not finished or has no winner.
        TrackingUnavailableError: MLflow does not answer.
    """
    where = home or home_directory()
    return promotion.promote(sweep, model=model, alias=alias, artifact=artifact, home=where)


def attach(sweep: str, *, home: Path | None = None) -> Results:
    """Return the results of a sweep as far as it has come, without driving it.

    Args:
        sweep: id, or name for the newest of that name.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: no such sweep.

    Example:
        >>> attach("lr").is_complete
        True
        >>> attach("lr").best  # no objective: nothing is ranked
    """
    where = home or home_directory()
    ledger = open_ledger(where, create=False)
    try:
        return results_of(ledger, sweep, where)
    finally:
        ledger.close()
