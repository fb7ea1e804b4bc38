"""This machine as a backend: each run is a detached group of processes that outlives the driver."""

from airflows.backends.local.backend import LocalBackend
from airflows.backends.local.settings import LocalSettings

__all__ = ["LocalBackend", "LocalSettings"]
