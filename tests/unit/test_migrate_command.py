"""The command that a script becomes: what changes, and what is said of it."""

import re
from typing import Any

import pytest
import yaml

from airflows.errors import SpecError
from airflows.migrate import Migration, migrate, one_run
from airflows.migrate.tame import PLAIN
from airflows.train import read_train

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"


def migrated(script: str, files: dict[str, str] | None = None, **options: Any) -> Migration:
    made: dict[str, Any] = {"name": "job.sbatch", "directory": "/home/me/project", **options}
    return migrate(script, read=(files or {}).get, **made)


def command(body: str, head: str = HEAD, files: dict[str, str] | None = None) -> str:
    """Return the command without the line that goes to the code."""
    text = migrated(head + body, files).train["command"]
    return text.removeprefix('cd "$CODE_SOURCE_PATH"\n')


def kinds(body: str, head: str = HEAD) -> list[str]:
    return [finding.kind for finding in migrated(head + body).warnings]


def nodes(count: int, tasks: int = 1, gpus: int = 8) -> str:
    return f"#!/bin/bash\n#SBATCH -N {count} --ntasks-per-node={tasks} --gpus-per-node={gpus}\n"


# srun and nodes


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("srun python t.py", "python t.py"),
        ("srun -n 1 --gres=gpu:1 --cpu-bind=none -u python t.py --x -n 3", "python t.py --x -n 3"),
        ("exec srun python t.py", "exec python t.py"),
        ("srun --export=ALL,A=1,B=2 python t.py", "env A=1 B=2 python t.py"),
        ("A=1 srun python t.py | tee log", "A=1 python t.py | tee log"),
        ("srun -- python t.py", "python t.py"),
    ],
)
def test_srun_of_one_task_is_taken_off(line, wanted):
    assert command(line).splitlines()[-1] == wanted


@pytest.mark.parametrize("job", ["$SLURM_JOB_ID", '"$SLURM_JOB_ID"', "${SLURM_JOBID}"])
def test_srun_in_its_own_job_is_taken_off(job):
    assert command(f"srun --jobid {job} bash -c 'x $Y'").splitlines()[-1] == "bash -c 'x $Y'"
    assert "srun" in command("srun --jobid 4711 python t.py")


HELD = 'ARGS=" --lr 1"\nOPTS=" \\\n  --wait=60 \\\n  -n 1 \\\n"\n'


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("srun $OPTS -u python t.py", "python t.py"),
        ("srun ${OPTS} python t.py $ARGS", "python t.py $ARGS"),
        ("CMD='python t.py'; srun $CMD", "CMD='python t.py'; $CMD"),
        ("srun python t.py $ARGS", "python t.py $ARGS"),
    ],
)
def test_options_of_srun_may_be_in_a_variable(line, wanted):
    assert command(HELD + line).splitlines()[-1] == wanted
    # Of the program's own arguments nothing need be known.
    assert command(HELD.replace('1"', '$N"') + line).splitlines()[-1] == wanted


@pytest.mark.parametrize("value", ['"--wait=60 $MORE"', '"-n $N"', "'-u python -u'"])
def test_srun_stays_where_its_options_are_not_known(value):
    line = "srun $OPTS python t.py"
    assert command(f"MORE=--x\nOPTS={value}\n{line}").splitlines()[-1] == line
    assert command(f"OPTS=-n1\nif a; then OPTS=--wait=3; fi\n{line}").splitlines()[-1] == line


@pytest.mark.parametrize(
    "line",
    [
        "srun -w node1 python t.py",
        "srun --mpi=pmix ./a",
        "srun --multi-prog conf",
        "srun -n $N python t.py",
        "srun --pty",
    ],
)
def test_srun_that_does_more_is_kept_and_told(line):
    made = migrated(HEAD + line)
    assert made.train["command"].splitlines()[-1] == line
    assert "srun-kept" in {finding.kind for finding in made.notes}


def test_srun_on_one_gpu_of_several_is_kept():
    head = "#!/bin/bash\n#SBATCH --gres=gpu:4 -n 4\n"
    body = "for i in 0 1; do srun --exclusive -n1 --gres=gpu:1 python t.py $i & done\nwait"
    assert "srun --exclusive -n1" in command(body, head)
    assert command(body, head).endswith("\nwait")


