"""Sweep files of Weights & Biases: distributions, method, command macros, and what is said to be lost."""

import math
import subprocess

import pytest
import yaml

from airflows.errors import SpecError
from airflows.migrate import from_wandb, is_wandb

FILE = """\
program: train.py
project: digits
method: bayes
run_cap: 40
metric: {name: val/loss, goal: minimize}
parameters:
  lr: {distribution: log_uniform_values, min: 0.0001, max: 0.1}
  layers: {values: [2, 4]}
  epochs: {value: 10}
"""


def migrated(text: str, program: str | None = "import argparse, mlflow"):
    return from_wandb(text, name="sweep.yaml", read=lambda path: program if path == "train.py" else None)


def of(parameter: str, method: str = "random"):
    text = f"program: train.py\nmethod: {method}\nrun_cap: 3\nparameters:\n  p: {parameter}\n"
    made = migrated(text)
    return made.sweep["space"]["env_variables.HP_P"], {each.kind for each in made.warnings}


def test_a_bayesian_sweep_is_one_of_ours():
    made = migrated(FILE)

    assert made.sweep == {
        "name": "sweep",
        "base": "train.yaml",
        "space": {
            "env_variables.HP_LR": {"min": 0.0001, "max": 0.1, "log": True},
            "env_variables.HP_LAYERS": [2, 4],
            "env_variables.HP_EPOCHS": [10],
        },
        "search": {"method": "gp", "trials": 40, "seed": 0},
        "objective": {"metric": "val/loss", "goal": "minimize"},
    }
    assert made.train["experiment_name"] == "digits"
    assert made.train["command"].endswith(
        '/usr/bin/env python train.py --lr="$HP_LR" --layers="$HP_LAYERS" --epochs="$HP_EPOCHS"'
    )
    assert not made.warnings


@pytest.mark.parametrize(
    ("parameter", "domain", "lost"),
    [
        ("{values: [a, b]}", ["a", "b"], set()),
        ("{values: [1, true, 0.5]}", ["1", "True", "0.5"], set()),
        ("{values: [1, 2], probabilities: [0.9, 0.1]}", [1, 2], {"probabilities"}),
        ("{value: 3}", [3], set()),
        ("{min: 1, max: 5}", {"min": 1, "max": 5}, set()),
        ("{min: 0, max: 0.5}", {"min": 0.0, "max": 0.5}, set()),
        ("{distribution: uniform, min: 0, max: 1}", {"min": 0.0, "max": 1.0}, set()),
        ("{distribution: uniform, min: 1e-3, max: 1}", {"min": 0.001, "max": 1.0}, set()),
        ("{distribution: q_uniform, min: 1, max: 9, q: 2}", {"min": 0, "max": 8, "step": 2}, set()),
        ("{distribution: q_uniform, min: 0, max: 1, q: 0.1}", {"min": 0, "max": 1, "step": 0.1}, set()),
        ("{distribution: log_uniform_values, min: 1, max: 9}", {"min": 1.0, "max": 9.0, "log": True}, set()),
        (
            "{distribution: q_log_uniform_values, min: 1, max: 9, q: 2}",
            {"min": 1.0, "max": 9.0, "log": True},
            {"rounding"},
        ),
        (
            "{distribution: q_log_uniform_values, min: 16, max: 256}",
            {"min": 16, "max": 256, "log": True},
            set(),
        ),
        ("{distribution: q_log_uniform, min: 0, max: 3}", {"min": 1, "max": 20, "log": True}, set()),
        (
            "{distribution: q_log_uniform_values, min: 0.1, max: 9}",
            {"min": 0.1, "max": 9.0, "log": True},
            {"rounding"},
        ),
        (
            "{distribution: q_normal, mu: 16, sigma: 2}",
            {"min": 12, "max": 20, "step": 1},
            {"distribution"},
        ),
        (
            "{distribution: q_log_normal, mu: 2, sigma: 0.5}",
            {"min": 3, "max": 20, "log": True},
            {"distribution"},
        ),
        ("{distribution: q_beta, q: 0.5}", {"min": 0, "max": 1, "step": 0.5}, {"distribution"}),
        ("{distribution: beta, a: 1, b: 3}", {"min": 0.0, "max": 1.0}, {"distribution"}),
        ("{distribution: normal, mu: 1, sigma: 2}", {"min": -3.0, "max": 5.0}, {"distribution"}),
    ],
)
def test_a_distribution_becomes_a_domain_or_is_said_to_be_flattened(parameter, domain, lost):
    assert of(parameter) == (domain, lost)


