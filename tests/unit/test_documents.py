import json
import math

import pytest

from airflows import documents
from airflows.cli.lookup import has_overrides
from airflows.drivers import Owner
from airflows.engine.results import SweepResults
from airflows.errors import SpecError
from airflows.ledger import AttemptRow, EventRow, SweepRow, SweepState, Wish
from airflows.objective import Objective
from airflows.ranking import Aim, Scored, rank
from airflows.report.accounting import Spent
from airflows.trial import Handle, Reason, State, Trial

NOON = 1_700_000_000.0


def sweep_row(**changes) -> SweepRow:
    fields = {
        "id": "lr-7f3a9c",
        "name": "lr",
        "definition": "0" * 64,
        "instance": "",
        "source": "name: lr\n",
        "directory": "/w",
        "backend": "local",
        "root": "/home/.airflows",
        "code": "",
        "single": False,
        "wish": Wish.RUN,
        "requests": 0,
        "state": SweepState.RUNNING,
        "message": "",
        "halted": "",
        "expanded": 0,
        "exhausted": False,
        "total": 10,
        "created_at": NOON,
        "resumed_at": None,
        "ended_at": None,
        "tracking_uri": "none",
        "experiment_id": "",
        "parent_run_id": "",
        "winner": None,
        "lease_owner": "",
        "lease_token": "",
        "lease_since": None,
        "lease_until": None,
        "doubt_until": 0.0,
    }
    known = {
        name: value for name, value in (fields | changes).items() if name in SweepRow.__dataclass_fields__
    }
    return SweepRow(**known)


def attempt_row(number: int, attempt: int = 0, **changes) -> AttemptRow:
    fields = {
        "number": number,
        "attempt": attempt,
        "token": f"lr-7f3a9c-{number:04}-a{attempt}",
        "backend": "local",
        "batch": "",
        "handle": f"local:{number}",
        "host": "box",
        "state": "failed",
        "reason": "error",
        "signature": "error: ValueError: N",
        "message": f"ValueError: {number}",
        "exit_code": 1,
        "claimed_at": NOON,
        "submitted_at": NOON,
        "started_at": NOON + 1,
        "ended_at": NOON + 3,
        "resumed_from": "",
        "code": "",
        "accelerators": 1,
    }
    return AttemptRow(**(fields | changes))


def results(values: list[float | None], **changes) -> SweepResults:
    objective = Objective(metric="loss", goal="minimize")
    scored = [
        Scored(
            number,
            number,
            {"parameters.lr": number / 10},
            State.SUCCEEDED,
            value=value,
            run_id=f"run{number}",
        )
        for number, value in enumerate(values)
    ]
    ranking = rank(Aim("loss", "minimize"), scored)
    counts = {State.SUCCEEDED: len(values)}
    return SweepResults(sweep_row(**changes), None, objective, ranking, counts, complete=True)


# JSON


@pytest.mark.parametrize(
    ("value", "word"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_numbers_that_json_has_no_word_for_are_strings(value, word):
    text = documents.to_json({"a": [value, {"b": value}]})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [word, {"b": word}]}


def test_states_and_foreign_values_become_plain_ones():
    assert documents.plain({"state": State.RUNNING, 1: (SweepState.FAILED, Owner)})["state"] == "running"
    assert documents.plain({1: 2}) == {"1": 2}


def test_text_stays_readable_and_can_be_forced_into_ascii():
    assert "µ" in documents.to_json({"a": "µ"})
    assert documents.to_json({"a": "µ"}, ascii_only=True).isascii()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:s3cret@db/x", "postgresql://me:***@db/x"),
        ("see https://u:p%40ss@host/ and http://h/", "see https://u:***@host/ and http://h/"),
        ("sqlite:////home/me/a.db", "sqlite:////home/me/a.db"),
        ("http://host:5000/x@y", "http://host:5000/x@y"),
    ],
)
def test_passwords_in_urls_are_not_shown(text, shown):
    assert documents.without_passwords({"a": [text]}) == {"a": [shown]}


# Counts


def test_submitting_counts_as_pending_and_stopping_as_running():
    counts = {State.SUBMITTING: 1, State.PENDING: 2, State.STOPPING: 3, State.RUNNING: 4}
    shown = documents.counts_document(counts, 10)
    assert (shown["pending"], shown["running"], shown["total"]) == (3, 7, 10)


def test_trials_that_are_planned_but_not_created_are_pending():
    assert documents.counts_document({State.FAILED: 3}, 100)["pending"] == 97


def test_an_unknown_total_is_null():
    shown = documents.counts_document({State.PENDING: 1}, None)
    assert (shown["total"], shown["pending"]) == (None, 1)


# Sweeps


def test_a_driver_is_shown_with_host_pid_and_time():
    owner = Owner("box", "boot", "", 12, 1)
    shown = documents.sweep_row(sweep_row(lease_since=NOON), {}, 0.5, owner)
    assert shown["driver"] == {"host": "box", "pid": 12, "since": "2023-11-14T22:13:20.000Z"}
    assert shown["started_at"] == "2023-11-14T22:13:20.000Z"
    assert shown["ended_at"] is None


def test_a_sweep_that_ended_names_its_winner():
    shown = documents.ended_document(results([0.3, 0.1, 0.2], state=SweepState.SUCCEEDED, message="Done."))
    assert shown["winner"]["trial"] == "lr-7f3a9c/1"
    assert shown["winner"]["mlflow_run_id"] == "run1"
    assert shown["winner"]["overrides"] == {"parameters.lr": 0.1}
    assert (shown["state"], shown["message"]) == ("succeeded", "Done.")


