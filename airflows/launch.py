"""Launch directories: what one attempt runs, written with AI Runtime's file names, and its variables."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from airflows import ids
from airflows.backends.base import Job
from airflows.codecopies import CodeCopies
from airflows.errors import AirflowsError, SpecError
from airflows.snapshot import Snapshot, kept_snapshot, root_directory, snapshot
from airflows.train import ACCELERATORS, TrainConfig, TrainFile, decode
from airflows.trial import Trial
from airflows.yamlio import dump

_CODE_FILE = "code.json"
PLACE_FILE = "place"
_NO_VALUES: Mapping[str, Any] = {}


class CheckpointSpec(Protocol):
    """`checkpoint` of a sweep file."""

    @property
    def dir(self) -> str | None:
        """Directory that replaces the backend's own for checkpoints."""

    @property
    def pattern(self) -> str | None:
        """Glob of what counts as a checkpoint; none for the known forms."""


class HasRoot(Protocol):
    """As much of a backend as concerns launch directories."""

    @property
    def root(self) -> Path:
        """The directory that holds launch directories, snapshots and checkpoints."""


@dataclass(slots=True)
class Launcher:
    """Writes the launch directories of one sweep.

    Attributes:
        sweep: the sweep's id.
        root: the backend's root.
        base: the sweep's train.yaml.
        base_dir: the directory its relative paths start from.
        variables: for every job, such as where MLflow is.
        secret_variables: for every job, such as MLflow's credentials; written nowhere.
        uploads: jobs see no disk of this machine, so code and checkpoints need no place here.
        is_single: its one trial was started by `airflows run`.
        checkpoint_root: gets `<sweep>/<number>/`.
        pattern: glob of what counts as a checkpoint, empty for the known forms.
        code: the snapshot of the base, None when it names no code.
        place: written into each launch directory, where there are several places; empty else.
        notices: what people should know before the first trial.
    """

    sweep: str
    root: Path
    base: TrainFile
    base_dir: Path
    variables: Mapping[str, str]
    checkpoint_root: Path
    pattern: str
    code: Snapshot | None = None
    notices: tuple[str, ...] = ()
    secret_variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    uploads: bool = False
    is_single: bool = False
    place: str = ""
    _codes: dict[str, Snapshot] = field(default_factory=dict)
    _texts: dict[str, tuple[Any, str]] = field(default_factory=dict)
    _made: set[Path] = field(default_factory=set)
    _copies: CodeCopies = field(default_factory=CodeCopies)

    @classmethod
    def open(
        cls,
        *,
        sweep: str,
        base: TrainFile,
        backend: HasRoot,
        tracker_env: Mapping[str, str],
        experiment_id: str,
        tracker_secrets: Mapping[str, str] = _NO_VALUES,
        checkpoint: CheckpointSpec | None = None,
        base_dir: Path | None = None,
        code: str = "",
        checkpoint_root: Path | None = None,
        path_hint: Callable[[str], str] | None = None,
        is_single: bool = False,
        place: str = "",
    ) -> Self:
        """Return the launcher of a sweep; its code is kept from now on.

        Args:
            sweep: the sweep's id.
            base: its train.yaml.
            backend: says where everything goes.
            tracker_env: variables that lead a job to MLflow.
            experiment_id: the MLflow experiment, empty for none.
            tracker_secrets: further such variables, whose values are written nowhere.
            checkpoint: `checkpoint` of the sweep file.
            base_dir: where relative paths start, when `base` is no file.
            code: digest of the snapshot that was made when the sweep started. With it the code is not looked
                at again, so that a new driver goes on with the old code.
            checkpoint_root: where jobs that see no disk of this machine keep checkpoints; None for others.
            path_hint: tells what to do about a checkpoint directory that such jobs do not see, empty when
                they see it; None where nobody can tell.
            is_single: its one trial was started by `airflows run`.
            place: of several.

        Raises:
            SpecError: the code cannot be packed as the train.yaml says.
            AirflowsError: the root cannot be written; or the recorded snapshot is gone or was changed, and
                the code is no longer what it was.
        """
        directory = base_dir or (base.path.parent if base.path else Path()).absolute()
        variables = dict(tracker_env)
        if experiment_id:
            variables["MLFLOW_EXPERIMENT_ID"] = experiment_id
        kept_in = checkpoint_root or backend.root / "checkpoints"
        if checkpoint is not None and checkpoint.dir:
            hint = "" if checkpoint_root is None or path_hint is None else path_hint(checkpoint.dir)
            kept_in = _checkpoint_dir(checkpoint.dir, directory, hint)
        pattern = (checkpoint.pattern if checkpoint is not None else None) or ""
        made = cls(sweep, backend.root, base, directory, variables, kept_in / sweep, pattern)
        made.secret_variables = tracker_secrets
        made.uploads, made.is_single, made.place = checkpoint_root is not None, is_single, place
        made._keep_code(code)
        return made

    def checkpoints(self, number: int) -> tuple[str, str]:
        """Return (directory, pattern) of a trial's checkpoints, the same for all its attempts."""
        return f"{self.checkpoint_root}/{number}", self.pattern

    def job(self, trial: Trial, tree: Mapping[str, Any], run_id: str) -> Job:
        """Write an attempt's launch directory and return what a backend needs to run it.

        Writing it again gives the same. Secrets are named in it, never their values.

        Args:
            trial: whose current attempt it is.
            tree: the effective train.yaml.
            run_id: its MLflow run, empty for none.

        Raises:
            SpecError: the trial's own code cannot be packed.
            AirflowsError: the directory cannot be written; it is removed.
        """
        launch_dir = Path(self.root, "runs", self.sweep, str(trial.number), f"a{trial.attempt}")
        code = self._code_of(tree)
        files = self._files(tree)
        checkpoint_dir, pattern = self.checkpoints(trial.number)
        self._write(launch_dir, files, code, Path(checkpoint_dir))
        compute = tree["compute"]
        per_node = ACCELERATORS[compute["accelerator_type"]]
        timeout = tree.get("timeout_minutes")
        return Job(
            token=ids.token(ids.SweepId(self.sweep), trial.number, trial.attempt),
            sweep=self.sweep,
            number=trial.number,
            attempt=trial.attempt,
            launch_dir=launch_dir,
            files=files,
            nodes=int(compute["num_accelerators"]) // per_node,
            accelerators_per_node=per_node,
            accelerator_type=compute["accelerator_type"],
            work_dir=None if code else self.base_dir,
            env=self._env(trial, tree, run_id, launch_dir, code),
            secrets=tree.get("secrets") or _NO_VALUES,
            checkpoint_dir=checkpoint_dir,
            checkpoint_pattern=pattern,
            timeout_s=None if timeout is None else float(timeout) * 60,
            secret_env=self.secret_variables,
            code=code.path if code is not None and self.uploads else None,
            is_single=self.is_single,
        )

    def _env(
        self, trial: Trial, tree: Mapping[str, Any], run_id: str, launch_dir: Path, code: Snapshot | None
    ) -> dict[str, str]:
        env = {name: str(value) for name, value in (tree.get("env_variables") or _NO_VALUES).items()}
        env.update(self.variables)
        if run_id:
            env["MLFLOW_RUN_ID"] = run_id
        if code is not None and not self.uploads:
            env["CODE_SOURCE_PATH"] = str(self._copies.path(code, launch_dir))
        if tree.get("parameters") and not self.uploads:
            env["HYPERPARAMETERS_PATH"] = f"{launch_dir}/hyperparameters.yaml"
        env["AIRFLOWS_SWEEP"] = self.sweep
        env["AIRFLOWS_TRIAL"] = str(trial.number)
        env["AIRFLOWS_ATTEMPT"] = str(trial.attempt)
        env["AIRFLOWS_CHECKPOINT_DIR"] = self.checkpoints(trial.number)[0]
        return env

    # Files

    def _files(self, tree: Mapping[str, Any]) -> dict[str, bytes]:
        files = {"command.sh": str(tree["command"]).encode()}
        parts = []
        for key, value in tree.items():
            text = self._dumped(key, value)
            if key == "parameters" and value:
                files["hyperparameters.yaml"] = text.encode()
                # What stands below a key in block form is the same text, further in.
                text = "parameters:\n" + "".join(f"  {line}" for line in text.splitlines(keepends=True))
            parts.append(text)
        files["training_config.yaml"] = "".join(parts).encode()
        variables = tree.get("env_variables")
        if variables:
            rows = [{"name": name, "value": str(variables[name])} for name in _in_byte_order(variables)]
            files["env_vars.json"] = json.dumps(rows).encode()
        secrets = tree.get("secrets")
        if secrets:
            files["secret_env_vars.json"] = json.dumps(_secret_rows(secrets)).encode()
        return files

    def _dumped(self, key: str, value: Any) -> str:
        """Return a top-level key as YAML; the tree of the next trial shares what it does not override."""
        known = self._texts.get(key)
        if known is not None and known[0] is value:
            return known[1]
        text = dump(value) if key == "parameters" and value else dump({key: value})
        self._texts[key] = (value, text)
        return text

    def _write(
        self, launch_dir: Path, files: Mapping[str, bytes], code: Snapshot | None, checkpoints: Path
    ) -> None:
        try:
            self._make_directories(launch_dir, checkpoints)
            for name, content in files.items():
                _overwrite(f"{launch_dir}/{name}", content)
            if self.place:
                _overwrite(f"{launch_dir}/{PLACE_FILE}", self.place.encode())
            if code is not None:
                if not self.uploads:
                    self._copies.make(code, launch_dir)
                for sidecar in code.sidecars:
                    _link(sidecar, launch_dir / sidecar.name)
        except OSError as exc:
            shutil.rmtree(launch_dir, ignore_errors=True)
            raise _unwritable(launch_dir, exc) from exc

    def _make_directories(self, launch_dir: Path, checkpoints: Path) -> None:
        here = () if self.uploads else (checkpoints,)
        for directory in (launch_dir.parent.parent, *(path.parent for path in here)):
            if directory not in self._made:
                directory.mkdir(parents=True, exist_ok=True)
                self._made.add(directory)
        for directory in (launch_dir.parent, launch_dir, launch_dir / "logs", *here):
            try:
                os.mkdir(directory)  # noqa: PTH102  (one call, no look at what is there: this is a hot path)
            except FileExistsError:
                continue

    # Code

    def _keep_code(self, digest: str) -> None:
        """Find or make the snapshot of the base, and those of trials with other code."""
        if self.base.config.code_source is not None:
            self.code = self._kept(self.base.config, digest) if digest else self._packed(self.base.config)
            self.notices = self.code.notices
        recorded = self._read_codes()
        if recorded.pop("base", None) == self._base_digest:
            # Otherwise this is a first start, or `resume --failed` with corrected code.
            for key, other in recorded.items():
                self._codes[key] = self._kept(self._config_with(json.loads(key)), other)

    @property
    def _base_digest(self) -> str:
        return self.code.digest if self.code else ""

    def _code_of(self, tree: Mapping[str, Any]) -> Snapshot | None:
        source = tree.get("code_source")
        if source is None:
            return None
        if source is self.base.tree.get("code_source") or source == self.base.tree.get("code_source"):
            return self.code
        key = ids.canonical_json(source)
        if key not in self._codes:
            self._codes[key] = self._packed(self._config_with(source))
            self._record_codes()
        return self._codes[key]

    def _config_with(self, source: Mapping[str, Any]) -> TrainConfig:
        return decode({**self.base.tree, "code_source": source})

    def _packed(self, config: TrainConfig) -> Snapshot:
        try:
            made = snapshot(config, self.base_dir, self.root)
        except SpecError as exc:
            exc.file = exc.file or (str(self.base.path) if self.base.path else None)
            raise
        if made is None:
            message = "a code source without a snapshot cannot be packed."
            raise SpecError(message, field="code_source")
        return made

    def _kept(self, config: TrainConfig, digest: str) -> Snapshot:
        wanted = config.code_source.snapshot if config.code_source else None
        name = root_directory(wanted.root_path, self.base_dir).name if wanted else ""
        kept = kept_snapshot(self.root, digest, name)
        if kept is not None:
            return kept
        try:
            made = self._packed(config)
        except AirflowsError as exc:
            raise self._lost(digest, f"cannot be made anew: {exc}") from exc
        if made.digest != digest:
            raise self._lost(digest, "the code has changed since.")
        return made

    def _lost(self, digest: str, why: str) -> AirflowsError:
        message = (
            f"the code snapshot {digest[:12]} of sweep {self.sweep} is no longer in {self.root} "
            f"as it was kept, and {why}"
        )
        hint = f"Start again with the code as it is now: airflows resume {self.sweep} --failed, or --new."
        return AirflowsError(message, hint=hint)

    @property
    def _codes_path(self) -> Path:
        return self.root / "runs" / self.sweep / _CODE_FILE

    def _read_codes(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._codes_path.read_bytes()))
        except (OSError, ValueError):
            return {}

    def _record_codes(self) -> None:
        """Write down which code belongs to which code source, for the next driver."""
        rows = {"base": self._base_digest, **{key: code.digest for key, code in self._codes.items()}}
        path = self._codes_path
        aside = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(rows), encoding="utf-8")
            aside.replace(path)
        except OSError as exc:
            aside.unlink(missing_ok=True)
            raise _unwritable(path, exc) from exc


def _checkpoint_dir(text: str, directory: Path, hint: str) -> Path:
    if hint:
        message = f"{text} is no path that the runs of this backend can see."
        raise SpecError(message, field="checkpoint.dir", hint=hint)
    return directory / Path(text).expanduser()


def _in_byte_order(names: Mapping[str, Any]) -> list[str]:
    return sorted(names, key=str.encode)


def _secret_rows(secrets: Mapping[str, str]) -> list[dict[str, str]]:
    rows = []
    for name in _in_byte_order(secrets):
        scope, _, key = secrets[name].partition("/")
        rows.append({"name": name, "secret_scope": scope, "secret_key": key})
    return rows


def _overwrite(path: str, content: bytes) -> None:
    """Write a file without emptying it first: should a run be reading it, it sees the same as before."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        written = os.write(descriptor, content)
        while written < len(content):
            written += os.write(descriptor, content[written:])
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _link(source: Path, target: Path) -> None:
    """One copy for all attempts: a patch may be large."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def _unwritable(path: Path, exc: OSError) -> AirflowsError:
    message = f"{path} cannot be written: {exc.strerror or exc}."
    return AirflowsError(message, hint="Free some space there, or set AIRFLOWS_HOME to another place.")
