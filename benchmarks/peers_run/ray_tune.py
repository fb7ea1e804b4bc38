"""An experiment that runs a command for each trial, two at a time."""

import os
import subprocess
from pathlib import Path

import ray
from ray import tune


def trial(config: dict) -> None:
    """Run the trial."""
    subprocess.run(["true"], check=True)
    tune.report({"loss": config["number"]})


trials = int(os.environ["TRIALS"])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
tuner = tune.Tuner(
    trial,
    param_space={"number": tune.grid_search(list(range(trials)))},
    tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=2),
    run_config=tune.RunConfig(storage_path=str(Path.cwd() / "results"), verbose=0),
)
if tuner.fit().num_terminated == trials:
    Path(os.environ["DONE"]).touch()
ray.shutdown()
