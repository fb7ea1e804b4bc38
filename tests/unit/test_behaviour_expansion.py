"""What a user has a right to expect of reading and expanding a sweep, case by case (O1 to O8, O13, O18)."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from airflows import ids, yamlio
from airflows.errors import SpecError
from airflows.keys import effective
from airflows.space import expand
from airflows.sweepfile import load_sweep

BASE = """
experiment_name: demo
command: python train.py
compute: {accelerator_type: GPU_1xA10, num_accelerators: 1}
parameters: {lr: 0.01, batch: 32, opt: adam, seed: 0, wd: 0.05, tag: none, ema: false}
"""
START = "name: demo\nbase: base.yaml\n"


@pytest.fixture
def load(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)

    def load_text(text):
        (tmp_path / "sweep.yaml").write_text(START + text)
        return load_sweep(tmp_path / "sweep.yaml")

    return load_text


@pytest.fixture
def refused(load):
    def refused_text(text) -> SpecError:
        with pytest.raises(SpecError) as caught:
            load(text)
        assert caught.value.exit_code == 2
        return caught.value

    return refused_text


def overrides(loaded):
    return [point.overrides for point in expand(loaded).points()]


def both_readers(text):
    """What a YAML 1.1 and a YAML 1.2 reader make of a text."""
    return yaml.safe_load(text), YAML(typ="safe", pure=True).load(io.StringIO(text))


def test_o1_numbers_without_a_dot_are_floats_and_equal_ones_are_one_point(load):
    loaded = load("space: {parameters.lr: [1e-3, 1.0e-3, 1E-4, 5e5]}")
    values = [row["parameters.lr"] for row in overrides(loaded)]

    assert [(type(value), value) for value in values] == [(float, 1e-3), (float, 1e-4), (float, 5e5)]
    assert [notice.message for notice in loaded.notices] == ["1 duplicate point dropped."]
    assert loaded.expansion.duplicates_dropped == 1
    for row in overrides(loaded):
        for shown in both_readers(yamlio.dump(effective(loaded.base.tree, row))):
            assert type(shown["parameters"]["lr"]) is float
            assert shown["parameters"]["lr"] == row["parameters.lr"]


def test_o1_dropped_points_are_counted_as_points(load):
    loaded = load("space: {parameters.lr: [1e-3, 1.0e-3], parameters.opt: [adam, sgd, lion]}")

    assert (len(overrides(loaded)), loaded.expansion.duplicates_dropped) == (3, 3)


def test_o2_quoted_words_and_numbers_stay_text_for_every_reader(load):
    words = ["1e3", "on", "010", "nan"]
    loaded = load('space: {parameters.tag: ["1e3", "on", "010", "nan"]}')
    trees = [effective(loaded.base.tree, row) for row in overrides(loaded)]

    assert [tree["parameters"]["tag"] for tree in trees] == words
    for word, tree in zip(words, trees, strict=True):
        assert [shown["parameters"]["tag"] for shown in both_readers(yamlio.dump(tree))] == [word, word]
        assert yamlio.parse(yamlio.dump(tree), file="x", dialect="train").value == tree


def test_o3_a_bare_on_is_refused_with_both_remedies(refused):
    error = refused("space:\n  parameters.ema: [on, off]")

    assert (Path(error.file).name, error.line) == ("sweep.yaml", 4)
    assert "parameters.ema" in error.field
    assert "true" in error.hint
    assert "quotes" in error.hint


O4 = """
import sys
from pathlib import Path
from airflows import ids
from airflows.sweepfile import load_sweep
loaded = load_sweep(Path(sys.argv[1]))
print(ids.sweep_id(loaded.spec.name, loaded.definition_digest))
for point in loaded.expansion.points():
    print(point.index, point.digest, list(point.overrides.items()))
