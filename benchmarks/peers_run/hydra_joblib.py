"""A multirun that runs a command for each job."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore


@dataclass
class Config:
    """What is swept."""

    number: int = 0


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base=None, config_name="config")
def run(config: Config) -> None:
    """Run the job; the last one leaves a mark."""
    subprocess.run(["true"], check=True)
    if config.number == int(os.environ["TRIALS"]) - 1:
        Path(os.environ["DONE"]).touch()


run()