def test_tasks_of_a_node_are_started_by_a_function():
    text = command("srun python t.py", nodes(2, tasks=4, gpus=4))
    assert text.endswith("\neach_task 4 python t.py")
    assert "SLURM_PROCID=$((NODE_RANK * count + task))" in text
    assert "CUDA_VISIBLE_DEVICES" not in text


def test_tasks_with_a_gpu_each_see_only_theirs():
    head = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-task=1\n"
    assert "CUDA_VISIBLE_DEVICES" in command("srun python t.py", head)


def test_what_ran_in_the_batch_script_runs_on_the_first_node():
    text = command(
        "export A=1\npython prep.py > log\nsrun torchrun t.py\nsrun -N1 -n1 python eval.py", nodes(2)
    )
    assert (
        'if [ "$NODE_RANK" = 0 ]; then\n  python prep.py > log\nfi\ntorchrun t.py\nfirst_node python eval.py'
        in text
    )


def test_without_srun_the_other_nodes_do_nothing():
    assert command("python t.py", nodes(2)) == '[ "$NODE_RANK" = 0 ] || exit 0\npython t.py'


def test_a_job_with_different_steps_on_its_nodes_stays_a_batch_script():
    text = command("srun -N1 -n1 -w $A ray start &\nsrun python t.py --n $SLURM_NNODES", nodes(2))
    assert text.splitlines()[1:3] == ['cd "$CODE_SOURCE_PATH"', '[ "$NODE_RANK" = 0 ] || exit 0']
    assert "export SLURM_OVERLAP=1 SLURM_MEM_PER_NODE=0" in text
    assert text.endswith("srun python t.py --n $SLURM_NNODES")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ('export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\nexport MASTER_PORT=29500\nsrun torchrun t.py',
         "torchrun t.py"),
        ("export MASTER_ADDR=$(hostname) MASTER_PORT=1\nsrun torchrun t.py", "torchrun t.py"),
        ("export MASTER_PORT=$((10000 + SLURM_JOB_ID % 1000))\nsrun torchrun t.py", "torchrun t.py"),
        ("srun torchrun --nnodes=$SLURM_NNODES --node_rank=${SLURM_NODEID} t.py", "torchrun --nnodes=$NUM_NODES --node_rank=${NODE_RANK} t.py"),
        ("srun torchrun --nproc_per_node=8 t.py", "torchrun --nproc_per_node=${LOCAL_WORLD_SIZE:-8} t.py"),
        ("srun torchrun --nproc_per_node=4 t.py", "torchrun --nproc_per_node=4 t.py"),
        ("srun torchrun --master_port=29500 t.py", "torchrun --master_port=$MASTER_PORT t.py"),
        ("A=$(scontrol show hostname $SLURM_NODELIST | head -1)\nsrun torchrun --addr $A t.py", 'A="$MASTER_ADDR"\ntorchrun --addr $A t.py'),
        ("N=($(scontrol show hostnames $SLURM_JOB_NODELIST))\nsrun torchrun --addr ${N[0]} t.py", 'N=("$MASTER_ADDR")\ntorchrun --addr ${N[0]} t.py'),
    ],
)  # fmt: skip
def test_node_variables_are_those_of_all_backends(body, wanted):
    assert (
        command(body, nodes(2)).removeprefix(f"{PLAIN}\n").removeprefix('cd "$CODE_SOURCE_PATH"\n') == wanted
    )


def test_hosts_that_are_all_used_stay_and_are_told():
    body = "N=($(scontrol show hostnames $SLURM_JOB_NODELIST))\nsrun torchrun --addr ${N[1]} t.py"
    assert "scontrol show hostnames" in command(body, nodes(2))
    assert "rendezvous" in kinds(body, nodes(2))


def test_random_numbers_agree_on_all_nodes():
    assert "RANDOM=$MASTER_PORT" in command("srun torchrun --rdzv_id=$RANDOM t.py", nodes(2))
    assert "node-value" in kinds("D=$(date +%s)\nsrun python t.py $D", nodes(2))


# The site


def test_modules_and_environments_are_set_up_on_slurm_only():
    text = command("module load a\nsource ~/.bashrc\nconda activate b\nmodule list; python t.py")
    assert text.splitlines() == [
        PLAIN,
        'cd "$CODE_SOURCE_PATH"',
        'if [ -n "${SLURM_JOB_NODELIST:-}" ]; then',
        "  type module >/dev/null 2>&1 || . /etc/profile",
        "  module load a",
        "  source ~/.bashrc",
        "  conda activate b",
        "  module list",
        "fi",
        " python t.py",
    ]


