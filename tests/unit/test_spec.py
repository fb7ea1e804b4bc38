"""What a sweep.yaml may say, and what it means when it says nothing."""

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from airflows.durations import parse_duration
from airflows.errors import SpecError
from airflows.objective import Constraint, Objective, metrics_of, parse_constraint
from airflows.scores import Take
from airflows.spec import SweepSpec, json_schema
from airflows.sweepfile import sweep_from_mapping

PUBLISHED = files("airflows") / "schemas" / "sweep.schema.json"
REWRITE = (
    "python -c 'import json; from airflows.spec import json_schema; print(json.dumps(json_schema(), indent=2))'"
    " > airflows/schemas/sweep.schema.json"
)
BASE = {
    "experiment_name": "demo",
    "command": "python train.py",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01, "seed": 0},
}
# Every key there is but one of several, as in the reference page.
EVERYTHING = """
name: digits-lr
base: train.yaml
overrides: {parameters.epochs: 20}
space:
  parameters.lr: {min: 1e-5, max: 1e-2, log: true}
  parameters.batch_size: [16, 32, 64]
  parameters.optimizer: [sgd, adamw]
  parameters.momentum: {values: [0.8, 0.9], when: {parameters.optimizer: sgd}}
  parameters.model, compute.num_accelerators: [[small, 1], [large, 8]]
  parameters.dropout: {min: 0, max: 0.5, step: 0.1}
  parameters.decay: {min: 1e-4, max: 1e-1, count: 4, log: true}
  parameters.epochs: 20
include: [{parameters.lr: 1e-3, parameters.batch_size: 128}]
exclude: [{parameters.lr: 1e-2, parameters.batch_size: 16}]
search: {method: random, trials: 40, seed: 7}
replicates: {key: parameters.seed, values: [0, 1, 2]}
objective:
  metric: eval_loss
  goal: minimize
  take: {mean_of_last: 3}
  constraints: [latency_ms <= 20]
  across_replicates: median
  min_replicates: 2
stop: {method: nan}
limits:
  concurrent: 8
  trials: 100
  wall_time: 12h
  accelerator_hours: 500
  failed_trials: 10%
  identical_failures: 4
  on_limit: cancel
retry: {max: 3, max_without_progress: 2, wait: 30s}
checkpoint: {dir: /shared/checkpoints, pattern: "*.ckpt"}
backend: {type: local, slots: 2}
tracking: {uri: none, experiment: digits-lr, tags: {team: nlp, year: 2026}}
strict: false
pack: 1
"""


def spec(**fields) -> SweepSpec:
    return sweep_from_mapping(
        {"name": "demo", "base": BASE, "space": {"parameters.lr": [0.1, 0.2]}, **fields}, directory=Path()
    ).spec


def refused(**fields) -> SpecError:
    with pytest.raises(SpecError) as caught:
        spec(**fields)
    return caught.value


def test_what_is_left_out_has_its_default():
    made = spec()

    assert (made.method, made.search.seed, made.search.trials) == ("grid", 0, None)
    assert (made.limits.identical_failures, made.limits.on_limit, made.limits.wall_time_s) == (
        3,
        "finish",
        None,
    )
    assert (made.retry.max, made.retry.max_without_progress, made.retry.wait_s) == (None, 3, 10.0)
    assert made.backend == {"type": "local"}
    assert (made.tracking.uri, made.tracking.experiment, made.tracking.tags) == (None, None, {})
    assert (made.checkpoint.dir, made.checkpoint.pattern) == (None, None)
    assert made.all_objectives == []


def test_a_key_without_a_value_is_a_key_left_out():
    assert spec(limits=None, retry={"max": None}, objective=None) == spec()


def test_without_a_space_the_rows_are_the_points():
    assert spec(space=None, include=[{"parameters.lr": 1.0}]).method == "list"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("3d", 259_200), ("1h30m", 5400), ("0s", 0)],
)
def test_a_duration_is_a_number_with_units(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", 90, 90.0, "1.5h", "30m1h", "h", "-5m", "5 minutes", None, "٣m"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_limits_are_in_seconds_and_counts():
    limits = spec(limits={"wall_time": "1h30m", "failed_trials": 5, "accelerator_hours": 2}).limits

    assert (limits.wall_time_s, limits.accelerator_hours) == (5400.0, 2.0)
    assert limits.failed_count(None) == 5


@pytest.mark.parametrize(("total", "most"), [(40, 4), (41, 5), (5, 1), (1, 1), (None, None)])
def test_a_percentage_of_failed_trials_is_of_all_that_are_planned(total, most):
    assert spec(limits={"failed_trials": "10%"}).limits.failed_count(total) == most


@pytest.mark.parametrize("wrong", [0, -1, "0%", "101%", "x%", True, 1.5])
def test_a_number_of_failed_trials_is_at_least_one(wrong):
    assert "is no number of failed trials" in refused(limits={"failed_trials": wrong}).message


@pytest.mark.parametrize(
    ("given", "goal"),
    [
        ("minimize", "minimize"),
        ("minimise", "minimize"),
        ("min", "minimize"),
        ("maximize", "maximize"),
        ("maximise", "maximize"),
        ("max", "maximize"),
    ],
)
def test_a_goal_has_three_spellings_each(given, goal):
    assert spec(objective={"metric": "loss", "goal": given}).objective.goal == goal


@pytest.mark.parametrize(
    ("given", "take"),
    [
        ("last", Take("last")),
        ("best", Take("best")),
        ({"mean_of_last": 5}, Take("mean_of_last", 5)),
        ({"at_step": 0}, Take("at_step", 0)),
    ],
)
def test_a_take_says_which_value_counts(given, take):
    assert Take.of(spec(objective={"metric": "loss", "goal": "min", "take": given}).objective.take) == take


@pytest.mark.parametrize(
    "wrong",
    [
        "first",
        {"mean_of_last": 0},
        {"at_step": -1},
        {"at_step": True},
        {"last": 1},
        {},
        {"at_step": 1, "mean_of_last": 1},
        5,
    ],
)
def test_another_take_is_refused(wrong):
    error = refused(objective={"metric": "loss", "goal": "min", "take": wrong})

    assert error.field == "objective.take"
    assert "mean_of_last" in error.message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("latency_ms <= 20", ("latency_ms", "<=", 20.0)),
        ("val/acc>0.5", ("val/acc", ">", 0.5)),
        ("gpu 0 memory != 1e3", ("gpu 0 memory", "!=", 1000.0)),
        ("x==-1", ("x", "==", -1.0)),
        ("a < 1", ("a", "<", 1.0)),
        ("a >= 1", ("a", ">=", 1.0)),
    ],
)
def test_a_constraint_is_a_metric_an_operator_and_a_number(text, parts):
    assert parse_constraint(text) == Constraint(*parts)


