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
        ("bool(0,1)", "this cast of a sweep"),
        ("str(interval(1,2))", "this cast of a sweep"),
        ("int(1e99999999999,2)", "not all of these are numbers"),
        ("int(a,2)", "not all of these are numbers"),
        ("sort(interval(1,2))", "no order"),
        ("choice()", "nothing to choose"),
        ("range(stop=3)", "no end"),
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


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        ("int(tag(log,interval(1,100)))", {"min": 1, "max": 100, "log": True}),
        ("float(interval(1,10))", {"min": 1.0, "max": 10.0}),
        ("float(int(interval(1,9)))", {"min": 1.0, "max": 9.0}),
        ("int(choice(1.5,-2.5))", [1, -2]),
        ("float(range(1,3))", ["1.0", "2.0"]),
        ("str(1,b)", ["1", "b"]),
        ("range(10,step=3)", [0, 3, 6, 9]),
        ("range(1e3,1002)", ["1000.0", "1001.0"]),
        ("sort([3,1])", None),
        ("shuffle([1,2,3])", None),
        ("int(5)", None),
    ],
)
def test_casts_and_ranges_are_those_of_hydra(value, domain):
    assert swept(value).domain == domain


def test_notes_of_what_is_cast_are_kept():
    assert swept("int(tag(a,interval(1,9)))").notes == ("The tags a are left out.",)
    assert "twice" in swept("1,1").notes[0]


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


def test_options_of_a_sweeper_or_launcher_imply_it():
    made = migrated("python train.py -m hydra.sweeper.n_trials=40 hydra.launcher.partition=gpu lr=1,2")

    assert made.sweep["search"] == {"method": "tpe", "trials": 40, "seed": 0}
    assert made.backend == {"type": "slurm", "partition": "gpu"}
    assert {"config", "sweeper", "launcher"} <= {each.kind for each in made.notes}


def test_options_of_another_sweeper_or_launcher_are_said_to_be_left_out():
    made = migrated(
        "python train.py -m hydra/sweeper=basic hydra.sweeper.n_trials=40 hydra/launcher=submitit_local"
        " hydra.launcher.mem_gb=4 lr=1,2"
    )

    assert [each.kind for each in made.warnings] == ["hydra", "hydra"]
    assert "search" not in made.sweep
    assert not made.backend


@pytest.mark.parametrize(
    ("gpus", "kind", "accelerators"),
    [
        (0, "GPU_1xA10", {"GPU_1xA10": {"cpu": True}}),
        (1, "GPU_1xA10", None),
        (4, "GPU_8xH100", {"GPU_8xH100": {"gpus": 4}}),
        (8, "GPU_8xH100", None),
    ],
)
def test_a_node_on_slurm_gets_as_many_gpus_as_before(gpus, kind, accelerators):
    made = migrated(
        f"python train.py -m lr=1,2 hydra/launcher=submitit_slurm hydra.launcher.gpus_per_node={gpus}"
    )

    assert made.train["compute"]["accelerator_type"] == kind
    assert made.backend.get("accelerators") == accelerators


def test_elsewhere_another_number_of_gpus_is_warned_of():
    made = migrated("python train.py -m lr=1,2 hydra/launcher=submitit_local hydra.launcher.gpus_per_node=4")

    assert [each.kind for each in made.warnings] == ["gpus"]


@pytest.mark.parametrize(
    ("command", "start"),
    [
        ("HYDRA_FULL_ERROR=1 python train.py -m lr=1,2", "HYDRA_FULL_ERROR=1 python train.py lr="),
        ("torchrun --nproc_per_node=2 train.py -m lr=1,2", "torchrun --nproc_per_node=2 train.py lr="),
        ("torchrun --nnodes=1 -m pkg.train -m lr=1,2", "torchrun --nnodes=1 -m pkg.train lr="),
        ("python -u -m pkg.train -m lr=1,2", "python -u -m pkg.train lr="),
        ("python -m pkg.train lr=1,2 --multirun file=x.py", "python -m pkg.train lr="),
        ("my-train -m lr=1,2", "my-train lr="),
        ("my-train lr=1,2 -m", "my-train lr="),
    ],
)
def test_a_program_is_found_however_it_is_started(command, start):
    assert migrated(command).train["command"].splitlines()[1].startswith(start)


def test_variables_in_front_stay_variables():
    made = from_hydra(["A=b c", "python", "train.py", "-m", "x=1,2"], read={"train.py": "mlflow"}.get)

    assert made.train["command"].splitlines()[1].startswith("A='b c' python train.py ")


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
        ("A=1", "No program"),
        ("python train.py -m lr=1,2 lr=3", "more than once"),
        ("python train.py -m lr=3 ++lr=1,2", "more than once"),
        ("python train.py -m lr=1,2 lr=3,4", "more than once"),
    ],
)
def test_a_command_that_is_no_multirun_is_refused(command, said):
    with pytest.raises(SpecError, match=said):
        migrated(command)


def test_keys_that_differ_only_in_punctuation_have_variables_of_their_own():
    made = migrated("python train.py -m a.b=1,2 a_b=3,4 +a-b=5,6")

    assert list(made.sweep["space"]) == [f"env_variables.HP_A_B{end}" for end in ("", "_2", "_3")]
