"""Multirun commands of Hydra: its own reading of overrides, the command, launcher and sweeper."""

import subprocess
from pathlib import Path

import pytest
import yaml

from airflows.errors import SpecError
from airflows.migrate import from_hydra
from airflows.migrate.hydra_values import swept
from airflows.scalars import go_text

RECORDED = yaml.safe_load((Path(__file__).parents[1] / "data" / "hydra-overrides.yaml").read_text())


def migrated(command: str, files: dict[str, str] | None = None):
    return from_hydra(command.split(), read=(files or {"train.py": "import mlflow"}).get)


def as_hydra_reads(text: str) -> object:
    """Return a value such that texts which are one to Hydra are equal."""
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return {"true": "True", "false": "False"}.get(text, text)


@pytest.mark.parametrize(("override", "expected"), RECORDED, ids=[each[0] for each in RECORDED])
def test_an_override_sweeps_over_what_hydra_sweeps_over(override, expected):
    domain = swept(override.partition("=")[2]).domain

    if not isinstance(expected, list):
        assert domain == expected
        return
    ours = [as_hydra_reads(go_text(value)) for value in domain]
    theirs = [as_hydra_reads(text) for text in expected]
    is_reordered = "shuffle" in override or "sort" in override
    assert (sorted(ours, key=str) if is_reordered else ours) == (
        sorted(theirs, key=str) if is_reordered else theirs
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("choice(a,b),c", "not understood"),
        (",1", "not understood"),
        ("glob(*)", "known only to Hydra"),
        ("int(1.5,2.5)", "a cast of a sweep"),
        ("range(0,1e9)", "too many values"),
        ("range(3,1)", "empty"),
        ("range(1,2,0)", "too many"),
        ("interval(1)", "a start and an end"),
        ("range(a,b)", "no number"),
    ],
)
def test_what_cannot_be_written_out_is_refused_in_words(value, said):
    with pytest.raises(SpecError, match=said):
        swept(value)


def test_the_command_gets_the_swept_overrides_and_keeps_the_others():
    made = migrated("python train.py --config-name big -m model=a,b +opt.lr=1e-3,1e-4 data=x ~log")

    assert made.sweep["space"] == {
        "env_variables.HP_MODEL": ["a", "b"],
        "env_variables.HP_OPT_LR": ["1e-3", "1e-4"],
    }
    line = made.train["command"].splitlines()[1]
    assert line.startswith(
        'python train.py --config-name big model="$HP_MODEL" +opt.lr="$HP_OPT_LR" data=x \'~log\' hydra.run.dir='
    )
    assert made.train["env_variables"] == {"HP_MODEL": "a", "HP_OPT_LR": "1e-3"}


def test_the_program_gets_each_value_as_it_was_written(tmp_path):
    (tmp_path / "train.py").write_text("import sys; print(*sys.argv[1:], sep='\\n')")
    made = migrated("python3 train.py -m x='a,b',c y=1,2 z=[1,2]")

    env = {"PATH": "/usr/bin:/bin", "CODE_SOURCE_PATH": str(tmp_path), "AIRFLOWS_CHECKPOINT_DIR": "/c p"}
    env |= made.train["env_variables"]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", made.train["command"]],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["x='a,b'", "y=1", "z=[1,2]", "hydra.run.dir='/c p/hydra'"]


def test_a_sweeper_and_a_launcher_become_search_limits_and_backend():
    made = migrated(
        "python train.py -m hydra/sweeper=optuna hydra.sweeper.n_trials=30 hydra.sweeper.direction=maximize"
        " hydra.sweeper.sampler.seed=7 hydra/launcher=submitit_slurm hydra.launcher.partition=gpu"
        " hydra.launcher.mem_gb=16 hydra.launcher.timeout_min=90 hydra.launcher.array_parallelism=4"
        " hydra.launcher.gpus_per_node=8 lr=tag(log,interval(1e-5,1e-1))"
    )

    assert made.sweep["search"] == {"method": "tpe", "trials": 30, "seed": 7}
    assert made.sweep["objective"] == {"metric": "objective", "goal": "maximize"}
    assert made.sweep["limits"] == {"concurrent": 4}
    assert made.backend == {"type": "slurm", "partition": "gpu", "memory": "16G"}
    assert made.train["timeout_minutes"] == 90
    assert made.train["compute"] == {"accelerator_type": "GPU_8xH100", "num_accelerators": 8}
    assert {each.kind for each in made.warnings} == {"objective"}


def test_what_has_no_counterpart_is_listed():
    made = migrated("python train.py -m a=1,2 hydra.sweep.dir=/x hydra/launcher=ray hydra.verbose=true")

    said = " ".join(each.message for each in made.warnings)
    assert "hydra.sweep.dir=/x" in said
    assert "hydra/launcher=ray" in said
    assert "hydra.verbose=true" in said


def test_a_program_that_does_not_log_to_mlflow_is_told_so():
    made = migrated("python train.py -m a=1,2", {"train.py": "print(1)"})

    assert [each.kind for each in made.warnings] == ["metric"]
    assert not migrated("python -m pkg.train -m a=1,2").warnings


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python train.py a=1,2", "no multirun"),
        ("python train.py -m a=1", "nothing to sweep"),
        ("python train.py -m 1,2", "no override"),
        ("ls", "No program"),
    ],
)
def test_a_command_that_is_no_multirun_is_refused(command, said):
    with pytest.raises(SpecError, match=said):
        migrated(command)


def test_keys_that_differ_only_in_punctuation_have_variables_of_their_own():
    made = migrated("python train.py -m a.b=1,2 a_b=3,4 +a.b=5,6")

    assert list(made.sweep["space"]) == [f"env_variables.HP_A_B{end}" for end in ("", "_2", "_3")]
