"""The Python API: the same sweep as the file and the command line, as objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows import sweepfile
from airflows.engine import operations
from airflows.engine.observers import Observer, Snapshot
from airflows.engine.results import SweepResults, gather, trials_with_overrides
from airflows.errors import MissingExtraError
from airflows.home import home_directory
from airflows.ledger import Ledger, open_ledger
from airflows.ranking import Group, Unranked, Winner
from airflows.sweepfile import LoadedSweep
from airflows.vetting import validate_points

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Observer", "Results", "Snapshot", "Sweep", "TrialRecord", "attach", "load_sweep", "resume", "run"]


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
        """Yield the overrides of each point, lazily, without the replicates."""
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
    """
    return Sweep.of(sweepfile.load_sweep(Path(path), sets=sets, overrides=overrides, backend=backend))


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial of the results. Times are seconds since the epoch, UTC."""

    number: int
    overrides: Mapping[str, Any]
    replicate: int
    state: str
    reason: str
    message: str
    attempts: int
    value: float | None
    value_step: int | None
    mlflow_run_id: str | None
    started_at: float | None
    ended_at: float | None


class Results:
    """What came out of a sweep, finished or not; a snapshot.

    Example:
        >>> results = run(sweep)  # doctest: +SKIP
        >>> results.best.group.overrides  # doctest: +SKIP
        {'parameters.lr': 0.1}
    """

    def __init__(self, gathered: SweepResults, trials: Sequence[TrialRecord]) -> None:
        self._gathered = gathered
        self._trials = tuple(trials)

    @property
    def sweep(self) -> str:
        """The sweep's id."""
        return self._gathered.row.id

    @property
    def state(self) -> str:
        """`running`, `succeeded`, `failed`, `stopped` or `cancelled`."""
        return self._gathered.row.state.value

    @property
    def message(self) -> str:
        """One sentence about how it ended, empty when there is nothing to say."""
        return self._gathered.row.message

    @property
    def is_complete(self) -> bool:
        """Whether every trial is final and its metric was read."""
        return self._gathered.complete

    @property
    def best(self) -> Winner | None:
        """The winner, None when nothing is ranked."""
        return None if self._gathered.ranking is None else self._gathered.ranking.winner

    @property
    def ranked(self) -> tuple[Group, ...]:
        """Groups of replicates, best first; empty without an objective."""
        return () if self._gathered.ranking is None else self._gathered.ranking.ranked

    @property
    def unranked(self) -> tuple[Unranked, ...]:
        """Trials that are not ranked, each with why."""
        return () if self._gathered.ranking is None else self._gathered.ranking.unranked

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        """Every trial created so far, by number."""
        return self._trials

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per trial; overrides are columns under their dotted keys.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            message = "to_dataframe() needs pandas, which is not installed."
            raise MissingExtraError(message, hint="Run: pip install pandas") from exc
        fields = ("number", "replicate", "state", "reason", "value", "value_step", "mlflow_run_id")
        return pd.DataFrame([{f: getattr(t, f) for f in fields} | dict(t.overrides) for t in self._trials])

    def __repr__(self) -> str:
        return f"<Results of {self.sweep}: {self.state}, {len(self._trials)} trials>"


def run(
    sweep: Sweep,
    *,
    new: bool = False,
    instance: str = "",
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
        observer: is told what happens.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        SpecError: a point is no valid train.yaml; nothing was started.
        LeaseHeldError: somebody else drives it.
        ConflictError: it is there with other code, backend or settings.
        BackendError: the backend cannot be used.
        TrackingUnavailableError: MLflow does not answer.
    """
    where = home or home_directory()
    validate_points(sweep.loaded)
    driven = operations.start(sweep.loaded, home=where, observer=observer, new=new, instance=instance)
    return attach(driven.row.id, home=where)


def resume(
    sweep: str,
    *,
    failed: bool = False,
    trials: int | None = None,
    sets: Sequence[str] = (),
    observer: Observer | None = None,
    home: Path | None = None,
) -> Results:
    """Take a sweep up again, drive it to its end and return the results; see `airflows resume`.

    Raises:
        NotFoundError: no such sweep.
        LeaseHeldError: somebody else drives it.
    """
    where = home or home_directory()
    driven = operations.resume(sweep, home=where, observer=observer, failed=failed, trials=trials, sets=sets)
    return attach(driven.row.id, home=where)


def attach(sweep: str, *, home: Path | None = None) -> Results:
    """Return the results of a sweep as far as it has come, without driving it.

    Args:
        sweep: id, or name for the newest of that name.
        home: in place of `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: no such sweep.
    """
    ledger = open_ledger(home or home_directory(), create=False)
    try:
        return _results(ledger, sweep)
    finally:
        ledger.close()


def _results(ledger: Ledger, sweep: str) -> Results:
    row, _, _ = ledger.resolve(sweep)
    gathered = gather(ledger, row)
    trials = [
        TrialRecord(
            number=trial.number,
            overrides=overrides,
            replicate=trial.replicate,
            state=trial.state.value,
            reason=trial.reason.value,
            message=trial.message,
            attempts=trial.attempt + (trial.claimed_at is not None),
            value=trial.value,
            value_step=trial.value_step,
            mlflow_run_id=trial.run_id or None,
            started_at=trial.started_at,
            ended_at=trial.ended_at,
        )
        for trial, overrides in trials_with_overrides(ledger, row)
    ]
    return Results(gathered, trials)
