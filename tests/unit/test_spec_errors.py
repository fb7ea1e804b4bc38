"""What is said about a wrong sweep.yaml: file, line, key, and what to write instead."""

from pathlib import Path

import pytest

from airflows.errors import SpecError
from airflows.sweepfile import load_sweep, sweep_from_mapping
from airflows.train import load_train

BASE = """
experiment_name: demo
command: python train.py
compute: {accelerator_type: GPU_1xA10, num_accelerators: 1}
parameters: {lr: 0.01, batch: 32, opt: adam, seed: 0, model: {depth: 2, width: 8}}
env_variables: {LEVEL: info}
"""
START = "name: demo\nbase: base.yaml\n"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a sweep.yaml with this text, in the directory it is in."""
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)

    def load_text(text, **options):
        Path("sweep.yaml").write_text(text)
        return load_sweep(Path("sweep.yaml"), **options)

    return load_text


@pytest.fixture
def refused(load):
    def refused_text(text, **options) -> SpecError:
        with pytest.raises(SpecError) as caught:
            load(text, **options)
        return caught.value

    return refused_text


# (what follows name and base, line, field, words of the message, words of the hint)
WRONG = {
    "unknown key": ("spase: {}", 3, "spase", "'spase' is not a key of sweep.yaml", "Did you mean space?"),
    "key in the wrong place": ("concurrent: 4", 3, "concurrent", "is not a key of sweep.yaml", "limits.concurrent?"),
    "unknown key inside": (
        "space: {parameters.lr: [1]}\nlimits:\n  concurent: 4",
        5,
        "limits.concurent",
        "is not a key of limits",
        "Did you mean limits.concurrent?",
    ),
    "no key like it": ("space: {parameters.lr: [1]}\nretry: {zzz: 1}", 4, "retry.zzz", "is not a key", "Keys there: max,"),
    "wrong type": (
        "space: {parameters.lr: [1]}\nlimits: {concurrent: '4'}",
        4,
        "limits.concurrent",
        "takes a whole number, not the text '4'",
        "Leave out the quotes.",
    ),
    "boolean for a number": ("space: {parameters.lr: [1]}\nsearch: {seed: true}", 4, "search.seed", "a whole number", ""),
    "too small": ("space: {parameters.lr: [1]}\nsearch: {trials: 0}", 4, "search.trials", "0 is not at least 1.", ""),
    "space is a list": ("space: [parameters.lr]", 3, "space", "This takes a mapping, not a list.", ""),
    "row is no mapping": ("include: [5]", 3, "include[0]", "This takes a mapping, not the number 5.", ""),
    "unknown word": (
        "space: {parameters.lr: [1]}\nsearch: {method: gird}",
        4,
        "search.method",
        "'gird' is none of grid, list",
        "Did you mean grid?",
    ),
    "nothing to run": ("limits: {concurrent: 1}", None, None, "Neither space nor include is given", ""),
    "no goal": ("space: {parameters.lr: [1]}\nobjective: {metric: loss}", 4, "objective.goal", "goal is missing.", "Write goal: minimize or goal: maximize; there is no default."),
    "unknown goal": (
        "space: {parameters.lr: [1]}\nobjective: {metric: loss, goal: minimal}",
        4,
        "objective.goal",
        "'minimal' is no goal",
        "",
    ),
    "unknown space key": (
        "space:\n  compute.num_acelerators: [1, 2]",
        4,
        "space.compute.num_acelerators",
        "'num_acelerators' is not a key of compute",
        "Did you mean compute.num_accelerators?",
    ),
    "forbidden key": (
        "space: {experiment_name: [a, b]}",
        3,
        "space.experiment_name",
        "experiment_name cannot be swept",
        "",
    ),
    "forbidden key inside": ("space: {permissions.level: [a]}", 3, "space.permissions.level", "permissions cannot be", ""),
    "forbidden in a row": ("include: [{mlflow_run_name: a}]", 3, "include[0].mlflow_run_name", "cannot be swept", ""),
    "key listed twice": (
        "space:\n  parameters.lr: [1]\n  parameters.opt, parameters.lr: [[a, 1]]",
        5,
        "space.parameters.opt, parameters.lr",
        "parameters.lr is listed twice",
        "",
    ),
    "twice in one coupled key": (
        "space: {'parameters.lr, parameters.lr': [[1, 2]]}",
        3,
        "space.parameters.lr, parameters.lr",
        "parameters.lr is listed twice",
        "",
    ),
    "same key in quotes": (
        "space: {parameters.lr: [1], \"parameters.'lr'\": [2]}",
        3,
        "space.parameters.'lr'",
        "parameters.lr is listed twice",
        "",
    ),
    "key inside another": (
        "space: {parameters.model: [{depth: 1}], parameters.model.depth: [1]}",
        3,
        "space.parameters.model.depth",
        "parameters.model.depth is a part of parameters.model",
        "",
    ),
    "through a value": (
        "space: {parameters.lr.x: [1]}",
        3,
        "space.parameters.lr.x",
        "parameters.lr is the number 0.01",
        "",
    ),
    "empty key": ("space: {'parameters.lr, ': [[1, 2]]}", 3, "space.parameters.lr, ", "a part of it is empty", ""),
    "min above max": ("space: {parameters.lr: {min: 2, max: 1}}", 3, "space.parameters.lr.min", "must be below max", ""),
    "min equals max": ("space: {parameters.lr: {min: 1, max: 1}}", 3, "space.parameters.lr.min", "must be below max", ""),
    "log from zero": (
        "space: {parameters.lr: {min: 0, max: 1, log: true}}",
        3,
        "space.parameters.lr.min",
        "log needs min above 0",
        "",
    ),
    "log is no boolean": ("space: {parameters.lr: {min: 1, max: 2, log: 1}}", 3, "space.parameters.lr.log", "true or false", ""),
    "no max": ("space: {parameters.lr: {min: 1}}", 3, "space.parameters.lr", "max is missing.", "{min, max}"),
    "quoted bound": (
        "space: {parameters.lr: {min: '1', max: 2}}",
        3,
        "space.parameters.lr.min",
        "takes a number, not '1'",
        "Leave out the quotes.",
    ),
    "endless bound": ("space: {parameters.lr: {min: 1, max: .inf}}", 3, "space.parameters.lr.max", "a finite number", ""),
    "step of zero": ("space: {parameters.lr: {min: 0, max: 1, step: 0}}", 3, "space.parameters.lr.step", "above 0", ""),
    "negative step": ("space: {parameters.lr: {min: 0, max: 1, step: -0.1}}", 3, "space.parameters.lr.step", "above 0", ""),
    "step and count": ("space: {parameters.lr: {min: 0, max: 1, step: 1, count: 2}}", 3, "space.parameters.lr.count", "combined", ""),
    "step and log": ("space: {parameters.lr: {min: 1, max: 9, step: 1, log: true}}", 3, "space.parameters.lr.log", "combined", ""),
    "values and min": ("space: {parameters.lr: {values: [1], min: 0}}", 3, "space.parameters.lr.min", "combined with min", ""),
    "count of one": ("space: {parameters.lr: {min: 0, max: 1, count: 1}}", 3, "space.parameters.lr.count", "at least 2", ""),
    "count in halves": ("space: {parameters.lr: {min: 0, max: 1, count: 2.5}}", 3, "space.parameters.lr.count", "whole", ""),
    "too many steps": ("space: {parameters.lr: {min: 0, max: 1e30, step: 1}}", 3, "space.parameters.lr", "more than can", ""),
    "steps too close": (
        "space: {parameters.lr: {min: 1e16, max: 1.0000000000000002e16, count: 9}}",
        3,
        "space.parameters.lr",
        "closer together than floats",
        "",
    ),
    "empty list": ("space: {parameters.lr: []}", 3, "space.parameters.lr", "The list is empty.", ""),
    "no value": ("space:\n  parameters.lr:", 4, "space.parameters.lr", "There is no value here.", "write [null]"),
    "unknown key of a domain": (
        "space: {parameters.lr: {values: [1], wen: {parameters.opt: adam}}}",
        3,
        "space.parameters.lr.wen",
        "'wen' is not a key of a domain",
        "Did you mean when?",
    ),
    "a mapping as a value": ("space: {parameters.model: {depth: 1}}", 3, "space.parameters.model.depth", "is not a key", "[{...}]"),
    "coupled with a flat list": (
        "space: {'parameters.lr, parameters.batch': [0.1, 32]}",
        3,
        "space.parameters.lr, parameters.batch",
        "take a list of lists",
        "",
    ),
    "condition that is no mapping": (
        "space: {parameters.lr: {values: [1], when: adam}}",
        3,
        "space.parameters.lr.when",
        "A condition is a mapping",
        "",
    ),
    "condition on an unknown key": (
        "space: {parameters.lr: {values: [1], when: {parameters.optt: adam}}}",
        3,
        "space.parameters.lr.when.parameters.optt",
        "neither in the space nor in the base",
        "Did you mean parameters.opt?",
    ),
    "condition without values": (
        "space: {parameters.lr: {values: [1], when: {parameters.opt: []}}}",
        3,
        "space.parameters.lr.when.parameters.opt",
        "never holds",
        "",
    ),
    "condition on itself": (
        "space: {parameters.lr: {values: [1], when: {parameters.lr: 1}}}",
        3,
        "space.parameters.lr.when",
        "circle: parameters.lr → parameters.lr",
        "",
    ),
    "circle": (
        ("space:\n"
        "  parameters.lr: {values: [1], when: {parameters.opt: a}}\n"
        "  parameters.opt: {values: [a], when: {parameters.batch: 1}}\n"
        "  parameters.batch: {values: [1], when: {parameters.lr: 1}}"),
        4,
        "space.parameters.lr.when",
        "circle: parameters.lr → parameters.opt → parameters.batch → parameters.lr",
        "",
    ),
    "rule on an unknown key": (
        "space: {parameters.lr: [1, 2]}\nexclude:\n  - {parameters.lr: 1}\n  - {parameters.optt: adam}",
        6,
        "exclude[1].parameters.optt",
        "neither in the space nor in the base",
        "Did you mean parameters.opt?",
    ),
    "empty rule": ("space: {parameters.lr: [1]}\nexclude: [{}]", 4, "exclude[0]", "would remove every point", ""),
    "coupled key in a row": (
        "include: [{'parameters.lr, parameters.batch': [1, 2]}]",
        3,
        "include[0].parameters.lr, parameters.batch",
        "names several keys",
        "",
    ),
    "replicate key in the space": (
        "space: {parameters.seed: [1]}\nreplicates: {key: parameters.seed, values: [0, 1]}",
        3,
        "space.parameters.seed",
        "replicates differ in parameters.seed",
        "",
    ),
    "rule on the replicate key": (
        "space: {parameters.lr: [1]}\nexclude: [{parameters.seed: 0}]\nreplicates: {key: parameters.seed, values: [0, 1]}",
        4,
        "exclude[0].parameters.seed",
        "replicates differ in parameters.seed",
        "",
    ),
    "unknown replicate key": (
        "space: {parameters.lr: [1]}\nreplicates: {key: comand, values: [a]}",
        4,
        "replicates.key",
        "'comand' is not a key of train.yaml",
        "Did you mean command?",
    ),
    "no replicates": ("space: {parameters.lr: [1]}\nreplicates: {key: parameters.seed, values: []}", 4, "replicates.values", "is empty", ""),
    "grid of a continuous space": (
        "space: {parameters.lr: {min: 0.1, max: 1}}\nsearch: {method: grid}",
        3,
        "space.parameters.lr",
        "any value between two bounds",
        "a step or a count",
    ),
    "no method for a continuous space": (
        "space: {parameters.lr: {min: 1, max: 4}}",
        None,
        "search",
        "search.method is needed",
        "method: random",
    ),
    "draws without a number": (
        "space: {parameters.lr: {min: 0.1, max: 1}}\nsearch: {method: sobol}",
        4,
        "search",
        "sobol needs search.trials",
        "",
    ),
    "draws without a space": ("include: [{}]\nsearch: {method: random, trials: 3}", 4, "search.method", "needs a space", ""),
    "list without rows": ("space: {parameters.lr: [1]}\nsearch: {method: list}", 4, "search.method", "there are none", ""),
    "a parameter without what it is in": ("space: {lr: [1]}", 3, "space.lr", "'lr' is not a key of train.yaml", "Did you mean parameters.lr?"),
    "unknown override": ("include: [{}]\noverrides: {comand: x}", 4, "overrides.comand", "is not a key of train.yaml", "command?"),
    "override through a value": ("include: [{}]\noverrides: {parameters.lr.x: 1}", 4, "overrides.parameters.lr.x", "is the number 0.01", ""),
    "override without an equals sign": ("include: [{}]\noverrides: [parameters.lr]", 4, "overrides[0]", "has no `=`", ""),
    "overrides of another kind": ("include: [{}]\noverrides: 5", 4, "overrides", "a mapping of keys to values, or a list", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_place_and_remedy(name, refused):
    text, line, field, message, hint = WRONG[name]
    error = refused(START + text)

    assert (error.file, error.field) == ("sweep.yaml", field)
    assert message in error.message
    assert hint in (error.hint or "")
    if line is not None:
        assert error.line == line
    assert error.exit_code == 2


def test_all_unknown_keys_are_told_at_once(refused):
    error = refused(START + "limits: {concurent: 1}\nspace: {parameters.lr: [1]}\nsearch: {sead: 1}")

    assert [e.field for e in (error, *error.others)] == ["limits.concurent", "search.sead"]
    assert [e.line for e in (error, *error.others)] == [3, 5]


@pytest.mark.parametrize("name", ["", "a b", "-a", "_a", "a.b", "a" * 65, "ä", "a\n"])
def test_a_name_has_a_pattern(name, refused):
    text = f"name: {name!r}\nbase: base.yaml\ninclude: [{{}}]\n".replace("'a\\n'", '"a\\n"')
    error = refused(text)

    assert (error.field, error.line) == ("name", 1)


@pytest.mark.parametrize("name", ["a", "A-1_b", "7", "a" * 64])
def test_names_within_the_pattern_are_taken(name, load):
    assert load(f"name: '{name}'\nbase: base.yaml\ninclude: [{{}}]").spec.name == name


@pytest.mark.parametrize(
    ("text", "words"), [("", "empty"), ("# only\n", "empty"), ("[1]", "is a mapping"), ("5", "is a mapping")]
)
def test_a_file_that_is_no_mapping_is_refused(text, words, refused):
    error = refused(text)

    assert error.file == "sweep.yaml"
    assert words in error.message


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SpecError, match="no such file") as caught:
        load_sweep(tmp_path / "sweep.yaml")

    assert caught.value.file == str(tmp_path / "sweep.yaml")


TRAIN = (
    "{experiment_name: x, command: python a.py, compute: {accelerator_type: GPU_1xA10, num_accelerators: 1}}"
)


def test_a_train_yaml_in_place_of_a_sweep_yaml_gets_one_hint(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(TRAIN)

    with pytest.raises(SpecError, match=r"This is a train\.yaml, and a sweep\.yaml is wanted") as caught:
        load_sweep(path)
    assert f"airflows run -f {path}" in caught.value.hint
    assert caught.value.others == ()


def test_a_sweep_yaml_in_place_of_a_train_yaml_gets_one_hint(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text("{name: x, base: train.yaml, space: {parameters.lr: [1]}}")

    with pytest.raises(SpecError, match=r"This is a sweep\.yaml, and a train\.yaml is wanted") as caught:
        load_train(path)
    assert f"airflows sweep {path}" in caught.value.hint


def test_a_missing_base_is_reported_where_it_is_named(refused):
    error = refused("name: demo\nbase: bse.yaml\ninclude: [{}]")

    assert (error.file, error.line, error.field) == ("sweep.yaml", 2, "base")
    assert "bse.yaml cannot be used. There is no such file." in error.message


@pytest.mark.parametrize("base", ["5", "[a]", "''"])
def test_a_base_is_a_path_or_a_mapping(base, refused):
    assert refused(f"name: demo\nbase: {base}\ninclude: [{{}}]").field == "base"


def test_an_empty_base_is_refused(refused):
    Path("empty.yaml").write_text("# nothing\n")

    assert "empty.yaml is empty" in refused("name: demo\nbase: empty.yaml\ninclude: [{}]").message


def test_a_wrong_base_is_reported_in_its_own_file(refused):
    Path("wrong.yaml").write_text(BASE.replace("num_accelerators: 1", "num_accelerators: 0"))
    error = refused("name: demo\nbase: wrong.yaml\ninclude: [{}]")

    assert (error.file, error.line, error.field) == ("wrong.yaml", 4, "compute.num_accelerators")


def test_a_wrong_inline_base_is_reported_in_the_sweep_file(refused):
    error = refused("name: demo\nbase:\n  experiment_name: demo\n  command: ''\ninclude: [{}]")

    assert (error.file, error.field) == ("sweep.yaml", "base.compute")


def test_a_key_the_base_lacks_is_a_warning_that_names_the_nearest(load):
    loaded = load(START + "space:\n  parameters.lrr: [1, 2]\n  env_variables.NEW: [a]")

    assert [(n.line, n.field, n.message) for n in loaded.notices] == [
        (4, "space.parameters.lrr", "The base has no parameters.lrr. Did you mean parameters.lr?"),
        (5, "space.env_variables.NEW", "The base has no env_variables.NEW. It is added."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "space: {parameters.lrr: [1]}",
        "include: [{parameters.lrr: 1}]",
        "include: [{}]\noverrides: {parameters.lrr: 1}",
        "include: [{}]\nreplicates: {key: parameters.lrr, values: [1]}",
    ],
)
def test_strict_makes_it_an_error(text, refused, load):
    assert len(load(START + text).notices) == 1
    error = refused(START + "strict: true\n" + text)

    assert error.message == "The base has no parameters.lrr."
    assert "Did you mean parameters.lr?" in error.hint


@pytest.mark.parametrize("key", ["parameters.lr", "parameters.model", "parameters.model.depth", "parameters"])
def test_a_key_the_base_has_is_no_warning(key, load):
    assert load(START + f"strict: true\nspace: {{{key}: [{{a: 1}}]}}").notices == ()


def test_a_condition_or_rule_that_never_holds_is_a_warning(load):
    loaded = load(
        START
        + "space:\n"
        + "  parameters.opt: [adam, sgd]\n"
        + "  parameters.lr: {values: [1], when: {parameters.opt: [sdg, adam]}}\n"
        + "  parameters.batch: {values: [1], when: {parameters.seed: 5}}\n"
        + "exclude: [{parameters.opt: adm}]"
    )

    assert [(n.field, n.message) for n in loaded.notices] == [
        ("space.parameters.lr.when", "parameters.opt is never 'sdg', so that part has no effect."),
        ("space.parameters.batch.when", "parameters.seed is never 5, so the key is never varied."),
        ("exclude[0].parameters.opt", "parameters.opt is never 'adm', so this rule removes nothing."),
    ]


def test_python_values_that_yaml_has_not_are_refused():
    tree = {"name": "demo", "base": "base.yaml", "space": {"parameters.lr": [1, object()]}}
    with pytest.raises(SpecError, match="cannot be written to YAML") as caught:
        sweep_from_mapping(tree, directory=Path())

    assert caught.value.field == "space.parameters.lr[1]"
