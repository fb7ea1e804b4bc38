"""Train a small neural network on scikit-learn's handwritten digits.

Runs by itself (`python train.py`) and as a trial of a sweep. What a training script needs so that its
trials can be killed, moved and resumed is all here, and none of it imports airflows:

* parameters come from the YAML file `$HYPERPARAMETERS_PATH`;
* each epoch ends with a complete checkpoint in `$AIRFLOWS_CHECKPOINT_DIR`;
* it starts from `$AIRFLOWS_RESUME_FROM` when that names a checkpoint;
* metrics go to MLflow, which finds its server and its run in `$MLFLOW_TRACKING_URI` and `$MLFLOW_RUN_ID`;
* SIGTERM ends it after the epoch it is in, with the checkpoint written.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import joblib
import mlflow
import numpy as np
import yaml
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

DEFAULTS: dict[str, Any] = {
    "learning_rate": 0.001,
    "hidden_units": 32,
    "batch_size": 64,
    "epochs": 15,
    "seed": 0,
}
CHECKPOINTS_KEPT = 2
TERMINATED = 128 + signal.SIGTERM

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Stop:
    """Becomes true once somebody asked the process to end."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _signum: int, _frame: FrameType | None) -> None:
        self.asked = True


def read_parameters() -> dict[str, Any]:
    """Return the defaults, overridden by the file a sweep hands in."""
    path = os.environ.get("HYPERPARAMETERS_PATH")
    if not path:
        return DEFAULTS
    return DEFAULTS | yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def load_split() -> Split:
    """Return train and validation images and labels, the same ones for every seed."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16.0, labels, test_size=0.25, stratify=labels, random_state=0)
    return split[0], split[1], split[2], split[3]


def new_model(parameters: dict[str, Any]) -> MLPClassifier:
    """Return an untrained network."""
    return MLPClassifier(
        hidden_layer_sizes=(parameters["hidden_units"],),
        learning_rate_init=parameters["learning_rate"],
        batch_size=parameters["batch_size"],
        random_state=parameters["seed"],
    )


def save_checkpoint(directory: Path, epoch: int, model: MLPClassifier) -> None:
    """Write the state after an epoch; a reader sees the whole file or none of it."""
    path = directory / f"checkpoint-{epoch}.ckpt"
    partial = path.with_suffix(".ckpt.tmp")
    with partial.open("wb") as file:
        joblib.dump({"epoch": epoch, "model": model}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    (directory / f"checkpoint-{epoch - CHECKPOINTS_KEPT}.ckpt").unlink(missing_ok=True)


def restore(parameters: dict[str, Any]) -> tuple[int, MLPClassifier]:
    """Return the next epoch and the model to go on with."""
    path = os.environ.get("AIRFLOWS_RESUME_FROM")
    if not path:
        return 1, new_model(parameters)
    state = joblib.load(path)
    print(f"resuming after epoch {state['epoch']} from {path}", flush=True)
    return state["epoch"] + 1, state["model"]


def train_epoch(model: MLPClassifier, split: Split, seed: int, epoch: int) -> dict[str, float]:
    """Train on every image once and return the validation metrics."""
    x_train, x_val, y_train, y_val = split
    # The order depends on the seed and the epoch alone, so a resumed run sees what it would have seen.
    order = np.random.default_rng((seed, epoch)).permutation(len(x_train))
    model.partial_fit(x_train[order], y_train[order], classes=np.arange(10))
    return {
        "train_loss": float(model.loss_),
        "val_loss": float(log_loss(y_val, model.predict_proba(x_val))),
        "val_accuracy": float(model.score(x_val, y_val)),
    }


def train(parameters: dict[str, Any], stop: Stop) -> None:
    """Train to the last epoch, or to the end of the one in which a stop is asked for."""
    checkpoints = os.environ.get("AIRFLOWS_CHECKPOINT_DIR")
    first, model = restore(parameters)
    split = load_split()
    for epoch in range(first, parameters["epochs"] + 1):
        metrics = train_epoch(model, split, parameters["seed"], epoch)
        # Metrics before the checkpoint: dying between the two logs one step twice instead of never.
        mlflow.log_metrics(metrics, step=epoch)
        if checkpoints:
            save_checkpoint(Path(checkpoints), epoch, model)
        print(f"epoch {epoch}: " + " ".join(f"{k} {v:.4f}" for k, v in metrics.items()), flush=True)
        if stop.asked:
            sys.exit(TERMINATED)


def main() -> None:
    """Run one training."""
    stop = Stop()
    parameters = read_parameters()
    with threadpool_limits(limits=1), mlflow.start_run():
        if "MLFLOW_RUN_ID" not in os.environ:
            mlflow.log_params(parameters)
        train(parameters, stop)


if __name__ == "__main__":
    main()
