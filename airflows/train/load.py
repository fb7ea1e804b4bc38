"""From a train.yaml and its overrides to a checked run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows import yamlio
from airflows.errors import SpecError
from airflows.keys import MISSING, get_key, join_key, set_key, split_key
from airflows.scalars import described, go_text
from airflows.train import shape
from airflows.train.model import TrainConfig, build, checked
from airflows.train.schema import check_key
from airflows.yamlio import Document, Notice

# A key is cut at its first `=` outside a part in quotes.
_PART = r"""(?:'(?:[^']|'')*'|"[^"]*"|[^.='"][^.=]*)"""
_KEY = re.compile(rf"\s*(?:{_PART}\.)*{_PART}\s*(?==)")
_OPTION = "--override"


@dataclass(frozen=True, slots=True)
class TrainFile:
    """A checked train.yaml.

    Attributes:
        path: the file, None for a text or a mapping.
        tree: plain tree after the overrides; text fields hold their source text, null fields are left out.
        config: the same, typed, in its canonical form.
        notices: warnings to show.
        document: what was parsed, for lines.
        changes: what each override did, a line each.
    """

    path: Path | None
    tree: dict[str, Any]
    config: TrainConfig
    notices: tuple[Notice, ...]
    document: Document
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """A train.yaml after its overrides and before any check.

    Attributes:
        tree: the untyped tree; text the file gave keeps its source text.
        overridden: the parts of each override's key.
        changes: what each override did, a line each.
        notices: warnings about the file and the overrides.
    """

    tree: dict[str, Any]
    overridden: tuple[tuple[str, ...], ...]
    changes: tuple[str, ...]
    notices: tuple[Notice, ...]


def load_train(path: Path, overrides: Sequence[str] = ()) -> TrainFile:
    """Read and check a train.yaml.

    Args:
        path: the file.
        overrides: `KEY=VALUE` texts, applied in order.

    Raises:
        SpecError: an override, the file or the result is wrong; it names file, line and field.

    Example:
        >>> load_train(Path("train.yaml"), ["compute.num_accelerators=16"]).config.nodes  # doctest: +SKIP
        2
    """
    split = _split(overrides)
    document = yamlio.read(path, dialect="train")
    tree = document.value
    if isinstance(tree, Mapping) and "base" in tree and "command" not in tree:
        message = "This is a sweep.yaml, and a train.yaml is wanted."
        raise SpecError(message, file=str(path), hint=f"Start it with: airflows sweep {path}")
    return _assemble(document, split, path=path)


def read_train(text: str, *, file: str, overrides: Sequence[str] = ()) -> TrainFile:
    """Check the text of a train.yaml; see `load_train`."""
    split = _split(overrides)
    return _assemble(yamlio.parse(text, file=file, dialect="train"), split)


def from_mapping(
    tree: Mapping[str, Any],
    *,
    file: str,
    overrides: Sequence[str] = (),
    document: Document | None = None,
    prefix: shape.Path = (),
) -> TrainFile:
    """Check a train.yaml given as a mapping; see `load_train`.

    Args:
        tree: the mapping.
        file: what to call it in messages.
        overrides: `KEY=VALUE` texts, applied in order.
        document: the document the mapping is a part of, for lines and source text.
        prefix: where in that document it is, such as `("base",)`.
    """
    return _assemble(document or Document(tree, file), _split(overrides), tree=tree, prefix=prefix)


def parse_override(text: str) -> tuple[str, Any]:
    """Return key and value of `KEY=VALUE`; the value is YAML, as AI Runtime's CLI reads it.

    Raises:
        SpecError: there is no `=`, no key, or the value is not YAML.

    Example:
        >>> parse_override("parameters.lr=1e-3")
        ('parameters.lr', 0.001)
    """
    key, value = _split_override(text)
    return key, yamlio.parse_scalar(value, field=key)


def normalised(key: str, value: Any) -> Any:
    """Return what the value of an override becomes at its key, as text where text belongs.

    A value of the wrong type stays as it is, for `decode` to refuse.

    Args:
        key: a dotted override key.
        value: a plain value.

    Example:
        >>> normalised("env_variables.N", 1e3), normalised("parameters.n", 1e3)
        ('1000', 1000.0)
    """
    return shape.normalised(TrainConfig, split_key(key), value)


def takes_text(key: str) -> bool:
    """Return whether a dotted override key takes text."""
    return shape.takes_text(TrainConfig, split_key(key))


