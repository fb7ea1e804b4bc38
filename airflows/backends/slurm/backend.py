"""The Slurm backend: arrays in, observations out. Anything it knows is in Slurm or on the shared disk."""

from __future__ import annotations

import os
import pwd
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from airflows.backends.base import Capabilities, Job, Observation, Packing, Phase, Reach, RemoteRun
from airflows.backends.local import environment
from airflows.backends.local.logs import follow as follow_lines
from airflows.backends.local.logs import last_lines
from airflows.backends.measuring import MemoryUse
from airflows.backends.slurm import parsing
from airflows.backends.slurm.batches import Batches, Element, batch_name, tasks_text
from airflows.backends.slurm.cancelling import Canceller
from airflows.backends.slurm.commands import Answer, Commands
from airflows.backends.slurm.excluding import keep_from
from airflows.backends.slurm.finding import Finder
from airflows.backends.slurm.listing import remote_runs
from airflows.backends.slurm.memory import memory_of
from airflows.backends.slurm.parsing import Refusal, Site
from airflows.backends.slurm.queries import most_submitted
from airflows.backends.slurm.script import Paths, Shape, directives, script, starts_plain
from airflows.backends.slurm.settings import SlurmSettings
from airflows.backends.slurm.submitting import Chunk, Submitter
from airflows.backends.slurm.tools import install, tools_digest
from airflows.backends.slurm.watching import Watcher
from airflows.errors import BackendUnavailableError, SpecError, SubmitError
from airflows.file_system import is_on_network
from airflows.ids import Token
from airflows.job_secrets import FILE_NAME, read_file, variable
from airflows.train import TrainConfig
from airflows.trial import Handle
from airflows.yamlio import parse

_COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
_LAG_S = 5.0
_OVERDUE_S = 10.0
_MOMENT_S = 10.0
_UNFIT = frozenset('\n\t"\\')


