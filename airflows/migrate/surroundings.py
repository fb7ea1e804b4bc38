"""What a script takes from where it runs: modules, environments, variables of its submitter. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflows.migrate.edits import Edit
from airflows.migrate.shell import builtins, names
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.tree import (
    Assign,
    Case,
    Command,
    Cond,
    For,
    Function,
    Item,
    ParseError,
    Script,
    Simple,
    Word,
)
from airflows.migrate.shell.words import Inner, Part, Variable, literal, parts_of, parts_of_heredoc

ON_SLURM = '[ -n "${SLURM_JOB_NODELIST:-}" ]'
MANAGERS = frozenset({"module", "ml", "conda", "mamba", "micromamba", "spack"})
_USES_MANAGER = re.compile(r"\$\((?:which\s+)?(?:\S*/)?(?:conda|mamba|micromamba|spack)\b|\bconda shell\.")
_VENV = re.compile(r"(?:[^/~$].*/)?bin/activate", re.ASCII)
_DEFAULTED = re.compile(r":?[-=+?]")
_OPTIONAL = re.compile(
    r".*PATH|CUDA_\w+|CONDA_\w+|VIRTUAL_ENV|DISPLAY|TERM|PS1|PROMPT_COMMAND|LOADEDMODULES|OMP_NUM_THREADS|DEBUG"
    r"|VERBOSE|LANG|LC_\w+|\w+FLAGS|EBROOT\w+|EBVERSION\w+"
)
_OWN = frozenset(
    """
    BASH BASHPID BASH_REMATCH BASH_SOURCE BASH_VERSINFO BASH_VERSION COLUMNS DIRSTACK EPOCHREALTIME
    EPOCHSECONDS EUID FUNCNAME GROUPS HOME HOSTNAME HOSTTYPE IFS LINENO LINES MACHTYPE OLDPWD OPTARG OPTERR
    OPTIND OSTYPE PATH PIPESTATUS PPID PWD RANDOM REPLY SECONDS SHELL SHELLOPTS SHLVL UID _
    """.split()  # noqa: SIM905
)
GIVEN = frozenset(
    """
    NUM_NODES NODE_RANK MASTER_ADDR MASTER_PORT LOCAL_WORLD_SIZE WORLD_SIZE CODE_SOURCE_PATH
    HYPERPARAMETERS_PATH RANK LOCAL_RANK
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable that a script uses.

    Attributes:
        name: the variable.
        offset: where.
        has_default: it may be unset.
        in_function: it stands in a function.
    """

    name: str
    offset: int
    has_default: bool
    in_function: bool


# Site


def site_items(script: Script) -> list[Item]:
    """Return the entries that only set up the site's software."""
    return [item for item in script.items if _is_site(script, item)]


def _is_site(script: Script, item: Item) -> bool:
    if item.background or any(len(pipeline.commands) != 1 for pipeline in item.pipelines):
        return False
    if names.mentions(script.source(item), "SLURM_ARRAY_TASK_ID"):
        return False
    return all(_sets_up(pipeline.commands[0]) for pipeline in item.pipelines)


def _sets_up(command: Command) -> bool:
    if not isinstance(command, Simple):
        return False
    words = [word.text for word in command.words]
    if not words:
        return bool(command.assigns) and all(
            _USES_MANAGER.search(each.value.text) for each in command.assigns
        )
    if words[0] in MANAGERS:
        return "run" not in words[1:2]
    if words[0] in ("source", "."):
        return builtins.is_harmless(words) or "activate" in words[1:2]
    return words[0] == "eval" and _USES_MANAGER.search(" ".join(words)) is not None


def site_edits(script: Script, directory: str, *, is_login: bool) -> list[Edit]:
    """Return what makes the site's set-up run on Slurm only, where it is there.

    Args:
        script: its tree.
        directory: where the script starts: environments that it names by a relative path are there, and not
            in the snapshot of the code.
        is_login: the script asks for a login shell, which makes modules available.
    """
    wanted = {id(item) for item in site_items(script)}
    groups: list[list[Item]] = []
    previous = False
    for item in script.items:
        if id(item) in wanted:
            groups += [] if previous else [[]]
            groups[-1].append(item)
        previous = id(item) in wanted
    edits = [_guarded(script, group, directory, is_login=is_login) for group in groups]
    if is_login and not groups and script.items:
        start = script.items[0].start
        edits.append(Edit(start, start, f"if {ON_SLURM}; then . /etc/profile; fi\n"))
    return edits


