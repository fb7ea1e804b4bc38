"""Jobs that run a command each, two at a time on this machine, or as an array on Slurm."""

import os
import subprocess
from pathlib import Path

import submitit

AT_ONCE = 2


def trial(number: int) -> int:
    """Run the trial."""
    subprocess.run(["true"], check=True)
    return number


kind, trials = os.environ["EXECUTOR"], int(os.environ["TRIALS"])
executor = submitit.AutoExecutor(folder="logs", cluster=kind)
executor.update_parameters(timeout_min=5)
found: list[int] = []
if kind == "slurm":
    executor.update_parameters(slurm_array_parallelism=1000)
    found = [job.result() for job in executor.map_array(trial, range(trials))]
else:
    going: list[submitit.Job[int]] = []
    for number in range(trials):
        if len(going) == AT_ONCE:
            found.append(going.pop(0).result())
        going.append(executor.submit(trial, number))
    found += [job.result() for job in going]
if found == list(range(trials)):
    Path(os.environ["DONE"]).touch()
