"""The train.yaml as typed objects: every key AI Runtime's CLI knows, and its newer forms."""

# No postponed annotations here: pydantic would compile each of them, at every start.

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflows.errors import SpecError
from airflows.keys import join_key
from airflows.train.rules import (
    ACCELERATORS,
    MAX_NAME_BYTES,
    MAX_TOKEN_BYTES,
    PRIORITY_CLASSES,
    check,
    settle,
)
from airflows.train.shape import FieldError, Kind, Sort, kinds, shape

_TEXT = Kind(Sort.TEXT)
_TEXTS = Kind(Sort.TEXTS)
_TEXT_MAP = Kind(Sort.TEXT_MAP)
_INTEGER = Kind(Sort.INTEGER)

Text = Annotated[str, _TEXT]
MaybeText = Annotated[str | None, _TEXT]
MaybeInteger = Annotated[int | None, _INTEGER]
_Model = TypeVar("_Model", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Compute(_Part):
    """Accelerators of one run, over all its nodes."""

    accelerator_type: Text = Field(
        description="Accelerator type; its name says how many one node has.",
        json_schema_extra={"enum": [*ACCELERATORS]},
    )
    num_accelerators: Annotated[int, _INTEGER] = Field(
        description="Accelerators over all nodes: a positive multiple of those of one node.",
        json_schema_extra={"minimum": 1},
    )
    pool_id: MaybeText = Field(None, description="Id of reserved capacity to run on.")
    priority_class: MaybeText = Field(
        None,
        description="Priority within the reserved capacity: BEST_EFFORT, NORMAL or CRITICAL.",
        json_schema_extra={"enum": [*PRIORITY_CLASSES, None]},
    )


class DockerImage(_Part):
    """A container image to run in."""

    url: Text = Field(description="Address of the image.")
    tag_policy: Annotated[Literal["auto", "latest"], _TEXT] = Field(
        "auto", description="`latest` looks the tag up again for every run, `auto` (default) does not."
    )
    credentials_scope: MaybeText = Field(None, description="Secret scope with the registry's credentials.")
    credentials_key: MaybeText = Field(None, description="Secret key with the registry's credentials.")


class Environment(_Part):
    """The software a run finds: packages on a managed environment, or an image of its own."""

    dependencies: Annotated[list[str] | None, _TEXTS] = Field(
        None, description="Python packages as pip takes them; a file as `-r requirements.txt`."
    )
    version: MaybeText = Field(None, description="Version of the managed environment; needs dependencies.")
    docker_image: Annotated[DockerImage | None, Kind(Sort.OBJECT, DockerImage)] = Field(
        None, description="Container image to run in, instead of dependencies and version."
    )
    unity_catalog_image: MaybeText = Field(
        None, description="Image in Unity Catalog to run in, as catalog.schema.image:tag."
    )


class Git(_Part):
    """Which state of a git repository is packed."""

    branch: MaybeText = Field(None, description="Branch whose local head is packed.")
    commit: MaybeText = Field(None, description="Commit that is packed.")
    remote: Annotated[bool, Kind(Sort.REMOTE)] = Field(
        False, description="Only false: the commit comes from this repository."
    )


class Snapshot(_Part):
    """Code that is packed when the run is submitted and unpacked on each node."""

    root_path: Text = Field(description="Directory with the code; relative to the train.yaml.")
    remote_volume: MaybeText = Field(
        None,
        description="Volume that takes the archive, /Volumes/....",
        json_schema_extra={"pattern": "^/Volumes/"},
    )
    include_paths: Annotated[list[str] | None, _TEXTS] = Field(
        None,
        description="Parts of root_path to pack; all of it by default.",
        json_schema_extra={"minItems": 1},
    )
    git: Annotated[Git | None, Kind(Sort.OBJECT, Git)] = Field(
        None, description="Pack a commit instead of the files as they are."
    )


class CodeSource(_Part):
    """Where the code of a run comes from.

    The newer short form gives the keys of `snapshot` directly; decoding moves them there, so that programs
    read `snapshot` alone.
    """

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["snapshot"]}, {"required": ["root_path"]}]}
    )

    type: Annotated[Literal["snapshot"] | None, _TEXT] = Field(None, description="Always `snapshot`.")
    snapshot: Annotated[Snapshot | None, Kind(Sort.OBJECT, Snapshot)] = Field(
        None, description="Code that is packed when the run is submitted."
    )
    root_path: MaybeText = Field(None, description="Short form of snapshot.root_path.")
    remote_volume: MaybeText = Field(None, description="Short form of snapshot.remote_volume.")
    include_paths: Annotated[list[str] | None, _TEXTS] = Field(
        None, description="Short form of snapshot.include_paths."
    )
    git: Annotated[Git | None, Kind(Sort.OBJECT, Git)] = Field(
        None, description="Short form of snapshot.git."
    )


