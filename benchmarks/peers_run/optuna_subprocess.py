"""A study that runs a command for each trial, two at a time."""

import os
import subprocess
from pathlib import Path

import optuna


def objective(trial: optuna.Trial) -> float:
    """Run the trial."""
    number = trial.suggest_float("number", 0.0, 1.0)
    subprocess.run(["true"], check=True)
    return number


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(storage="sqlite:///study.db", sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(objective, n_trials=int(os.environ["TRIALS"]), n_jobs=2)
if len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE])) == int(os.environ["TRIALS"]):
    Path(os.environ["DONE"]).touch()