@pytest.mark.parametrize(
    "text", ["latency_ms", "<= 20", "a = 1", "a =< 1", "a <= b", "a <= nan", "a <= inf", 5, ""]
)
def test_another_constraint_is_refused(text):
    error = refused(objective={"metric": "m", "goal": "min", "constraints": [text]})

    assert error.field == "objective.constraints[0]"
    assert "is not a constraint" in error.message


def test_the_metrics_of_objectives_are_named_once():
    loss = Objective(metric="loss", goal="min", constraints=["ms <= 1", "loss > 0"])
    speed = Objective(metric="ms", goal="min")

    assert metrics_of([loss, speed]) == ["loss", "ms"]


def test_two_objectives_make_a_front():
    both = [{"metric": "loss", "goal": "min"}, {"metric": "ms", "goal": "min"}]

    assert [o.metric for o in spec(objectives=both).all_objectives] == ["loss", "ms"]
    assert "two or more" in refused(objectives=both[:1]).message
    assert "cannot be given together" in refused(objectives=both, objective=both[0]).message


def test_a_group_cannot_need_more_replicates_than_there_are():
    objective = {"metric": "loss", "goal": "min", "min_replicates": 3}
    error = refused(objective=objective, replicates={"key": "parameters.seed", "values": [0, 1]})

    assert error.field == "objective.min_replicates"


def test_a_repeated_replicate_is_run_once_and_reported():
    loaded = sweep_from_mapping(
        {
            "name": "demo",
            "base": BASE,
            "include": [{}],
            "replicates": {"key": "parameters.seed", "values": [1, 2, 1]},
        },
        directory=Path(),
    )

    assert loaded.spec.replicates.values == [1, 2]
    assert [notice.field for notice in loaded.notices] == ["replicates.values"]


@pytest.mark.parametrize("given", ["local", {"type": "local"}])
def test_a_backend_is_a_name_or_a_mapping(given):
    assert spec(backend=given).backend == {"type": "local"}


@pytest.mark.parametrize("wrong", ["", {}, {"slots": 2}, 5, ["local"], {"type": ""}])
def test_a_backend_needs_a_type(wrong):
    assert refused(backend=wrong).field == "backend"


def test_options_of_a_backend_are_left_to_it():
    assert spec(backend={"type": "local", "slots": 2}).backend == {"type": "local", "slots": 2}


def test_tags_are_text():
    assert spec(tracking={"tags": {"a": "x", "b": 5, "c": True}}).tracking.tags == {
        "a": "x",
        "b": "5",
        "c": "true",
    }


def test_an_adaptive_method_needs_trials_and_an_objective():
    assert "needs an objective" in refused(search={"method": "tpe", "trials": 5}).message
    assert "needs search.trials" in refused(search={"method": "tpe"}).message


def test_the_published_schema_is_current():
    assert json.loads(PUBLISHED.read_text()) == json_schema(), f"write it again: {REWRITE}"


def test_the_schema_takes_a_file_with_every_key():
    jsonschema.Draft202012Validator.check_schema(json_schema())
    document = yaml.load(EVERYTHING.replace("1e-", "1.0e-"), yaml.SafeLoader)

    jsonschema.validate(document, json_schema())
    assert set(SweepSpec.model_fields) - set(document) == {"objectives"}


@pytest.mark.parametrize(
    "change",
    [
        {"nam": "x"},
        {"name": "a b"},
        {"space": {"parameters.lr": {"min": 1}}},
        {"space": {"parameters.lr": []}},
        {"search": {"trials": 0}},
        {"objective": {"metric": "loss"}},
        {"objective": {"metric": "loss", "goal": "DESC"}},
        {"limits": {"wall_time": "12"}},
        {"backend": {}},
    ],
)
def test_the_schema_refuses_what_we_refuse(change):
    good = {"name": "demo", "base": "train.yaml", "space": {"parameters.lr": [1]}}
    check = jsonschema.Draft202012Validator(json_schema())

    assert check.is_valid(good)
    assert not check.is_valid(good | change)


def test_every_field_has_a_one_line_description():
    models = [SweepSpec, Objective]
    for info in SweepSpec.model_fields.values():
        kinds = [info.annotation, *getattr(info.annotation, "__args__", ())]
        models += [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    fields = [field for model in models for field in model.model_fields.items()]

    assert len(fields) > 60
    assert [name for name, info in fields if not info.description or "\n" in info.description] == []