def test_a_virtual_environment_beside_the_script_is_found_from_the_snapshot():
    assert '  source "/home/me/project/.venv/bin/activate"' in command(
        "source ./.venv/bin/activate\npython t.py"
    )


def test_exports_with_plain_values_become_variables_of_the_train_file():
    made = migrated(HEAD + "set -e\nexport A=1 B='x y'\nexport C=$HOME\nexport PATH=/x\npython t.py")
    assert made.train["env_variables"] == {"A": "1", "B": "x y"}
    assert "export A" not in made.train["command"]
    assert "export C=$HOME\nexport PATH=/x" in made.train["command"]


def test_exports_behind_modules_stay_where_they_are():
    made = migrated(HEAD + "module load a\nexport A=1\npython t.py")
    assert "env_variables" not in made.train
    assert "export A=1" in made.train["command"]


def test_what_came_from_outside_is_asked_for():
    made = migrated(HEAD + "python t.py $DATA ${OTHER:-x} $LD_LIBRARY_PATH $USER")
    assert ': "${DATA:?' in made.train["command"]
    assert 'export USER="${USER:-$(id -un)}"' in made.train["command"]
    assert [(finding.line, finding.kind) for finding in made.warnings] == [(3, "environment")]
    assert made.backend["inherit"] == ["DATA"]


def test_arguments_of_the_script_are_asked_for():
    assert command("f() { echo $1; }\npython t.py $2").splitlines()[2:4] == [
        "set --",
        ': "${2:?is not given: write the arguments behind set -- in the command}"',
    ]
    assert kinds("python t.py $1") == ["arguments"]
    assert kinds("set -- a b\npython t.py $1") == []


# Slurm itself


def test_a_job_that_starts_itself_again_fails_instead():
    text = command("trap 'scontrol requeue $SLURM_JOB_ID' USR1\npython t.py || sbatch $0")
    assert "trap 'start_again $SLURM_JOB_ID' USR1\npython t.py || start_again $0" in text
    assert migrated(HEAD + "scontrol requeue 1").train["max_retries"] == 3


def test_other_jobs_are_not_submitted():
    text = command("python t.py\nA=$(sbatch --parsable next.sh)\necho sbatch it")
    assert "A=$(not_submitted --parsable next.sh)\necho sbatch it" in text


def test_waiting_for_the_one_program_in_the_background_tells_how_it_ended():
    assert command("python t.py &\nwait").endswith("python t.py &\nwait $!")
    assert command("python a.py &\npython b.py &\nwait").endswith("\nwait")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("python t.py $SLURM_JOB_NAME", "export SLURM_JOB_NAME=job.sbatch"),
        ("python t.py $SLURM_NTASKS", "export SLURM_NTASKS=1"),
        ("python t.py $((SLURM_NNODES * 2))", 'export SLURM_NNODES="$NUM_NODES"'),
        ("cp $SLURM_SUBMIT_DIR/a .", 'export SLURM_SUBMIT_DIR="${CODE_SOURCE_PATH:-$PWD}"'),
        ("cp a $SLURM_TMPDIR/", 'export SLURM_TMPDIR="${SLURM_TMPDIR:-$(mktemp -d)}"'),
    ],
)
def test_variables_of_slurm_are_set_as_they_were(body, line):
    assert line in command(body).splitlines()


def test_a_variable_without_a_counterpart_is_told():
    assert kinds("python t.py $SLURM_CLUSTERS_X") == ["slurm-variable"]


def test_variables_that_a_program_beside_the_script_reads_are_set():
    files = {"t.py": 'os.environ["SLURM_JOB_NAME"]'}
    assert "export SLURM_JOB_NAME=job.sbatch" in command("python t.py", files=files)


def test_restarts_are_attempts():
    assert "AIRFLOWS_ATTEMPT" in command('[ -n "$SLURM_RESTART_COUNT" ] && A=--resume\npython t.py $A')


# Shell options