def test_bounds_of_log_uniform_are_exponents():
    low, _ = of("{distribution: log_uniform, min: -9.2, max: -2.3}")
    inverse, _ = of("{distribution: inv_log_uniform, min: 2.3, max: 9.2}")

    assert low == inverse == {"min": math.exp(-9.2), "max": math.exp(-2.3), "log": True}


def test_a_grid_has_finite_domains_only():
    assert of("{min: 1, max: 5}", "grid")[0] == {"min": 1, "max": 5, "step": 1}
    with pytest.raises(SpecError, match="no finite set of values"):
        of("{min: 0.1, max: 0.5}", "grid")


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("method: evolve\nparameters: {p: {value: 1}}", "none that can be carried over", 1),
        ("method: grid\nprogram: t.py\nparameters: {p: 1}", "is no parameter", 3),
        ("method: grid\nprogram: t.py\nparameters:\n  p: {min: 1}", "needs value, values", 4),
        ("method: grid\nparameters: {p: {value: 1}}", "names no program", 1),
        ("method: random\nprogram: t.py\nparameters: {p: {min: 2, max: 1}}", "not below its max", 3),
        ("method: random\nprogram: t.py\nrun_cap: many\nparameters: {p: {value: 1}}", "no number of runs", 3),
        ("method: bayes\nprogram: t.py\nparameters: {p: {value: 1}}", "needs a metric", 1),
        ("method: grid\nprogram: t.py\ncommand: ['${what}']\nparameters: {p: {value: 1}}", "no macro", 3),
        (
            "method: random\nprogram: t.py\nparameters: {p: {distribution: zipf, min: 1, max: 2}}",
            "none that can",
            3,
        ),
    ],
)
def test_what_cannot_be_carried_over_is_refused_with_its_line(text, said, line):
    with pytest.raises(SpecError, match=said) as caught:
        migrated(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("parameters: {p: {distribution: log_uniform, min: 0, max: 1000}}", "too large"),
        ("parameters: {p: {distribution: log_normal, mu: 1000}}", "too large"),
        ("parameters: {p: {distribution: q_uniform, min: 0, max: 9, q: abc}}", "a number for q"),
        ("parameters: {p: {distribution: [1], min: 0, max: 9}}", "none that can"),
        (f"parameters: {{p: {{min: 0, max: 1{'0' * 400}}}}}", "a number for max"),
        ("parameters: {p: {values: 5}}", "a list of values"),
        ("parameters: {p: {values: &v [1, *v]}}", "cannot be written down"),
        ("parameters: &p {bs: {parameters: *p}}", "hold themselves"),
        ("command: 5\nparameters: {p: {value: 1}}", "neither a list"),
        (
            "early_terminate: {type: hyperband, max_iter: 9, s: x}\nparameters: {p: {value: 1}}",
            "s of hyperband",
        ),
        ("early_terminate: {type: hyperband, max_iter: 9, eta: 0}\nparameters: {p: {value: 1}}", "eta of"),
        ("command: ['x=${program}']\nparameters: {p: {value: 1}}", "no macro"),
    ],
)
def test_a_file_with_a_wrong_value_is_refused_in_words(wrong, said):
    with pytest.raises(SpecError, match=said):
        migrated(f"program: train.py\nmethod: random\nrun_cap: 2\n{wrong}\n")


def test_a_stricter_rule_and_values_that_come_twice_are_remarked_on():
    made = migrated(
        FILE.replace("[2, 4]", "[2, 2, 4]")
        + "early_terminate: {type: hyperband, max_iter: 9, s: 999, strict: true}\n"
    )

    assert [each.kind for each in made.warnings] == ["early-terminate"]
    assert "twice" in {each.kind for each in made.notes}
    assert made.sweep["stop"]["min_steps"] == 1


def test_a_value_with_a_line_break_stays_in_its_line():
    made = migrated('program: train.py\nmethod: grid\nparameters: {p: {values: ["a\\nb", "é \\n"]}}\n')

    assert yaml.safe_load(made.sweep_text)["space"] == {"env_variables.HP_P": ["a\nb", "é \n"]}


