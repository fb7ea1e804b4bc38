"""`migrate`: files beside the script or elsewhere, never over others, and what is said."""

import json
from pathlib import Path

import pytest
import yaml

DATA = Path(__file__).parents[1] / "data" / "sbatch"
ARRAY = """\
#!/bin/bash
#SBATCH --job-name=grid
#SBATCH --array=0-5%2
#SBATCH --partition=gpu
LRS=(1e-3 1e-4 1e-5)
LR=${LRS[$((SLURM_ARRAY_TASK_ID % 3))]}
SEED=$((SLURM_ARRAY_TASK_ID / 3))
echo "lr=$LR seed=$SEED" >> "$AIRFLOWS_CHECKPOINT_DIR/done.txt"
"""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_files_are_written_beside_the_script(cli):
    script = cli.write("job.sbatch", ARRAY)
    done = cli("migrate", script)
    assert done.status == 0, done.err
    assert names(cli.directory) == ["job.sbatch", "sweep.yaml", "train.yaml"]
    assert "job.sbatch:4 partition: " in done.out
    assert cli("validate", "train.yaml", "sweep.yaml").status == 0
    assert not cli.home.exists()


def test_one_job_is_one_train_file_and_says_how_to_keep_its_settings(cli):
    cli.write("job.sbatch", "#!/bin/bash\n#SBATCH -p gpu\npython t.py\n")
    done = cli("migrate", "job.sbatch")
    assert names(cli.directory) == ["job.sbatch", "train.yaml"]
    lines = [line.strip() for line in done.out.splitlines()]
    sweep = "\n".join(line for line in lines if line.startswith(("name:", "base:", "include:", "backend:")))
    assert yaml.safe_load(sweep)["backend"]["partition"] == "gpu"
    cli.write("sweep.yaml", sweep)
    assert cli("validate", "sweep.yaml").status == 0


def test_the_json_document_has_everything(cli):
    cli.write("job.sbatch", ARRAY)
    done = cli("migrate", "job.sbatch", "-o", "json")
    document = done.document
    assert set(document) == {"files", "train", "sweep", "backend", "carried", "warnings", "notes"}
    assert document["files"] == ["train.yaml", "sweep.yaml"]
    assert document["train"] == yaml.safe_load((cli.directory / "train.yaml").read_text())
    assert document["sweep"] == yaml.safe_load((cli.directory / "sweep.yaml").read_text())
    assert document["carried"]["array"] == {"indices": "0-5", "count": 6, "throttle": 2}
    assert {(each["line"], each["kind"], each["directive"]) for each in document["warnings"]} == {
        (3, "array-throttle", "--array"),
        (4, "partition", "--partition"),
        (6, "array-runtime-params", None),
    }
    assert all(each["message"] for each in document["warnings"])


@pytest.mark.parametrize("name", ["15-bash-array-grid", "24-signal-requeue", "28-no-shebang"])
def test_facts_and_warnings_of_the_cases(cli, name):
    case = yaml.safe_load((DATA / f"{name}.yaml").read_text())
    cli.write("job.sbatch", case["script"])
    document = cli("migrate", "job.sbatch", "-o", "json").document
    assert document["carried"] == json.loads(json.dumps(case["expected"]))
    assert {each["kind"] for each in document["warnings"]} == set(case["warnings"])


def test_no_sweep_is_null(cli):
    cli.write("job.sbatch", "#!/bin/bash\npython t.py\n")
    assert cli("migrate", "job.sbatch", "-o", "json").document["sweep"] is None


def test_files_go_where_they_are_wanted_and_find_the_code(cli):
    cli.write("job.sbatch", ARRAY)
    done = cli("migrate", "job.sbatch", "--to", "new/place")
    assert done.status == 0, done.err
    train = yaml.safe_load((cli.directory / "new" / "place" / "train.yaml").read_text())
    assert train["code_source"]["snapshot"]["root_path"] == "../.."


def test_files_that_are_there_are_not_written_over(cli):
    cli.write("job.sbatch", ARRAY)
    other = cli.write("sweep.yaml", "mine: true\n")
    done = cli("migrate", "job.sbatch")
    assert done.status == 2
    assert "sweep.yaml is there already" in done.error
    assert names(cli.directory) == ["job.sbatch", "sweep.yaml"]
    assert other.read_text() == "mine: true\n"
    assert cli("migrate", "job.sbatch", "--force").status == 0
    assert other.read_text() != "mine: true\n"
    assert cli("migrate", "job.sbatch").status == 0, "the same files again change nothing"


