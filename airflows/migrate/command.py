"""The command of the train.yaml: the script as it was, with as few changes as it needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflows.migrate import nodes, prelude, rendezvous, surroundings
from airflows.migrate.choice import is_free
from airflows.migrate.edits import Edit, applied, removal
from airflows.migrate.prelude import Surrounding
from airflows.migrate.report import Report
from airflows.migrate.shell import names
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.tree import Item, ParseError, Script, Simple, Word
from airflows.migrate.shell.words import Literal, Variable, parts_of
from airflows.migrate.sweeping import Sweeping
from airflows.migrate.trace import end_of

_REQUEUE = re.compile(r"\bscontrol\s+requeue(?:hold)?\b")
_SUBMIT = re.compile(
    r"(^[ \t]*|[;&|({`'\"]\s*|\bthen\s+|\bdo\s+|\belse\s+|\bexec\s+)sbatch(?=\s)", re.MULTILINE
)
_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS|BSUB)\b[^\n]*\n?", re.MULTILINE)
_IN_HEADER = re.compile(r"#!|\s*#+\s*(?:SBATCH|sbatch|PBS|BSUB)\b")
_QUIET = frozenset({"export", "echo", "mkdir", "cd", ":", "umask"})
_PLATFORM = frozenset({"CODE_SOURCE_PATH", "HOME", "PATH", "PWD", "HOSTNAME"})


@dataclass(slots=True)
class Command:
    """A command, and what goes with it.

    Attributes:
        text: for `command` of train.yaml.
        env: for `env_variables`.
        inherited: variables that came from the environment of the one who called sbatch.
        has_code: the command starts in the snapshot of the code.
    """

    text: str
    env: dict[str, str] = field(default_factory=dict)
    inherited: list[str] = field(default_factory=list)
    has_code: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """The script, and what is around it.

    Attributes:
        script: its tree.
        flags: options of the interpreter, such as `e` of `#!/bin/bash -e`.
        name: the file's name.
        directory: where it lies, absolute.
        given: variables that are set otherwise.
        has_chdir: it says where it runs.
        mentioned: variables of Slurm that programs use which it runs.
    """

    script: Script
    flags: str
    name: str
    directory: str
    given: frozenset[str]
    has_chdir: bool
    mentioned: frozenset[str] = frozenset()


def command_of(
    source: Source,
    around: Surrounding,
    sweep: Sweeping | None,
    per_node: int,
    gpus_per_task: int,
    report: Report,
) -> Command:
    """Return the command that does what the script did.

    Args:
        source: the script.
        around: the job it was written for.
        sweep: what became of its array, None without one.
        per_node: GPUs of a node of the accelerator type.
        gpus_per_task: GPUs that each task of srun has for itself, 0 when they share.
        report: gets what should be looked at.
    """
    script = source.script
    spread = nodes.node_edits(script, around.resources, gpus_per_task, report)
    exports = surroundings.plain_exports(script)
    edits = [*(sweep.edits if sweep else ()), *spread.edits, *_own_edits(source), *_header_edits(script)]
    edits += rendezvous.rendezvous_edits(script, around.resources, per_node)
    env = _moved(exports, source, edits)
    elsewhere = None if source.has_chdir else surroundings.goes_elsewhere(script)
    edits += surroundings.site_edits(script, source.directory, is_login="l" in source.flags)
    text, uses = _without_jobs(applied(script.text, edits).strip("\n"), source.name)
    made = Command("", env, has_code=elsewhere is None)
    if elsewhere is not None:
        _note_elsewhere(script, elsewhere, report)
    keys = set(sweep.keys) if sweep else set()
    lines = ['cd "$CODE_SOURCE_PATH"'] if made.has_code else []
    if spread.first_only:
        lines.append('[ "$NODE_RANK" = 0 ] || exit 0')
        report.note(
            "first-node",
            1,
            "Without srun the script ran on the first of its nodes only; so does the command.",
        )
    lines += sweep.prelude if sweep else []
    lines += _variables(text, source, around, keys, report)
    lines += _foreign(source, made, keys | set(env), report)
    lines += prelude.functions(uses | spread.uses, spread.gpus_per_task, around.resources.gpus_per_node or 0)
    head = _options(text, source, keys | set(env))
    made.text = "\n".join([*head, *lines, text]).strip("\n")
    return made


def _own_edits(source: Source) -> list[Edit]:
    """Return edits of single entries: the submit directory, and the only `wait`."""
    script = source.script
    edits = [
        removal(script.text, item.start, item.stop)
        for item in script.items
        if surroundings.goes_to_submit_directory(item) and not source.has_chdir
    ]
    waits = [item for item in script.items if _is_bare_wait(item)]
    background = [item for item in _all_items(script.items) if item.background]
    if len(waits) == 1 and len(background) == 1:
        # Bare `wait` succeeds whatever became of the program.
        edits.append(Edit(waits[0].start, waits[0].end, "wait $!"))
    return edits


def _is_bare_wait(item: Item) -> bool:
    return item.simple is not None and [word.text for word in item.simple.words] == ["wait"]


def _all_items(items: Sequence[Item]) -> list[Item]:
    found: list[Item] = []
    for item in items:
        found.append(item)
        for pipeline in item.pipelines:
            for command in pipeline.commands:
                for each in names.walk(command):
                    for body in names.bodies_of(each):
                        found += body
    return list({id(item): item for item in found}.values())


def _moved(exports: Mapping[str, tuple[Item, str]], source: Source, edits: list[Edit]) -> dict[str, str]:
    """Return the exports that go to env_variables, and drop them from the script."""
    if "a" in source.flags or not all(is_free(name) for name in exports):
        exports = {
            name: pair
            for name, pair in exports.items()
            if pair[0].simple and all(is_free(each.name) for each in pair[0].simple.assigns)
        }
    edits += [removal(source.script.text, item.start, item.stop) for item, _ in exports.values()]
    return {name: value for name, (_, value) in exports.items() if value.isprintable()}


def _header_edits(script: Script) -> list[Edit]:
    """Return what drops the first line, and directives outside of commands; other comments stay."""
    start = script.items[0].start if script.items else len(script.text)
    start = script.text.rfind("\n", 0, start) + 1
    kept = [line for line in script.text[:start].split("\n") if line.strip() and not _IN_HEADER.match(line)]
    edits = [Edit(0, start, "".join(f"{line}\n" for line in kept))]
    spans = [(item.start, end_of(script, item)) for item in script.items]
    late = [found.span() for found in _DIRECTIVE.finditer(script.text, start)]
    outside = [span for span in late if not any(first <= span[0] < last for first, last in spans)]
    return edits + [Edit(*span) for span in outside]


def _without_jobs(text: str, name: str) -> tuple[str, set[str]]:
    """Return the text with functions in the place of calls that would start jobs, and the functions."""
    uses: set[str] = set()
    if _REQUEUE.search(text):
        uses.add("start_again")
        text = _REQUEUE.sub("start_again", text)

    def submitted(found: re.Match[str]) -> str:
        rest = text[found.end() :].partition("\n")[0]
        is_itself = re.search(rf"\$0|\$\{{?0\}}?|BASH_SOURCE|(?<![\w.-]){re.escape(name)}(?![\w.-])", rest)
        function = "start_again" if is_itself else "not_submitted"
        uses.add(function)
        return f"{found[1]}{function}"

    return _SUBMIT.sub(submitted, text), uses


def _note_elsewhere(script: Script, item: Item, report: Report) -> None:
    report.note(
        "directory",
        script.line(item.start),
        "The script works in a directory of its own, so no code is snapshotted. For AI Runtime, and"
        " to keep the"
        " code as it is when a sweep starts, name the directory under code_source and leave the `cd` out.",
    )


# Variables


def _variables(text: str, source: Source, around: Surrounding, keys: set[str], report: Report) -> list[str]:
    """Return lines that set Slurm's variables as far as the command or its programs mention them."""
    plain = text.replace(surroundings.ON_SLURM, "")
    lines = []
    for name in [*prelude.slurm_names(plain), *sorted(source.mentioned - set(prelude.slurm_names(plain)))]:
        if name == "SLURM_ARRAY_TASK_ID" or name in keys:
            continue
        line = around.line_for(name)
        if line is not None:
            lines.append(line)
        elif not (name == "SLURM_JOB_NODELIST" and "rendezvous" in report.kinds):
            report.warn(
                "slurm-variable",
                _line_of(source.script, name),
                f"{name} is there on Slurm only, and nothing stands for it elsewhere.",
            )
    return lines


