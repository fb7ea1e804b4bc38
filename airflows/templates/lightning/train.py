"""Train a small network to tell two spirals apart, with Lightning.

Runs by itself (`python train.py`) and as a trial of a sweep. Put your own module and data in its place and
keep what makes trials resumable, none of which imports airflows:

* parameters come from the YAML file `$HYPERPARAMETERS_PATH`;
* `ModelCheckpoint` writes each epoch to `$AIRFLOWS_CHECKPOINT_DIR`;
* `fit` starts from `$AIRFLOWS_RESUME_FROM` when that names a checkpoint;
* metrics go to MLflow, which finds its server and its run in the environment;
* SIGTERM ends it after the epoch it is in, with the checkpoint written.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import lightning
import mlflow
import torch
import yaml
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

DEFAULTS: dict[str, Any] = {"learning_rate": 0.01, "hidden_units": 32, "epochs": 6, "seed": 0}
POINTS, BATCH = 2000, 50
TERMINATED = 128 + signal.SIGTERM


def read_parameters() -> dict[str, Any]:
    """Return the defaults, overridden by the file a sweep hands in."""
    path = os.environ.get("HYPERPARAMETERS_PATH")
    if not path:
        return DEFAULTS
    return DEFAULTS | yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def spirals() -> TensorDataset:
    """Return points (2000, 2) on two noisy spirals and which spiral each is on, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(POINTS) % 2
    turn = torch.rand(POINTS, generator=generator).sqrt() * 2 * math.pi
    angle = turn + math.pi * labels
    points = torch.stack([angle.cos(), angle.sin()], dim=1) * turn[:, None] / 6
    return TensorDataset(points + 0.05 * torch.randn(points.shape, generator=generator), labels)


class Classifier(lightning.LightningModule):
    """Two hidden layers."""

    def __init__(self, hidden_units: int, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.layers = nn.Sequential(
            nn.Linear(2, hidden_units),
            nn.Tanh(),
            nn.Linear(hidden_units, hidden_units),
            nn.Tanh(),
            nn.Linear(hidden_units, 2),
        )

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        points, labels = batch
        loss = nn.functional.cross_entropy(self.layers(points), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        """Note how many of a batch are right."""
        points, labels = batch
        right = (self.layers(points).argmax(dim=1) == labels).float().mean()
        self.log("val_accuracy", right)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)


class Trial(Callback):
    """Logs each epoch to MLflow, and ends the training after the epoch in which SIGTERM came."""

    def __init__(self) -> None:
        self.asked = False

    def on_train_start(self, _trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        """Take SIGTERM over from Lightning, which would end in the middle of an epoch."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "asked", True))

    def on_train_epoch_end(self, trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        """Log after validation and training of an epoch."""
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        mlflow.log_metrics(metrics, step=trainer.current_epoch + 1)
        shown = " ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        print(f"epoch {trainer.current_epoch + 1}: {shown}", flush=True)
        trainer.should_stop = trainer.should_stop or self.asked


def main() -> None:
    """Run one training."""
    parameters = read_parameters()
    lightning.seed_everything(parameters["seed"], verbose=False)
    torch.set_num_threads(1)
    training, held_out = random_split(spirals(), [0.75, 0.25], torch.Generator().manual_seed(0))
    directory = os.environ.get("AIRFLOWS_CHECKPOINT_DIR")
    trial = Trial()
    callbacks: list[Callback] = [trial]
    if directory:
        # After the one that logs: dying between the two logs one step twice instead of never.
        name = "checkpoint-{epoch}"
        callbacks.append(ModelCheckpoint(directory, name, save_top_k=-1, save_on_train_epoch_end=True))
    trainer = lightning.Trainer(
        max_epochs=parameters["epochs"],
        accelerator="auto",
        devices=1,
        logger=False,
        callbacks=callbacks,
        enable_checkpointing=bool(directory),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with mlflow.start_run():
        if "MLFLOW_RUN_ID" not in os.environ:
            mlflow.log_params(parameters)
        trainer.fit(
            Classifier(parameters["hidden_units"], parameters["learning_rate"]),
            DataLoader(training, BATCH, shuffle=True),
            DataLoader(held_out, POINTS),
            ckpt_path=os.environ.get("AIRFLOWS_RESUME_FROM") or None,
        )
        if trial.asked and trainer.current_epoch < parameters["epochs"]:
            sys.exit(TERMINATED)


if __name__ == "__main__":
    main()
