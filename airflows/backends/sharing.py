"""Whether several trials may share what one would have on a backend."""

from __future__ import annotations

from airflows.backends.base import Backend, Packing
from airflows.errors import SpecError


def require_packing(pack: int, backend: Backend) -> None:
    """Check that the backend runs so many trials on what one would have.

    Raises:
        SpecError: it does not.
    """
    if pack > 1 and backend.capabilities.packing is Packing.NONE:
        message = f"pack does not work on backend {backend.name} as it is set up."
        hint = "It works on local, and on slurm without `container: pyxis`. Leave it out here."
        raise SpecError(message, field="pack", hint=hint)
