"""Scripts before and after `migrate`, run by bash: every task does the same."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflows.migrate import Migration, migrate
from airflows.migrate.grammar import array
from airflows.sweepfile import sweep_from_mapping
from airflows.train import effective

DATA = Path(__file__).parents[1] / "data"
ARRAYS = yaml.safe_load((DATA / "sbatch-arrays.yaml").read_text())
VALUES = yaml.safe_load((DATA / "shell-values.yaml").read_text())
BASH = shutil.which("bash") or "bash"
STUB = """\
#!/bin/bash
line=${0##*/}
for word in "$@"; do line+=" <$word>"; done
for name in $SHOWN; do if [ -n "${!name+x}" ]; then line+=" $name=${!name}"; fi; done
# At once: several may write at the same time.
printf '%s\\n' "$line"
if [ -n "$STUB_STDIN" ]; then cat; fi
exit "${STUB_EXIT:-0}"
"""
SRUN = """\
#!/bin/bash
while [[ ${1-} == -* ]]; do [[ $1 == -n || $1 == -N || $1 == -w ]] && shift; shift; done
exec "$@"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """A directory with programs that only print how they were called."""
    directory = tmp_path_factory.mktemp("bin")
    for name in ("python", "torchrun", "module", "conda"):
        (directory / name).write_text(STUB)
    (directory / "srun").write_text(SRUN)
    (directory / "scontrol").write_text("#!/bin/bash\nprintf 'n1\\nn2\\n'\n")
    for path in directory.iterdir():
        path.chmod(0o755)
    return directory


def run(words: list[str], directory: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=directory, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


def outcome(
    words: list[str], directory: Path, variables: Mapping[str, str]
) -> tuple[int, str, dict[str, str]]:
    """Return exit status, output and all files that are there afterwards."""
    done = run(words, directory, variables)
    here = str(directory)
    files = {
        str(path.relative_to(directory)): path.read_text().replace(here, "HERE")
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    return done.returncode, done.stdout.replace(here, "HERE"), files


def project(directory: Path, case: Mapping[str, Any]) -> Path:
    for name, content in {**case.get("files", {}), "job.sbatch": case["script"]}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return directory


def of_slurm(made: Migration, index: int | None, directory: Path) -> dict[str, str]:
    """Return the variables that Slurm sets in a job."""
    carried = made.carried
    variables = {
        "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": carried["job_name"], "SLURM_SUBMIT_DIR": str(directory),
        "SLURM_JOB_NODELIST": "n1", "SLURM_CPUS_PER_TASK": str(carried["cpus_per_task"] or ""),
    }  # fmt: skip
    if index is not None:
        indices = list(array(carried["array"]["indices"]).indices)
        variables |= {
            "SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
            "SLURM_ARRAY_TASK_MIN": str(indices[0]), "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
        }  # fmt: skip
    return variables


def of_airflows(
    tree: Mapping[str, Any], number: int, code: Path, rank: int = 0, nodes: int = 1
) -> dict[str, str]:
    """Return the variables that every backend sets, and what an array of airflows' own brings on Slurm."""
    own = {
        "CODE_SOURCE_PATH": str(code), "NUM_NODES": str(nodes), "NODE_RANK": str(rank), "MASTER_ADDR": "n1",
        "MASTER_PORT": "12345", "LOCAL_WORLD_SIZE": "8", "AIRFLOWS_SWEEP": "s", "AIRFLOWS_TRIAL": str(number),
        "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n1", "SLURM_ARRAY_TASK_ID": str(1000 + number),
    }  # fmt: skip
    return own | {name: str(value) for name, value in (tree.get("env_variables") or {}).items()}


@pytest.mark.parametrize("case", ARRAYS, ids=lambda case: case["name"])
def test_every_task_does_the_same(case, programs, tmp_path):
    made = migrate(case["script"], name="job.sbatch", directory=str(tmp_path), read=case.get("files", {}).get)
    common = {
        "PATH": f"{programs}{os.pathsep}{os.defpath}", "HOME": "/nowhere", "LC_ALL": "C",
        "SHOWN": " ".join(case.get("shown", [])), **case.get("variables", {}),
    }  # fmt: skip
    indices: list[int | None] = [None]
    points: list[Mapping[str, Any]] = [{}]
    if made.sweep is not None:
        indices = list(array(made.carried["array"]["indices"]).indices)
        sweep = sweep_from_mapping({**made.sweep, "base": made.train, "backend": "local"}, directory=tmp_path)
        points = [point.overrides for point in sweep.expansion.points()]
    assert len(points) == len(indices)
    for number, (index, overrides) in enumerate(zip(indices, points, strict=True)):
        before = project(tmp_path / f"before-{number}", case)
        wanted = outcome([BASH, "job.sbatch"], before, common | of_slurm(made, index, before))
        after = project(tmp_path / f"after-{number}", case)
        tree = effective(made.train, overrides)
        command = [BASH, "-euo", "pipefail", "-c", tree["command"]]
        assert outcome(command, after, common | of_airflows(tree, number, after)) == wanted


@pytest.mark.parametrize(("text", "wanted"), [row for row in VALUES["values"] if row[1] is not None])
def test_bash_agrees_on_what_a_variable_holds(text, wanted, tmp_path):
    for name, content in VALUES["files"].items():
        (tmp_path / name).write_text(content)
    shown = f'{text}\nprintf "\\1"; printf "%s\\0" "${{X[@]}}"'
    done = run([BASH, "-c", shown], tmp_path, {"I": "3", "PATH": os.defpath, "HOME": str(tmp_path)})
    held = done.stdout.rpartition("\1")[2].split("\0")[:-1]
    assert held == (wanted if isinstance(wanted, list) else [wanted])


def test_the_guides_script_and_its_train_file_start_the_same(programs, tmp_path):
    guide = DATA / "sbatch" / "guide"
    made = migrate(
        (guide / "job.sbatch").read_text(), name="job.sbatch", directory=str(tmp_path), read=lambda _: None
    )
    wanted = yaml.safe_load((guide / "train.yaml").read_text())
    common = {"PATH": f"{programs}{os.pathsep}{os.defpath}", "SHOWN": ""}
    for rank in (0, 1):
        started = [
            run([BASH, "-euo", "pipefail", "-c", tree["command"]], tmp_path, common | of_airflows(tree, 0, tmp_path, rank, 2))
            for tree in (wanted, made.train)
        ]  # fmt: skip
        assert started[0].stdout.startswith("torchrun <--nnodes=2>")
        assert started[1].stdout == started[0].stdout


def test_tasks_of_a_node_have_the_numbers_that_srun_gave_them(programs, tmp_path):
    script = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=2 --gpus-per-task=2\nsrun python t.py\n"
    made = migrate(script, name="job.sbatch", directory=str(tmp_path), read=lambda _: None)
    shown = "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS CUDA_VISIBLE_DEVICES"
    common = {"PATH": f"{programs}{os.pathsep}{os.defpath}", "SHOWN": shown}
    done = run(
        [BASH, "-euo", "pipefail", "-c", made.train["command"]], tmp_path, common | of_airflows(made.train, 0, tmp_path, 1, 2)
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [
        "python <t.py> SLURM_PROCID=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=4 CUDA_VISIBLE_DEVICES=0,1",
        "python <t.py> SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_NTASKS=4 CUDA_VISIBLE_DEVICES=2,3",
    ]


def test_one_failing_task_fails_the_node(programs, tmp_path):
    script = "#!/bin/bash\n#SBATCH -n 3\nsrun python t.py\n"
    made = migrate(script, name="job.sbatch", directory=str(tmp_path), read=lambda _: None)
    common = {"PATH": f"{programs}{os.pathsep}{os.defpath}", "SHOWN": "", "STUB_EXIT": "4"}
    done = run(
        [BASH, "-euo", "pipefail", "-c", made.train["command"]],
        tmp_path,
        common | of_airflows(made.train, 0, tmp_path),
    )
    assert (done.returncode, done.stdout.count("python")) == (4, 3)
