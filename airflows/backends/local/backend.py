"""The local backend: starts, finds, watches and ends runs on this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from airflows.backends.base import Capabilities, Job, Observation, Packing, Phase, Reach
from airflows.backends.local import claims, environment
from airflows.backends.local.gpus import GpuPool, Held, find_gpus, lock_file, parted
from airflows.backends.local.logs import follow as follow_lines
from airflows.backends.local.logs import last_lines
from airflows.backends.local.memory import memory_of
from airflows.backends.local.processes import end_all, start_ticks
from airflows.backends.local.runs import CANCELLED, Run, RunName, here
from airflows.backends.local.settings import LocalSettings
from airflows.backends.local.spawn import Spawner
from airflows.backends.local.watch import Watch
from airflows.backends.measuring import MemoryUse
from airflows.errors import (
    BackendUnavailableError,
    SpecError,
    SubmitAmbiguousError,
    SubmitError,
    SubmitRejectedError,
    SubmitUnsentError,
)
from airflows.ids import Token
from airflows.job_secrets import resolve
from airflows.train import TrainConfig
from airflows.trial import Handle

_BATCH = 64
_KILL_PATIENCE_S = 0.5
_OVERDUE_S = 10.0
_NEVER_WORKS = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.E2BIG, errno.ENOEXEC}


class LocalBackend:
    """Runs trials on this machine, as detached processes that outlive the driver.

    It keeps nothing that cannot be found again: another object, in another process, takes a handle over.

    Args:
        settings: as in sweep.yaml.
        home: `$AIRFLOWS_HOME`, which is also the root unless the settings name one.
        clock: seconds since the epoch, UTC.
    """

    name = "local"
    Settings = LocalSettings
    remembers_memory = False

    def __init__(
        self, settings: LocalSettings, home: Path, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._home = home
        self._root = (settings.root or home).expanduser().absolute()
        self._claims = self._root / "claims"
        self._clock = clock
        self._runs: dict[Handle, Run] = {}
        self._watch = Watch()
        self._is_ready = False

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
            max_batch=_BATCH,
            queues_itself=False,
            visibility_lag_s=0.0,
            makes_mlflow_run=False,
            slots=self._settings.slots or len(self._gpus) or len(os.sched_getaffinity(0)),
            shares_host=True,
            packing=Packing.SLOTS,
        )

    @cached_property
    def _gpus(self) -> tuple[str, ...]:
        return find_gpus(self._settings.gpus)

    @cached_property
    def _pool(self) -> GpuPool:
        return GpuPool(self._gpus, lock_file(self._root))

    @cached_property
    def _spawner(self) -> Spawner:
        hides = bool(self._gpus) or "CUDA_VISIBLE_DEVICES" in os.environ
        return Spawner(self._root, self._home, self._settings, hides)

    def reach(self) -> Reach:
        """Say whether runs can be started here now; never raises."""
        why_not = ""
        if shutil.which("bash") is None:
            why_not = "bash is not installed, and every command runs under it."
        elif not Path("/proc/self/stat").exists():
            why_not = "this system has no /proc, without which processes cannot be told apart."
        elif not _can_write(self._root):
            why_not = f"{self._root} cannot be written. Set AIRFLOWS_HOME to another place."
        gpus = len(self._gpus)
        note = f"{gpus} GPUs are handed out." if gpus else _no_gpu_note()
        return Reach(not why_not, why_not, (note,))

    def check(self, config: TrainConfig, base_dir: Path = Path()) -> tuple[str, ...]:
        """Return what people should know before runs of a train.yaml start here.

        Args:
            config: the train.yaml.
            base_dir: its directory.

        Raises:
            SpecError: such a run can never start here: too few GPUs, or a secret is missing.
        """
        resolve(config.secrets, self._home)
        needed = self._needed(config.compute.accelerator_type, config.accelerators_per_node, config.nodes)
        if needed > len(self._gpus):
            raise SpecError(self._too_few(config.compute.accelerator_type, needed), field="compute")
        notices = [] if self._gpus else [_no_gpu_note()]
        wanted = config.environment
        if wanted is not None and wanted.docker_image is not None:
            notices.append("environment.docker_image is ignored: trials run without a container here.")
        if wanted is not None and wanted.dependencies and self._settings.environment == "current":
            absent = environment.missing(wanted.dependencies, base_dir)
            if absent:
                notices.append(
                    f"environment.dependencies names what is not installed here: {', '.join(absent)}. "
                    "Install it, or set `environment: isolated` of the local backend."
                )
        return tuple(notices)

    def room_for(self, config: TrainConfig) -> int:
        """Return how many runs of a train.yaml go on at once here: no more than there are GPUs for."""
        slots = self.capabilities.slots
        needed = self._needed(config.compute.accelerator_type, config.accelerators_per_node, config.nodes)
        return max(1, min(slots, len(self._gpus) // needed)) if needed else slots

    def _needed(self, accelerator_type: str, per_node: int, nodes: int) -> int:
        """Return the GPUs of one run; 0 where it runs without."""
        equivalent = self._settings.accelerators.get(accelerator_type)
        if not self._gpus or (equivalent is not None and equivalent.cpu):
            return 0
        if equivalent is not None and equivalent.gpus is not None:
            return equivalent.gpus * nodes
        return per_node * nodes

    def _too_few(self, accelerator_type: str, needed: int) -> str:
        return (
            f"a trial on {accelerator_type} needs {needed} GPUs, and {len(self._gpus)} may be used here. Say "
            f"what stands for it: accelerators: {{{accelerator_type}: {{gpus: N}}}} or {{cpu: true}} of the "
            "local backend."
        )

    # Starting

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Start the jobs; answer in their order.

        A token that was started before is not started again: its handle is returned.
        """
        return [self._submit(job) for job in jobs]

    def _submit(self, job: Job) -> Handle | SubmitError:
        path = self._claim(job.token)
        try:
            if not self._is_ready:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._is_ready = True
            claim = claims.take(path)
        except OSError as exc:
            return SubmitUnsentError(f"{path} cannot be written: {exc.strerror}.")
        if claim is None:
            known = self.find([job.token]).get(job.token)
            return known or SubmitAmbiguousError(f"{job.token} is being started by another process.")
        try:
            return self._start(job, claim)
        finally:
            os.close(claim)

    def _start(self, job: Job, claim: int) -> Handle | SubmitError:
        needed = self._needed(job.accelerator_type, job.accelerators_per_node, job.nodes)
        if needed > len(self._gpus):
            return SubmitRejectedError(self._too_few(job.accelerator_type, needed))
        held: Held | None = None
        try:
            if needed:
                count, places = parted(needed, job.pack)
                held = self._pool.take(count, places)
                if held is None:
                    return SubmitUnsentError(f"{count} GPUs are needed, and fewer are free now.")
            pid = self._spawner.spawn(job, claim, held)
        except (SpecError, ValueError) as exc:
            return SubmitRejectedError(str(exc))
        except OSError as exc:
            kind = SubmitRejectedError if exc.errno in _NEVER_WORKS else SubmitUnsentError
            return kind(f"{job.token} cannot be started: {exc.strerror}: {exc.filename or job.launch_dir}.")
        finally:
            if held is not None:
                os.close(held.descriptor)
        boot, host = here()
        name = RunName(pid, start_ticks(pid), boot, host, job.token, str(job.launch_dir))
        run = Run(name, started_at=self._clock())
        handle = name.to_handle()
        self._runs[handle] = run
        self._watch.add(handle, name.pid, name.started, is_child=True)
        return handle

    def _claim(self, token: str) -> Path:
        return self._claims / token

    # Finding and watching

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the handles of the tokens that were started; what is not found never ran and never will."""
        boot, host = here()
        found: dict[Token, Handle] = {}
        for token in tokens:
            claim = claims.look(self._claim(token))
            if claim is not None:
                started = start_ticks(claim.pid) if claim.is_held else 0
                name = RunName(claim.pid, started, boot, host, token, claim.launch_dir)
                found[token] = name.to_handle()
        return found

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe the runs; whatever outlived its preamble is killed first."""
        # At nearly every look nearly all of them go on.
        going = self._watch.going()
        return {
            handle: (handle in going and self._going(handle)) or self._observe(handle) for handle in handles
        }

    def _going(self, handle: Handle) -> Observation | None:
        """Observe a living run, unless it was asked to end."""
        run = self._runs.get(handle)
        return None if run is None or run.cancelled_at is not None else run.running()

    def _observe(self, handle: Handle) -> Observation:
        run = self._run(handle)
        if not self._watch.has_ended(handle):
            return self._press(handle, run)
        if self._has_leftovers(run):
            return run.running("its preamble was killed; what it had started is being ended")
        observation = run.ended(self._reap(run), self._claim(run.name.token))
        # Whoever asks again is answered from the launch directory.
        self._watch.drop(handle)
        self._runs.pop(handle, None)
        return observation

    def _run(self, handle: Handle) -> Run:
        run = self._runs.get(handle)
        if run is None:
            name = RunName.of(handle)
            run = self._runs[handle] = Run(name)
            if name.is_of_this_boot:
                self._watch.add(handle, name.pid, name.started)
        return run

    def _has_leftovers(self, run: Run) -> bool:
        if (run.directory / "exit.json").exists() or not run.name.is_of_this_boot:
            return False
        claim = claims.look(self._claim(run.name.token))
        if claim is not None and claim.is_held:
            message = f"run {run.name.token} goes on where its processes cannot be seen from here."
            raise BackendUnavailableError(message, hint="Was it started in a container of this machine?")
        return not end_all(run.name.launch_dir, patience_s=_KILL_PATIENCE_S)

    def _reap(self, run: Run) -> int | None:
        """Return the exit status of a preamble that is this process's child; negative for a signal."""
        if start_ticks(run.name.pid) != run.name.started:
            return None
        try:
            ended = os.waitid(os.P_PID, run.name.pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return None
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _press(self, handle: Handle, run: Run) -> Observation:
        """Observe a living run; one that should have ended long ago is killed with its preamble."""
        if (
            run.cancelled_at is not None
            and self._clock() > run.cancelled_at + self._settings.grace + _OVERDUE_S
        ):
            self._signal(handle, run, signal.SIGKILL)
            end_all(run.name.launch_dir, patience_s=_KILL_PATIENCE_S)
        return run.running()

    def wait(self, timeout_s: float) -> None:
        """Return the moment a run ends, or after `timeout_s` seconds."""
        self._watch.wait(timeout_s)

    # Ending

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Ask runs to end. The preamble sends SIGTERM, waits for the grace time, and kills what is left."""
        for handle in handles:
            if self._observe(handle).phase is Phase.ENDED:
                continue
            run = self._run(handle)
            # Says why there is no exit status, should the signal come before the preamble can take it.
            with contextlib.suppress(OSError):
                (run.directory / CANCELLED).touch()
            self._signal(handle, run, signal.SIGTERM)
            run.cancelled_at = run.cancelled_at or self._clock()

    def _signal(self, handle: Handle, run: Run, number: signal.Signals) -> None:
        descriptor = self._watch.descriptor(handle)
        with contextlib.suppress(ProcessLookupError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)
            elif start_ticks(run.name.pid) == run.name.started:
                os.kill(run.name.pid, number)

    def memory(self, handles: Sequence[Handle]) -> Mapping[Handle, MemoryUse]:
        """Return what the living processes of runs use."""
        return {handle: memory_of(RunName.of(handle).launch_dir) for handle in handles}

    # Logs

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the log of one node; with `follow` until the run has ended."""
        path = Path(RunName.of(handle).launch_dir, "logs", f"node_{node}.log")
        if not follow:
            return last_lines(path, lines)
        return follow_lines(path, lines, lambda: self._observe(handle).phase is Phase.ENDED)


def _no_gpu_note() -> str:
    return "There is no GPU here: each trial takes one slot, with LOCAL_WORLD_SIZE 1 on each of its nodes."


def _can_write(directory: Path) -> bool:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
