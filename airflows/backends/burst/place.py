"""One backend of several: its handles begin with the name of its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from airflows.backends.base import (
    Backend,
    Capabilities,
    Job,
    KeepsCheckpoints,
    KeepsFromHosts,
    Observation,
    Reach,
    WithdrawsRuns,
)
from airflows.errors import SubmitError
from airflows.ids import Token
from airflows.train import TrainConfig
from airflows.trial import Handle


class PlaceBackend:
    """A backend as one place among others.

    Args:
        name: of the place.
        own: the backend.
    """

    def __init__(self, name: str, own: Backend) -> None:
        self.name = name
        self._own = own
        self._prefix = f"{name}:"

    def has(self, handle: Handle) -> bool:
        """Whether a handle is of this place."""
        return handle.startswith(self._prefix)

    @property
    def capabilities(self) -> Capabilities:
        """What the engine needs to know."""
        return self._own.capabilities

    @property
    def root(self) -> Path:
        """The directory that holds launch directories."""
        return self._own.root

    def reach(self) -> Reach:
        """Say whether it can be used now; never raises."""
        return self._own.reach()

    def check(self, config: TrainConfig, base_dir: Path) -> Sequence[str]:
        """Return what people should know before runs of a train.yaml start here."""
        return self._own.check(config, base_dir)

    def room_for(self, config: TrainConfig) -> int:
        """Return how many runs of a train.yaml go on at once here."""
        return self._own.room_for(config)

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Start the jobs; answer in their order."""
        answers = self._own.submit(jobs)
        return [answer if isinstance(answer, SubmitError) else self._outer(answer) for answer in answers]

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the handles of those tokens that this place knows."""
        return {token: self._outer(handle) for token, handle in self._own.find(tokens).items()}

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe the runs."""
        seen = self._own.poll([self._inner(handle) for handle in handles])
        return {self._outer(handle): observation for handle, observation in seen.items()}

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Ask that the runs end."""
        self._own.cancel([self._inner(handle) for handle in handles])

    def withdraw(self, handles: Sequence[Handle]) -> None:
        """Take runs out of the queue; where that is not offered, one that starts meanwhile is ended too."""
        own = [self._inner(handle) for handle in handles]
        if isinstance(self._own, WithdrawsRuns):
            self._own.withdraw(own)
        else:
            self._own.cancel(own)

    def avoid(self, handles: Sequence[Handle], hosts: Sequence[str]) -> None:
        """Ask that those of the runs which wait do not start on these hosts, where the backend offers it."""
        if isinstance(self._own, KeepsFromHosts):
            self._own.avoid([self._inner(handle) for handle in handles], hosts)

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the log of one node."""
        return self._own.logs(self._inner(handle), node=node, follow=follow, lines=lines)

    def wait(self, timeout_s: float) -> None:
        """Return when something may have changed, or after `timeout_s` seconds."""
        self._own.wait(timeout_s)

    # Where `capabilities.uploads`

    @property
    def checkpoint_root(self) -> Path:
        """Gets the trials' checkpoints, as the nodes see it."""
        return cast("KeepsCheckpoints", self._own).checkpoint_root

    def newest_checkpoint(self, directory: str, pattern: str) -> tuple[str, int] | None:
        """Return (path, step) of the newest complete checkpoint."""
        return cast("KeepsCheckpoints", self._own).newest_checkpoint(directory, pattern)

    def _outer(self, handle: Handle) -> Handle:
        return Handle(self._prefix + handle)

    def _inner(self, handle: Handle) -> Handle:
        return Handle(handle.removeprefix(self._prefix))
