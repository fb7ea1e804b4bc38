import pytest

from airflows.cli import ranked, render
from airflows.cli.terminal import Style

PLAIN = Style()
COUNTS = {
    "total": 27,
    "pending": 20,
    "queued": 0,
    "running": 2,
    "succeeded": 4,
    "failed": 1,
    "stopped": 0,
    "cancelled": 0,
}


def group(rank: int, value: float, **changes) -> dict:
    return {
        "rank": rank,
        "trials": [rank],
        "overrides": {"parameters.lr": rank / 10},
        "value": value,
        "mean": value,
        "sd": None,
        "n": 1,
        "ci95": None,
        "feasible": True,
        "separable_from_winner": None,
        "p": None,
        "p_adjusted": changes.get("p"),
        "steps": [5],
        "stopped_early": False,
        "note": "",
        **changes,
    }


def results(*groups: dict, unranked=(), **changes) -> dict:
    winner = {**groups[0], "trial": "lr-7f3a9c/1", "mlflow_run_id": "r"} if groups else None
    return {
        "sweep": "lr-7f3a9c",
        "objective": {"metric": "acc", "goal": "maximize", "take": "last"},
        "objectives": None,
        "complete": True,
        "winner": winner,
        "ranked": list(groups),
        "unranked": [{"trial": f"lr-7f3a9c/{n}", "number": n, "reason": why} for n, why in unranked],
        "pareto": None,
        "verdict": None,
        "importance": None,
        "causes": [],
        "avoided": [],
        "code": [],
        **changes,
    }


def sweep(**changes) -> dict:
    return {
        "sweep": "lr-7f3a9c",
        "state": "running",
        "message": "",
        "trials": COUNTS,
        "best": 0.5,
        "objective": None,
        "objectives": None,
        "started_at": "2026-01-31T08:00:00Z",
        "ended_at": None,
        "backend": "local",
        "driver": None,
        "accelerator_hours": {"useful": 1.5, "lost": 0.25},
        "queue_s": 60.0,
        "run_s": 6300.0,
        "forecast": None,
        "tracking_uri": "none",
        "experiment_id": None,
        "parent_run_id": None,
        "root": "/home",
        "plan": None,
        "orphaned": 0,
        "causes": [],
        "avoided": [],
        **changes,
    }


def test_counts_name_only_what_there_is():
    assert render.counts_text(COUNTS) == "5 of 27 ended, 2 running, 1 failed"
    assert render.counts_text(COUNTS | {"total": None}) == "5 ended, 2 running, 1 failed"


def test_without_replicates_the_table_has_no_statistics():
    header = ranked.results_lines(results(group(1, 0.9), group(2, 0.8)), PLAIN)[2]
    assert header.split() == ["RANK", "lr", "acc", "STEP", "TRIALS"]


def test_with_replicates_the_table_says_what_is_noise():
    groups = [
        group(1, 0.9, n=3, sd=0.01, ci95=[0.875, 0.925]),
        group(2, 0.8, n=3, sd=0.02, p=0.3, separable_from_winner=False),
    ]
    told = "\n".join(ranked.results_lines(results(*groups), PLAIN))
    assert "within noise, p=0.3" in told
    assert "the runner-up (0.8) is within noise: p = 0.3" in told
    assert "(mean 0.9 of 3, sd 0.01, 95 % interval 0.875 to 0.925)" in told


def test_a_broken_constraint_is_a_note():
    told = "\n".join(
        ranked.results_lines(results(group(1, 0.9, feasible=False, note="latency broken")), PLAIN)
    )
    assert "latency broken" in told


def test_equal_reasons_for_not_being_ranked_are_one_line():
    told = ranked.results_lines(
        results(group(1, 0.9), unranked=[(n, "cancelled") for n in range(20, 40)]), PLAIN
    )
    (line,) = [line for line in told if "cancelled" in line]
    assert line.split()[:2] == ["20", "x"]
    assert line.endswith("(trials 20 21 22 23 24 25 26 27 +12)")


def test_without_a_winner_that_is_said():
    assert ranked.results_lines(results(), PLAIN)[-1] == "There is no winner."


def test_without_an_objective_nothing_is_ranked():
    assert "no objective" in ranked.results_lines(results(objective=None), PLAIN)[0]


def test_an_unfinished_sweep_is_marked():
    assert "not finished yet" in ranked.results_lines(results(group(1, 0.9), complete=False), PLAIN)[0]


def test_a_sweep_that_nobody_drives_says_how_to_take_it_up():
    assert "none; take it up with: airflows resume lr-7f3a9c" in "\n".join(render.sweep_lines(sweep(), PLAIN))


def test_a_driver_is_named_with_host_and_process():
    driver = {"host": "box", "pid": 12, "since": "2026-01-31T08:00:00Z"}
    assert "process 12 on box, since 2026-01-" in "\n".join(render.sweep_lines(sweep(driver=driver), PLAIN))


