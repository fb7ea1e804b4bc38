"""Train a small transformer to tell whether a sequence has more ones than twos, with Hugging Face's Trainer.

Runs by itself (`python train.py`) and as a trial of a sweep; nothing is downloaded. Put your own model and
data in its place and keep what makes trials resumable, none of which imports airflows:

* parameters come from the YAML file `$HYPERPARAMETERS_PATH`;
* the Trainer writes each epoch to `$AIRFLOWS_CHECKPOINT_DIR`;
* it starts from `$AIRFLOWS_RESUME_FROM` when that names a checkpoint;
* metrics go to MLflow, which finds its server and its run in the environment;
* SIGTERM ends it after the epoch it is in, with the checkpoint written.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlflow
import torch
import yaml
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

DEFAULTS: dict[str, Any] = {"learning_rate": 0.01, "hidden_units": 32, "epochs": 6, "seed": 0}
SEQUENCES, LENGTH, WORDS = 800, 12, 3
ONE, TWO = 1, 2
TERMINATED = 128 + signal.SIGTERM


class Sequences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random sequences of shape (count, 12), the same ones every time."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(WORDS, (count, LENGTH), generator=generator)
        self.labels = ((self.words == ONE).sum(dim=1) > (self.words == TWO).sum(dim=1)).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.labels[index]}


class Trial(TrainerCallback):
    """Logs to MLflow, and ends the training after the epoch in which SIGTERM came."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "asked", True))

    def on_evaluate(
        self,
        _arguments: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **_others: Any,
    ) -> None:
        """Log after each epoch; the Trainer saves after this."""
        epoch = round(state.epoch or 0)
        accuracy = metrics["eval_accuracy"]
        mlflow.log_metrics({"val_loss": metrics["eval_loss"], "val_accuracy": accuracy}, step=epoch)
        print(f"epoch {epoch}: val_loss {metrics['eval_loss']:.4f} val_accuracy {accuracy:.4f}", flush=True)
        control.should_training_stop = control.should_training_stop or self.asked


def read_parameters() -> dict[str, Any]:
    """Return the defaults, overridden by the file a sweep hands in."""
    path = os.environ.get("HYPERPARAMETERS_PATH")
    if not path:
        return DEFAULTS
    return DEFAULTS | yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Return the share of sequences that are told right."""
    return {"accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}


def main() -> None:
    """Run one training."""
    trial = Trial()
    parameters = read_parameters()
    torch.set_num_threads(1)
    set_seed(parameters["seed"])
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=parameters["hidden_units"],
            intermediate_size=2 * parameters["hidden_units"],
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=LENGTH,
        )
    )
    arguments = TrainingArguments(
        output_dir=os.environ.get("AIRFLOWS_CHECKPOINT_DIR") or tempfile.mkdtemp(),
        num_train_epochs=parameters["epochs"],
        learning_rate=parameters["learning_rate"],
        per_device_train_batch_size=32,
        per_device_eval_batch_size=SEQUENCES,
        seed=parameters["seed"],
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Sequences(SEQUENCES, seed=0),
        eval_dataset=Sequences(SEQUENCES // 4, seed=1),
        compute_metrics=accuracy,
        callbacks=[trial],
    )
    with mlflow.start_run():
        if "MLFLOW_RUN_ID" not in os.environ:
            mlflow.log_params(parameters)
        trainer.train(resume_from_checkpoint=os.environ.get("AIRFLOWS_RESUME_FROM") or None)
        if trial.asked and (trainer.state.epoch or 0) < parameters["epochs"]:
            sys.exit(TERMINATED)


if __name__ == "__main__":
    main()
