"""What runs on the node, in a shell of this machine with the variables that Slurm would set."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflows.backends.slurm.remains import read_exit
from airflows.backends.slurm.script import Paths, Shape, script
from airflows.backends.slurm.settings import SlurmSettings
from airflows.backends.slurm.tools import install

SHAPE = Shape(1, 0, "GPU_1xA10", None, "")


@dataclass
class Node:
    """A directory that a node sees, and one attempt in it."""

    root: Path

    @property
    def launch_dir(self) -> Path:
        return self.root / "runs" / "0"

    @property
    def exit(self) -> dict:
        return json.loads((self.launch_dir / "exit.json").read_text())

    def write(self, command: str, variables: str = "") -> None:
        (self.launch_dir / "logs").mkdir(parents=True)
        (self.root / "claims").mkdir()
        (self.root / "batch").mkdir()
        (self.root / "batch" / "tasks").write_text(f"t-0a1b2c-0000-a0\t{self.launch_dir}\n")
        (self.launch_dir / "command.sh").write_text(command)
        (self.launch_dir / "environment.sh").write_text(f"work_dir='{self.launch_dir}'\n{variables}")
        install(self.root / "tools")

    def run(
        self, restart: int = 0, settings: SlurmSettings | None = None, **env
    ) -> subprocess.CompletedProcess:
        paths = Paths(
            self.root, self.root / "batch", self.root / "tools", self.root / "secrets.env", "python3"
        )
        (self.root / "script.sh").write_text(script([], SHAPE, settings or SlurmSettings(), paths))
        slurm = {
            "SLURM_ARRAY_JOB_ID": "7",
            "SLURM_ARRAY_TASK_ID": "0",
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": "n1",
        }
        slurm |= {"SLURM_RESTART_COUNT": str(restart)} if restart else {}
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", **slurm, **env}
        return subprocess.run(
            ["bash", self.root / "script.sh"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path / "a root")


def test_the_exit_file_says_what_became_of_the_command(node):
    node.write("exit 3")
    done = node.run()

    assert done.returncode == 3
    assert {name: node.exit[name] for name in ("exit_code", "word", "task", "host", "node")} == {
        "exit_code": 3,
        "word": "",
        "task": "7_0",
        "host": "n1",
        "node": 0,
    }


def test_the_command_gets_its_own_locale_and_not_that_of_the_batch_shell(node):
    node.write('echo "<${LC_ALL-none} ${LANG-}>"')

    assert node.run(LANG="C.UTF-8").stdout == "<none C.UTF-8>\n"


def test_a_locale_that_is_inherited_reaches_the_command(node):
    node.write('echo "<${LC_ALL-none}>"')

    assert node.run(settings=SlurmSettings(inherit=["LC_ALL"]), LC_ALL="C.UTF-8").stdout == "<C.UTF-8>\n"


def test_a_second_copy_leaves_without_touching_anything(node):
    node.write("echo again >>ran; exit 0")
    node.run()
    before = node.exit
    done = node.run()

    assert done.returncode == 76
    assert (node.launch_dir / "ran").read_text() == "again\n"
    assert node.exit == before


def test_a_job_that_slurm_starts_again_forgets_its_earlier_end(node):
    node.write('[ "$AIRFLOWS_TOKEN" ] && [ ! -e exit.json ] && [ ! -e failed ]')
    (node.launch_dir / "exit.json").write_text('{"exit_code": 0}')
    (node.launch_dir / "failed").write_text("1 1\n")
    node.run(restart=1)

    assert (node.exit["exit_code"], node.exit["restart"]) == (0, 1)


def test_a_node_without_the_root_ends_with_a_code_of_its_own(node):
    node.write("exit 0")
    (node.root / "tools").rename(node.root / "gone")

    assert node.run().returncode == 64


def test_a_node_without_the_launch_directory_says_so(node):
    node.write("exit 0")
    node.launch_dir.rename(node.root / "gone")
    done = node.run()

    assert done.returncode == 64
    assert "is it on a shared disk?" in done.stderr


def test_a_checkpoint_of_any_name_leaves_an_exit_file_that_can_be_read(node):
    checkpoints = node.root / "checkpoints"
    node.write("exit 0", f"export AIRFLOWS_CHECKPOINT_DIR='{checkpoints}'\n")
    name = b'a "b" \\ \xff.pt'
    checkpoints.mkdir()
    (checkpoints / os.fsdecode(name)).write_text("weights")
    os.utime(checkpoints / os.fsdecode(name), (1, 1))
    node.run()

    left = read_exit(node.launch_dir)
    assert left["exit_code"] == 0
    assert left["resumed_from"] == f"{checkpoints}/{name.decode('utf-8', 'replace')}"
