"""Train a small character transformer to add numbers, with DistributedDataParallel.

The text is made here, so there is nothing to download: lines such as `41+7=48`. torchrun starts it; by
itself (`python train.py`) it is one process. What matters for sweeps, and does not import airflows:

* every process reads `$HYPERPARAMETERS_PATH`, only the first one logs and saves;
* a checkpoint is complete or not there, and all processes start from the same one;
* batches depend on the seed, the step and the rank alone, so a resumed run sees what it would have seen;
* when one process is asked to end, all agree on the step after which they do.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from typing import Any

import mlflow
import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DEFAULTS: dict[str, Any] = {"learning_rate": 0.003, "layers": 2, "width": 64, "steps": 150, "seed": 0}
SYMBOLS = "0123456789+= "
LENGTH, BATCH, EVERY = 9, 64, 25
CHECKPOINTS_KEPT = 2
TERMINATED = 128 + signal.SIGTERM


class Transformer(nn.Module):
    """Predict the next character of lines (batch, LENGTH) as logits (batch, LENGTH, symbols)."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(len(SYMBOLS), width)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(SYMBOLS))

    def forward(self, lines: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        length = lines.shape[1]
        hidden = self.symbols(lines) + self.places(torch.arange(length, device=lines.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=lines.device)
        logits: torch.Tensor = self.head(self.body(hidden, mask=mask, is_causal=True))
        return logits


def sums(count: int, *seed: int) -> torch.Tensor:
    """Return lines (count, LENGTH) of symbols, the same ones for the same seed."""
    state = reduce(lambda mixed, part: (mixed * 1_000_003 + part) % 2**31, seed)
    generator = torch.Generator().manual_seed(state)
    pairs = torch.randint(0, 100, (count, 2), generator=generator).tolist()
    lines = [f"{a}+{b}={a + b}".ljust(LENGTH) for a, b in pairs]
    return torch.tensor([[SYMBOLS.index(char) for char in line] for line in lines])


def loss_of(model: nn.Module, lines: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next characters, in nats."""
    logits = model(lines[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), lines[:, 1:].flatten())


def read_parameters() -> dict[str, Any]:
    """Return the defaults, overridden by the file a sweep hands in."""
    path = os.environ.get("HYPERPARAMETERS_PATH")
    if not path:
        return DEFAULTS
    return DEFAULTS | yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def save_checkpoint(step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the state after a step; a reader sees the whole file or none of it."""
    directory = os.environ.get("AIRFLOWS_CHECKPOINT_DIR")
    if not directory:
        return
    path = Path(directory, f"checkpoint-{step}.pt")
    partial = path.with_suffix(".pt.tmp")
    with partial.open("wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    path.with_name(f"checkpoint-{step - CHECKPOINTS_KEPT * EVERY}.pt").unlink(missing_ok=True)


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Load the newest checkpoint, if there is one; return the step to go on with."""
    path = os.environ.get("AIRFLOWS_RESUME_FROM")
    if not path:
        return 1
    state = torch.load(path, weights_only=True, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]) + 1


def anybody(asked: bool, device: torch.device) -> bool:
    """Whether any of the processes was asked to end."""
    flag = torch.tensor([asked], dtype=torch.int32, device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def train(parameters: dict[str, Any], device: torch.device, asked: list[int]) -> None:
    """Train to the last step, or to the next checkpoint after a stop is asked for."""
    rank, is_first = dist.get_rank(), dist.get_rank() == 0
    torch.manual_seed(parameters["seed"])
    model = Transformer(parameters["width"], parameters["layers"]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=parameters["learning_rate"])
    first = restore(model, optimizer, device)
    if is_first and first > 1:
        print(f"resuming after step {first - 1}", flush=True)
    parallel = DistributedDataParallel(model)
    held_out = sums(512, 1).to(device)
    share = BATCH // dist.get_world_size()
    for step in range(first, parameters["steps"] + 1):
        optimizer.zero_grad()
        loss = loss_of(parallel, sums(share, 2, parameters["seed"], step, rank).to(device))
        loss.backward()
        optimizer.step()
        if step % EVERY and step != parameters["steps"]:
            continue
        if is_first:
            with torch.no_grad():
                metrics = {"train_loss": loss.item(), "val_loss": loss_of(model, held_out).item()}
            # Metrics before the checkpoint: dying between the two logs one step twice instead of never.
            mlflow.log_metrics(metrics, step=step)
            save_checkpoint(step, model, optimizer)
            print(f"step {step}: " + " ".join(f"{k} {v:.4f}" for k, v in metrics.items()), flush=True)
        # After the first process has saved: nobody leaves before.
        dist.barrier()
        if anybody(bool(asked), device) and step != parameters["steps"]:
            sys.exit(TERMINATED)


def main() -> None:
    """Run one of the processes of a training."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _frame: asked.append(signum))
    alone = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
    }
    if "RANK" not in os.environ:
        os.environ.update(alone)
    has_gpu = torch.cuda.is_available()
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if has_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    try:
        with mlflow.start_run() if dist.get_rank() == 0 else nullcontext():
            train(read_parameters(), device, asked)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
