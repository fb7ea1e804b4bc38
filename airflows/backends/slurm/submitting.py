"""From jobs to arrays: grouped by what they ask for, cut to what the site takes, one sbatch each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflows.backends.base import Job
from airflows.backends.slurm.batches import Batches, batch_name
from airflows.backends.slurm.commands import Commands
from airflows.backends.slurm.parsing import Refusal, job_id_of, last_words, refusal_of
from airflows.backends.slurm.script import Shape, environment_text
from airflows.errors import (
    AirflowsError,
    BackendUnavailableError,
    SpecError,
    SubmitAmbiguousError,
    SubmitError,
    SubmitRejectedError,
    SubmitUnreachedError,
    SubmitUnsentError,
)
from airflows.trial import Handle

Answer = Handle | SubmitError


@dataclass(frozen=True, slots=True)
class Chunk:
    """Jobs that are one array.

    Attributes:
        jobs: at least one; so many as the shape says are one element.
        shape: what they have in common.
        name: of the job, in every outside system.
        after: array that must have ended before.
    """

    jobs: Sequence[Job]
    shape: Shape
    name: str
    after: int | None = None

    @property
    def elements(self) -> int:
        """How many tasks the array has."""
        return -(-len(self.jobs) // self.shape.members)


@dataclass(slots=True)
class Submitter:
    """Submits arrays.

    Attributes:
        commands: of Slurm.
        batches: on the shared disk.
        most: tasks of one array.
        environment: what every job inherits.
        variables: of one job.
        image: container image of a job, empty for none.
        script_of: makes the batch script of a chunk.
        clock: seconds since the epoch.
    """

    commands: Commands
    batches: Batches
    most: int
    environment: Mapping[str, str]
    variables: Callable[[Job], dict[str, str]]
    image: Callable[[Job], str]
    script_of: Callable[[Chunk], str]
    clock: Callable[[], float]

    def submit(self, jobs: Sequence[Job]) -> list[Answer]:
        """Submit jobs as few arrays; answer in their order."""
        answers: dict[str, Answer] = {}
        groups: dict[Shape, list[Job]] = {}
        for job in jobs:
            failed = self._prepare(job)
            if failed is None:
                throttle = job.throttle if job.throttle < len(jobs) else 0
                groups.setdefault(Shape.of(job, self.image(job), throttle), []).append(job)
            else:
                answers[job.token] = failed
        after: int | None = None
        doubt = ""
        for shape, group in groups.items():
            if doubt:
                answers |= {job.token: SubmitUnreachedError(doubt) for job in group}
                continue
            after, doubt = self._submit_group(shape, group, after, answers)
        return [answers[job.token] for job in jobs]

    def _prepare(self, job: Job) -> SubmitError | None:
        """Write what the job's preamble reads; its variables may hold passwords."""
        path = job.launch_dir / "environment.sh"
        try:
            text = environment_text(job, {**self.variables(job), **job.secret_env})
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as exc:
            return SubmitUnsentError(f"{path} cannot be written: {exc.strerror}.")
        except SpecError as exc:
            return SubmitRejectedError(str(exc))
        return None

    def _submit_group(
        self, shape: Shape, jobs: Sequence[Job], after: int | None, answers: dict[str, Answer]
    ) -> tuple[int | None, str]:
        """Submit jobs of one shape; return the array that a further one must follow, and what is in doubt.

        What does not fit into the queue is offered in halves, until a single job is refused.
        """
        members = shape.members
        start, size = 0, min(self.most * members, len(jobs))
        while start < len(jobs):
            part = jobs[start : start + size]
            chunk = Chunk(part, shape, batch_name([job.token for job in part], members), after)
            array, refusal, words = self._sbatch(chunk)
            rest = jobs[start:]
            if array is not None:
                for entry in self.batches.entries(chunk.name):
                    answers[entry.token] = entry.element(array, chunk.name).to_handle()
                start += len(part)
                # A throttle holds for one array alone: the next one waits for its end.
                after = array if shape.throttle else None
            elif refusal is Refusal.DOUBTFUL:
                answers |= {job.token: SubmitUnreachedError(words) for job in rest}
                answers |= {job.token: SubmitAmbiguousError(words) for job in part}
                return after, words
            elif refusal is Refusal.REJECTED and shape.avoid:
                # Perhaps there is no other node for such jobs. Better there than nowhere.
                shape = replace(shape, avoid=())
            elif refusal is Refusal.REJECTED:
                answers |= {job.token: SubmitRejectedError(words) for job in rest}
                return after, ""
            elif len(part) <= members:
                answers |= {job.token: SubmitUnsentError(words) for job in rest}
                return after, ""
            else:
                size = max(members, len(part) // 2 // members * members)
        return after, ""

    def _sbatch(self, chunk: Chunk) -> tuple[int | None, Refusal, str]:
        """Submit one array; return its id, or None with what that means."""
        directory = self.batches.directory(chunk.name)
        try:
            members = chunk.shape.members if chunk.shape.pack > 1 else None
            script = self.batches.write(chunk.name, chunk.jobs, self.script_of(chunk), members)
        except (OSError, AirflowsError) as exc:
            return None, Refusal.FULL, f"{directory} cannot be written: {exc}."
        try:
            answer = self.commands.submit(["--parsable", str(script)], self.environment)
        except BackendUnavailableError as exc:
            shutil.rmtree(directory, ignore_errors=True)
            return None, Refusal.FULL, str(exc)
        array = None if answer.code else job_id_of(answer.out)
        if array is not None:
            self.batches.accepted(chunk.name, array, self.clock())
            return array, Refusal.DOUBTFUL, ""
        refusal = Refusal.DOUBTFUL
        if answer.code and not answer.is_unanswered:
            refusal = refusal_of(answer.err)
        if refusal is not Refusal.DOUBTFUL:
            shutil.rmtree(directory, ignore_errors=True)
        return None, refusal, _sentence(chunk, refusal, last_words(answer.err))


def _sentence(chunk: Chunk, refusal: Refusal, words: str) -> str:
    count = len(chunk.jobs)
    what = f"{count} trials" if count > 1 else f"trial {chunk.jobs[0].number}"
    match refusal:
        case Refusal.DOUBTFUL:
            return f"Slurm did not say whether it took {what} (job {chunk.name}): {words}."
        case Refusal.FULL:
            return f"Slurm has no room for {what} now: {words}."
        case Refusal.REJECTED:
            return f"Slurm refuses {what}: {words}."