def _guarded(script: Script, group: Sequence[Item], directory: str, *, is_login: bool) -> Edit:
    lines = [f"if {ON_SLURM}; then"]
    text = "\n".join(script.source(item) for item in group)
    if is_login:
        lines.append("  . /etc/profile")
    elif re.search(r"(?:^|[;&\s])(?:module|ml)\s", text):
        lines.append("  type module >/dev/null 2>&1 || . /etc/profile")
    lines += [f"  {_absolute(script, item, _directory_at(script, item, directory))}" for item in group]
    end = group[-1].stop
    return Edit(
        group[0].start, end, "\n".join([*lines, "fi" if script.text[end : end + 1] in ("\n", "") else "fi\n"])
    )


def _directory_at(script: Script, item: Item, directory: str) -> str | None:
    """Return the directory beside the script that an entry runs in, None when it is none of those."""
    here: str | None = directory
    for before in script.items[: script.items.index(item)]:
        if goes_to_submit_directory(before):
            here = directory
        elif any(_changes_directory(command) for command in names.commands_of((before,))):
            words = [literal(word.text) for word in before.simple.words] if before.simple is not None else []
            target = words[1] if len(words) == 2 else None  # noqa: PLR2004 - cd DIRECTORY
            is_below = target is not None and not target.startswith(("/", "~", "-"))
            here = f"{here}/{target}" if is_below and here is not None else None
    return here


def _changes_directory(command: Command) -> bool:
    return isinstance(command, Simple) and [word.text for word in command.words[:1]] in (["cd"], ["pushd"])


def _absolute(script: Script, item: Item, directory: str | None) -> str:
    """Return a set-up command, with the whole path of a virtual environment beside the script."""
    simple = item.simple
    source = script.source(item)
    if directory is None:
        return source
    if simple is None or len(simple.words) < 2 or not _VENV.fullmatch(simple.words[1].text):  # noqa: PLR2004
        return source
    word = simple.words[1]
    path = f'"{directory}/{word.text.removeprefix("./")}"'
    return source[: word.start - item.start] + path + source[word.end - item.start :]


# Variables


def references(script: Script) -> list[Reference]:
    """Return the variables that a script uses, wherever the shell would expand them."""
    found: list[Reference] = []
    for item in script.items:
        for pipeline in item.pipelines:
            for command in pipeline.commands:
                found += _in_command(command, in_function=False)
    return found


def _in_command(command: Command, *, in_function: bool) -> Iterator[Reference]:
    in_function = in_function or isinstance(command, Function)
    for word in _words(command):
        yield from _in_parts(_safe_parts(word.text), word.start, in_function)
    for redirect in command.redirects:
        if redirect.target is not None and redirect.heredoc is None:
            yield from _in_parts(_safe_parts(redirect.target.text), redirect.start, in_function)
        if redirect.heredoc is not None and not redirect.heredoc.quoted:
            yield from _in_parts(parts_of_heredoc(redirect.heredoc.text), redirect.heredoc.start, in_function)
    for items in names.bodies_of(command):
        for item in items:
            for pipeline in item.pipelines:
                for inner in pipeline.commands:
                    yield from _in_command(inner, in_function=in_function)
    if isinstance(command, Function):
        yield from _in_command(command.body, in_function=True)


def words_of(item: Item) -> Iterator[Word]:
    """Yield all words in an entry, those of compound commands too."""
    for pipeline in item.pipelines:
        for command in pipeline.commands:
            for each in names.walk(command):
                yield from _words(each)


def _words(command: Command) -> Iterable[Word]:
    match command:
        case Simple():
            yield from command.words
            for assign in command.assigns:
                yield from _assigned_words(assign)
        case For():
            yield from command.words or ()
        case Case():
            yield command.word
            for arm in command.arms:
                yield from arm.patterns
        case Cond():
            yield from command.words


def _assigned_words(assign: Assign) -> Iterable[Word]:
    return assign.items if assign.items is not None else (assign.value,)


def _safe_parts(text: str) -> list[Part]:
    try:
        return parts_of(text)
    except (ParseError, ValueError):
        return []


def _in_parts(parts: Sequence[Part], offset: int, in_function: bool) -> Iterator[Reference]:
    for part in parts:
        place = offset + part.start
        if isinstance(part, Variable):
            has_default = _DEFAULTED.match(part.op) is not None
            yield Reference(part.name, place, has_default, in_function)
            rest = part.op.lstrip(":-=+?%#/") if has_default else part.op
            yield from _in_parts(_safe_parts(rest) if "$" in rest else [], place, in_function)
            if part.subscript and "$" in part.subscript:
                yield from _in_parts(_safe_parts(part.subscript), place, in_function)
        elif isinstance(part, Inner) and part.kind == "arithmetic":
            yield from _in_parts(parts_of_heredoc(part.text), place, in_function)
        elif isinstance(part, Inner) and part.kind == "command":
            yield from _in_substitution(part.text, place, in_function)