@pytest.mark.parametrize(
    "body",
    ["python t.py", "A=1\necho hi\nmkdir -p x\npython t.py $A", "cd x\npython t.py"],
)  # fmt: skip
def test_a_simple_script_needs_no_options(body):
    assert "set +e" not in command(body)


@pytest.mark.parametrize(
    "body", ["a\nb", "a | b", "a || b", "mkdir x\nb", "python t.py ${A[1]}", "if a; then b; fi", "a &"]
)
def test_a_script_that_may_go_on_after_a_failure_does(body):
    assert command(body).startswith(PLAIN)


def test_options_of_the_interpreter_are_kept():
    assert command("a\nb", "#!/bin/bash -eu\n").startswith(f"{PLAIN}\nset -eu\n")


# Where it runs


def test_the_submit_directory_is_the_code():
    assert command("cd $SLURM_SUBMIT_DIR\npython t.py") == "python t.py"


@pytest.mark.parametrize("target", ["/data/project", "~/project", '"$HOME/project"'])
def test_a_script_with_a_directory_of_its_own_has_no_snapshot(target):
    made = migrated(HEAD + f"cd {target}\npython t.py")
    assert "code_source" not in made.train
    assert made.train["command"].splitlines()[-2:] == [f"cd {target}", "python t.py"]


def test_the_code_is_found_from_another_directory():
    made = migrated(HEAD + "python t.py", root="../jobs")
    assert made.train["code_source"]["snapshot"]["root_path"] == "../jobs"


@pytest.mark.parametrize(
    ("chdir", "root", "path"),
    [("/a", ".", "/a"), ("sub", ".", "sub"), ("sub", "../jobs", "../jobs/sub")],
)
def test_chdir_is_where_the_code_is(chdir, root, path):
    made = migrated(f"#!/bin/bash\n#SBATCH -D {chdir}\npython t.py", root=root)
    assert made.train["code_source"]["snapshot"]["root_path"] == path


def test_params_files_are_looked_for_in_chdir():
    script = "#!/bin/bash\n#SBATCH -D sub -a 1-2\nA=$(sed -n ${SLURM_ARRAY_TASK_ID}p p.txt)\npython t.py $A"
    made = migrated(script, {"sub/p.txt": "x\ny\n", "p.txt": "wrong\nwrong\n"})
    assert made.sweep["space"] == {"env_variables.A": ["x", "y"]}


def test_a_script_in_another_language_is_run_by_its_interpreter():
    made = migrated("#!/usr/bin/env python3\n#SBATCH -a 1-3\nimport os\n")
    assert made.train["command"].endswith(
        'export SLURM_ARRAY_TASK_ID="$ARRAY_INDEX"\n/usr/bin/env python3 job.sbatch'
    )
    assert made.sweep["space"] == {"env_variables.ARRAY_INDEX": [1, 2, 3]}


def test_a_script_that_is_not_understood_is_kept_whole_and_told():
    made = migrated(HEAD + "python a.py\nselect x in a b; do python $x; done\n")
    assert made.train["command"].endswith("python a.py\nselect x in a b; do python $x; done")
    assert [(finding.line, finding.kind) for finding in made.warnings] == [(4, "not-understood")]


# Resources and settings


@pytest.mark.parametrize(
    ("directives", "kind", "count"),
    [
        ("--gres=gpu:1", "GPU_1xA10", 1), ("--gres=gpu:v100:1", "GPU_1xA10", 1), ("--gres=gpu:H100:1", "GPU_1xH100", 1),
        ("--gres=gpu:a100:1", "GPU_1xH100", 1), ("--gres=gpu:2", "GPU_8xH100", 8), ("-N 3 --gres=gpu:8", "GPU_8xH100", 24),
        ("-N 2", "GPU_1xA10", 2), ("--gres=gpu:1 -C a100", "GPU_1xH100", 1), ("--gres=gpu:rtx_2080_ti:1", "GPU_1xA10", 1),
    ],
)  # fmt: skip
def test_the_nearest_accelerator_is_taken(directives, kind, count):
    compute = migrated(f"#!/bin/bash\n#SBATCH {directives}\nsrun python t.py").train["compute"]
    assert compute == {"accelerator_type": kind, "num_accelerators": count}


def test_an_accelerator_can_be_chosen_and_must_exist():
    made = migrated(HEAD + "python t.py", accelerator="GPU_1xH100")
    assert made.train["compute"] == {"accelerator_type": "GPU_1xH100", "num_accelerators": 1}
    with pytest.raises(SpecError, match="GPU_1xH100"):
        migrated(HEAD, accelerator="H100")


