"""From what people have to a train.yaml, a sweep.yaml, and a list of what to look at. Pure.

They have scripts for sbatch, sweep files of Weights & Biases, and multirun commands of Hydra.
"""

from airflows.migrate.files import one_run
from airflows.migrate.hydra import from_hydra
from airflows.migrate.migration import Migration, migrate
from airflows.migrate.report import Finding
from airflows.migrate.wandb import from_wandb, is_wandb

__all__ = ["Finding", "Migration", "from_hydra", "from_wandb", "is_wandb", "migrate", "one_run"]
