"""From a script for sbatch to a train.yaml, a sweep.yaml, and a list of what to look at. Pure."""

from airflows.migrate.files import one_run
from airflows.migrate.migration import Migration, migrate
from airflows.migrate.report import Finding

__all__ = ["Finding", "Migration", "migrate", "one_run"]