class Permission(_Part):
    """Who else may see or manage the run."""

    user_name: MaybeText = Field(None, description="A user.")
    group_name: MaybeText = Field(None, description="A group.")
    service_principal_name: MaybeText = Field(None, description="A service principal.")
    level: Text = Field(description="Permission level, such as CAN_VIEW.")


class TrainConfig(_Part):
    """One run, as a train.yaml describes it."""

    experiment_name: Text = Field(
        description="MLflow experiment, run name and task key: letters, digits, `_`, `-`.",
        json_schema_extra={"pattern": "^[A-Za-z0-9_-]+$", "maxLength": MAX_NAME_BYTES},
    )
    compute: Annotated[Compute, Kind(Sort.OBJECT, Compute)] = Field(description="Accelerators of the run.")
    environment: Annotated[Environment | None, Kind(Sort.OBJECT, Environment)] = Field(
        None, description="The software the run finds."
    )
    command: Text = Field(description="Bash script that each node runs; at most 1000 lines.")
    env_variables: Annotated[dict[str, str], _TEXT_MAP] = Field(
        {}, description="Environment variables of the command."
    )
    secrets: Annotated[dict[str, str], _TEXT_MAP] = Field(
        {}, description="Environment variables from secrets, each as scope/key."
    )
    code_source: Annotated[CodeSource | None, Kind(Sort.OBJECT, CodeSource)] = Field(
        None, description="Where the code comes from."
    )
    max_retries: MaybeInteger = Field(
        None,
        description="Retries after a failed attempt; 3 when left out.",
        json_schema_extra={"minimum": 0},
    )
    timeout_minutes: MaybeInteger = Field(
        None,
        description="Most minutes the run may take; no limit when left out.",
        json_schema_extra={"minimum": 1},
    )
    idempotency_token: MaybeText = Field(
        None,
        description="The same token again returns the run that exists; at most 64 bytes.",
        json_schema_extra={"maxLength": MAX_TOKEN_BYTES},
    )
    parameters: Annotated[dict[str, Any], Kind(Sort.FREE)] = Field(
        {}, description="Hyperparameters, handed to the command as a YAML file."
    )
    mlflow_run_name: MaybeText = Field(
        None, description="Name of the MLflow run; experiment_name when left out."
    )
    mlflow_experiment_directory: MaybeText = Field(
        None, description="Workspace directory of the MLflow experiment, /Workspace/...."
    )
    mlflow_artifact_location: MaybeText = Field(
        None, description="Where a new MLflow experiment keeps its artifacts, such as /Volumes/...."
    )
    permissions: Annotated[list[Permission] | None, Kind(Sort.OBJECTS, Permission)] = Field(
        None, description="Who else may see or manage the run."
    )
    usage_policy_name: MaybeText = Field(None, description="Usage policy the run is billed to, by name.")
    usage_policy_id: MaybeText = Field(None, description="Usage policy the run is billed to, by id (a UUID).")

    @property
    def accelerators_per_node(self) -> int:
        """Accelerators of one node."""
        return ACCELERATORS[self.compute.accelerator_type]

    @property
    def nodes(self) -> int:
        """Number of nodes, each of which runs the command."""
        return self.compute.num_accelerators // self.accelerators_per_node

    @model_validator(mode="before")
    @classmethod
    def _check(cls, value: Any) -> Any:
        try:
            return settle(checked(_as_tree(value)))
        except FieldError as exc:
            raise SpecError(exc.message, field=join_key(exc.path), hint=exc.hint) from exc


def checked(tree: Any) -> dict[str, Any]:
    """Return a plain tree with the right types everywhere, all rules held.

    Raises:
        FieldError: the first type or rule that is broken.
    """
    shaped = shape(TrainConfig, tree)
    check(shaped)
    return shaped


def build(shaped: Mapping[str, Any]) -> TrainConfig:
    """Return the typed object of a tree that `checked` returned.

    Nothing is left for pydantic to check, and without it the first run of a program is 20 ms quicker.
    """
    return _construct(TrainConfig, settle(shaped))


def _construct(model: type[_Model], values: Mapping[str, Any]) -> _Model:
    known = kinds(model)
    return model.model_construct(**{key: _constructed(known[key], item) for key, item in values.items()})


def _constructed(kind: Kind, value: Any) -> Any:
    if kind.model is None:
        return value
    if kind.sort is Sort.OBJECTS:
        return [_construct(kind.model, item) for item in value]
    return _construct(kind.model, value)


def _as_tree(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _as_tree(item) for key, item in value.items()}
    return [_as_tree(item) for item in value] if isinstance(value, list | tuple) else value