"""


def test_o4_ids_and_order_are_the_same_under_every_hash_seed_and_spelling(tmp_path, load):
    outputs = set()
    for seed, tenth in (("0", "0.1"), ("1", "0.10"), ("4711", "1e-1")):
        load(f"space: {{parameters.lr: [{tenth}, 0.2], parameters.opt: [adam, sgd, lion]}}")
        done = subprocess.run(
            [sys.executable, "-c", O4, str(tmp_path / "sweep.yaml")],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)

    (output,) = outputs
    lines = output.splitlines()
    assert len(lines) == 7
    assert [line.split()[0] for line in lines[1:]] == list("012345")
    assert lines[1].endswith("[('parameters.lr', 0.1), ('parameters.opt', 'adam')]")
    # Written down, since sweeps that people have are found again by it.
    assert lines[0] == "demo-10739b"


def test_o5_lists_of_different_lengths_are_refused_with_axes_and_lengths(refused):
    error = refused("space:\n  parameters.lr, parameters.batch: [[0.1, 0.2, 0.3], [32, 64]]")

    assert (Path(error.file).name, error.line) == ("sweep.yaml", 4)
    assert "parameters.lr and parameters.batch" in error.message
    assert "3 and 2 values" in error.message
    assert "parameters.lr has 3 values, parameters.batch has 2 values" in error.hint


def test_o6_a_trial_without_the_condition_keeps_the_base_and_comes_once(load):
    loaded = load(
        "space:\n"
        "  parameters.opt: [adam, adamw]\n"
        "  parameters.wd: {values: [0, 0.01, 0.1], when: {parameters.opt: adamw}}"
    )
    rows = overrides(loaded)

    assert loaded.expansion.count() == len(rows) == 4
    assert rows[0] == {"parameters.opt": "adam"}
    assert effective(loaded.base.tree, rows[0])["parameters"]["wd"] == 0.05
    assert len({point.digest for point in loaded.expansion.points()}) == 4


def test_o7_rules_that_leave_nothing_name_the_one_that_removed_most(refused):
    error = refused(
        "space: {parameters.lr: [0.1, 0.2, 0.3], parameters.opt: [adam, sgd]}\n"
        "exclude:\n"
        "  - {parameters.opt: adam}\n"
        "  - {parameters.lr: 0.1}\n"
        "  - {parameters.lr: 0.2}\n"
        "  - {parameters.lr: 0.3, parameters.opt: sgd}"
    )

    assert error.message == (
        "0 trials left: the exclude rules remove every point, {parameters.opt: adam} most of them (3)."
    )
    assert (error.line, error.field) == (5, "exclude[0]")


@pytest.mark.parametrize(
    "text",
    [
        "include: [{parameters.lr: 1}]\nexclude: [{parameters.lr: 1}]",
        "space: {parameters.lr: {min: 0.1, max: 1}}\nexclude: [{parameters.opt: adam}]\nsearch: {method: random, trials: 3}",
        "space: {parameters.lr: {min: 0.1, max: 1}}\nexclude: [{parameters.opt: adam}]\nsearch: {method: sobol, trials: 3}",
        "space: {parameters.lr: {min: 1, max: 9}}\nexclude: [{parameters.opt: adam}]\nsearch: {method: random, trials: 3}",
    ],
)
def test_o7_holds_for_every_method(text, refused):
    error = refused(text)

    assert error.message.startswith("0 trials left")
    assert error.field == "exclude[0]"


def test_o8_a_mistyped_key_is_an_error_or_a_warning_that_names_the_right_one(refused, load):
    error = refused("space: {compute.num_acelerators: [1, 2]}")
    assert "did you mean compute.num_accelerators" in str(error).lower()

    (notice,) = load("space: {parameters.lrr: [0.1, 0.2]}").notices
    assert "parameters.lr?" in notice.message

    strict = refused("strict: true\nspace: {parameters.lrr: [0.1, 0.2]}")
    assert "Did you mean parameters.lr?" in strict.hint


def test_o13_a_goal_is_said_in_known_words_or_not_at_all(refused, load):
    space = "space: {parameters.lr: [0.1]}\n"

    assert load(space + "objective: {metric: val_acc, goal: maximise}").spec.objective.goal == "maximize"
    unknown = refused(space + "objective: {metric: val_acc, goal: DESC}")
    assert "'DESC' is no goal: write minimize (minimise, min) or maximize (maximise, max)" in unknown.message
    missing = refused(space + "objective: {metric: val_acc}")
    assert (missing.field, missing.message) == ("objective.goal", "goal is missing.")


def test_o18_names_made_of_wild_values_are_tame_and_distinct(load):
    wild = ["x" * 300, "s3://b/x y", "µ=0.1", [64, 32], 0.001]
    loaded = load("space: {parameters.tag: [" + "x" * 300 + ", 's3://b/x y', 'µ=0.1', [64, 32], 0.001]}")
    sweep = ids.sweep_id(loaded.spec.name, loaded.definition_digest)
    points = list(loaded.expansion.points())
    names = [ids.token(sweep, point.index, 0) for point in points]

    assert [point.overrides["parameters.tag"] for point in points] == wild
    assert all(re.fullmatch(r"[a-z0-9-]{1,63}", name) for name in names)
    assert len(set(names)) == len({point.digest for point in points}) == 5
