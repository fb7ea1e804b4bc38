"""`airflows.resume` from Python: which of the failed trials are tried again."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

import airflows


def failed_sweep(directory: Path) -> str:
    """Run a sweep whose only trial fails as long as `directory/mended` is not there; return its id."""
    base = {
        "experiment_name": "lr",
        "command": f"test -e {directory}/mended",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "parameters": {"lr": 0.1},
    }
    tree = {"base": base, "space": {"parameters.lr": [0.1]}, "retry": {"max": 0}, "tracking": {"uri": "none"}}
    results = airflows.run(airflows.Sweep(name="lr", **tree))
    assert [(trial.state, trial.reason) for trial in results.trials] == [("failed", "error")]
    return results.sweep


@pytest.mark.usefixtures("home")
def test_only_failures_of_the_classes_are_tried_again(tmp_path: Path) -> None:
    sweep = failed_sweep(tmp_path)
    (tmp_path / "mended").touch()
    (left,) = airflows.resume(sweep, failed=True, classes=["timed_out", "preempted"]).trials
    assert (left.state, left.attempts) == ("failed", 1)
    (again,) = airflows.resume(sweep, failed=True, classes={"error"}).trials
    assert (again.state, again.attempts) == ("succeeded", 2)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("classes", "failed", "words"),
    [
        (["error", "tired"], True, "no failure is of the class 'tired'"),
        ("error", True, "no failure is of the class 'error'. Give a list of some of: "),
        (["error"], False, "Say failed=True too."),
    ],
)
def test_classes_that_mean_nothing_are_refused(classes: Collection[str], failed: bool, words: str) -> None:
    with pytest.raises(airflows.SpecError) as raised:
        airflows.resume("any", failed=failed, classes=classes)
    assert words in str(raised.value)