def test_what_is_lost_is_listed_by_line():
    made = migrated(
        FILE.replace("run_cap: 40\n", "").replace("goal: minimize", "goal: minimize, target: 0.1")
        + "early_terminate: {type: hyperband, min_iter: 3, eta: 2}\nimports: [x]\n",
        "import argparse",
    )

    assert [(each.line, each.kind) for each in made.warnings] == [
        (1, "metric"),
        (3, "run-cap"),
        (4, "target"),
        (10, "unknown"),
    ]
    assert made.sweep["stop"] == {"method": "asha", "min_steps": 3, "reduction": 2}


def test_hyperband_by_its_last_iteration_starts_at_its_first_bracket():
    made = migrated(FILE + "early_terminate: {type: hyperband, max_iter: 27, s: 2}\n")

    assert made.sweep["stop"] == {"method": "asha", "min_steps": 3, "reduction": 3, "max_steps": 27}


def run(made, tmp_path) -> list[str]:
    """Return the arguments that the program gets."""
    (tmp_path / "train.py").write_text("import sys; print(*sys.argv[1:], sep='\\n')")
    env = {"PATH": "/usr/bin:/bin", "CODE_SOURCE_PATH": str(tmp_path), **made.train["env_variables"]}
    command = ["bash", "-euo", "pipefail", "-c", made.train["command"].replace("python ", "python3 ")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_flags_come_as_wandb_gives_them(tmp_path):
    text = "program: train.py\nmethod: grid\nparameters: {a-b: {values: [0.5]}, c: {value: x y}, d: {value: true}}\n"
    no_hyphens = text + 'command: ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}", last]\n'
    no_booleans = text + 'command: ["${interpreter}", "${program}", "${args_no_boolean_flags}"]\n'

    assert run(migrated(text), tmp_path) == ["--a-b=0.5", "--c=x y", "--d=True"]
    assert run(migrated(no_hyphens), tmp_path) == ["a-b=0.5", "c=x y", "d=True", "last"]
    assert run(migrated(no_booleans), tmp_path) == ["--a-b=0.5", "--c=x y", "--d"]
    assert run(migrated(no_booleans.replace("true", "false")), tmp_path) == ["--a-b=0.5", "--c=x y"]
    mixed = no_booleans.replace("value: true", "values: [auto, true]")
    assert run(migrated(mixed), tmp_path) == ["--a-b=0.5", "--c=x y", "--d=auto"]
    assert run(migrated(mixed.replace("[auto, true]", "[true, auto]")), tmp_path)[-1] == "--d"


def test_variables_within_a_word_are_put_in_when_it_runs(tmp_path):
    made = migrated(
        FILE + 'command: [python, "${program}", "--at=${envvar:AT}/${envvar:AT} $x", "${args}"]\n'
    )

    made.train["env_variables"]["AT"] = "a b"
    assert run(made, tmp_path)[0] == "--at=a b/a b $x"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (FILE, "import wandb, mlflow; wandb.config.lr"),
        (
            FILE.replace("program: train.py", "command: [python, train.py, '${args}']"),
            "import wandb, mlflow",
        ),
        (FILE, "import wandb, mlflow\nwith wandb.init() as run:\n    run.config.lr"),
        (FILE, "import wandb, mlflow\nwandb.init().config.lr  # no fire, no argparse\n# import click"),
        (FILE + 'command: ["python", "${program}"]\n', "import argparse, mlflow"),
        (FILE + 'command: ["python", "${program}", "${args_json_file}"]\n', "import argparse, mlflow"),
        (FILE + "  optimizer: {parameters: {name: {values: [sgd, true]}}}\n", "import argparse, mlflow"),
    ],
)
def test_a_program_without_flags_reads_parameters_and_is_told_so(text, program):
    made = migrated(text, program)

    assert [each.kind for each in made.warnings] == ["config"]
    assert made.train["parameters"]["layers"] == 2
    assert "$HP_" not in made.train["command"]
    if "optimizer" in text:
        assert made.sweep["space"]["parameters.optimizer.name"] == ["sgd", True]


@pytest.mark.parametrize(
    "program",
    [
        "import mlflow\nimport os, argparse as a",
        "import mlflow\nfrom absl import app",
        "import mlflow, sys\nprint(sys.argv)",
        "import mlflow\nfrom transformers import HfArgumentParser",
        None,
    ],
)
def test_a_program_that_may_parse_arguments_gets_flags(program):
    assert "--lr=" in migrated(FILE, program).train["command"]


@pytest.mark.parametrize("text", ["a: 1", "[1]", "name: x\nspace: {}", "#!/bin/bash\necho", "a: [", "\0"])
def test_other_files_are_none_of_wandb(text):
    assert not is_wandb(text)
