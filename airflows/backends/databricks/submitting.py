"""Submitting runs: files up, one `runs/submit` with the attempt's token, and what the answer means."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.backends.base import Job
from airflows.backends.databricks import payload, uploads
from airflows.backends.databricks.client import Workspace, WorkspaceError
from airflows.backends.databricks.preparing import Preparation
from airflows.backends.databricks.script import trial_script
from airflows.errors import (
    BackendUnavailableError,
    SpecError,
    SubmitAmbiguousError,
    SubmitError,
    SubmitRejectedError,
    SubmitUnreachedError,
    SubmitUnsentError,
)
from airflows.snapshot import SIDECARS
from airflows.train import TrainConfig, decode
from airflows.trial import Handle
from airflows.yamlio import parse

_log = logging.getLogger("airflows.databricks")
# Full now, not for ever.
_FULL = frozenset(
    {
        "MAX_CONCURRENT_RUNS_EXCEEDED",
        "WORKSPACE_RUN_LIMIT_EXCEEDED",
        "QUOTA_EXCEEDED",
        "REQUEST_LIMIT_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "RESOURCE_LIMIT_EXCEEDED",
    }
)
# What the service says of credentials that ran out, sometimes with a 403.
_CREDENTIALS = ("access token", "expired", "credential")


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a job, by how they get to the command.

    Attributes:
        shared: in `env_vars.json`, which trials of a sweep may share.
        own: the trial's, exported by its script.
    """

    shared: Mapping[str, str]
    own: Mapping[str, str]

    @classmethod
    def of(cls, job: Job) -> Variables:
        """Sort a job's variables. Those that the service sets itself are left to it."""
        rows = json.loads(job.files.get("env_vars.json", b"[]"))
        given = {str(row["name"]): str(row["value"]) for row in rows}
        own = {name: value for name, value in job.env.items() if name.startswith("AIRFLOWS_")}
        others = {n: v for n, v in job.env.items() if n not in own and n not in given and not _is_set(n)}
        return cls({**given, **others}, own)

    def file(self, *, whole: bool) -> bytes:
        """Return `env_vars.json`, with the trial's own variables too if it is `whole`; empty for none."""
        values = {**self.shared, **(self.own if whole else {})}
        rows = [{"name": name, "value": values[name]} for name in sorted(values, key=str.encode)]
        return json.dumps(rows).encode() if rows else b""


def _is_set(name: str) -> bool:
    return name.startswith("MLFLOW_") or name in {"CODE_SOURCE_PATH", "HYPERPARAMETERS_PATH"}


def config_of(job: Job) -> TrainConfig:
    """Return the effective train.yaml of a job.

    Raises:
        SpecError: it is none.
    """
    text = job.files["training_config.yaml"].decode()
    tree = dict(parse(text, file="training_config.yaml", dialect="train").value or {})
    tree.setdefault("command", job.files["command.sh"].decode())
    compute = {
        "accelerator_type": job.accelerator_type,
        "num_accelerators": job.nodes * job.accelerators_per_node,
    }
    tree.setdefault("compute", compute)
    return decode(tree)


