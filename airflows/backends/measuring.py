"""What a backend may offer besides: how much memory its runs use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from airflows.trial import Handle


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The most memory that a run is known to have used at once, None where nobody knows.

    Attributes:
        host_bytes: of its processes.
        gpu_bytes: of its GPUs.
    """

    host_bytes: int | None = None
    gpu_bytes: int | None = None


@runtime_checkable
class MeasuresMemory(Protocol):
    """What a backend may offer besides: how much memory its runs use."""

    @property
    def remembers_memory(self) -> bool:
        """Whether that is known after their end, and not before; else it is known while they run alone."""

    def memory(self, handles: Sequence[Handle]) -> Mapping[Handle, MemoryUse]:
        """Return what is known of runs; what is missing in the answer, or None there, nobody knows.

        Raises:
            BackendUnavailableError: nobody was asked.
        """
