"""Several places in order: trials go to the first that has room, and on from where they wait too long."""

from airflows.backends.burst.backend import BurstBackend
from airflows.backends.burst.settings import BurstSettings

__all__ = ["BurstBackend", "BurstSettings"]
