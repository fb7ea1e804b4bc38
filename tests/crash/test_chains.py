"""Trials that are killed, run out of time or tear their newest checkpoint reach their end all the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflows.backends.base import Job
from airflows.backends.local.backend import LocalBackend
from airflows.backends.local.processes import marked
from airflows.engine import operations
from airflows.ledger import AttemptRow, SweepState, open_ledger
from airflows.sweepfile import sweep_from_mapping

PATIENCE_S = 120
STEPS, EVERY = 60, 5
KILLS = 10

# It saves every few steps, under a name that is whole, and its result depends on each step's order.
TRAIN = f"""\
import json, os, pathlib, threading
kept = pathlib.Path(os.environ["AIRFLOWS_CHECKPOINT_DIR"])
resumed = os.environ["AIRFLOWS_RESUME_FROM"]
state = json.loads(pathlib.Path(resumed).read_text()) if resumed else {{"step": 0, "loss": 1.0}}
pause = threading.Event()
while state["step"] < {STEPS}:
    step = state["step"] + 1
    with open(os.environ["STEPS"], "a") as file:
        file.write(f"{{os.environ['AIRFLOWS_ATTEMPT']}} {{step}}\\n")
    pause.wait(0.03)
    state = {{"step": step, "loss": (state["loss"] * 7.3 + step) % 11}}
    if step % {EVERY} == 0:
        unfinished = kept / f"step-{{step}}.pt.tmp"
        unfinished.write_text(json.dumps(state))
        unfinished.rename(kept / f"step-{{step}}.pt")
