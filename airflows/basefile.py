"""The base of a sweep: its train.yaml with the overrides that every trial has.

Pure but for reading the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflows import yamlio
from airflows.errors import SpecError
from airflows.keynames import KeyNames
from airflows.place import Place
from airflows.spec import SweepSpec
from airflows.train import TrainFile, from_mapping, parse_override
from airflows.yamlio import Document, Notice

_TOKEN = "idempotency_token"  # noqa: S105 - a key's name


@dataclass(frozen=True, slots=True)
class Base:
    """What a sweep makes its trials of.

    Attributes:
        file: the train.yaml, overrides applied, without its idempotency token.
        directory: what relative paths in it count from.
        token: its idempotency token, empty for none.
        notices: what people should know.
    """

    file: TrainFile
    directory: Path
    token: str
    notices: tuple[Notice, ...]


def read_base(spec: SweepSpec, place: Place, directory: Path, overrides: Sequence[str]) -> Base:
    """Read the base of a sweep.

    Args:
        spec: the sweep file.
        place: the sweep file as a whole.
        directory: what relative paths in the sweep file count from.
        overrides: `KEY=VALUE` texts, which win over the file's own.

    Raises:
        SpecError: the base, or an override, is wrong.
    """
    path, document, tree, prefix = _found(spec, place, directory)
    own, notices = _own_overrides(spec, tree, place)
    made = from_mapping(
        tree, file=document.file, overrides=[*own, *overrides], document=document, prefix=prefix
    )
    file = replace(made, path=path, changes=made.changes[len(own) :])
    token = file.config.idempotency_token or ""
    if token:
        place_of_token = Place(document.file, (*prefix, _TOKEN), document)
        notices.append(
            place_of_token.notice("It is left out: each attempt of a sweep has a token of its own.")
        )
        rest = {key: value for key, value in file.tree.items() if key != _TOKEN}
        file = replace(file, tree=rest, config=file.config.model_copy(update={_TOKEN: None}))
    where = directory if path is None else path.parent
    return Base(file, where.absolute(), token, (*file.notices, *notices))


def _found(
    spec: SweepSpec, place: Place, directory: Path
) -> tuple[Path | None, Document, dict[str, Any], tuple[str, ...]]:
    """Return (path, document, tree, where in the document) of the train.yaml."""
    here = place.at("base")
    if isinstance(spec.base, Mapping):
        document = place.document or Document(None, place.file)
        return None, document, dict(spec.base), ("base",)
    if not isinstance(spec.base, str) or not spec.base.strip():
        here.fail("base is the path of a train.yaml, or its mapping.")
    path = directory / Path(spec.base).expanduser()
    try:
        document = yamlio.read(path, dialect="train")
    except SpecError as exc:
        if exc.line is None:
            message = f"The base {path} cannot be used. {exc.message}"
            raise here.error(message, exc.hint) from exc
        raise
    if document.empty:
        here.fail(f"The base {path} is empty.", "It needs experiment_name, compute and command.")
    if not isinstance(document.value, dict):
        from_mapping(document.value, file=document.file, document=document)
    return path, document, document.value, ()


def _own_overrides(spec: SweepSpec, tree: Mapping[str, Any], place: Place) -> tuple[list[str], list[Notice]]:
    """Return the file's `overrides` as `KEY=VALUE` texts, checked, and what people should know of them."""
    names = KeyNames(tree, strict=spec.strict)
    texts: list[str] = []
    for here, key_text, value in _pairs(spec.overrides, place.at("overrides")):
        key = names.single(key_text, here)
        names.check_set(key, here)
        texts.append(f"{key}={yamlio.dump(value)}")
    return texts, names.notices


def _pairs(overrides: Any, place: Place) -> list[tuple[Place, str, Any]]:
    if overrides is None:
        return []
    if isinstance(overrides, Mapping):
        return [(place.at(key), key, value) for key, value in overrides.items()]
    if not isinstance(overrides, list) or not all(isinstance(item, str) for item in overrides):
        place.fail("overrides is a mapping of keys to values, or a list of KEY=VALUE.")
    pairs: list[tuple[Place, str, Any]] = []
    for at, text in enumerate(overrides):
        try:
            pairs.append((place.at(at), *parse_override(text)))
        except SpecError as exc:
            raise place.at(at).error(exc.message, exc.hint) from exc
    return pairs