def _line_of(script: Script, name: str) -> int:
    found = re.search(rf"\b{name}\b", script.text)
    return script.line(found.start()) if found else 1


def _foreign(source: Source, made: Command, given: set[str], report: Report) -> list[str]:
    """Return lines for variables that came from the environment in which sbatch was called."""
    found = surroundings.foreign(source.script, source.given | given)
    opens = bool(surroundings.site_items(source.script)) or _reads_others(source.script)
    lines = []
    for name, reference in found.items():
        if name in ("USER", "LOGNAME"):
            lines.append(f'export {name}="${{{name}:-$(id -un)}}"')
            continue
        if name == "TMPDIR":
            lines.append('export TMPDIR="${TMPDIR:-/tmp}"')
            continue
        made.inherited.append(name)
        report.warn(
            "environment",
            source.script.line(reference.offset),
            f"{name} is not set in the script: it came from the environment that sbatch was called in, and"
            f" trials do not get that. Set it under env_variables of train.yaml, or list it under"
            " backend.inherit of sweep.yaml.",
        )
        if not opens:
            lines.append(f': "${{{name}:?is not set: give it under env_variables in train.yaml}}"')
    return lines


def _reads_others(script: Script) -> bool:
    for command in names.commands_of(script.items):
        if isinstance(command, Simple) and command.words and command.words[0].text in ("source", ".", "eval"):
            return True
    return False


