"""`validate` and `backends`: what can be said before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflows.cli import options
from airflows.cli.failure import SUCCEEDED, WRONG_REQUEST, UsageError
from airflows.cli.table import one_line, table
from airflows.cli.terminal import Session, Style
from airflows.documents import Document, problem_document
from airflows.errors import AirflowsError, SpecError

if TYPE_CHECKING:
    from airflows.yamlio import Notice

_KINDS = ("train", "sweep")
_SWEEP_KEYS = frozenset(
    {"base", "space", "include", "exclude", "search", "objective", "objectives", "replicates"}
)


def validate(
    session: Session,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE...", help="train.yaml or sweep.yaml files.")
    ] = None,
    *,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of train, of sweep, or of both.")
    ] = False,
) -> int:
    """Check train.yaml and sweep.yaml files."""
    if schema:
        session.document(_schemas(files or []))
        return SUCCEEDED
    if not files:
        message = "there is no file to check."
        raise UsageError(message, hint="Name train.yaml or sweep.yaml files, or say --schema.")
    checked = [check_file(Path(file)) for file in files]
    session.answer(
        {"files": checked}, [line for each in checked for line in _file_lines(each, session.style)]
    )
    return SUCCEEDED if all(each["ok"] for each in checked) else WRONG_REQUEST


def _schemas(kinds: Sequence[str]) -> Document:
    """Return the schema that is asked for, or both by kind."""
    from airflows import spec, train  # noqa: PLC0415

    made: dict[str, Callable[[], Document]] = {"train": train.json_schema, "sweep": spec.json_schema}
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        message = f"there is no schema of {unknown[0]!r}."
        raise UsageError(message, hint="There are train and sweep: airflows validate --schema sweep")
    if len(kinds) == 1:
        return made[kinds[0]]()
    return {kind: make() for kind, make in made.items()}


def check_file(path: Path) -> Document:
    """Return what is to be said about one file: whether it is right, what is wrong, what to know."""
    document: Document = {"path": str(path), "kind": None, "ok": False, "errors": [], "warnings": []}
    try:
        document["kind"] = kind_of(path)
        notices = _notices(path, document["kind"])
    except SpecError as exc:
        document["errors"] = [problem_document(error) for error in (exc, *exc.others)]
    except AirflowsError as exc:
        document["errors"] = [problem_document(exc)]
    else:
        document["ok"] = True
        document["warnings"] = [
            {"file": notice.file, "line": notice.line, "field": notice.field, "message": notice.message}
            for notice in notices
        ]
    return document


def kind_of(path: Path) -> str:
    """Return `sweep` or `train`, by the keys of the file."""
    from airflows.yamlio import read  # noqa: PLC0415

    tree = read(path, dialect="train").value
    return "sweep" if isinstance(tree, dict) and _SWEEP_KEYS & tree.keys() else "train"


def _notices(path: Path, kind: str) -> Sequence[Notice]:
    """Return the warnings about a file that is right.

    Raises:
        SpecError: it is not.
    """
    if kind == "train":
        from airflows.train import load_train  # noqa: PLC0415

        return load_train(path).notices
    from airflows.sweepfile import load_sweep  # noqa: PLC0415
    from airflows.vetting import validate_points  # noqa: PLC0415

    loaded = load_sweep(path)
    validate_points(loaded)
    return loaded.notices


def _file_lines(checked: Document, style: Style) -> list[str]:
    what = checked["kind"] or "file"
    if checked["ok"]:
        lines = [f"{checked['path']}: {style.paint('ok', 'green')} ({what})"]
    else:
        lines = [f"{checked['path']}: {style.paint('wrong', 'red')} ({what})"]
    for word, look in (("errors", "red"), ("warnings", "yellow")):
        lines += [
            f"  {style.paint(word[:-1] + ':', look)} {_problem_text(each, checked['path'])}"
            for each in checked[word]
        ]
    return lines


def _problem_text(problem: Document, path: str) -> str:
    place = [problem["file"]] if problem["file"] not in {None, "", path} else []
    place += [] if problem["line"] is None else [f"line {problem['line']}"]
    place += [problem["field"]] if problem["field"] else []
    return one_line(": ".join([*place, problem["message"]]))


def backends(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of them, with its options.")] = None,
) -> int:
    """List the backends, and whether each can be reached now."""
    from airflows.backends.registry import backend_names  # noqa: PLC0415

    shown = [backend_document(each) for each in ([name] if name else backend_names())]
    lines = _backend_lines(shown, session.style)
    if name:
        lines += ["", *_option_lines(shown[0]["options"], session.style)]
    session.answer({"backends": shown}, lines)
    return SUCCEEDED


def backend_document(name: str) -> Document:
    """Return a backend: its options, whether it can be reached, and why not.

    Raises:
        SpecError: there is no such backend.
    """
    from airflows.backends.registry import open_backend, settings_model  # noqa: PLC0415

    options_schema = settings_model(name).model_json_schema()
    try:
        backend = open_backend(name, options.home())
        reach = backend.reach()
        slots: int | None = backend.capabilities.slots
    except AirflowsError as exc:
        return {
            "name": name,
            "available": False,
            "why_not": str(exc),
            "notes": [],
            "slots": None,
            "options": options_schema,
        }
    return {
        "name": name,
        "available": reach.available,
        "why_not": reach.why_not or None,
        "notes": list(reach.notes),
        "slots": slots,
        "options": options_schema,
    }


def _backend_lines(shown: Sequence[Document], style: Style) -> list[str]:
    rows = [
        (
            each["name"],
            "yes" if each["available"] else "no",
            "" if each["slots"] is None else str(each["slots"]),
            each["why_not"] or " ".join(each["notes"]),
        )
        for each in shown
    ]
    return table(("BACKEND", "AVAILABLE", "SLOTS", "NOTE"), rows, style, right=frozenset({"SLOTS"}))


def _option_lines(schema: Document, style: Style) -> list[str]:
    rows = [
        (name, _type_text(option), _default_text(option), option.get("description", ""))
        for name, option in schema.get("properties", {}).items()
    ]
    return table(("OPTION", "TYPE", "DEFAULT", "MEANING"), rows, style)


def _type_text(option: Document) -> str:
    if "anyOf" in option:
        return " or ".join(_type_text(each) for each in option["anyOf"] if each.get("type") != "null")
    if "enum" in option:
        return " or ".join(str(value) for value in option["enum"])
    if "const" in option:
        return str(option["const"])
    kinds: Any = option.get("type", "mapping")
    return {"object": "mapping", "array": "list", "string": "text"}.get(kinds, str(kinds))


def _default_text(option: Document) -> str:
    default = option.get("default")
    return "" if default in (None, {}, []) else str(default)
