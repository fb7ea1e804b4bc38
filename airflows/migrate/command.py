"""The command of the train.yaml: the script as it was, with as few changes as it needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from airflows.migrate import nodes, prelude, rendezvous, surroundings, tame
from airflows.migrate.choice import is_free
from airflows.migrate.edits import Edit, applied, removal
from airflows.migrate.nodes import NodeEdits
from airflows.migrate.prelude import Surrounding
from airflows.migrate.report import Report
from airflows.migrate.shell import names
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.tree import Item, ParseError, Script, Simple
from airflows.migrate.sweeping import Sweeping
from airflows.migrate.trace import end_of

_REQUEUE = re.compile(r"\bscontrol\s+requeue(?:hold)?\b")
_SUBMIT = re.compile(
    r"(^[ \t]*|[;&|({`'\"]\s*|\bthen\s+|\bdo\s+|\belse\s+|\bexec\s+)sbatch(?=\s)", re.MULTILINE
)
_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS|BSUB)\b[^\n]*\n?", re.MULTILINE)
_BLANKS = re.compile(r"^[ \t]+(?=\n)", re.MULTILINE)
_GAP = re.compile(r"\n(?:[ \t]*\n){2,}")
_IN_HEADER = re.compile(r"#!|\s*#+\s*(?:SBATCH|sbatch|PBS|BSUB)\b")
_VARYING = re.compile(
    r"\$\(\s*(?:date|uuidgen|mktemp|hostname|shuf)\b[^)]*\)|\$\$(?!\w)|\$\{?(?:BASHPID|HOSTNAME)\b\}?"
)
_ON_FIRST = "Without srun the script ran on the first of its nodes only; so does the command."
_ON_FIRST_WITH_SRUN = (
    "The script starts different things on its nodes by srun, so it stays a batch script: it runs on"
    " the first"
    " node, and its srun works on Slurm only."
)
# A step inside a step waits for ever for CPUs and memory unless it shares them: tried with Slurm 22.05.
_NESTED = ("unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU", "export SLURM_OVERLAP=1 SLURM_MEM_PER_NODE=0")


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
        directory: where it starts.
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
    spread = nodes.node_edits(source.script, around.resources, gpus_per_task, report)
    edits = [
        *(sweep.edits if sweep else ()),
        *spread.edits,
        *_own_edits(source),
        *_header_edits(source.script),
    ]
    if not spread.keeps_srun:
        edits += rendezvous.rendezvous_edits(source.script, around.resources, per_node)
    made = Command("", _moved(source, edits), has_code=not _goes_elsewhere(source, report))
    edits += surroundings.site_edits(source.script, source.directory, is_login="l" in source.flags)
    text, uses = _without_jobs(_tightened(applied(source.script.text, edits)), source.name)
    keys = {*made.env, *(sweep.keys if sweep else ())}
    lines = ['cd "$CODE_SOURCE_PATH"'] if made.has_code else []
    lines += _of_nodes(source.script, text, spread, around, report)
    lines += sweep.prelude if sweep else []
    lines += _variables(text, source, around, keys, report)
    lines += _foreign(source, made, keys, report)
    lines += _arguments(source.script, report)
    lines += prelude.functions(uses | spread.uses, spread.gpus_per_task, around.resources.gpus_per_node or 0)
    made.text = "\n".join([*tame.options(text, source.flags, keys | source.given), *lines, text]).strip("\n")
    return made


def _of_nodes(script: Script, text: str, spread: NodeEdits, around: Surrounding, report: Report) -> list[str]:
    """Return the lines by which each node does what it did."""
    if spread.first_only:
        report.note("first-node", 1, _ON_FIRST_WITH_SRUN if spread.keeps_srun else _ON_FIRST)
        first = '[ "$NODE_RANK" = 0 ] || exit 0'
        if not spread.keeps_srun:
            return [first]
        tasks = [around.line_for(name) or "" for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE")]
        return [first, *_NESTED, *tasks]
    if around.resources.nodes == 1:
        return []
    for found in _VARYING.finditer(script.text):
        report.warn(
            "node-value",
            script.line(found.start()),
            f"{found[0].strip()} was found once, in the batch script; now every node finds its own. Where all"
            " must agree, such as in a rendezvous id or a directory, use AIRFLOWS_SWEEP and AIRFLOWS_TRIAL.",
        )
    # Seeded alike, the nodes draw the same numbers.
    return ["RANDOM=$MASTER_PORT"] if names.mentions(text, "RANDOM") else []


def _arguments(script: Script, report: Report) -> list[str]:
    """Return lines for the arguments that sbatch was given behind the script's name, which nobody knows."""
    used = surroundings.arguments(script)
    for reference in used:
        report.warn(
            "arguments",
            script.line(reference.offset),
            "The script takes arguments, which were given to sbatch behind its name. Write them behind"
            " `set --` in the command.",
        )
    if not used:
        return []
    first = next((each.name for each in used if each.name.isdigit() and not each.has_default), None)
    needs = (
        [f': "${{{first}:?is not given: write the arguments behind set -- in the command}}"'] if first else []
    )
    return ["set --", *needs]


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
    if len(waits) == 1 and len(background) == 1 and background[0] in script.items:
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


def _moved(source: Source, edits: list[Edit]) -> dict[str, str]:
    """Return the exports that go to env_variables, and drop them from the script."""
    exports = {
        name: (item, value)
        for name, (item, value) in surroundings.plain_exports(source.script).items()
        if item.simple and all(is_free(each.name) and value.isprintable() for each in item.simple.assigns)
    }
    edits += [removal(source.script.text, item.start, item.stop) for item, _ in exports.values()]
    return {name: value for name, (_, value) in exports.items()}


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


def _tightened(text: str) -> str:
    """Return a script without more than one empty line between two commands."""
    try:
        script = parse(text)
    except ParseError:
        return text.strip("\n")
    ends = [end_of(script, item) for item in script.items]
    starts = [item.start for item in script.items]
    gaps = zip([0, *ends], [*starts, len(text)], strict=True)
    edits = [Edit(first, last, _tight(text[first:last])) for first, last in gaps if first < last]
    return applied(text, edits).strip("\n")


def _tight(gap: str) -> str:
    """Return what stands between two commands without more than one empty line, and no blanks on that."""
    return _GAP.sub("\n\n", _BLANKS.sub("", gap))


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


def _goes_elsewhere(source: Source, report: Report) -> bool:
    """Whether the script goes to a directory of its own before it does anything."""
    item = None if source.has_chdir else surroundings.goes_elsewhere(source.script)
    if item is not None:
        report.note(
            "directory",
            source.script.line(item.start),
            "The script works in a directory of its own, so no code is snapshotted. For AI Runtime,"
            " and to keep"
            " the code as it is when a sweep starts, name the directory under code_source and leave the `cd`"
            " out.",
        )
    return item is not None


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
    opens = _reads_others(source.script)
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
    """Whether something that the script reads may set variables: modules, start-up files, other scripts."""
    for command in names.commands_of(script.items):
        words = [word.text for word in command.words] if isinstance(command, Simple) else []
        if words[:1] in (["source"], ["."]) and len(words) > 1 and words[1].endswith("bin/activate"):
            continue
        if words and words[0] in ("source", ".", "eval", *surroundings.MANAGERS):
            return True
    return False