def test_settings_for_slurm_are_complete():
    made = migrated(
        "#!/bin/bash\n#SBATCH -p a,b -A me --qos=high -C 'x&y' --reservation=r --exclusive --nice=5 -c 4\n"
        "#SBATCH --gres=gpu:A100:2 --mem=10G --signal=B:USR1@90 --begin=now+1 --mail-type=END\npython t.py"
    )
    assert made.backend == {
        "type": "slurm", "partition": "a,b", "account": "me", "qos": "high", "constraint": "x&y", "reservation": "r",
        "cpus": 4, "memory": "10G", "gpu_type": "A100", "extra": ["--exclusive", "--nice=5"], "grace": "90s",
        "accelerators": {"GPU_8xH100": {"gpus": 2}},
    }  # fmt: skip
    assert {"begin", "mail", "signal", "partition"} <= {finding.kind for finding in made.warnings}
    assert yaml.safe_load("\n".join(one_run(made.train, made.backend)))["backend"] == made.backend


def test_a_script_without_gpus_asks_slurm_for_none():
    assert migrated("#!/bin/bash\npython t.py").backend["accelerators"] == {"GPU_1xA10": {"cpu": True}}


@pytest.mark.parametrize(("directive", "retries"), [("--requeue", 1), ("--no-requeue", 0), ("-N1", 1)])
def test_a_job_that_must_not_start_again_is_not_retried(directive, retries):
    assert migrated(f"#!/bin/bash\n#SBATCH {directive}\na").train["max_retries"] == retries


def test_the_image_of_pyxis_is_the_environment():
    made = migrated(HEAD + "srun --container-image=nvcr.io#nvidia/pytorch:24.01-py3 python t.py")
    assert made.train["environment"] == {"docker_image": {"url": "nvcr.io/nvidia/pytorch:24.01-py3"}}
    assert made.backend["container"] == "pyxis"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("$USER-exp", "USER-exp"), ("a b/c", "a-b-c"), ("--", "job"), ("x" * 200, "x" * 100), ("größe", "gr-e")],
)
def test_names_are_made_fit(name, wanted):
    made = migrated(f'#!/bin/bash\n#SBATCH -J "{name}" -a 1-2\na')
    assert made.train["experiment_name"] == wanted
    assert made.sweep["name"] == wanted[:64]


def test_without_a_name_it_is_the_files():
    assert migrated("#!/bin/bash\na", name="train-big.v2.sh").train["experiment_name"] == "train-big"


def test_the_throttle_is_a_limit():
    made = migrated("#!/bin/bash\n#SBATCH -a 1-99%7\npython t.py $SLURM_ARRAY_TASK_ID")
    assert made.sweep["limits"] == {"concurrent": 7}
    assert made.sweep["space"] == {"env_variables.ARRAY_INDEX": {"min": 1, "max": 99, "step": 1}}


def test_a_huge_array_has_its_index_as_the_key():
    made = migrated("#!/bin/bash\n#SBATCH -a 0-19999\nA=$((SLURM_ARRAY_TASK_ID * 2))\npython t.py $A")
    assert made.sweep["space"] == {"env_variables.ARRAY_INDEX": {"min": 0, "max": 19999, "step": 1}}


def test_an_array_that_sbatch_refuses_is_told():
    made = migrated("#!/bin/bash\n#SBATCH -a 9-1\npython t.py $SLURM_ARRAY_TASK_ID")
    assert made.sweep is None
    assert {finding.kind for finding in made.warnings} == {"invalid"}


def test_an_index_without_an_array_is_told():
    assert kinds("python t.py $SLURM_ARRAY_TASK_ID") == ["array-missing"]


@pytest.mark.parametrize(
    "body", ["if a; then\n\tpython t.py \nfi", "cat <<-E > f\n\ta\n\tE\npython 'é\u00a0' \"\u2028\"", "a  \n\n\n   b\t"]
)  # fmt: skip
def test_a_command_with_tabs_is_still_readable(body):
    made = migrated(HEAD + body)
    assert yaml.safe_load(made.train_text)["command"] == made.train["command"]
    assert read_train(made.train_text, file="train.yaml").config.command == made.train["command"]
    assert ("|-" in made.train_text) is body.isascii()


