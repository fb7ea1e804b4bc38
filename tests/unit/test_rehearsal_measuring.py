"""What is measured of a rehearsal: memory, and whether a file was read."""

import os
import subprocess
import sys

from airflows.backends.local.memory import memory_of, used_by
from airflows.backends.slurm.memory import largest_steps
from airflows.engine.accesstimes import was_read


def test_the_memory_of_all_processes_of_an_attempt_is_seen(tmp_path):
    holds = "import sys; held = bytearray(60_000_000); print('ready', flush=True); sys.stdin.read()"
    env = {**os.environ, "AIRFLOWS_LAUNCH_DIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    two = [subprocess.Popen([sys.executable, "-c", holds], env=env, **pipes) for _ in range(2)]
    try:
        for process in two:
            process.stdout.readline()

        used = memory_of(str(tmp_path))
    finally:
        for process in two:
            process.communicate()

    assert used.host_bytes > 120_000_000
    assert memory_of(str(tmp_path)).host_bytes is None


def test_gpu_memory_is_that_of_the_attempts_own_processes():
    answer = "7, 512\n8, 256\n9, 1024\n"

    assert used_by({7, 8}, answer) == 768 * 2**20
    assert used_by({10}, answer) is None
    assert used_by({7}, "7, [N/A]\n") is None


def test_slurm_tells_the_largest_step_of_each_task():
    text = "7_0|\n7_0.batch|1024K\n7_0.0|1.50M\n7_1|\n7_1.batch|0\n7_2.extern|2G\n"

    assert largest_steps(text) == {"7_0": 1536 * 1024, "7_2": 2**31}


def test_a_file_that_was_read_is_known(tmp_path):
    path = tmp_path / "hyperparameters.yaml"
    path.write_text("lr: 0.1")
    before = was_read(path)
    written = path.stat().st_mtime_ns
    os.utime(path, ns=(written, written))
    path.read_bytes()
    after = was_read(path)

    # Nobody can tell where access times are not kept.
    assert (before, after) in {(False, True), (None, None)}
    assert was_read(tmp_path / "other") is None