def _split_override(text: str) -> tuple[str, str]:
    found = _KEY.match(text)
    key, equals, value = text.partition("=")
    if found is not None:
        key, value = found[0], text[found.end() + 1 :]
    if not equals:
        looks_like_file = text.endswith((".yaml", ".yml"))
        hint = "It looks like a file: give it with -f." if looks_like_file else "Write KEY=VALUE."
        message = f"The override {text!r} has no `=`."
        raise SpecError(message, file=_OPTION, hint=hint)
    if not key.strip():
        message = f"The override {text!r} has no key before its `=`."
        raise SpecError(message, file=_OPTION, hint="Write KEY=VALUE.")
    return key.strip(), value


def _split(overrides: Sequence[str]) -> list[tuple[str, str]]:
    split = [_split_override(text) for text in overrides]
    for key, _ in split:
        check_key(key, file=_OPTION)
    return split


def merge(
    document: Document, overrides: Sequence[tuple[str, str]], *, tree: Any = MISSING, prefix: shape.Path = ()
) -> Merged:
    """Return the tree of a document with the overrides applied in order, as AI Runtime's CLI applies them.

    Args:
        document: the file.
        overrides: keys that `check_key` accepted and the text of their values.
        tree: the part of the document that is the train.yaml; all of it by default.
        prefix: where that part is.
    """
    value = document.value if tree is MISSING else tree
    kept, texts = shape.keep_text(TrainConfig, _as_mapping(value, document, prefix), document, prefix)
    changes: list[str] = []
    fields = {join_key(path) for path in texts}
    notices = [notice for notice in document.notices if notice.field not in fields]
    for key, text in overrides:
        new, parts = yamlio.parse_value(text, field=key), split_key(key)
        old = get_key(kept, parts)
        before = f"setting {key}" if old is MISSING else f"changing {key} from {_shown(old)}"
        changes.append(f"{before} to {_shown(new.value)}")
        set_key(kept, parts, new.value, strict=False)
        if not (isinstance(new.value, str) and shape.takes_text(TrainConfig, parts)):
            notices += (Notice(notice.message, notice.file, None, key) for notice in new.notices)
    overridden = tuple(split_key(key) for key, _ in overrides)
    return Merged(kept, overridden, tuple(changes), tuple(notices))


def _shown(value: Any) -> str:
    """Return a value as people write it in YAML, text in quotes."""
    match value:
        case str():
            return repr(value)
        case None:
            return "null"
        case Mapping():
            return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return f"[{', '.join(map(_shown, value))}]"
        case _:
            return go_text(value)


def _as_mapping(value: Any, document: Document, prefix: shape.Path) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    message = f"A train.yaml is a mapping, not {described(value)}."
    raise SpecError(message, file=document.file, line=document.line(prefix), field=join_key(prefix) or None)


def _assemble(
    document: Document,
    overrides: Sequence[tuple[str, str]],
    *,
    path: Path | None = None,
    tree: Any = MISSING,
    prefix: shape.Path = (),
) -> TrainFile:
    if document.empty and not overrides:
        message = "This file is empty."
        raise SpecError(message, file=document.file, hint="It needs experiment_name, compute and command.")
    merged = merge(document, overrides, tree=tree, prefix=prefix)
    try:
        shaped = checked(merged.tree)
    except shape.FieldError as exc:
        raise _placed(exc, document, prefix, merged.overridden) from exc
    return TrainFile(path, shaped, build(shaped), merged.notices, document, merged.changes)


def decode(tree: Mapping[str, Any], *, document: Document | None = None, file: str = "") -> TrainConfig:
    """Return the typed run of a plain tree.

    Args:
        tree: what a train.yaml holds, overrides applied.
        document: where it was read from, for lines.
        file: what to call it in messages; the document's file by default.

    Raises:
        SpecError: the first type or rule that is broken, with file, line and field.
    """
    try:
        return build(checked(tree))
    except shape.FieldError as exc:
        raise _placed(exc, document or Document(None, file)) from exc


def _placed(
    exc: shape.FieldError,
    document: Document,
    prefix: shape.Path = (),
    overridden: Sequence[tuple[str, ...]] = (),
) -> SpecError:
    line, hint = document.line((*prefix, *exc.path)), exc.hint
    for parts in overridden:
        if exc.path[: len(parts)] == parts:
            origin = f"It comes from the override of {join_key(parts)}."
            line, hint = None, f"{hint} {origin}" if hint else origin
            break
    field = join_key((*prefix, *exc.path)) or None
    return SpecError(exc.message, file=document.file or None, line=line, field=field, hint=hint)