def _in_substitution(text: str, place: int, in_function: bool) -> Iterator[Reference]:
    try:
        inner = parse(text)
    except ParseError:
        return
    for reference in references(inner):
        yield Reference(reference.name, place, reference.has_default, in_function or reference.in_function)


def foreign(script: Script, given: Iterable[str]) -> dict[str, Reference]:
    """Return the variables that come from the environment that sbatch was called in.

    Args:
        script: its tree.
        given: names that are set otherwise.
    """
    known = set(given) | _OWN | GIVEN
    for item in script.items:
        for pipeline in item.pipelines:
            for command in pipeline.commands:
                known |= names.assigned(script.text, command)
    found: dict[str, Reference] = {}
    for reference in references(script):
        name = reference.name
        is_named = (
            name.isidentifier()
            and name not in known
            and not name.startswith(("SLURM", "SRUN_", "SBATCH_", "AIRFLOWS_", "MLFLOW_"))
        )
        if is_named and not reference.has_default and not _OPTIONAL.fullmatch(name):
            found.setdefault(name, reference)
    return found


def arguments(script: Script) -> list[Reference]:
    """Return the uses of the script's own arguments, such as `$1`."""
    if _sets_arguments(script):
        return []
    return [
        reference
        for reference in references(script)
        if not reference.in_function
        and ((reference.name.isdigit() and reference.name != "0") or reference.name in ("@", "*", "#"))
    ]


def _sets_arguments(script: Script) -> bool:
    return any(
        item.simple is not None
        and [word.text for word in item.simple.words[:1]] == ["set"]
        and len(item.simple.words) > 1
        and not item.simple.words[1].text.startswith(("-e", "-u", "-x", "-o", "+"))
        for item in script.items
    )


def goes_elsewhere(script: Script) -> Item | None:
    """Return the entry with which the script goes to a fixed directory before it does anything, else None."""
    for item in script.items:
        simple = item.simple
        words = [word.text for word in simple.words] if simple is not None else ["?"]
        if words[:1] == ["cd"] and len(words) == 2:  # noqa: PLR2004 - cd DIRECTORY
            target = words[1].strip('"')
            is_fixed = target.startswith(("/", "~", "$")) and "SLURM_SUBMIT_DIR" not in target
            return item if is_fixed and "$(" not in target else None
        if words and words[0] not in (
            "set",
            "echo",
            "export",
            "ulimit",
            "umask",
            "date",
            "hostname",
            *MANAGERS,
        ):
            is_site = item in site_items(script)
            if not is_site:
                return None
    return None


def goes_to_submit_directory(item: Item) -> bool:
    """Whether an entry is `cd $SLURM_SUBMIT_DIR`."""
    match [word.text for word in item.simple.words] if item.simple is not None else []:
        case ["cd", target]:
            return re.fullmatch(r'"?\$\{?SLURM_SUBMIT_DIR\}?/?"?', target) is not None
        case _:
            return False


def plain_exports(script: Script) -> dict[str, tuple[Item, str]]:
    """Return variables that are exported with a literal value before anything else happens, each once.

    They may as well be set before the command starts.
    """
    times = _times_assigned(script)
    found: dict[str, tuple[Item, str]] = {}
    for item in script.items:
        simple = item.simple
        if simple is None or item.background or simple.redirects or not _is_harmless(simple):
            break
        values = {each.name: literal(each.value.text) for each in simple.assigns if each.items is None}
        is_plain = len(values) == len(simple.assigns) and all(map(_is_plain_value, values.values()))
        is_once = all(times[name] == 1 for name in values)
        if [word.text for word in simple.words] == ["export"] and is_plain and is_once:
            found |= {name: (item, value or "") for name, value in values.items()}
    return found


def _times_assigned(script: Script) -> dict[str, int]:
    times: dict[str, int] = {}
    for item in script.items:
        for pipeline in item.pipelines:
            for command in pipeline.commands:
                for name in names.assigned(script.text, command):
                    times[name] = times.get(name, 0) + 1
    return times


def _is_harmless(simple: Simple) -> bool:
    """Whether a command starts no program that would see what is exported behind it."""
    if any("$(" in each.value.text or "`" in each.value.text for each in simple.assigns):
        return False
    first = simple.words[0].text if simple.words else "export"
    return first in ("export", "set", "echo", "ulimit", "umask", "date", "hostname")


def _is_plain_value(value: str | None) -> bool:
    return value is not None and not value.startswith("~") and ":~" not in value