class Submitter:
    """Submits jobs to one workspace.

    Args:
        workspace: where to.
        preparation: settles what several runs share.
        environ: the driver's environment.
        is_native: failed attempts are retried by the service.
        launch: whether each run has a launch directory of its own; None decides by the job.
    """

    def __init__(
        self,
        workspace: Workspace,
        preparation: Preparation,
        environ: Mapping[str, str],
        *,
        is_native: bool,
        launch: str | None,
    ) -> None:
        self._workspace = workspace
        self._preparation = preparation
        self._environ = environ
        self._is_native = is_native
        self._launch = launch

    def submit(self, jobs: Sequence[Job]) -> list[Handle | SubmitError]:
        """Submit jobs, a few at once; answer in their order."""
        return self._workspace.each(self._one, jobs)

    def _one(self, job: Job) -> Handle | SubmitError:
        try:
            config = config_of(job)
            body = self.body(config, job)
        except SpecError as exc:
            return SubmitRejectedError(str(exc))
        except WorkspaceError as exc:
            return _refused(exc) or SubmitUnsentError(f"Databricks: {exc.message}")
        except BackendUnavailableError as exc:
            return SubmitUnreachedError(str(exc))
        return self._send(config, body)

    def _send(self, config: TrainConfig, body: payload.Body) -> Handle | SubmitError:
        try:
            answer = self._workspace.post("/api/2.2/jobs/runs/submit", body)
        except WorkspaceError as exc:
            # A refusal says nothing of an earlier try, whose answer was lost.
            refused = None if exc.is_repeat else _refused(exc)
            return refused or SubmitAmbiguousError(f"the answer to the submission was: {exc.message}")
        except BackendUnavailableError as exc:
            return SubmitAmbiguousError(f"the answer to the submission was lost: {exc}")
        run_id = answer.get("run_id")
        if not run_id:
            return SubmitAmbiguousError("the answer to the submission has no run_id.")
        if config.permissions:
            self._grant(int(run_id), config)
        return Handle(str(run_id))

    def body(self, config: TrainConfig, job: Job) -> payload.Body:
        """Upload what the run reads; return the body of its submission.

        Raises:
            SpecError: the workspace refuses such a run.
            WorkspaceError: something cannot be uploaded.
            BackendUnavailableError: nothing is known, and nothing was submitted.
        """
        if len(job.files["training_config.yaml"]) > uploads.MOST_CONFIG_BYTES:
            message = "the train.yaml is larger than 1 MiB, which Databricks refuses."
            raise SpecError(message)
        self._preparation.settle(config)
        code = self._preparation.code(config, job.code)
        launch = self._launch or ("own" if job.is_single else "shared")
        path = self._own_files(config, job) if launch == "own" else self._shared_files(config, job)
        return payload.submit_body(
            config,
            payload.Submission(
                token=job.token,
                command_path=path,
                max_retries=payload.native_retries(config) if self._is_native else 0,
                code_source_path=code,
                mlflow_run=config.mlflow_run_name or job.token,
                policy_id=self._preparation.policy(config),
                image=self._preparation.image(config),
                timeout_s=job.timeout_s,
            ),
            self._environ,
        )

    def _shared_files(self, config: TrainConfig, job: Job) -> str:
        """Return the trial's own script in the directory that its sweep shares."""
        variables = Variables.of(job)
        files = {
            **_sidecars(job),
            "env_vars.json": variables.file(whole=False),
            "secret_env_vars.json": job.files.get("secret_env_vars.json", b""),
        }
        files = {name: content for name, content in files.items() if content}
        marks = [f"{name} {payload.hex_of(content.hex())}" for name, content in sorted(files.items())]
        directory = payload.launch_dir(
            self._preparation.home, config, job.sweep, payload.hex_of(job.sweep, *marks)
        )
        shown = {"training_config.yaml": job.files["training_config.yaml"], **files}
        self._preparation.directory(directory, lambda: shown)
        parameters = job.files.get("hyperparameters.yaml", b"").decode()
        text = trial_script(
            job.files["command.sh"].decode(),
            variables.own,
            parameters=parameters,
            pattern=job.checkpoint_pattern,
        )
        path = f"{directory}/{job.token}.sh"
        uploads.upload(self._workspace, path, text.encode())
        return path

    def _own_files(self, config: TrainConfig, job: Job) -> str:
        """Return the command in a directory of the run's own, with AI Runtime's files."""
        variables = Variables.of(job)
        command = job.files["command.sh"]
        if variables.own.get("AIRFLOWS_CHECKPOINT_DIR"):
            text = trial_script(command.decode(), variables.own, pattern=job.checkpoint_pattern)
            command = text.encode()
        files = {
            **job.files,
            **_sidecars(job),
            "command.sh": command,
            "env_vars.json": variables.file(whole=True),
        }
        files = {name: content for name, content in files.items() if content}
        name = config.mlflow_run_name or config.experiment_name
        directory = payload.launch_dir(self._preparation.home, config, name, payload.hex_of(job.token))
        uploads.upload_all(self._workspace, directory, files)
        return f"{directory}/command.sh"

    def _grant(self, run_id: int, config: TrainConfig) -> None:
        """Grant the train.yaml's permissions on the run's job; what fails is said and no more."""
        wanted = [
            _access(permission.model_dump(exclude_none=True)) for permission in config.permissions or ()
        ]
        try:
            run = self._workspace.get("/api/2.2/jobs/runs/get", run_id=run_id)
            path = f"/api/2.0/permissions/jobs/{run['job_id']}"
            self._workspace.patch(path, {"access_control_list": wanted})
        except (WorkspaceError, BackendUnavailableError, KeyError) as exc:
            _log.warning("the permissions of run %s could not be granted: %s", run_id, exc)


def _access(permission: Mapping[str, Any]) -> dict[str, Any]:
    names = {name: value for name, value in permission.items() if name != "level"}
    return {**names, "permission_level": permission["level"]}


def _sidecars(job: Job) -> dict[str, bytes]:
    """Return what tells the state of the code's repository."""
    found = {}
    for name in SIDECARS:
        path = job.launch_dir / name
        if path.is_file():
            found[name] = path.read_bytes()
    return found


def _refused(exc: WorkspaceError) -> SubmitError | None:
    """Return what an error answer means for a job; None when nobody knows whether it was accepted."""
    said = f"Databricks: {exc.message}"
    is_unknown = exc.status == 403 and any(word in exc.message.lower() for word in _CREDENTIALS)  # noqa: PLR2004
    if exc.status == 401 or is_unknown:  # noqa: PLR2004
        return SubmitUnreachedError(said)
    if exc.status == 429 or exc.code in _FULL:  # noqa: PLR2004
        return SubmitUnsentError(said)
    return SubmitRejectedError(said) if exc.is_refusal or exc.is_disabled else None