class SlurmBackend:
    """Runs trials as elements of job arrays.

    Args:
        settings: as in sweep.yaml.
        home: `$AIRFLOWS_HOME`, which is also the root unless the settings name one.
        clock: seconds since the epoch, UTC.
        pause: sleeps for seconds.
    """

    name = "slurm"
    Settings = SlurmSettings
    remembers_memory = True

    def __init__(
        self,
        settings: SlurmSettings,
        home: Path,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._home = home
        self._root = (settings.root or home).expanduser().absolute()
        self._clock = clock
        self._pause = pause
        self._commands = Commands(settings.patience, os.environ)
        self._batches = Batches(self._root)
        self._configured: tuple[float, Answer] | None = None
        on_disk = (self._commands, self._batches, self._root / "claims")
        self._finder = Finder(*on_disk, lambda: self._site.accounts, clock)
        self._watcher = Watcher(
            *on_disk,
            lambda: self._site.accounts,
            lambda: self._site.min_job_age_s,
            clock,
            has_setup=bool(settings.setup),
        )

    # What it is

    @property
    def root(self) -> Path:
        """The directory that holds launch directories, claims, snapshots and checkpoints."""
        return self._root

    @property
    def capabilities(self) -> Capabilities:
        """What the engine needs to know."""
        return Capabilities(
            idempotent_submit=False,
            max_batch=self._most_queued,
            queues_itself=True,
            # An sbatch that outlives its driver is ended after the patience, so nothing comes later.
            visibility_lag_s=self._settings.patience + _LAG_S,
            makes_mlflow_run=False,
            slots=self._most_queued,
            shares_host=False,
            # A step of srun's for each in a pack would have to share what the job has.
            packing=Packing.NONE if self._settings.container == "pyxis" else Packing.ALLOCATIONS,
        )

    @cached_property
    def _site(self) -> Site:
        """What the site allows; asked once. Slurm's defaults where it does not say."""
        try:
            return parsing.site_of(self._config().out)
        except BackendUnavailableError:
            return Site()

    def _config(self) -> Answer:
        """Ask for the configuration, or tell what was answered a moment ago.

        Raises:
            BackendUnavailableError: Slurm does not answer.
        """
        now = self._clock()
        if self._configured is None or not 0 <= now - self._configured[0] < _MOMENT_S:
            self._configured = now, self._commands.ask("scontrol", "show", "config")
        return self._configured[1]

    @cached_property
    def _most_queued(self) -> int:
        limits = [self._site.max_jobs, self._settings.queue or self._site.max_jobs]
        if self._site.accounts:
            user = pwd.getpwuid(os.getuid()).pw_name
            limits.append(most_submitted(self._commands, user) or self._site.max_jobs)
        return max(1, min(limits))

    def reach(self) -> Reach:
        """Say whether arrays can be submitted from here now; never raises."""
        missing = self._commands.missing(*_COMMANDS)
        if missing:
            return Reach(False, f"{', '.join(missing)} not found: these are the commands of a Slurm cluster.")
        if _UNFIT & set(str(self._root)):
            return Reach(False, f"the root {self._root} holds a character that sbatch takes for its own.")
        if not _can_write(self._root):
            return Reach(False, f"{self._root} cannot be written. Name another root, or set AIRFLOWS_HOME.")
        try:
            answer = self._config()
        except BackendUnavailableError as exc:
            return Reach(False, str(exc))
        if answer.code:
            return Reach(False, f"Slurm does not answer: {parsing.last_words(answer.err)}.")
        self.__dict__["_site"] = parsing.site_of(answer.out)
        return Reach(True, "", tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        yield f"Slurm {self._site.version}; arrays of up to {self._site.max_array} trials."
        yield f"{self._root} must be on a disk that all nodes share."
        if not self._site.accounts:
            yield "There are no accounts (slurmdbd): how a run ended is read from its exit file."

    def check(self, config: TrainConfig, base_dir: Path = Path()) -> tuple[str, ...]:
        """Return what people should know before runs of a train.yaml start here.

        Args:
            config: the train.yaml.
            base_dir: its directory.

        Raises:
            SpecError: such a run can never start here: Slurm refuses it, or a secret is missing.
        """
        self._check_secrets(config)
        wanted = config.environment
        image = wanted.docker_image.url if wanted is not None and wanted.docker_image is not None else ""
        if image and self._settings.container is None:
            message = "environment.docker_image needs `container: pyxis` or `container: apptainer` here."
            raise SpecError(message, field="backend.container")
        self._ask_whether_it_fits(config, image)
        return (*self._notes_on_root(), *self._notes_on_packages(config, base_dir, image))

    def _notes_on_root(self) -> Iterator[str]:
        """Say so where other machines are to run what lies on a disk of this one."""
        if is_on_network(self._root):
            return
        try:
            answer = self._commands.ask("sinfo", "-h", "-o", "%n %o")
        except BackendUnavailableError:
            return
        nodes = {line.split()[0]: line.split() for line in answer.out.splitlines() if line.strip()}
        others = sorted(name for name, names in nodes.items() if not any(map(_is_this_machine, names)))
        if others:
            shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")  # noqa: PLR2004
            yield (
                f"{self._root} is on a disk of this machine; the nodes ({shown}) must see it under the same"
                " path. Where they do not, set `root` of the Slurm backend to a directory that all share."
            )

    def _notes_on_packages(self, config: TrainConfig, base_dir: Path, image: str) -> tuple[str, ...]:
        """Say what `environment.dependencies` names and nobody installs here."""
        wanted = config.environment
        if wanted is None or not wanted.dependencies or image or self._settings.environment == "isolated":
            return ()
        absent = environment.missing(wanted.dependencies, base_dir)
        if not absent:
            return ()
        names = f"environment.dependencies names what is not installed here: {', '.join(absent)}."
        return (f"{names} Install it, or set `environment: isolated` of the Slurm backend.",)

    def _check_secrets(self, config: TrainConfig) -> None:
        """Require all secrets in the file: a variable of the driver would have to go through Slurm."""
        if not config.secrets:
            return
        path = self._home / FILE_NAME
        kept = read_file(path)
        absent = sorted({source for ref in config.secrets.values() if (source := variable(ref)) not in kept})
        if absent:
            message = f"{', '.join(absent)} is missing in {path}, from which secrets are read on the node."
            raise SpecError(message, field="secrets", hint=f"Write {absent[0]}=… into it (mode 0600).")

    def _ask_whether_it_fits(self, config: TrainConfig, image: str) -> None:
        minutes = config.timeout_minutes
        kind = config.compute.accelerator_type
        timeout_s = None if minutes is None else minutes * 60.0
        shape = Shape(config.nodes, config.accelerators_per_node, kind, timeout_s, "", image)
        paths = self._paths("try")
        text = script(directives("try", 1, shape, self._settings, paths), shape, self._settings, paths)
        try:
            answer = self._commands.submit(["--test-only"], self._inherited, stdin=text)
        except BackendUnavailableError:
            return
        refused = answer.code and not answer.is_unanswered
        if refused and parsing.refusal_of(answer.err) is Refusal.REJECTED:
            message = f"Slurm refuses such a job: {parsing.last_words(answer.err)}."
            raise SpecError(message, field="backend", hint="See partition, account, qos, accelerators there.")

    def room_for(self, config: TrainConfig) -> int:
        """Return how many runs may be in Slurm's queue: it sees itself to how many run at once."""
        del config
        return self._most_queued

    # Starting

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Submit the jobs as few arrays; answer in their order."""
        (self._root / "claims").mkdir(parents=True, exist_ok=True)
        answers = self._submitter.submit(jobs)
        self._watcher.hurry()
        return answers

    @cached_property
    def _submitter(self) -> Submitter:
        return Submitter(
            commands=self._commands,
            batches=self._batches,
            most=self._site.max_array,
            environment={**self._inherited, **({"LC_ALL": "C"} if starts_plain(self._settings) else {})},
            variables=self._variables,
            image=self._image,
            script_of=self._script,
            clock=self._clock,
        )

    @cached_property
    def _inherited(self) -> dict[str, str]:
        return environment.current(os.environ, self._settings.inherit)

    def _variables(self, job: Job) -> dict[str, str]:
        if self._settings.environment == "current":
            return dict(job.env)
        config = _train_yaml(job)
        listed = _inside(config, "environment", "dependencies")
        dependencies = [str(item) for item in listed] if isinstance(listed, list) else []
        directory = Path(job.env.get("CODE_SOURCE_PATH") or job.work_dir or job.launch_dir)
        return {**environment.isolated(dependencies, directory, self._root), **job.env}

    def _image(self, job: Job) -> str:
        if self._settings.container is None or "training_config.yaml" not in job.files:
            return ""
        return str(_inside(_train_yaml(job), "environment", "docker_image", "url") or "")

    def _script(self, chunk: Chunk) -> str:
        paths = self._paths(chunk.name)
        lines = directives(chunk.name, chunk.elements, chunk.shape, self._settings, paths, chunk.after)
        install(paths.tools)
        return script(lines, chunk.shape, self._settings, paths)

    def _paths(self, batch: str) -> Paths:
        tools = self._root / "preambles" / tools_digest()
        secrets = self._home.absolute() / FILE_NAME
        return Paths(self._root, self._batches.directory(batch), tools, secrets, sys.executable)

    def preview(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Return what the first array of these jobs would be, as file name to text; nothing is written."""
        throttle = jobs[0].throttle if jobs[0].throttle < len(jobs) else 0
        shapes = [Shape.of(job, self._image(job), throttle) for job in jobs]
        shape = shapes[0]
        most = self._site.max_array * shape.members
        same = [job for job, one in zip(jobs, shapes, strict=True) if one == shape][:most]
        chunk = Chunk(same, shape, batch_name([job.token for job in same], shape.members))
        paths = self._paths(chunk.name)
        lines = directives(chunk.name, chunk.elements, shape, self._settings, paths)
        listed = "packs" if shape.pack > 1 else "tasks"
        return {
            "script.sh": script(lines, shape, self._settings, paths),
            listed: tasks_text(same, shape.members),
        }

    def avoid(self, handles: Sequence[Handle], hosts: Sequence[str]) -> None:
        """Ask that runs which wait do not start on these nodes."""
        keep_from(self._commands, self._batches, handles, hosts)

    # Finding and watching

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the handles of the tokens that were submitted."""
        return self._finder.find(tokens)

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe the runs; between two looks, which become rare when nothing changes, the last is told."""
        return self._watcher.poll(handles)

    def remote_runs(self) -> Sequence[RemoteRun]:
        """Return what squeue shows of this user under names of ours."""
        return remote_runs(self._commands, self._batches)

    def memory(self, handles: Sequence[Handle]) -> Mapping[Handle, MemoryUse]:
        """Return what the accounts have measured of runs that have ended, where they do."""
        return memory_of(self._commands, handles) if self._site.accounts else {}

    def wait(self, timeout_s: float) -> None:
        """Return when one of a few runs has left its exit file, or after `timeout_s` seconds."""
        self._watcher.wait(timeout_s, self._pause)

    # Ending

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Ask runs to end: those that wait are taken out, those that run get SIGTERM and the grace time.

        One that should have gone long ago, and is asked again, is ended by Slurm.
        """
        self._canceller.cancel(handles)
        if handles:
            self._watcher.hurry()

    def withdraw(self, handles: Sequence[Handle]) -> None:
        """Take those that wait out of the queue; what has started goes on."""
        self._canceller.withdraw(handles)
        if handles:
            self._watcher.hurry()

    @cached_property
    def _canceller(self) -> Canceller:
        patience_s = self._settings.grace + _OVERDUE_S
        return Canceller(self._commands, self._batches, self._root / "claims", patience_s, self._clock)

    # Logs

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the log of one node; with `follow` until the run has ended."""
        entry = self._batches.entry(Element.of(handle))
        if entry is None:
            return iter(())
        path = entry.launch_dir / "logs" / f"node_{node}.log"
        if not follow:
            return last_lines(path, lines)
        return follow_lines(path, lines, lambda: self._has_ended(handle))

    def _has_ended(self, handle: Handle) -> bool:
        seen = self.poll([handle]).get(handle)
        return seen is not None and seen.phase is Phase.ENDED


def _train_yaml(job: Job) -> object:
    text = job.files["training_config.yaml"].decode()
    return parse(text, file="training_config.yaml", dialect="train").value


def _inside(tree: object, *keys: str) -> object:
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _is_this_machine(name: str) -> bool:
    if name in {"127.0.0.1", "::1"}:
        return True
    return name.partition(".")[0] in {"localhost", socket.gethostname().partition(".")[0]}


def _can_write(directory: Path) -> bool:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
