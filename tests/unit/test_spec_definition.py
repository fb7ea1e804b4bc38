"""What makes a sweep the one it is, and the text from which it can be loaded again."""

from pathlib import Path

import pytest
import yaml

from airflows import yamlio
from airflows.sweepfile import load_sweep, sweep_from_mapping, sweep_of_run
from airflows.train import from_mapping

BASE = {
    "experiment_name": "demo",
    "command": "python train.py",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "env_variables": {"MODE": "1.50", "SWITCH": "on"},
    "secrets": {"TOKEN": "scope/key"},
    "parameters": {"lr": 0.01, "opt": "adam", "seed": 0, "wd": 0},
}
TREE = {
    "name": "demo",
    "base": BASE,
    "overrides": {"parameters.epochs": 3},
    "space": {
        "parameters.lr": [1e-5, 0.2, 1],
        "parameters.opt": ["adam", "sgd"],
        "parameters.wd": {"values": [0, 0.1], "when": {"parameters.opt": "adam"}},
        "parameters.tag": ["1e3", "on", "010", "nan"],
    },
    "include": [{"parameters.lr": 5}],
    "exclude": [{"parameters.lr": 0.2, "parameters.opt": "sgd"}],
    "replicates": {"key": "parameters.seed", "values": [0, 1]},
    "objective": {"metric": "loss", "goal": "min"},
    "tracking": {"uri": "none"},
}


def loaded(tree=TREE, **options):
    return sweep_from_mapping(tree, directory=Path(), **options)


def digest(**changes) -> str:
    return loaded(TREE | changes).definition_digest


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": {"concurrent": 4, "trials": 9, "wall_time": "1h"}},
        {"search": {"trials": 3}},
        {"retry": {"max": 1}},
        {"checkpoint": {"dir": "/x"}},
        {"backend": {"type": "local", "slots": 2}},
        {"tracking": {"experiment": "x"}},
        {"objective": {"metric": "acc", "goal": "max", "take": "best"}},
        {"name": "other"},
        {"strict": False},
        {"overrides": ["parameters.epochs=3"]},
        {"base": BASE | {"idempotency_token": "t"}},
        {"base": dict(reversed(BASE.items()))},
        {"space": TREE["space"] | {"parameters.lr": [0.00001, 0.20, 1.0, 0.2]}},
        {"space": TREE["space"] | {"parameters.lr": {"values": [1e-5, 0.2, 1]}}},
        {"include": [{"parameters.lr": 5.0}]},
    ],
)
def test_what_may_change_does_not_make_another_sweep(changes):
    assert digest(**changes) == digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"overrides": {"parameters.epochs": 4}},
        {"base": BASE | {"command": "python other.py"}},
        {"space": TREE["space"] | {"parameters.lr": [0.2, 1e-5, 1]}},
        {"space": dict(reversed(TREE["space"].items()))},
        {"space": TREE["space"] | {"parameters.wd": [0, 0.1]}},
        {"space": TREE["space"] | {"parameters.wd": {"values": [0, 0.1], "when": {"parameters.opt": "sgd"}}}},
        {"include": []},
        {"exclude": []},
        {"search": {"method": "random", "trials": 5}},
        {"search": {"method": "list"}},
        {"search": {"seed": 1}},
        {"replicates": {"key": "parameters.seed", "values": [0, 1, 2]}},
        {"replicates": None},
    ],
)
def test_what_changes_the_points_makes_another_sweep(changes):
    assert digest(**changes) != digest()


@pytest.mark.parametrize(
    "domains",
    [
        ({"min": 0, "max": 1, "step": 1}, {"min": 0, "max": 2, "step": 1}),
        ({"min": 1, "max": 4, "count": 2}, {"min": 1, "max": 4, "count": 4}),
        ({"min": 1, "max": 16, "count": 3}, {"min": 1, "max": 16, "count": 3, "log": True}),
    ],
)
def test_another_range_makes_another_sweep(domains):
    one, other = (digest(space={"parameters.lr": domain}) for domain in domains)

    assert one != other


