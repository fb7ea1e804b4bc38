"""What starts the training: srun and its options, containers, and the program behind all wrappers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflows.migrate import options
from airflows.migrate.shell.words import literal

# Options of srun that sbatch does not have, or that take a value there only.
_SRUN_VALUED = frozenset(
    """
    accel-bind bcast-exclude cpu-bind epilog het-group jobid job-id mpi msg-timeout prolog relative
    slurmd-debug task-epilog task-prolog threads treewidth wait
    """.split()  # noqa: SIM905
)
_SRUN_PLAIN = frozenset(
    """
    bcast compress disable-status exact immediate interactive kill-on-bad-exit label multi-prog no-allocate
    no-shell overlap preserve-env pty quit-on-interrupt resv-ports send-libs unbuffered whole x11
    """.split()  # noqa: SIM905
)
_SRUN_LETTERS: Mapping[str, str] = {
    "E": "preserve-env", "I": "immediate", "K": "kill-on-bad-exit", "l": "label", "r": "relative",
    "T": "threads", "u": "unbuffered", "W": "wait", "X": "disable-status", "Z": "no-allocate",
}  # fmt: skip

_CONTAINER_VALUED = frozenset(
    """
    -B --bind -H --home -W --workdir -o --overlay -S --scratch --pwd --cwd --env --env-file --app --mount
    --network --network-args --security --add-caps --drop-caps --hostname --dns --fusemount --pem-path
    """.split()  # noqa: SIM905
)
_DOCKER_VALUED = frozenset(
    """
    -v --volume -e --env --env-file --name -w --workdir --gpus --shm-size --ipc --network --net -u --user
    --mount --ulimit --entrypoint --runtime --device -p --publish --hostname -h --memory -m --cpus --pid
    """.split()  # noqa: SIM905
)
_BINDS = ("-B", "--bind", "-v", "--volume")

_MPI = r"mpirun|mpiexec(?:\.hydra)?|orterun|prun|ibrun|aprun|jsrun"
_LAUNCHERS = re.compile(
    rf"(?:(?P<python>i?python[\d.]*)|{_MPI}|"
    r"torchrun|accelerate|deepspeed|horovodrun|ray|julia|Rscript|R|matlab|composer|lightning|fabric|colossalai"
    r"|bash|sh|java|node|papermill|jupyter|litgpt|axolotl|tune|llamafactory-cli|swift)"
)
_WRAPPERS = frozenset(
    """
    time nohup stdbuf numactl env timeout nice ionice taskset exec command unbuffer catchsegv xvfb-run setsid
    conda mamba micromamba uv poetry pipenv pixi rye hatch nsys ncu gdb strace valgrind perf run
    """.split()  # noqa: SIM905
)
_WRAPPER_VALUED = frozenset(
    "-n --name -p --prefix -k -s --signal --cpunodebind --membind -o --output".split()  # noqa: SIM905
)
_BEFORE = frozenset({"exec", "nohup", "command", "time"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Srun:
    """A call of srun.

    Attributes:
        start: number of the word `srun`.
        options: long name to value, empty for one without.
        program: number of the word that names the program; the number of words when there is none.
        is_heterogeneous: it starts several programs, separated by `:`.
    """

    start: int
    options: Mapping[str, str]
    program: int
    is_heterogeneous: bool = False


def srun_of(words: Sequence[str]) -> Srun | None:
    """Return how a command uses srun, None when its first word is another."""
    start = next((at for at, word in enumerate(words) if word not in _BEFORE), len(words))
    if start == len(words) or name_of(words[start]) != "srun":
        return None
    given: dict[str, str] = {}
    at = start + 1
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, value, needs = _srun_option(words[at])
        at += 1
        if needs and at < len(words):
            value, at = words[at], at + 1
        given[name] = literal(value) or value.strip('"')
    at += at < len(words) and words[at] == "--"
    return Srun(start, given, at, ":" in words or "het-group" in given or "pack-group" in given)


def _srun_option(word: str) -> tuple[str, str, bool]:
    """Return (long name, value, whether the next word is the value)."""
    if word.startswith("--"):
        text, equals, value = word[2:].partition("=")
        if text in _SRUN_VALUED or text in _SRUN_PLAIN:
            return text, value, not equals and text in _SRUN_VALUED
        name = options.by_beginning(text) or text
        known = options.by_beginning(text) is not None
        return name, value, not equals and known and options.takes(name) == "value"
    letter, rest = word[1:2], word[2:]
    name = _SRUN_LETTERS.get(letter) or options.by_letter(letter) or letter
    if name in _SRUN_PLAIN or name == letter:
        return name, rest, False
    takes_value = name in _SRUN_VALUED or options.takes(name) == "value"
    return name, rest, takes_value and not rest


def name_of(word: str) -> str:
    """Return the name of the program that a word calls, without its directory."""
    return (literal(word) or word).rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Container:
    """A container that a program runs in.

    Attributes:
        runtime: apptainer, singularity, docker, pyxis…
        image: the image as written, empty when it is not found.
        binds: mounts as written.
        program: number of the word behind it.
    """

    runtime: str
    image: str
    binds: tuple[str, ...] = ()
    program: int = 0

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {"runtime": self.runtime, "image": self.image or None, "binds": list(self.binds)}


def container_of(words: Sequence[str], at: int) -> Container | None:
    """Return the container that a command starts with its word number `at`, None for another program."""
    runtime = name_of(words[at]) if at < len(words) else ""
    actions = {
        "apptainer": ("exec", "run"),
        "singularity": ("exec", "run"),
        "docker": ("run",),
        "podman": ("run",),
    }
    if runtime == "shifter":
        return _shifter(words, at)
    if runtime not in actions or at + 1 >= len(words) or words[at + 1] not in actions[runtime]:
        return None
    valued = _DOCKER_VALUED if runtime in ("docker", "podman") else _CONTAINER_VALUED
    binds: list[str] = []
    place = at + 2
    while place < len(words) and words[place].startswith("-"):
        name, equals, value = words[place].partition("=")
        place += 1
        if not equals and name in valued and place < len(words):
            value, place = words[place], place + 1
        if name in _BINDS:
            binds += (literal(value) or value).split(",")
    image = words[place] if place < len(words) else ""
    return Container(runtime, literal(image) or image, tuple(binds), min(place + 1, len(words)))


def _shifter(words: Sequence[str], at: int) -> Container:
    image, place = "", at + 1
    while place < len(words) and words[place].startswith("-"):
        if words[place].startswith("--image="):
            image = words[place].partition("=")[2]
        place += 1
    return Container("shifter", image, (), place)


def pyxis_of(given: Mapping[str, str]) -> Container | None:
    """Return the container of pyxis's options, None without."""
    image = given.get("container-image")
    if image is None:
        return None
    mounts = given.get("container-mounts", "")
    return Container("pyxis", image, tuple(mounts.split(",")) if mounts else ())