def test_the_accelerator_can_be_chosen(cli):
    cli.write("job.sbatch", ARRAY)
    done = cli("migrate", "job.sbatch", "--accelerator", "GPU_8xH100", "-o", "json")
    assert done.document["train"]["compute"] == {"accelerator_type": "GPU_8xH100", "num_accelerators": 8}
    done = cli("migrate", "job.sbatch", "--accelerator", "H200", "--force")
    assert done.status == 2
    assert "GPU_8xH100" in done.error


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"\xff\xfe#!", "UTF-8"), (b"#!/bin/bash\n\0", "null bytes"), (b"a" * (5 << 20), "4 MiB")],
)  # fmt: skip
def test_what_is_no_script_is_refused(cli, content, words):
    if content is not None:
        (cli.directory / "job.sbatch").write_bytes(content)
    done = cli("migrate", "job.sbatch", "-o", "json")
    assert done.status == 2
    assert words in done.document["error"]["message"]
    assert names(cli.directory) in ([], ["job.sbatch"])


def test_a_directory_is_no_script(cli):
    (cli.directory / "job").mkdir()
    assert cli("migrate", "job").status == 2


def test_a_params_file_beside_the_script_is_read_off(cli):
    (cli.directory / "jobs").mkdir()
    cli.write("jobs/grid.txt", "--lr 0.1 --size small\n--lr 0.2 --size large\n")
    cli.write(
        "jobs/job.sbatch",
        '#!/bin/bash\n#SBATCH -a 1-2\nARGS=$(sed -n "${SLURM_ARRAY_TASK_ID}p" grid.txt)\npython t.py $ARGS\n',
    )
    document = cli("migrate", "jobs/job.sbatch", "-o", "json").document
    assert document["sweep"]["space"] == {
        "env_variables.LR, env_variables.SIZE": [[0.1, "small"], [0.2, "large"]]
    }
    assert document["carried"]["params"] == {"source": "file", "path": "grid.txt", "line": "index"}
    assert document["files"] == ["jobs/train.yaml", "jobs/sweep.yaml"]


def test_a_migrated_array_runs_here(cli):
    cli.write("job.sbatch", ARRAY)
    cli("migrate", "job.sbatch")
    done = cli(
        "sweep", "sweep.yaml", "--backend", "local", "--set", "tracking.uri=none", "--yes", "-o", "json"
    )
    assert done.status == 0, done.err
    assert done.document["trials"]["succeeded"] == 6
    lines = sorted(
        (int(path.parent.name), path.read_text()) for path in cli.home.glob("checkpoints/*/*/done.txt")
    )
    assert [line for _, line in lines] == [
        f"lr={lr} seed={seed}\n" for seed in (0, 1) for lr in ("1e-3", "1e-4", "1e-5")
    ]


WANDB = """\
program: train.py
method: grid
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1, 2]}}
"""
LOGS = """\
import os, sys, mlflow
x = float(sys.argv[1].partition("=")[2])
with mlflow.start_run():
    mlflow.log_metric("loss", (x - 2) ** 2)
"""


def test_a_sweep_file_of_wandb_runs_to_its_winner(cli):
    cli.write("train.py", LOGS)
    cli.write("wandb.yaml", WANDB)

    done = cli("migrate", "wandb.yaml", "--to", "new")
    assert done.status == 0, done.err
    assert cli("sweep", "new/sweep.yaml", "--yes").status == 0
    best = cli("best", "wandb", "-o", "json").document
    assert best["overrides"] == {"env_variables.HP_X": "2"}


def test_a_multirun_of_hydra_becomes_a_sweep_with_or_without_quotes(cli):
    cli.write("train.py", LOGS)
    for number, words in enumerate(
        (["--", "python", "train.py", "-m", "x=1,2"], ["python train.py -m x=1,2"])
    ):
        done = cli("migrate", "--to", f"new{number}", *words)
        assert done.status == 0, done.err
        assert cli("validate", f"new{number}/sweep.yaml").status == 0
    assert (cli.directory / "new0" / "sweep.yaml").read_text() == (
        cli.directory / "new1" / "sweep.yaml"
    ).read_text()


def test_a_yaml_file_that_is_none_of_wandb_is_refused(cli):
    cli.write("some.yaml", "a: 1")
    done = cli("migrate", "some.yaml")
    assert done.status == 2
    assert "no sweep file of W&B" in done.err
