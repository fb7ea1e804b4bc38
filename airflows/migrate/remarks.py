"""What in a script's commands is tied to Slurm or to a site, and what to do instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from airflows.migrate.report import Report
from airflows.migrate.shell import names
from airflows.migrate.shell.tree import Command, Function, Item, Simple
from airflows.migrate.shell.words import literal
from airflows.migrate.steps import Body, Step

_SCRATCH = re.compile(
    r"\$\{?(?:SLURM_TMPDIR|SLURM_SCRATCH\w*|L?SCRATCH\w*)\b|(?<![\w.-])/l?(?:ocal)?scratch\b"
)
_COUNTS = re.compile(r"\bSLURM_ARRAY_TASK_(?:COUNT|MIN|MAX|STEP)\b")
_REQUEUE = re.compile(r"\bscontrol\s+requeue(?:hold)?\b")
_HOSTS = re.compile(r"\bscontrol\s+show\s+hostnames?\b")
_RANKS = re.compile(r"\bSLURM_(?:PROCID|NODEID|LOCALID|(?:JOB_)?NODELIST|LAUNCH_NODE_IPADDR|TOPOLOGY_ADDR)\b")
_RANK_NAMES = re.compile(r"(?:WORLD_SIZE|RANK|NODE_RANK|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|NNODES)")
_HOSTFILE = re.compile(
    r"--?(?:hostfile|machinefile|hostlist)\b|\bhost_?file\b|\bPBS_NODEFILE\b", re.IGNORECASE
)
_SECRET = re.compile(r"\w*(?:API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|ACCESS_KEY)", re.IGNORECASE)
_SUBMIT = re.compile(r"(?:^|[;&|({`]|\bthen\b|\bdo\b|\belse\b|\bexec\b)\s*sbatch\s")
# Of a whole line: what is looked for, its code, what is said.
_IN_LINES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        _SCRATCH,
        "scratch",
        (
            "Scratch directories are the site's. Data for a trial belongs where all backends see it, or"
            " is copied by the command; what is to be kept goes to $AIRFLOWS_CHECKPOINT_DIR."
        ),
    ),
    (
        _COUNTS,
        "array-count-env",
        (
            "The number and the bounds of the array are written into the command as they are now: when"
            " the sweep gets other points, change them there."
        ),
    ),
    (
        _REQUEUE,
        "self-requeue",
        (
            "airflows starts a trial again itself, so the call is replaced by one that ends the command"
            " with exit status 1. Retries are max_retries of train.yaml and retry of sweep.yaml."
        ),
    ),
    (
        _SUBMIT,
        "self-resubmit",
        (
            "A trial submits no jobs: the call is replaced by a message. A job that follows on itself is"
            " a trial that is retried from its checkpoint; another job is a run of its own."
        ),
    ),
    (
        _HOSTFILE,
        "hostfile",
        (
            "There is no file of hosts: the command runs once on every node, with NODE_RANK and"
            " MASTER_ADDR. Start the processes with torchrun, or with a launcher that takes these."
        ),
    ),
)
_SLURM_COMMANDS = frozenset(
    "scancel squeue sacct sinfo sstat sbcast sgather sattach salloc sacctmgr scontrol strigger sprio".split()  # noqa: SIM905
)
_INTERPRETERS = ("python", "bash", "sh", "julia", "R", "Rscript", "perl", "node")


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of the body that is no comment."""

    line: int
    text: str


def remark(body: Body, first_line: int, report: Report, *, is_array: bool) -> None:
    """Report what the commands of a script need of Slurm or of a site.

    Args:
        body: what the script does.
        first_line: number of the first line that is no comment.
        report: gets a warning for each.
        is_array: the script is an array's.
    """
    places = list(_lines(body, first_line))
    for place in places:
        _remark_line(place, report)
    for item in body.script.items:
        for command in _commands(item):
            _remark_secrets(body, command, report)
            _remark_command(body, command, report)
        _remark_background(body, item, report)
    _remark_ranks(places, report)
    for step in body.steps:
        _remark_step(body, step, report)
    _remark_several(body, report)
    if not is_array:
        _remark_missing_array(places, report)


def _lines(body: Body, first_line: int) -> Iterator[_Place]:
    for number, text in enumerate(body.script.text.split("\n"), 1):
        if number >= first_line and not text.lstrip().startswith("#"):
            yield _Place(number, text)


def _commands(item: Item) -> Iterator[Command]:
    for pipeline in item.pipelines:
        for command in pipeline.commands:
            yield from names.walk(command)


def _remark_line(place: _Place, report: Report) -> None:
    for pattern, kind, message in _IN_LINES:
        if pattern.search(place.text):
            report.warn(kind, place.line, message)