# Shell options


def _options(text: str, source: Source, known: set[str]) -> list[str]:
    """Return the lines that give the script the shell options it was written for.

    A command runs under `set -euo pipefail`. A script of one program does as well under that as without.
    """
    wanted = "".join(flag for flag in source.flags if flag in "eux")
    if not wanted and _is_tame(text, known | source.given):
        return []
    return ["set +euo pipefail", *([f"set -{wanted}"] if wanted else [])]


def _is_tame(text: str, known: set[str]) -> bool:
    """Whether a script behaves the same when it ends at the first failure."""
    try:
        script = parse(text)
    except ParseError:
        return False
    if not script.items or not _all_known(script, known):
        return False
    *before, last = script.items
    if not all(_is_plain(word) for item in script.items for word in surroundings.words_of(item)):
        return False
    if last.background or not isinstance(last.command, Simple):
        return False
    return all(map(_is_quiet, before))


def _is_plain(word: Word) -> bool:
    """Whether a word holds nothing that may be unset or fail: arithmetic, elements, commands."""
    try:
        parts = parts_of(word.text)
    except (ParseError, ValueError):
        return False
    return all(
        isinstance(part, Literal) or (isinstance(part, Variable) and part.subscript is None) for part in parts
    )


def _is_quiet(item: Item) -> bool:
    simple = item.simple
    if simple is None or item.background:
        return False
    has_output = any("$(" in assign.value.text or "`" in assign.value.text for assign in simple.assigns)
    words = [word.text for word in simple.words]
    if words[:1] == ["mkdir"]:
        return "-p" in words
    return not has_output and (not words or words[0] in _QUIET)


def _all_known(script: Script, given: set[str]) -> bool:
    """Whether all variables that a script uses are set when it uses them."""
    known = given | _PLATFORM | surroundings.GIVEN
    for command in names.commands_of(script.items):
        known |= names.assigned(script.text, command)
    return all(
        reference.has_default or reference.name in known or _is_set(reference.name)
        for reference in surroundings.references(script)
    )


def _is_set(name: str) -> bool:
    return name.startswith("SLURM") and name != "SLURM_RESTART_COUNT"
