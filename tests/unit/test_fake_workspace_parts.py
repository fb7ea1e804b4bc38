"""Parts of the fake workspace by themselves: its clock, routes, rules and paths."""

import math

import pytest

from airflows.testing.workspace.clock import Clock, Timeline
from airflows.testing.workspace.exchange import ApiError, Request, User
from airflows.testing.workspace.faults import Fault, Faults
from airflows.testing.workspace.files import canonical
from airflows.testing.workspace.plans import AttemptPlan, Outcome, Plans, RunPlan, Submission, metrics_of
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.tracking import experiment_path

SEEN = Submission(
    nth=0,
    run_name="ner",
    token="s-aa-0001-a0",
    experiment="ner",
    user="kim",
    accelerator_type="GPU_1xA10",
    parameters={"lr": 2.0},
    env={},
)


def request(method="GET", path="/x", body=b"", user=None):
    return Request(method, path, {}, {}, body, user or User("kim"))


def test_a_standing_clock_moves_only_when_told():
    clock = Clock(start=100.0)
    before = clock.now(), clock.real_delay(200)
    clock.advance(50)

    assert before == (100.0, math.inf)
    assert clock.now() == 150.0


def test_a_fast_clock_shortens_waiting():
    clock = Clock(start=0.0, scale=1000.0)

    assert 0 < clock.real_delay(10_000) <= 10
    assert clock.real_delay(-5) == 0


def test_what_is_due_happens_in_order_and_at_its_own_time():
    clock, happened = Clock(start=0.0), []
    timeline = Timeline(clock)
    timeline.at(3, lambda at: happened.append(("c", at)))
    timeline.at(
        1, lambda at: (happened.append(("a", at)), timeline.at(at + 1, lambda at: happened.append(("b", at))))
    )
    off = timeline.at(2, lambda at: happened.append(("off", at)))
    timeline.at(9, lambda at: happened.append(("later", at)))
    off.is_off = True
    clock.advance(5)
    timeline.settle()

    assert happened == [("a", 1), ("b", 2), ("c", 3)]
    assert timeline.next_time() == 9


def test_paths_find_their_routes():
    router = Router()
    router.add("GET", "/files/{path*}", Route("files", dict))
    router.add("GET", "/runs/{id}/logs", Route("logs", dict))
    router.add("GET POST", "/runs:get", Route("exact", dict))

    def found(method, path):
        match = router.find(method, path)
        return match and (match[0].name, match[1])

    assert found("GET", "/files/a/b c") == ("files", {"path": "a/b c"})
    assert found("GET", "/runs/5/logs") == ("logs", {"id": "5"})
    assert found("POST", "/runs:get") == ("exact", {})
    assert found("GET", "/runs/5/6/logs") is None
    assert found("PUT", "/files/a") is None
    assert router.names() == ["exact", "files", "logs"]


def test_the_first_outcome_that_fits_counts_and_what_was_added_last_comes_first():
    slow, quick = RunPlan(run_s=100), RunPlan(run_s=1)
    plans = Plans(0, RunPlan(), [Outcome(run_name="n*", plan=slow), Outcome(plan=quick)])

    assert plans.choose(SEEN) is slow
    plans.add(Outcome(token="*-0001-*", times=1, plan=quick))
    assert [plans.choose(SEEN), plans.choose(SEEN)] == [quick, slow]
    plans.clear()
    assert plans.choose(SEEN) is plans.default


def test_the_chance_of_an_outcome_is_the_token_s():
    rule = Outcome(probability=0.5, plan=RunPlan())
    tokens = [f"t{number}" for number in range(40)]
    drawn = [
        [rule.fits(Submission(0, "", token, "", "", "", {}, {}), seed) for token in tokens]
        for seed in (1, 1, 2)
    ]

    assert drawn[0] == drawn[1] != drawn[2]
    assert 5 < sum(drawn[0]) < 35


def test_attempts_have_plans_of_their_own_and_the_last_repeats():
    plan = RunPlan(attempts=[AttemptPlan(result="FAILED"), AttemptPlan()])

    assert [plan.of(number).result for number in range(4)] == ["FAILED", "SUCCESS", "SUCCESS", "SUCCESS"]
    assert RunPlan(result="FAILED").of(3).result == "FAILED"


def doubled(seen):
    return {"loss": [2 * seen.parameters["lr"]]}


@pytest.mark.parametrize("metrics", [{"loss": [4.0]}, doubled])
def test_metrics_are_given_or_computed(metrics):
    assert metrics_of(AttemptPlan(metrics=metrics), SEEN) == {"loss": [4.0]}


def test_metrics_are_computed_by_a_function_named_in_a_script():
    plan = AttemptPlan(metrics="dataclasses:asdict")

    assert metrics_of(plan, SEEN)["token"] == SEEN.token


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({"route": "jobs/*"}, True),
        ({"route": "mlflow/*"}, False),
        ({"method": "POST"}, False),
        ({"contains": "needle"}, True),
        ({"contains": "thread"}, False),
        ({"from_jobs": True}, False),
        ({"from_jobs": False}, True),
    ],
)
def test_faults_fit_requests(rule, fits):
    fault = Fault(status=500, **rule)

    assert fault.fits("jobs/runs/get", request(body=b"hay needle hay")) is fits


def test_a_kind_s_values_can_be_changed():
    fault = Fault(kind="rate_limited", retry_after=7)

    assert fault.answer().status == 429
    assert fault.answer().headers == {"Retry-After": "7"}


def test_faults_count_what_they_did():
    faults = Faults(seed=0)
    faults.add(Fault(kind="internal", skip=1, times=2))
    faults.add(Fault(kind="forbidden", at_once_over=8))
    picked = [faults.pick("me", request(), at_once) for at_once in (1, 1, 1, 1, 9)]

    assert [fault and fault.status for fault in picked] == [None, 500, 500, None, 403]
    assert faults.happened() == [2, 1]


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/Users/kim", "/Workspace/Users/kim"),
        ("/Workspace/Users/kim/", "/Workspace/Users/kim"),
        ("//Workspace//x", "/Workspace/x"),
        ("/Volumes/a/b/c", "/Volumes/a/b/c"),
        ("/", "/Workspace"),
    ],
)
def test_paths_of_the_workspace_have_one_form(path, known):
    assert canonical(path) == known


@pytest.mark.parametrize("path", ["", "relative", "/a/../b", "/a\0b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ApiError):
        canonical(path)


@pytest.mark.parametrize(
    ("directory", "path"),
    [(None, "/Users/kim/ner"), ("/Workspace/Shared/x/", "/Shared/x/ner"), ("/Workspace", "/ner")],
)
def test_experiments_lie_at_home_unless_told_otherwise(directory, path):
    assert experiment_path(directory, "kim", "ner") == path
