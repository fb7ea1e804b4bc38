"""How a fake workspace is set up: in Python, or by a script in YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflows.testing.workspace.faults import Fault
from airflows.testing.workspace.plans import Outcome, RunPlan
from airflows.yamlio import parse


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Account(_Part):
    """Somebody with tokens."""

    name: str = Field(description="userName")
    id: str = Field("1", description="SCIM id")
    tokens: Sequence[str] = Field((), description="personal access tokens")
    client_id: str = Field("", description="of a service principal, for OAuth")
    client_secret: str = Field("", description="of a service principal, for OAuth")


class Policy(_Part):
    """A serverless usage policy."""

    policy_id: str | None = Field(description="null: listed without an id")
    policy_name: str = Field(description="what a train.yaml names")
    display_name: str = Field("", description="for people")


class Image(_Part):
    """A docker image in the workspace's registry."""

    docker_image_url: str = Field(description="normalised")
    states: Sequence[str] = Field(("AVAILABLE",), description="one for each time it is asked for")
    status_message: str = Field("", description="for people")
    manifest_sha256: str = Field("", description="empty: made up")
    publicly_accessible: bool = Field(True, description="no credentials are needed")


class Refusal(_Part):
    """An error of `config:validate`."""

    path: str
    message: str
    code: str = "INVALID"
    experiment: str = Field("*", description="glob: for which experiments")


class LogManners(_Part):
    """How well the log service behaves."""

    record_ids: bool = Field(False, description="each record has a record_id")
    times_as_text: bool = Field(False, description="time_unix_nano is text")
    late_every: int = Field(0, ge=0, description="each so-manieth record comes late; 0 for none")
    late_s: float = Field(5.0, ge=0, description="by so much")
    duplicate_every: int = Field(0, ge=0, description="each so-manieth record comes twice; 0 for none")
    is_empty: bool = Field(False, description="it never has a record")
    page_size: int = Field(1000, ge=1, description="most records of a page")
    chunk_bytes: int = Field(4_000_000, ge=1, description="size of a chunk among the MLflow artifacts")
    layout: Literal["old", "new"] = Field("new", description="logs/node_N, or logs/attempt_A/node_N")


class JobManners(_Part):
    """Where the real service is not known, or is known to do one or the other."""

    timeout_bounds: Literal["attempt", "run"] = Field("attempt", description="what timeout_seconds limits")
    lists_attempts: Literal["all", "newest"] = Field("all", description="which tasks runs/get shows")
    between_attempts: str = Field("WAITING_FOR_RETRY", description="life_cycle_state of the run meanwhile")
    states: Literal["both", "state", "status"] = Field("both", description="which of the two objects")
    unknown_run_status: Literal[400, 404] = Field(400, description="for runs that do not exist")
    quirky_index: bool = Field(False, description="the index repeats ids, and once a page token")


class NodeSettings(_Part):
    """How commands are really run, with `execute`."""

    local_world_size: int | None = Field(None, ge=1, description="LOCAL_WORLD_SIZE; null: as the hardware")
    grace_s: float = Field(2.0, ge=0, description="real seconds between SIGTERM and SIGKILL")
    last_words_s: float = Field(5.0, ge=0, description="real seconds to read on once the command has ended")
    inherit: Sequence[str] = Field((), description="variables of this process that commands see")
    runtime_version: str = Field("", description="DATABRICKS_RUNTIME_VERSION; empty: not set")


class Settings(_Part):
    """All of it."""

    execute: bool = Field(False, description="really run command.sh")
    seed: int = Field(0, description="of all chances")
    clock_scale: float = Field(0.0, ge=0, description="0: stands until advanced; 1: real time; 10: faster")
    clock_start: float | None = Field(None, description="seconds since the epoch; null: now")
    workspace_id: str = Field("900", description="X-Databricks-Org-Id")
    users: Sequence[Account] = Field(
        (
            Account(
                name="kim@example.com",
                id="1",
                tokens=("fake-token",),
                client_id="fake-client",
                client_secret="fake-secret",  # noqa: S106 - opens nothing
            ),
            Account(name="lee@example.com", id="2", tokens=("other-token",)),
        ),
        description="who may come in; the first is the one that tests use",
    )
    expired_tokens: Sequence[str] = Field(("expired-token",), description="that were good once")
    default: RunPlan = Field(RunPlan(), description="of runs that no outcome fits")
    outcomes: Sequence[Outcome] = Field((), description="what runs do; the first that fits counts")
    faults: Sequence[Fault] = Field((), description="what goes wrong")
    capacity: Mapping[str, int] = Field({}, description="accelerator type to GPUs; endless when absent")
    accelerators: Mapping[str, int] = Field(
        {"GPU_1xA10": 1, "GPU_1xH100": 1, "GPU_8xH100": 8}, description="type to GPUs of a node"
    )
    validation_errors: Sequence[Refusal] = Field((), description="of config:validate")
    policies: Sequence[Policy] = Field((), description="usage policies")
    images: Sequence[Image] = Field((), description="known docker images")
    secrets: Mapping[str, Mapping[str, str]] = Field({}, description="scope to key to value")
    volumes: Sequence[str] | None = Field(
        None, description="catalog.schema.volume of those that exist; null: every one does"
    )
    crowd: int = Field(0, ge=0, description="runs of others and without AI tasks among those listed")
    logs: LogManners = Field(LogManners(), description="of the log service")
    jobs: JobManners = Field(JobManners(), description="of the jobs service")
    nodes: NodeSettings = Field(NodeSettings(), description="of commands")

    def with_clock(self, scale: float) -> Settings:
        """Return these settings with a clock of another speed."""
        return self.model_copy(update={"clock_scale": scale})


def load_settings(path: Path, **changes: Any) -> Settings:
    """Return the settings of a script, with changes.

    Raises:
        ValueError: a key or value is not known.
        TypeError: it is no mapping.
        SpecError: it is no YAML.
        OSError: it cannot be read.
    """
    document = parse(path.read_text(encoding="utf-8"), file=str(path), dialect="sweep").value or {}
    if not isinstance(document, Mapping):
        message = f"{path}: a script is a mapping of settings"
        raise TypeError(message)
    try:
        return Settings.model_validate({**document, **changes})
    except ValidationError as exc:
        lines = [f"{path}: {'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()]
        raise ValueError("\n".join(lines)) from None