def test_without_a_sound_value_there_is_no_winner():
    assert documents.ended_document(results([math.nan]))["winner"] is None


def test_equal_causes_are_one_with_their_count():
    attempts = [
        attempt_row(0),
        attempt_row(1),
        attempt_row(1, 1),
        attempt_row(2, signature="other", reason="lost"),
    ]
    causes = documents.causes_of("lr-7f3a9c", [*attempts, attempt_row(3, signature="", state="succeeded")])
    assert [(cause["class"], cause["count"]) for cause in causes] == [("error", 3), ("lost", 1)]
    assert causes[0]["example"] == "lr-7f3a9c/0.0"


def test_a_sweep_shows_what_it_has_cost():
    spent = Spent(queue_s=10.0, run_s=20.0, useful_s=5400.0, lost_s=10800.0)
    shown = documents.sweep_details({}, results([0.1]), [], spent)
    assert shown["accelerator_hours"] == {"useful": 1.5, "lost": 3.0}
    assert (shown["queue_s"], shown["run_s"]) == (10.0, 20.0)


def test_a_sweep_shows_no_password():
    spec = {"tracking": {"uri": "http://me:secret@host"}}
    shown = documents.sweep_details(spec, results([0.1], tracking_uri="http://me:secret@host"), [], Spent())
    assert "secret" not in documents.to_json(shown)


# Trials


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.ERROR, "error"),
        (Reason.PREEMPTED, "preempted"),
        (Reason.NO_METRIC, None),
        (Reason.USER, None),
        (Reason.NONE, None),
    ],
)
def test_trial_attempt_and_cause_have_the_class_of_a_failure(reason, kind):
    attempt = attempt_row(3, reason=reason.value)
    shown = [
        documents.trial_document(Trial("lr-7f3a9c", 3, 3, 0, reason=reason), {}),
        documents.attempt_document(attempt, "", [], Spent()),
        *documents.causes_of("lr-7f3a9c", [attempt]),
    ]
    assert [each["class"] for each in shown] == [kind] * 3
    assert [each["reason"] for each in shown] == [reason.value or None] * 3


def test_a_trial_without_words_of_its_own_has_those_of_its_reason():
    shown = documents.trial_document(Trial("s-1", 0, 0, 0, State.FAILED, Reason.LOST), {})
    assert shown["message"] == Reason.LOST.sentence


@pytest.mark.parametrize(
    ("value", "raw", "shown"), [(0.5, "", 0.5), (None, "NaN", "NaN"), (None, "", None), (0.0, "", 0.0)]
)
def test_the_value_of_a_trial_is_a_number_or_the_word_for_one(value, raw, shown):
    trial = Trial("s-1", 0, 0, 0, value=value, raw_value=raw)
    assert documents.trial_document(trial, {})["value"] == shown


def test_a_trial_has_all_keys_of_the_document():
    trial = Trial("s-1", 12, 4, 1, State.RUNNING, handle=Handle("slurm:4711_12"), started_at=NOON)
    shown = documents.trial_document(trial, {"parameters.lr": 0.1})
    assert shown["trial"] == "s-1/12"
    assert set(shown) >= {
        *("trial", "number", "overrides", "replicate", "state", "reason", "class", "message", "attempt"),
        *("backend", "handle", "mlflow_run_id", "value", "value_step", "started_at", "ended_at"),
    }


def test_an_attempt_says_where_its_files_are():
    shown = documents.attempt_document(attempt_row(1), "/root/a0", ["/root/a0/logs/node_0.log"], Spent())
    assert shown["launch_dir"] == "/root/a0"
    assert shown["log_paths"] == ["/root/a0/logs/node_0.log"]
    assert (shown["class"], shown["exit_code"]) == ("error", 1)


def test_an_event_says_from_where_to_where():
    shown = documents.event_document(EventRow(0, 0, NOON, "started", "queued", "running", "", ""))
    assert (shown["from"], shown["to"], shown["reason"]) == ("queued", "running", None)


# Results


def test_results_name_unranked_trials_with_their_reasons():
    found = results([0.1, None])
    shown = documents.results_document(found, found.ranking.ranked)
    assert shown["unranked"][0]["trial"] == "lr-7f3a9c/1"
    assert "not logged" in shown["unranked"][0]["reason"]
    assert (len(shown["ranked"]), shown["pareto"]) == (1, None)


@pytest.mark.parametrize(
    ("overrides", "where", "holds"),
    [
        ({"lr": 0.1, "opt": "sgd"}, {"lr": 0.1}, True),
        ({"lr": 1.0}, {"lr": 1}, True),
        ({"lr": 1}, {"lr": 1.0}, True),
        ({"lr": 1}, {"lr": True}, False),
        ({"lr": "1"}, {"lr": 1}, False),
        ({"lr": 0.1}, {"lr": 0.1, "opt": "sgd"}, False),
        ({"layers": [1, 2]}, {"layers": [1, 2]}, True),
        ({}, {}, True),
    ],
)
def test_conditions_compare_values_not_spellings(overrides, where, holds):
    assert has_overrides(overrides, where) is holds


# Errors


def test_an_error_says_where_and_what_to_do():
    error = SpecError(
        "no.", file="a.yaml", line=3, field="space", hint="Do.", others=(SpecError("more", line=4),)
    )
    shown = documents.error_document(error)["error"]
    assert (shown["kind"], shown["file"], shown["line"], shown["field"], shown["hint"]) == (
        *("invalid", "a.yaml", 3, "space", "Do."),
    )
    assert shown["others"] == [{"file": None, "line": 4, "field": None, "message": "more"}]
