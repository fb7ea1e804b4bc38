"""The live view as lines: whatever the terminal's size, and whatever is in a metric's name."""

import pytest
from rich.cells import cell_len

from airflows.cli.screen import screen
from airflows.report.accounting import Forecast
from airflows.report.live import Cause, Goal, LiveSweep, RunningTrial, Scene
from airflows.scores import MetricPoint
from airflows.trial import State

COUNTS = {State.RUNNING: 40, State.QUEUED: 3, State.SUCCEEDED: 50, State.FAILED: 7, State.STOPPED: 2}
OVERRIDES = {"parameters.lr": 0.1, "parameters.optimizer": "adam"}


def trial(number: int, state: str = "running") -> RunningTrial:
    return RunningTrial(number, state, 900.0, OVERRIDES, f"run{number}")


def sweep(**fields) -> LiveSweep:
    given = {
        "sweep": "lr-7f3a9c",
        "state": "running",
        "message": "",
        "total": 200,
        "counts": COUNTS,
        "began_at": 0.0,
        "goal": Goal("val_accuracy", is_minimized=False),
        "best": (0.971, 14),
        "curve": [0.1, 0.5, 0.9, 0.971],
        "running": [trial(number) for number in range(40)],
        "causes": [Cause("out_of_memory", 6, "3.0", "CUDA out of memory"), Cause("error", 1, "9.1", "no")],
        "accelerator_s": 3600.0,
        "accelerator_limit_s": 36000.0,
        "forecast": Forecast(200, 200, "", 125.0),
        "driver": "node1:4711",
    }
    return LiveSweep(**(given | fields))


def drawn(width: int = 100, height: int = 30, *, metrics=None, note="", **fields) -> list[str]:
    lines = screen(Scene(sweep(**fields), 1000.0, metrics or {}, note), width, height)
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [4, 10, 24, 60])
def test_it_fits_the_terminal(width, height):
    lines = drawn(width, height, note="MLflow does not answer. " * 20)
    assert len(lines) <= height
    assert max(cell_len(line) for line in lines) <= width
    assert lines[0].startswith("lr-7f3a9c")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_state_is_counted_however_narrow(width):
    told = " ".join(drawn(width))
    for words in ("40 running", "3 queued", "98 pending", "50 succeeded", "7 failed", "2 stopped"):
        assert words in told


def test_progress_best_time_and_cost_are_told():
    told = "\n".join(drawn(100))
    assert "29 %  59 of 200 ended" in told
    assert "val_accuracy 0.971 (trial 14)  ▁▄▇█" in told
    assert "16m40s so far, about 2m05s left" in told
    assert "1 of 10 accelerator-hours (10%)" in told
    assert "node1:4711" in told


def test_the_limit_that_comes_first_is_named():
    found = Forecast(143, 200, "limits.wall_time", 60.0)
    assert "at this pace 143 of 200 within limits.wall_time" in "\n".join(drawn(forecast=found))


def test_failures_are_told_by_cause():
    told = drawn(100)
    assert "failed  6 x out_of_memory (first 3.0): CUDA out of memory" in told
    assert "        1 x error (first 9.1): no" in told


def test_running_trials_have_their_last_metric_and_step():
    metrics = {
        "run0": {"val_accuracy": MetricPoint(7, 0.5, 1), "loss": MetricPoint(8, 2.0, 2)},
        "run1": {"loss": MetricPoint(3, 1.5, 2), "system/cpu": MetricPoint(99, 3.0, 9)},
    }
    rows = {line.split()[0]: line.split()[1:] for line in drawn(metrics=metrics) if " running " in line}
    assert rows["0"][:4] == ["running", "1m40s", "7", "0.5"]
    assert rows["1"][:5] == ["running", "1m40s", "3", "loss", "1.5"]
    assert rows["2"][:4] == ["running", "1m40s", "-", "-"]


def test_trials_without_room_are_counted():
    lines = drawn(100, 20)
    shown = [line for line in lines if line.endswith("optimizer=adam")]
    assert lines[-1] == f"… and {40 - len(shown)} more"
    assert len(lines) == 20


def test_the_first_64_stand_for_all():
    counts = {**COUNTS, State.RUNNING: 9000}
    assert drawn(100, 200, counts=counts)[-1] == "… and 8,960 more"


def test_with_little_room_progress_stays_and_trials_go():
    lines = drawn(100, 6)
    assert not any("optimizer" in line for line in lines)
    assert any("59 of 200" in line for line in lines)


def test_no_name_moves_the_cursor():
    goal = Goal("a\x1b[2Jb\nc", is_minimized=True)
    causes = [Cause("error", 1, "1.0", "red\x1b[31m\nline")]
    assert "\x1b" not in "".join(drawn(goal=goal, causes=causes))
    assert "\n" not in "".join(drawn(goal=goal, causes=causes))


def test_before_the_first_trial_ends_nothing_is_invented():
    told = "\n".join(drawn(counts={}, running=[], causes=[], best=None, curve=[], forecast=None))
    assert "val_accuracy: no trial has ended with it yet" in told
    assert "left" not in told
    assert "200 pending" in told


def test_an_unknown_total_has_no_bar():
    told = drawn(total=None)
    assert "59 ended" in told
    assert "%" not in told[1]


def test_without_an_objective_the_newest_metric_is_shown():
    lines = drawn(goal=None, metrics={"run0": {"loss": MetricPoint(3, 1.5, 2)}})
    assert not any(line.startswith("best") for line in lines)
    assert any("loss 1.5" in line for line in lines)


def test_an_ended_sweep_says_how_it_ended():
    told = "\n".join(drawn(state="failed", ended_at=600.0, message="7 trials failed.", running=[]))
    assert "10m00s in all" in told
    assert "7 trials failed." in told
    assert "driver" not in told


def test_almost_done_is_not_done():
    counts = {State.SUCCEEDED: 9999, State.RUNNING: 1}
    assert " 99 %" in "\n".join(drawn(counts=counts, total=10_000))
