"""Asking MLflow for what running trials log: whoever draws never waits for the answer."""

import threading

import pytest

from airflows.engine.latest import LatestMetrics
from airflows.errors import TrackingUnavailableError
from airflows.scores import MetricPoint
from airflows.testing.waiting import until

FOUND = {"a": {"loss": MetricPoint(3, 0.5, 1)}}


@pytest.fixture
def asking():
    """Make a `LatestMetrics` that is closed with the test."""
    made = []

    def make(ask, every_s=0.0):
        made.append(LatestMetrics(ask, every_s))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_an_answer_that_never_comes_is_not_waited_for(asking):
    asked, never = threading.Event(), threading.Event()

    def ask(_run_ids):
        asked.set()
        never.wait()
        return FOUND

    latest = asking(ask)
    latest.want(["a"])
    assert asked.wait(10)
    latest.want(["a", "b"])
    assert latest.found == {}
    latest.close()
    never.set()


def test_the_newest_answer_is_kept_for_those_that_are_wanted(asking):
    wanted = []

    def ask(run_ids):
        wanted.append(list(run_ids))
        return FOUND

    latest = asking(ask)
    assert wanted == []
    latest.want(["a"])
    until(lambda: latest.found == FOUND, "the answer")
    latest.want(["a", "b"])
    until(lambda: wanted[-1] == ["a", "b"], "the next question")


def test_without_runs_nothing_is_asked(asking):
    asked = threading.Event()
    latest = asking(lambda _run_ids: asked.set() or FOUND)
    latest.want([])
    assert not asked.wait(0.2)


@pytest.mark.parametrize("error", [TrackingUnavailableError("MLflow does not answer."), KeyError("metrics")])
def test_what_was_found_stays_while_mlflow_is_silent_and_that_is_known(asking, error):
    answers = iter([FOUND])

    def ask(_run_ids):
        found = next(answers, None)
        if found is None:
            raise error
        return found

    latest = asking(ask)
    latest.want(["a"])
    until(lambda: latest.found == FOUND, "the first answer")

    def is_silent():
        latest.want(["a"])
        return latest.is_silent

    until(is_silent, "several failures")
    assert latest.found == FOUND
