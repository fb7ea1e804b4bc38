"""train.yaml: what AI Runtime's CLI accepts, checked and overridden as it does."""

from airflows.keys import MISSING, effective, get_key, join_key, set_key, split_key
from airflows.train.load import (
    TrainFile,
    decode,
    from_mapping,
    load_train,
    normalised,
    parse_override,
    read_train,
    takes_text,
)
from airflows.train.model import (
    CodeSource,
    Compute,
    DockerImage,
    Environment,
    Git,
    Permission,
    Snapshot,
    TrainConfig,
)
from airflows.train.rules import ACCELERATORS
from airflows.train.schema import check_key, json_schema

__all__ = [
    "ACCELERATORS",
    "MISSING",
    "CodeSource",
    "Compute",
    "DockerImage",
    "Environment",
    "Git",
    "Permission",
    "Snapshot",
    "TrainConfig",
    "TrainFile",
    "check_key",
    "decode",
    "effective",
    "from_mapping",
    "get_key",
    "join_key",
    "json_schema",
    "load_train",
    "normalised",
    "parse_override",
    "read_train",
    "set_key",
    "split_key",
    "takes_text",
]