def test_every_message_says_where_and_what():
    made = migrated(HEAD + "module load a\nsrun python t.py $DATA &\nwait\nscontrol requeue $SLURM_JOB_ID")
    for finding in (*made.warnings, *made.notes):
        assert finding.line >= 1
        assert re.search(r"[.)]$", finding.message)


# Where environments are, and secrets


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ("", '"/home/me/project/.venv/bin/activate"'),
        ('cd "$SLURM_SUBMIT_DIR"\n', '"/home/me/project/.venv/bin/activate"'),
        ("cd src\n", '"/home/me/project/src/.venv/bin/activate"'),
        ("cd /data/other\n", ".venv/bin/activate"),
        ("cd ~/other\ncd src\n", ".venv/bin/activate"),
        ("cd $WHERE\n", ".venv/bin/activate"),
        ("cd a && ls\n", ".venv/bin/activate"),
    ],
)
def test_an_environment_is_where_the_script_had_gone(before, wanted):
    assert f"  source {wanted}\n" in command(f"{before}source .venv/bin/activate\npython t.py\n")


@pytest.mark.parametrize(
    ("chdir", "wanted"), [("/proj/x/", "/proj/x"), ("sub", "/home/me/project/sub"), (".", "/home/me/project")]
)
def test_an_environment_is_where_the_script_starts(chdir, wanted):
    head = f"{HEAD}#SBATCH --chdir={chdir}\n"
    assert f'source "{wanted}/.venv/bin/activate"' in command("source .venv/bin/activate\npython t.py", head)


@pytest.mark.parametrize("line", ["export WANDB_API_KEY=s3cr3t", "HF_TOKEN='s3cr3t' python t.py"])
def test_a_secret_in_the_script_is_warned_of_and_not_repeated(line):
    (found,) = [each for each in migrated(f"{HEAD}{line}\npython t.py\n").warnings if each.kind == "secret"]
    assert "secrets: {" in found.message
    assert "s3cr3t" not in found.message
    assert found.line == 3


@pytest.mark.parametrize(
    "line",
    ["export HF_TOKEN=$HF_TOKEN", 'export API_KEY="$(cat ~/.key)"', "TOKENIZERS_PARALLELISM=false", "TOKEN="],
)
def test_no_secret_is_seen_where_none_is(line):
    assert "secret" not in kinds(f"{line}\npython t.py\n")


def test_statements_that_go_leave_no_blank_lines():
    body = "A=(x y)\ni=$SLURM_ARRAY_TASK_ID\nV=${A[$((i % 2))]}; i=$((i / 2))\n\n\npython t.py $V\n"
    text = command(body, f"{HEAD}#SBATCH --array=0-1\n")
    assert text.endswith("as before\npython t.py $V")


# Containers and CPUs


@pytest.mark.parametrize(
    "script",
    [
        "srun --container-image=nvcr.io#nvidia/nemo:24.07 --container-mounts=/a:/b,$X:/y,/c python t.py\n",
        "srun --container-image=nvcr.io#nvidia/nemo:24.07 --container-mounts=/a:/b,$X:/y,/c bash -c 'cd x && python t.py'\n",
        "#SBATCH '--container-image=nvcr.io#nvidia/nemo:24.07' --container-mounts=/a:/b,$X:/y,/c\nsrun python t.py\n",
    ],
)
def test_the_container_of_pyxis_is_kept_with_what_it_sees(script):
    made = migrated(HEAD + script)
    assert made.train["environment"] == {"docker_image": {"url": "nvcr.io/nvidia/nemo:24.07"}}
    assert made.backend["container"] == "pyxis"
    assert made.backend["container_mounts"] == ["/a:/b", "/c"]
    assert "container" in {finding.kind for finding in made.warnings}


@pytest.mark.parametrize(
    ("asked", "cpus"),
    [("-N 2 --ntasks-per-node=8", 8), ("-n 4 -c 3", 12), ("-n 32 --ntasks-per-node=16", 16), ("-n 1", None)],
)
def test_the_single_task_of_a_node_gets_the_cpus_of_all(asked, cpus):
    made = migrated(f"#!/bin/bash\n#SBATCH {asked}\nsrun python t.py\n")
    assert made.backend.get("cpus") == cpus