from mlflow.tracking import MlflowClient
MlflowClient().log_metric(os.environ["MLFLOW_RUN_ID"], "loss", state["loss"], step=state["step"])
"""


def expected_loss() -> float:
    """What training without any interruption comes to."""
    loss = 1.0
    for step in range(1, STEPS + 1):
        loss = (loss * 7.3 + step) % 11
    return loss


def sweep(directory: Path, command: str, **fields: Any) -> Any:
    tree = {
        "name": "chain",
        "base": {
            "experiment_name": "chain",
            "command": command,
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "env_variables": {"STEPS": str(directory / "steps")},
            "parameters": {"lr": 0.1},
        },
        "space": {"parameters.lr": [0.1]},
        "backend": {"type": "local", "grace": 0.5},
        **fields,
    }
    return sweep_from_mapping(tree, directory=directory)


def training(directory: Path) -> Any:
    (directory / "train.py").write_text(TRAIN, encoding="utf-8")
    return sweep(
        directory,
        f"exec {sys.executable} {directory}/train.py",
        objective={"metric": "loss", "goal": "minimize"},
        retry={"wait": "0s", "max": 0, "max_without_progress": KILLS},
    )


def steps(directory: Path) -> list[tuple[int, int]]:
    """The (attempt, step) that ran, in their order; a line that is being written is not there yet."""
    path = directory / "steps"
    text = path.read_text(encoding="ascii") if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [(int(attempt), int(step)) for attempt, step in (line.split() for line in lines)]


def repeated(ran: Sequence[tuple[int, int]]) -> list[int]:
    """How many steps each attempt but the first repeated."""
    last, first = dict(ran), dict(reversed(ran))
    return [last[attempt - 1] - first[attempt] + 1 for attempt in sorted(first) if attempt - 1 in last]


def attempts(home: Path) -> list[AttemptRow]:
    ledger = open_ledger(home)
    try:
        (row,) = ledger.sweeps()
        return ledger.attempts(row.id)
    finally:
        ledger.close()


def value(home: Path) -> float | None:
    ledger = open_ledger(home)
    try:
        (row,) = ledger.sweeps()
        return ledger.trials(row.id)[0].value
    finally:
        ledger.close()


def parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("PPid:")[2].split()[0])


def kill_when(directory: Path, home: Path, attempt: int, after: int) -> None:
    """Kill everything of an attempt with SIGKILL once it has done so many steps."""
    deadline = time.monotonic() + PATIENCE_S
    while Counter(a for a, _ in steps(directory))[attempt] < after:
        assert time.monotonic() < deadline, f"attempt {attempt} never did {after} steps"
        threading.Event().wait(0.01)
    (launched,) = home.glob(f"runs/*/0/a{attempt}")
    pids = marked(str(launched))
    # What waits for the command must not see it die, as when the machine goes.
    for pid in [*{parent(pid) for pid in pids}, *pids]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_training_that_is_killed_ten_times_at_random_ends_with_the_same_metric(tmp_path, home):
    chance = random.Random("ten kills")
    loaded = training(tmp_path)
    rows: list[Any] = []
    driver = threading.Thread(target=lambda: rows.append(operations.start(loaded, home=home).row))
    driver.start()
    for attempt in range(KILLS):
        kill_when(tmp_path, home, attempt, chance.randint(1, 2 * EVERY))
    driver.join(PATIENCE_S)

    assert rows[0].state is SweepState.SUCCEEDED
    assert value(home) == expected_loss()
    made = attempts(home)
    assert [attempt.reason for attempt in made] == ["lost"] * KILLS + [""]
    assert max(repeated(steps(tmp_path))) <= EVERY
    assert {step for _, step in steps(tmp_path)} == set(range(1, STEPS + 1))


def test_a_training_longer_than_its_time_limit_is_carried_through_it(tmp_path, home, monkeypatch):
    submit = LocalBackend.submit

    def hurried(self: LocalBackend, jobs: Sequence[Job]) -> Any:
        return submit(self, [replace(job, timeout_s=1.0) for job in jobs])

    monkeypatch.setattr(LocalBackend, "submit", hurried)
    # The last attempt imports MLflow, which has to fit into the limit, too.
    monkeypatch.setattr(sys.modules[__name__], "TRAIN", TRAIN.partition("from mlflow")[0])
    loaded = training(tmp_path)
    row = operations.start(loaded, home=home).row

    made = attempts(home)
    assert [attempt.reason for attempt in made] == ["timed_out"] * (len(made) - 1) + [""]
    assert len(made) > 1
    (kept,) = home.glob(f"checkpoints/{row.id}/0/step-{STEPS}.pt")
    assert json.loads(kept.read_text()) == {"step": STEPS, "loss": expected_loss()}
    assert max(repeated(steps(tmp_path))) <= EVERY


FURTHER = """\
import os
from mlflow.tracking import MlflowClient
attempt = int(os.environ["AIRFLOWS_ATTEMPT"])
MlflowClient().log_metric(os.environ["MLFLOW_RUN_ID"], "loss", 1.0, step=min(attempt, 2))
raise ValueError("always the same")
"""


def test_a_later_step_of_the_metric_is_progress_without_any_checkpoint(tmp_path, home):
    (tmp_path / "further.py").write_text(FURTHER, encoding="utf-8")
    loaded = sweep(
        tmp_path,
        f"exec {sys.executable} {tmp_path}/further.py",
        objective={"metric": "loss", "goal": "minimize"},
        retry={"wait": "0s", "max": 9},
    )
    operations.start(loaded, home=home)

    # Attempts 1 and 2 came a step further than the one before them, attempt 3 did not.
    made = attempts(home)
    assert [attempt.attempt for attempt in made] == [0, 1, 2, 3]
    assert made[-1].message.endswith("not tried again: the same error twice without progress")


LAYOUTS = {
    "huggingface": (
        (
            "mkdir checkpoint-5 checkpoint-10; echo {} >checkpoint-5/trainer_state.json; "
            'printf "{" >checkpoint-10/trainer_state.json'
        ),
        "checkpoint-5",
    ),
    "huggingface-no-state": (
        (
            "mkdir checkpoint-5 checkpoint-10; echo {} >checkpoint-5/trainer_state.json; "
            "echo weights >checkpoint-10/model.safetensors"
        ),
        "checkpoint-5",
    ),
    "torch-archive": (
        (
            f"{sys.executable} -c \"import zipfile; zipfile.ZipFile('step-5.pt', 'w').writestr('a', 'b' * 999)\"; "
            "head -c 500 step-5.pt >step-10.pt"
        ),
        "step-5.pt",
    ),
    "lightning-empty": ("echo whole >epoch=0-step=5.ckpt; : >epoch=0-step=10.ckpt", "epoch=0-step=5.ckpt"),
    "distributed": (
        (
            "mkdir step-5 step-10; echo x >step-5/.metadata; echo x >step-5/__0_0.distcp; "
            "echo x >step-10/__0_0.distcp"
        ),
        "step-5",
    ),
    "tmp-name": ("echo whole >step-5.pt; echo part >step-10.pt.tmp", "step-5.pt"),
}


def test_a_torn_newest_checkpoint_is_passed_over_on_each_layout(tmp_path, home):
    cases = "\n".join(f"{name}) {write} ;;" for name, (write, _) in LAYOUTS.items())
    command = f"""\
layout=$(sed -n 's/^layout: //p' "$HYPERPARAMETERS_PATH")
[ "$AIRFLOWS_ATTEMPT" = 0 ] || {{ echo "$layout ${{AIRFLOWS_RESUME_FROM##*/}}" >>"$STEPS"; exit 0; }}
cd "$AIRFLOWS_CHECKPOINT_DIR"
case $layout in
{cases}
esac
echo "ValueError: $layout"
exit 1
"""
    loaded = sweep(
        tmp_path,
        command,
        space={"parameters.layout": list(LAYOUTS)},
        retry={"wait": "0s", "max": 1},
        tracking={"uri": "none"},
    )
    row = operations.start(loaded, home=home).row

    assert row.state is SweepState.SUCCEEDED
    resumed = dict(line.split() for line in (tmp_path / "steps").read_text(encoding="ascii").splitlines())
    assert resumed == {name: whole for name, (_, whole) in LAYOUTS.items()}
