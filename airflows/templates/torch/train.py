"""Train a small network to tell two spirals apart, in plain PyTorch.

Runs by itself (`python train.py`) and as a trial of a sweep. Put your own model and data in its place and
keep what makes trials resumable, none of which imports airflows:

* parameters come from the YAML file `$HYPERPARAMETERS_PATH`;
* each epoch ends with a complete checkpoint in `$AIRFLOWS_CHECKPOINT_DIR`;
* it starts from `$AIRFLOWS_RESUME_FROM` when that names a checkpoint;
* metrics go to MLflow, which finds its server and its run in the environment;
* SIGTERM ends it after the epoch it is in, with the checkpoint written.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import mlflow
import torch
import yaml
from torch import nn

DEFAULTS: dict[str, Any] = {"learning_rate": 0.01, "hidden_units": 32, "epochs": 6, "seed": 0}
POINTS, BATCH = 2000, 50
CHECKPOINTS_KEPT = 2
TERMINATED = 128 + signal.SIGTERM


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


def spirals() -> tuple[torch.Tensor, torch.Tensor]:
    """Return points (2000, 2) on two noisy spirals and which spiral each is on, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(POINTS) % 2
    turn = torch.rand(POINTS, generator=generator).sqrt() * 2 * math.pi
    angle = turn + math.pi * labels
    points = torch.stack([angle.cos(), angle.sin()], dim=1) * turn[:, None] / 6
    return points + 0.05 * torch.randn(points.shape, generator=generator), labels


def save_checkpoint(epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the state after an epoch; a reader sees the whole file or none of it."""
    directory = os.environ.get("AIRFLOWS_CHECKPOINT_DIR")
    if not directory:
        return
    path = Path(directory, f"checkpoint-{epoch}.pt")
    partial = path.with_suffix(".pt.tmp")
    with partial.open("wb") as file:
        torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    path.with_name(f"checkpoint-{epoch - CHECKPOINTS_KEPT}.pt").unlink(missing_ok=True)


def restore(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint, if there is one; return the epoch to go on with."""
    path = os.environ.get("AIRFLOWS_RESUME_FROM")
    if not path:
        return 1
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"resuming after epoch {state['epoch']} from {path}", flush=True)
    return int(state["epoch"]) + 1


def train(parameters: dict[str, Any], stop: Stop) -> None:
    """Train to the last epoch, or to the end of the one in which a stop is asked for."""
    torch.manual_seed(parameters["seed"])
    hidden = parameters["hidden_units"]
    model = nn.Sequential(
        nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=parameters["learning_rate"])
    points, labels = spirals()
    held_out = POINTS // 4
    for epoch in range(restore(model, optimizer), parameters["epochs"] + 1):
        # The order depends on the seed and the epoch alone, so a resumed run sees what it would have seen.
        generator = torch.Generator().manual_seed(1000 * parameters["seed"] + epoch)
        order = torch.randperm(POINTS - held_out, generator=generator) + held_out
        for batch in order.split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = (model(points[:held_out]).argmax(dim=1) == labels[:held_out]).float().mean()
        # Metrics before the checkpoint: dying between the two logs one step twice instead of never.
        mlflow.log_metrics({"train_loss": loss.item(), "val_accuracy": right.item()}, step=epoch)
        save_checkpoint(epoch, model, optimizer)
        print(f"epoch {epoch}: train_loss {loss.item():.4f} val_accuracy {right.item():.4f}", flush=True)
        if stop.asked:
            sys.exit(TERMINATED)


def main() -> None:
    """Run one training."""
    stop = Stop()
    parameters = read_parameters()
    torch.set_num_threads(1)
    with mlflow.start_run():
        if "MLFLOW_RUN_ID" not in os.environ:
            mlflow.log_params(parameters)
        train(parameters, stop)


if __name__ == "__main__":
    main()
