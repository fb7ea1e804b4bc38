"""Slurm as a backend: a batch of trials is one job array, watched by one squeue for all of them."""

from airflows.backends.slurm.backend import SlurmBackend
from airflows.backends.slurm.settings import SlurmSettings

__all__ = ["SlurmBackend", "SlurmSettings"]