@dataclass(frozen=True, slots=True)
class Program:
    """What a command runs in the end.

    Attributes:
        at: number of the word where it begins, behind srun and the container.
        launcher: the program that starts the training, None when it is none that is known.
        srun: how srun starts it, if it does.
        container: what it runs in, if anything.
        arguments: the words from the launcher on.
    """

    at: int
    launcher: str | None
    srun: Srun | None = None
    container: Container | None = None
    arguments: Sequence[str] = field(default_factory=tuple)

    @property
    def is_mpi(self) -> bool:
        """Whether MPI starts the processes."""
        by_srun = self.srun is not None and "mpi" in self.srun.options
        return by_srun or re.fullmatch(_MPI, self.launcher or "") is not None


def program_of(words: Sequence[str]) -> Program:
    """Return what a command of these words runs."""
    srun = srun_of(words)
    at = srun.program if srun is not None else 0
    container = container_of(words, at)
    if container is not None:
        at = container.program
    elif srun is not None:
        container = pyxis_of(srun.options)
    launcher, start = _launcher(words, at)
    return Program(at, launcher, srun, container, words[start:])


def _launcher(words: Sequence[str], at: int) -> tuple[str | None, int]:
    start, wrapped = at, False
    while at < len(words):
        name = name_of(words[at])
        found = _LAUNCHERS.fullmatch(name)
        if found is not None:
            return "python" if found["python"] else name, at
        if name in _WRAPPERS:
            wrapped = True
        elif words[at] in _WRAPPER_VALUED and wrapped:
            at += 1
        elif not (
            wrapped and (words[at].startswith("-") or _ASSIGNMENT.match(words[at]) or name[:1].isdigit())
        ):
            return None, start
        at += 1
    return None, start
