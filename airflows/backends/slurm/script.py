"""The batch script of an array: directives, setup lines, preamble. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airflows.backends.base import Job
from airflows.backends.slurm.settings import Equivalent, SlurmSettings
from airflows.exits import OwnExit
from airflows.job_secrets import variable

_QUOTED = frozenset(" \t#'")
_FEWEST_GRACES = 10
_LEAST_OF_EXCLUDE = "--exclud"


@dataclass(frozen=True, slots=True)
class Shape:
    """What jobs must have in common to be one array.

    Attributes:
        nodes: machines of one run.
        accelerators_per_node: GPUs of one node as the train.yaml has it.
        accelerator_type: as in train.yaml.
        timeout_s: limit of an attempt, None for none.
        pattern: glob of what counts as a checkpoint.
        image: container image, empty for none.
        throttle: most of the jobs that run at once, 0 for no limit.
        avoid: nodes that it should not run on.
        pack: so many jobs may share what one would have; 1 for jobs that are elements by themselves.
    """

    nodes: int
    accelerators_per_node: int
    accelerator_type: str
    timeout_s: float | None
    pattern: str
    image: str = ""
    throttle: int = 0
    avoid: tuple[str, ...] = ()
    pack: int = 1

    @property
    def members(self) -> int:
        """How many jobs are one element: no more than may run at once."""
        return min(self.pack, self.throttle or self.pack)

    @classmethod
    def of(cls, job: Job, image: str = "", throttle: int = 0) -> Shape:
        """Return the shape of a job."""
        return cls(
            job.nodes,
            job.accelerators_per_node,
            job.accelerator_type,
            job.timeout_s,
            job.checkpoint_pattern,
            image,
            throttle,
            job.avoid,
            job.pack,
        )


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things are, as the nodes see them.

    Attributes:
        root: of the backend.
        batch: directory of the batch.
        tools: directory of the preamble.
        secrets: the secrets file.
        python: reads checkpoints.
    """

    root: Path
    batch: Path
    tools: Path
    secrets: Path
    python: str


def gpus_of(place: Equivalent, accelerators_per_node: int) -> int:
    """Return the GPUs that one node of a run gets here."""
    return 0 if place.cpu else place.gpus or accelerators_per_node


def limit_s(timeout_s: float | None, grace_s: float) -> float:
    """Return the seconds after which an attempt is asked to end, so that it has saved by its time limit."""
    return 0.0 if timeout_s is None else max(timeout_s - grace_s, timeout_s / 2)


def directives(
    name: str, count: int, shape: Shape, settings: SlurmSettings, paths: Paths, after: int | None = None
) -> list[str]:
    """Return the options of an array, in the form that goes behind `#SBATCH`.

    Args:
        name: of the job.
        count: tasks.
        shape: what they have in common.
        settings: of the backend.
        paths: where things are.
        after: array that must have ended before this one starts.
    """
    place = settings.place(shape.accelerator_type)
    at_once = shape.throttle // shape.members
    throttle = f"%{at_once}" if 0 < at_once < count else ""
    lines = [f"--job-name={name}", f"--comment={name}", f"--array={_indices(count)}{throttle}"]
    lines += [f"--nodes={shape.nodes}", "--ntasks-per-node=1"]
    lines += _resources(place, shape)
    lines += _time(shape, place, settings.grace)
    if after is not None:
        lines += [f"--dependency=afterany:{after}", "--kill-on-invalid-dep=yes"]
    lines += ["--no-requeue", "--export=ALL", "--open-mode=append", _option("chdir", str(paths.root))]
    lines.append(_option("output", f"{_pattern(paths.batch)}/%a.log"))
    lines += place.extra or ()
    if shape.avoid:
        # Of an option that is given twice the last one counts, so it holds both.
        nodes = [*filter(None, [excluded_by(place.extra or ())]), *shape.avoid]
        lines.append(f"--exclude={','.join(nodes)}")
    return lines


def excluded_by(extra: Sequence[str]) -> str:
    """Return the nodes that further directives exclude, as one host list; empty for none.

    Example:
        >>> excluded_by(["--exclusive", "-N 2 --exclude=gpu-[01-03]"])
        'gpu-[01-03]'
    """
    words = [word for line in extra for word in _words(line)]
    found = ""
    for word, after in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        # Any beginning of its name that is not also one of --exclusive will do.
        if name == "-x" or (name.startswith(_LEAST_OF_EXCLUDE) and "--exclude".startswith(name)):
            found = value if equals else after
        elif word.startswith("-x"):
            found = word.removeprefix("-x")
    return found


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        # An open quote: sbatch will say so.
        return line.split()


