"""What the command line changes: `--set` in the sweep file, `--override` in the base, `--backend`."""

from pathlib import Path

import pytest

from airflows.errors import SpecError
from airflows.sweepfile import load_sweep, sweep_from_mapping

BASE = {
    "experiment_name": "demo",
    "command": "python train.py",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01, "epochs": 1},
}
TREE = {
    "name": "demo",
    "base": BASE,
    "space": {"parameters.lr": [0.1, 0.2]},
    "limits": {"concurrent": 2},
    "backend": {"type": "local", "slots": 3},
}


def loaded(tree=TREE, **options):
    return sweep_from_mapping(tree, directory=Path(), **options)


def refused(*sets, tree=TREE, **options) -> SpecError:
    with pytest.raises(SpecError) as caught:
        loaded(tree, sets=sets, **options)
    return caught.value


@pytest.mark.parametrize(
    ("text", "read", "value"),
    [
        ("limits.concurrent=4", lambda s: s.limits.concurrent, 4),
        ("limits.wall_time=1h", lambda s: s.limits.wall_time_s, 3600),
        ("search.trials = 1", lambda s: s.search.trials, 1),
        ("name=other", lambda s: s.name, "other"),
        ("objective={metric: loss, goal: max}", lambda s: s.objective.goal, "maximize"),
        ("limits.concurrent=", lambda s: s.limits.concurrent, None),
        ("backend=local", lambda s: s.backend, {"type": "local"}),
        ("backend.slots=1", lambda s: s.backend, {"type": "local", "slots": 1}),
        ("tracking.uri=none", lambda s: s.tracking.uri, "none"),
        ("tracking.tags.team=nlp", lambda s: s.tracking.tags, {"team": "nlp"}),
        ("space.parameters.lr=[1e-3, 1e-2]", lambda s: s.space, {"parameters.lr": [0.001, 0.01]}),
        ("space.'parameters.lr'=[5]", lambda s: s.space, {"parameters.lr": [5]}),
        ("overrides.parameters.epochs=7", lambda s: s.overrides, {"parameters.epochs": 7}),
    ],
)
def test_set_changes_the_sweep_file(text, read, value):
    assert read(loaded(sets=[text]).spec) == value


def test_set_makes_an_option_of_a_backend_given_by_name():
    made = loaded(TREE | {"backend": "local"}, sets=["backend.slots=1"])

    assert made.spec.backend == {"type": "local", "slots": 1}


def test_later_sets_win_and_the_tree_stays_as_it_was():
    made = loaded(sets=["limits.concurrent=4", "limits.concurrent=5"])

    assert made.spec.limits.concurrent == 5
    assert TREE["limits"] == {"concurrent": 2}


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("limits.concurent=4", "limits.concurent", "Did you mean limits.concurrent?"),
        ("limit.concurrent=4", "limit", "Did you mean limits?"),
        ("space.parameters.lr=[]", "space.parameters.lr", "The list is empty."),
        ("space.compute.num_acelerators=[1]", "space.compute.num_acelerators", "compute.num_accelerators?"),
        ("limits.concurrent=x", "limits.concurrent", "takes a whole number"),
        ("limits.concurrent=[1", "limits.concurrent", "cannot be read"),
        ("name.x=1", "name.x", "name is not a mapping"),
        ("base.command=x", "base.command", "Write --override command=..."),
        ("limits.concurrent", None, "is not KEY=VALUE"),
        ("=4", None, "is not KEY=VALUE"),
    ],
)
def test_a_wrong_set_is_reported_as_such(text, field, words):
    error = refused(text)

    assert (error.file, error.line, error.field) == ("--set", None, field)
    assert words in str(error)


def test_a_changed_value_has_no_line_but_its_neighbours_have(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "experiment_name: a\ncommand: b\ncompute: {accelerator_type: GPU_1xA10, num_accelerators: 1}\n"
    )
    path = tmp_path / "sweep.yaml"
    path.write_text("name: demo\nbase: base.yaml\nspace:\n  parameters.a: [1]\n  parameters.b: [1]\n")
    notices = load_sweep(path, sets=["space.parameters.b=[2]"]).notices

    assert [(n.file, n.line) for n in notices] == [(str(path), 4), ("--set", None)]


def test_overrides_of_the_command_line_win_over_those_of_the_file():
    tree = TREE | {"overrides": {"parameters.epochs": 5, "parameters.lr": 3}}
    made = loaded(tree, overrides=["parameters.epochs=9", "compute.num_accelerators=2"])

    assert made.base.tree["parameters"] == {"lr": 3, "epochs": 9}
    assert made.base.config.compute.num_accelerators == 2
    assert made.base.changes == (
        "changing parameters.epochs from 5 to 9",
        "changing compute.num_accelerators from 1 to 2",
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"parameters.epochs": 5, "env_variables.MODE": "on"},
        ["parameters.epochs=5", "env_variables.MODE='on'"],
    ],
)
def test_overrides_are_a_mapping_or_a_list(overrides):
    tree = loaded(TREE | {"overrides": overrides}).base.tree

    assert (tree["parameters"]["epochs"], tree["env_variables"]) == (5, {"MODE": "on"})


@pytest.mark.parametrize(
    "value", ["1e3", "on", "", "a: b", "x\ny", "ü😀", 1e-5, 10**18, True, None, [1, {"a": "b"}], {"c": {}}]
)
def test_an_override_of_the_file_keeps_its_value(value):
    tree = loaded(TREE | {"overrides": {"parameters.new": value}}).base.tree

    assert tree["parameters"]["new"] == value
    assert type(tree["parameters"]["new"]) is type(value)


def test_an_override_can_mend_the_base():
    broken = BASE | {"compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 3}}
    made = loaded(TREE | {"base": broken, "overrides": {"compute.num_accelerators": 8}})

    assert made.base.config.nodes == 1


def test_the_backend_of_the_command_line_replaces_another_and_keeps_its_own_options():
    assert loaded(backend="local").spec.backend == {"type": "local", "slots": 3}
    assert loaded(backend="elsewhere").spec.backend == {"type": "elsewhere"}
    assert loaded({k: v for k, v in TREE.items() if k != "backend"}, backend="local").spec.backend == {
        "type": "local"
    }


def test_an_idempotency_token_of_the_base_is_left_out_with_a_notice():
    made = loaded(TREE | {"base": BASE | {"idempotency_token": "abc"}})

    assert "idempotency_token" not in made.base.tree
    assert made.base.config.idempotency_token is None
    assert made.idempotency_token == "abc"
    assert [n.field for n in made.notices] == ["base.idempotency_token"]


def test_numbers_of_numpy_and_paths_are_taken():
    np = pytest.importorskip("numpy")
    made = loaded(
        TREE
        | {
            "space": {
                "parameters.lr": [*np.array([0.1, 0.2]).tolist(), np.float64(0.3)],
                "parameters.epochs": (np.int64(1), 2),
            }
        }
    )

    assert made.spec.space == {"parameters.lr": [0.1, 0.2, 0.3], "parameters.epochs": [1, 2]}
    assert {type(v) for v in made.spec.space["parameters.lr"]} == {float}
    assert loaded(TREE | {"space": {"command": [Path("a"), Path("b")]}}).spec.space == {"command": ["a", "b"]}