def test_a_file_and_a_mapping_make_the_same_sweep(tmp_path):
    (tmp_path / "base.yaml").write_text(yamlio.dump(BASE))
    (tmp_path / "sweep.yaml").write_text(yamlio.dump(TREE | {"base": "base.yaml"}))
    made = load_sweep(tmp_path / "sweep.yaml")

    assert made.definition_digest == digest()
    assert made.source == loaded().source
    assert (made.path, made.directory) == (tmp_path / "sweep.yaml", tmp_path)


def test_paths_of_the_base_count_from_the_base(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "base.yaml").write_text(yamlio.dump(BASE))
    (tmp_path / "sweep.yaml").write_text(yamlio.dump(TREE | {"base": "jobs/base.yaml"}))
    monkeypatch.chdir(tmp_path)
    made = load_sweep(Path("sweep.yaml"))

    assert made.directory == tmp_path / "jobs"
    assert made.base.path == Path("jobs/base.yaml")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"search": {"method": "random", "trials": 7, "seed": 3}},
        {"space": None},
        {
            "space": {"parameters.lr": {"min": 1e-5, "max": 1, "log": True}},
            "search": {"method": "random", "trials": 4},
        },
        {"limits": {"wall_time": "1h30m", "failed_trials": "10%"}, "backend": "local"},
        {"base": BASE | {"idempotency_token": "t"}, "overrides": ["env_variables.N=007"]},
    ],
)
def test_the_source_loads_as_the_same_sweep(changes):
    made = loaded(TREE | changes, sets=["limits.concurrent=5"], overrides=["parameters.epochs=9"])
    again = loaded(yamlio.parse(made.source, file="ledger", dialect="sweep").value)

    assert again.definition == made.definition
    assert again.definition_digest == made.definition_digest
    assert again.source == made.source
    assert again.spec.limits == made.spec.limits
    assert list(again.expansion.points()) == list(made.expansion.points())


def test_the_source_reads_the_same_to_every_yaml_reader():
    shown = yaml.safe_load(loaded().source)

    assert shown["space"] == TREE["space"]
    assert shown["base"]["env_variables"] == {"MODE": "1.50", "SWITCH": "on"}
    assert shown["base"]["parameters"]["epochs"] == 3
    assert "overrides" not in shown
    assert list(shown)[:3] == ["name", "base", "space"]


def test_a_password_in_a_uri_is_in_the_spec_but_not_in_the_source():
    uri = "postgresql://kim:s3cret@db.example.com/mlflow"
    made = loaded(TREE | {"tracking": {"uri": uri}})

    assert made.spec.tracking.uri == uri
    assert "s3cret" not in made.source
    assert "db.example.com" not in made.source, "half of it would win over the environment on resume"
    assert [n.field for n in made.notices if "password" in n.message] == ["tracking.uri"]


def run_of(**changes):
    return from_mapping(BASE | changes, file="train.yaml")


def test_a_run_is_a_sweep_of_one_trial():
    made = sweep_of_run(run_of())

    assert made.spec.name == "demo"
    assert [p.overrides for p in made.expansion.points()] == [{}]
    assert made.is_single
    assert made.notices == ()
    assert not loaded().is_single


@pytest.mark.parametrize(
    ("experiment", "name"), [("a" * 100, "a" * 64), ("_-x", "x"), ("---", "run"), ("A_b-1", "A_b-1")]
)
def test_a_run_is_named_after_its_experiment(experiment, name):
    assert sweep_of_run(run_of(experiment_name=experiment)).spec.name == name


def test_a_run_keeps_its_token_apart_and_loads_again():
    made = sweep_of_run(
        run_of(idempotency_token="t"), backend={"type": "local", "slots": 1}, tracking={"uri": "none"}
    )
    again = loaded(yamlio.parse(made.source, file="ledger", dialect="sweep").value)

    assert (made.idempotency_token, made.notices) == ("t", ())
    assert made.spec.backend == {"type": "local", "slots": 1}
    assert again.definition_digest == made.definition_digest
    assert again.is_single