def _indices(count: int) -> str:
    return f"0-{count - 1}" if count > 1 else "0"


def _resources(place: Equivalent, shape: Shape) -> list[str]:
    lines = [
        _option(name, value)
        for name, value in (
            ("partition", place.partition),
            ("account", place.account),
            ("qos", place.qos),
            ("constraint", place.constraint),
            ("reservation", place.reservation),
            ("cpus-per-task", place.cpus),
            ("mem", place.memory),
        )
        if value is not None
    ]
    gpus = gpus_of(place, shape.accelerators_per_node)
    if gpus and place.gpu_style != "none":
        kind = f"{place.gpu_type}:" if place.gpu_type else ""
        is_gres = place.gpu_style != "gpus-per-node"
        lines.append(f"--gres=gpu:{kind}{gpus}" if is_gres else f"--gpus-per-node={kind}{gpus}")
    return lines


def _time(shape: Shape, place: Equivalent, grace_s: float) -> list[str]:
    wanted = shape.timeout_s if shape.timeout_s is not None else place.time
    lines = [] if wanted is None else [f"--time={max(1, math.ceil(wanted / 60))}"]
    # Slurm may send it a minute early: of a short limit too little would be left.
    if wanted is None or wanted >= _FEWEST_GRACES * (grace_s + 60):
        lines.append(f"--signal=B:USR1@{max(1, math.ceil(grace_s))}")
    return lines


def _option(name: str, value: object) -> str:
    text = str(value)
    return f'--{name}="{text}"' if _QUOTED & set(text) else f"--{name}={text}"


def _pattern(path: Path) -> str:
    return str(path).replace("%", "%%")


def script(lines: Sequence[str], shape: Shape, settings: SlurmSettings, paths: Paths) -> str:
    """Return the text that sbatch is given.

    Args:
        lines: directives.
        shape: what the tasks have in common.
        settings: of the backend.
        paths: where things are.
    """
    place = settings.place(shape.accelerator_type)
    values = {
        "af_batch": str(paths.batch),
        "af_claims": str(paths.root / "claims"),
        "af_tools": str(paths.tools),
        "af_grace": f"{settings.grace:.12g}",
        "af_limit": f"{limit_s(shape.timeout_s, settings.grace):.12g}",
        "af_gpus": str(gpus_of(place, shape.accelerators_per_node)),
        "af_python": paths.python,
        "af_pattern": shape.pattern,
        "af_secrets": str(paths.secrets),
    }
    if shape.pack > 1:
        values["af_pack"] = str(shape.pack)
    body = ["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), ""]
    body += ["export -n LC_ALL"] if starts_plain(settings) else []
    body += settings.setup
    body += [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    body += _container(shape, settings, paths)
    # Where the root is not there, this is all that the job can say.
    what = "pack.sh" if shape.pack > 1 else "preamble.sh"
    body += [f'source "$af_tools/{what}" || exit {OwnExit.INVALID}', ""]
    return "\n".join(body)


def starts_plain(settings: SlurmSettings) -> bool:
    """Whether the batch shell is started with LC_ALL=C, which its commands do not get.

    Loading a locale is a fifth of what an attempt costs besides its command.
    """
    return "LC_ALL" not in settings.inherit


def _container(shape: Shape, settings: SlurmSettings, paths: Paths) -> list[str]:
    if not shape.image:
        return []
    mounts = [f"{paths.root}:{paths.root}", *settings.container_mounts]
    if settings.container == "pyxis":
        image = shape.image.removeprefix("docker://")
        words = [f"--container-image={image}", f"--container-mounts={','.join(mounts)}"]
        return [f"af_srun=({shlex.join([*words, '--no-container-mount-home'])})"]
    image = shape.image if "://" in shape.image else f"docker://{shape.image}"
    gpus = gpus_of(settings.place(shape.accelerator_type), shape.accelerators_per_node)
    words = ["apptainer", "exec", *(["--nv"] if gpus else [])]
    for mount in mounts:
        words += ["--bind", mount]
    return [f"af_wrap=({shlex.join([*words, image])})"]


def environment_text(job: Job, variables: dict[str, str]) -> str:
    """Return `environment.sh` of a job, which its preamble reads. Names of secrets, never their values."""
    lines = [f"work_dir={shlex.quote(str(job.work_dir or job.launch_dir))}"]
    for name, value in variables.items():
        if name.isidentifier() and name.isascii():
            lines.append(f"export {name}={shlex.quote(value)}")
        else:
            lines.append(f"odd+=({shlex.quote(f'{name}={value}')})")
    lines += [f"secret {name} {variable(reference)}" for name, reference in job.secrets.items()]
    return "\n".join([*lines, ""])
