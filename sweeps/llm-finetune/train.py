"""Fine-tune a causal language model on instructions, with Hugging Face's Trainer.

Started by torchrun on every node. Checkpoints go to `$AIRFLOWS_CHECKPOINT_DIR`, and a training goes on from
`$AIRFLOWS_RESUME_FROM` when that names one. The first process logs to MLflow, into the run that is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import yaml
from datasets import Dataset, load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)

HELD_OUT = 1000
PROMPT = "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n{output}"


def read_parameters() -> dict[str, Any]:
    """Return what the trial is given."""
    return dict(yaml.safe_load(Path(os.environ["HYPERPARAMETERS_PATH"]).read_text(encoding="utf-8")))


def tokenized(parameters: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> tuple[Dataset, Dataset]:
    """Return the training and the held-out examples, the same split for every trial."""

    def encode(rows: dict[str, list[str]]) -> dict[str, Any]:
        columns = zip(rows["instruction"], rows["input"], rows["output"], strict=True)
        texts = [
            PROMPT.format(instruction=instruction, input=given, output=answer) + tokenizer.eos_token
            for instruction, given, answer in columns
        ]
        return dict(tokenizer(texts, truncation=True, max_length=parameters["max_length"]))

    rows = load_dataset(parameters["dataset"], split="train")
    examples = rows.map(encode, batched=True, remove_columns=rows.column_names)
    split = examples.train_test_split(test_size=HELD_OUT, seed=0)
    return split["train"], split["test"]


def arguments(parameters: dict[str, Any]) -> TrainingArguments:
    """Return how to train; evaluation and saving go together, so that a curve has no gap after a restart."""
    return TrainingArguments(
        output_dir=os.environ["AIRFLOWS_CHECKPOINT_DIR"],
        learning_rate=parameters["learning_rate"],
        warmup_steps=round(parameters["warmup_ratio"] * parameters["max_steps"]),
        weight_decay=parameters["weight_decay"],
        lr_scheduler_type="cosine",
        per_device_train_batch_size=parameters["batch_size"],
        gradient_accumulation_steps=parameters["accumulation"],
        max_steps=parameters["max_steps"],
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=parameters["save_steps"],
        save_strategy="steps",
        save_steps=parameters["save_steps"],
        save_total_limit=2,
        seed=parameters["seed"],
        report_to=["mlflow"],
    )


def main() -> None:
    """Run one training."""
    parameters = read_parameters()
    tokenizer = AutoTokenizer.from_pretrained(parameters["model"])
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    train, held_out = tokenized(parameters, tokenizer)
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(parameters["model"], dtype=torch.bfloat16),
        args=arguments(parameters),
        train_dataset=train,
        eval_dataset=held_out,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train(resume_from_checkpoint=os.environ.get("AIRFLOWS_RESUME_FROM") or None)


if __name__ == "__main__":
    main()