def test_a_cause_is_told_once_with_its_count():
    cause = {
        "class": "error",
        "count": 7,
        "signature": "s",
        "message": "ValueError: x",
        "example": "lr-7f3a9c/3.1",
        "trials": 4,
        "failed": 3,
        "where": "parameters.lr >= 0.5",
        "last_lines": ["epoch 3", "ValueError: x"],
        "next": "airflows logs lr-7f3a9c/3 --attempt 1",
    }
    told = render.sweep_lines(sweep(causes=[cause]), PLAIN)
    assert [line.strip() for line in told[-4:]] == [
        "3 failed, 1 cause",
        "4 x error at parameters.lr >= 0.5 (7 attempts): ValueError: x",
        "| epoch 3",
        "airflows logs lr-7f3a9c/3 --attempt 1",
    ]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"kind": "started", "reason": None, "detail": None}, "running on box"),
        ({"kind": "failed", "reason": "error", "detail": "exit 1"}, "failed for good: exit 1"),
        ({"kind": "stop_asked", "reason": "user", "detail": None}, "asked to end: user"),
        ({"kind": "unheard_of", "reason": None, "detail": None}, "unheard_of"),
    ],
)
def test_events_are_told_in_words(event, text):
    assert render.event_text(event, {"host": "box"}) == text


def test_a_message_cannot_break_the_table():
    trial = {
        "trial": "s-1/0",
        "state": "failed",
        "reason": "error",
        "attempt": 0,
        "value": None,
        "started_at": None,
        "ended_at": None,
        "backend": "kubernetes",
        "handle": "x" * 100,
        "overrides": {"parameters.text": "a\nb\x1b[2J"},
    }
    lines = render.trials_lines([trial], PLAIN)
    assert len(lines) == 2
    assert "\x1b" not in lines[1]
    assert "x" * 60 not in lines[1]


@pytest.mark.parametrize(
    ("backend", "handle", "shown"),
    [
        ("local", "4711:8812:0c7e-boot:box:lr-7f3a9c-0000-a0:/home/me/.airflows/runs/lr/0/a0", "local:4711"),
        ("slurm", "4711_12@lr-7f3a9c-b1", "slurm:4711_12"),
        ("databricks", "777", "databricks:777"),
        ("fake", "fake:7", "fake:7"),
        ("local", None, ""),
    ],
)
def test_a_handle_is_shown_as_the_backends_own_commands_have_it(backend, handle, shown):
    assert render.handle_text(backend, handle) == shown


def test_take_is_said_in_words():
    assert render.take_text("best") == "best"
    assert render.take_text({"mean_of_last": 5, "at_step": None}) == "mean_of_last 5"


def figures(metric: str, value: float) -> dict:
    return {"metric": metric, "value": value, "mean": value, "sd": None, "n": 1, "ci95": None}


def test_several_objectives_show_the_front_and_its_knee():
    both = [
        group(
            rank,
            loss,
            objectives=[figures("loss", loss), figures("ms", ms)],
            on_front=rank < 3,
            is_knee=rank == 1,
        )
        for rank, loss, ms in [(1, 0.2, 5.0), (2, 0.1, 9.0), (3, 0.3, 9.5)]
    ]
    aims = [{"metric": metric, "goal": "minimize", "take": "last"} for metric in ("loss", "ms")]
    document = results(*both, objective=aims[0], objectives=aims, winner=None, pareto=both[:2])
    told = ranked.results_lines(document, PLAIN)
    assert told[0].endswith("minimize loss (take last), minimize ms (take last)")
    assert [line.split()[:2] for line in told[2:6]] == [
        ["RANK", "FRONT"],
        ["1", "knee"],
        ["2", "yes"],
        ["3", "0.3"],
    ]
    assert "knee    trial 1  lr=0.1" in told
    assert "        loss 0.2, ms 5" in told
    assert "        Each ran once, so chance has a part in who is on it." in told


def test_what_is_to_be_told_of_a_winner_follows_it():
    verdict = {"words": ["Two may be as good.", "  airflows resume lr --replicates 3"]}
    told = ranked.results_lines(results(group(1, 0.9), group(2, 0.8), verdict=verdict), PLAIN)
    assert told[-2:] == ["        Two may be as good.", "          airflows resume lr --replicates 3"]


def test_importance_has_a_line_for_each_parameter():
    parameters = [
        {"key": "lr", "share": 0.75, "points": 30},
        {"key": "momentum", "share": 0.25, "points": 12},
    ]
    importance = {"points": 30, "parameters": parameters, "why_not": None}
    told = ranked.results_lines(results(group(1, 0.9), importance=importance), PLAIN)
    assert "  lr         75.0%" in told
    assert "  momentum   25.0%  (active in 12 of 30)" in told


def test_where_the_median_ranks_a_better_mean_is_not_called_worse():
    groups = [
        group(1, 0.9, n=3, sd=0.01, ci95=[0.8, 1.0]),
        group(2, 0.8, n=3, sd=0.02, p=0.01, separable_from_winner=False),
        group(3, 0.7, n=3, sd=0.02, p=0.02, separable_from_winner=True),
    ]
    objective = {"metric": "acc", "goal": "maximize", "take": "last", "across_replicates": "median"}
    told = "\n".join(ranked.results_lines(results(*groups, objective=objective), PLAIN))
    assert "better mean, p=0.01" in told
    assert "has a better mean, beyond noise: p = 0.01" in told
    assert "worse, p=0.02" in told
    assert "within noise" not in told