def _remark_command(body: Body, command: Command, report: Report) -> None:
    if not isinstance(command, Simple) or not command.words:
        return
    line, word = body.script.line(command.start), command.words[0].text
    if word in ("module", "ml"):
        report.warn(
            "module",
            line,
            "Modules are the site's: the line is kept for Slurm and skipped elsewhere. On AI Runtime packages"
            " are environment.dependencies of train.yaml.",
        )
    elif word in _SLURM_COMMANDS and not _is_told_otherwise(body.script.source(command)):
        report.warn("slurm-command", line, f"{word} is there on Slurm only; elsewhere the line fails.")
    for redirect in command.redirects:
        words = [part.text.rpartition("/")[2] for part in command.words]
        if redirect.heredoc is not None and any(each.startswith(_INTERPRETERS) for each in words):
            report.warn(
                "heredoc",
                line,
                "The program stands inside the command, so it is no part of the code snapshot, and"
                " no line of it"
                " can be read here. Put it into a file.",
            )


def _remark_secrets(body: Body, command: Command, report: Report) -> None:
    """Warn of secrets that stand in the script; never with their values."""
    for assign in command.assigns if isinstance(command, Simple) else ():
        value = literal(assign.value.text) if assign.items is None else None
        if value and _SECRET.fullmatch(assign.name):
            report.warn(
                "secret",
                body.script.line(command.start),
                f"{assign.name} looks like a secret, and whoever reads train.yaml or MLflow reads it there."
                f" Take it out and write secrets: {{{assign.name}: SCOPE/KEY}}, with the value in the"
                " environment or in secrets.env.",
            )


def _is_told_otherwise(source: str) -> bool:
    return _REQUEUE.search(source) is not None or _HOSTS.search(source) is not None


def _remark_background(body: Body, item: Item, report: Report) -> None:
    is_wait = item.simple is not None and [word.text for word in item.simple.words[:1]] == ["wait"]
    if item.background or is_wait:
        report.warn(
            "background",
            body.script.line(item.start),
            "Programs in the background are kept as they are. Run the training in the foreground if it is"
            " alone: airflows signals every process of a trial. Several at once are better several trials.",
        )


def _remark_ranks(places: list[_Place], report: Report) -> None:
    for place in places:
        from_slurm = re.search(rf"\b{_RANK_NAMES.pattern}=\S*\$\{{?\(?\(?.*SLURM_", place.text)
        if _HOSTS.search(place.text) or _RANKS.search(place.text) or from_slurm:
            report.warn(
                "rendezvous",
                place.line,
                "On every backend the command finds MASTER_ADDR, MASTER_PORT, NUM_NODES, NODE_RANK and"
                " LOCAL_WORLD_SIZE; they replace what comes from Slurm's variables where that is certain."
                " Check this line.",
            )


def _remark_step(body: Body, step: Step, report: Report) -> None:
    line, program = body.script.line(step.command.start), step.program
    if program.srun is not None:
        report.warn(
            "srun",
            line,
            "The command runs once on every node on all backends, so srun is not needed: it is taken"
            " off where"
            " it starts the same on all nodes, and kept where it does more.",
        )
    if program.is_mpi:
        report.warn(
            "mpi",
            line,
            "Nothing starts MPI's processes on several nodes but on Slurm. Start them with torchrun,"
            " or run on"
            " one node.",
        )
    if program.container is not None:
        runtime = program.container.runtime
        message = (
            "The image is environment.docker_image of train.yaml if it has an address; on Slurm"
            " backend.container: pyxis runs it, and backend.container_mounts says what it sees."
            if runtime == "pyxis"
            else f"{runtime} must be there where the command runs. A container for all backends is"
            " environment.docker_image of train.yaml."
        )
        report.warn("container", line, message)


def _remark_several(body: Body, report: Report) -> None:
    """Warn about the second training of a job, unless it is another branch of the first's command."""
    trained: list[Item] = []
    for step in body.steps:
        in_function = isinstance(step.item.command, Function)
        if step.is_training and not in_function and all(item is not step.item for item in trained):
            trained.append(step.item)
    for item in trained[1:]:
        report.warn(
            "multi-step",
            body.script.line(item.start),
            "Several steps in one job are one trial: they run one after the other, and a retry"
            " starts with the"
            " first. On several nodes no node waits for the others between them. Better a run for each.",
        )


def _remark_missing_array(places: list[_Place], report: Report) -> None:
    for place in places:
        if re.search(r"\bSLURM_ARRAY_TASK_ID\b", place.text):
            report.warn(
                "array-missing",
                place.line,
                "SLURM_ARRAY_TASK_ID is used and the script has no --array, so it was given to sbatch. Add"
                " `#SBATCH --array=…` and migrate again to get a sweep.yaml; as it is the variable is empty.",
            )
            return
