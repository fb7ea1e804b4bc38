"""Whatever the script: files that airflows reads and remarks with lines, or one clear refusal."""

import itertools
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.errors import SpecError
from airflows.migrate import migrate
from airflows.sweepfile import sweep_from_mapping
from airflows.train import read_train
from airflows.vetting import validate_points

DATA = Path(__file__).parents[1] / "data"
KNOWN = [
    *(yaml.safe_load(path.read_text())["script"] for path in sorted((DATA / "sbatch").glob("*.yaml"))),
    *(case["script"] for case in yaml.safe_load((DATA / "sbatch-arrays.yaml").read_text())),
]
DIRECTIVES = [
    "-N 2", "-n 7", "--ntasks-per-node=3", "--gres=gpu:a100:3", "-G 5", "--gpus-per-task=2", "-a 0-6:2%3",
    "--array=3", "-t 1-0", "--mem-per-gpu=3G", "-p x", "-C 'a\"b'", "--comment=é", "-J 'ü x'", "--export=NONE,A=1",
    "-D /x", "-D ../y", "hetjob", "--signal=USR1", "--exclusive", "--nodes=2-3", "-x n[1-2]", "-o '%j \"x'", "--wrap=a",
]  # fmt: skip
LINES = [
    "A=$SLURM_ARRAY_TASK_ID", "B=(1 2 'x y')", "C=${B[$A]}", "export C", "srun python t.py $C", "python t.py --lr ${B[A % 3]}",
    "case $A in 1) C=2;; *) C='é \\';; esac", "while read l; do D=$l; done < p.txt", "set -euo pipefail", "module load x",
    "export MASTER_ADDR=$(hostname)", "wait", "python a.py &", "trap 'scontrol requeue $SLURM_JOB_ID' USR1", "cd $SLURM_SUBMIT_DIR",
    "cat <<E\n$A\nE", "f() { echo $1; }", "f x", "eval $C", "source x.sh", "E=$(sed -n ${A}p p.txt)", "srun -n2 ./a | tee b", "exit 3",
    "echo $SLURM_TMPDIR $USER $DATA $1", "if [ $A = 1 ]; then python b.py; fi", "F=$((A / 0))", "unset A", "export G='a: #b'", "sbatch $0",
]  # fmt: skip


def check(script: str) -> None:
    """Migrate a script and hold it to what every script must bring."""
    files = {"p.txt": "1 2\n- [x\n\ttab\n", "t.py": "SLURM_PROCID"}
    try:
        made = migrate(script, name="a.sh", directory="/d", read=files.get)
        assert read_train(made.train_text, file="train.yaml").config.command == made.train["command"]
        if made.sweep is not None:
            tree = yaml.safe_load(made.sweep_text)
            loaded = sweep_from_mapping(
                {**tree, "base": made.train, "backend": "local"}, directory=Path(tempfile.gettempdir())
            )
            validate_points(loaded)
            assert loaded.expansion.count() == made.carried["array"]["count"]
    except SpecError:
        return
    last = script.replace("\r\n", "\n").count("\n") + 1
    for finding in (*made.warnings, *made.notes):
        assert 1 <= finding.line <= last
        assert finding.kind
        assert finding.message


@given(st.text(max_size=200))
def test_any_text(text):
    check(text)


@given(st.lists(st.sampled_from(DIRECTIVES), max_size=5), st.lists(st.sampled_from(LINES), max_size=7))
@settings(deadline=None)
def test_any_script_of_known_lines(directives, lines):
    check("\n".join(["#!/bin/bash", *(f"#SBATCH {each}" for each in directives), *lines]))


@given(
    st.sampled_from(KNOWN),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["", "\n", "'", '"', "$", "(", ")", "{", "\\", "`", ";", "#", "é"])), max_size=4),
)  # fmt: skip
@settings(deadline=None)
def test_any_script_with_some_characters_changed(script, changes):
    for where, text in changes:
        at = int(where * len(script))
        script = script[:at] + text + script[at + 1 :]
    check(script)


@pytest.mark.parametrize(
    "script",
    ["", "\n", "#!", "#!/bin/bash", "#!/bin/bash\n#SBATCH", "\ufeff#!/bin/bash\n", "#!/bin/bash\r\n#SBATCH -N 2\r\npython t.py\r\n", "#!/bin/bash\n" + "a;" * 3000],
)  # fmt: skip
def test_odd_scripts(script):
    check(script)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(LINES[:12], LINES[12:16])))
def test_pairs_of_lines_in_an_array(one, other):
    check(f"#!/bin/bash\n#SBATCH -a 0-2 -N 2 --gres=gpu:8\n{one}\n{other}\npython t.py $A $C\n")
