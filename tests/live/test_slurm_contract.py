"""What every backend must do, done by a real Slurm."""

import os
from dataclasses import replace

import pytest

from airflows.backends.slurm import SlurmBackend, SlurmSettings
from airflows.testing.contract import BackendContract

pytestmark = pytest.mark.live


@pytest.mark.usefixtures("slurm")
class TestSlurmBackend(BackendContract):
    patience_s = 90.0

    # The space: quoting is proved on the real thing.
    @pytest.fixture
    def reopen(self, tmp_path):
        return lambda: SlurmBackend(SlurmSettings(grace=2, patience=10), tmp_path / "a home")

    @pytest.fixture
    def backend(self, reopen):
        return reopen()

    def test_a_token_submitted_twice_is_one_run(self, backend, make_job, tmp_path):
        runs = tmp_path / "runs.txt"
        job = make_job(f"echo once >>{runs}; sleep 1")

        handles = [self.start(backend, job) for _ in range(2)]

        assert [self.end(backend, handle).exit_code for handle in handles] == [0, 0]
        assert runs.read_text() == "once\n"

    def test_secrets_are_read_on_the_node(self, backend, make_job, tmp_path):
        secrets = tmp_path / "a home" / "secrets.env"
        secrets.parent.mkdir(exist_ok=True)
        secrets.write_text("# tokens\nNLP__OTHER=no\n export NLP__HF_TOKEN = 'a b$c' \n")
        job = replace(make_job('echo "<$HF_TOKEN>"'), secrets={"HF_TOKEN": "nlp/hf-token"})
        handle = self.start(backend, job)
        self.end(backend, handle)

        assert self.lines(backend, handle) == ["<a b$c>"]

    def test_gpus_of_a_node_are_asked_for_and_told(self, make_job, tmp_path):
        place = {"gpus": 2, "gpu_type": "a100", "gpu_style": "gpus-per-node"}
        settings = SlurmSettings(patience=10, accelerators={"GPU_8xH100": place})
        backend = SlurmBackend(settings, tmp_path / "a home")
        job = make_job('echo "$CUDA_VISIBLE_DEVICES $LOCAL_WORLD_SIZE $WORLD_SIZE"')
        job = replace(job, accelerator_type="GPU_8xH100", accelerators_per_node=8)
        handle = self.start(backend, job)
        self.end(backend, handle)

        (line,) = self.lines(backend, handle)
        devices, *sizes = line.split()
        assert (len(devices.split(",")), sizes) == (2, ["2", "2"])

    def test_a_container_runs_the_command(self, make_job, tmp_path, clean_env):
        commands = tmp_path / "bin"
        commands.mkdir()
        (commands / "apptainer").write_text('#!/bin/bash\necho "in ${*: -6:1}"; exec "${@: -4}"\n')
        (commands / "apptainer").chmod(0o755)
        clean_env.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
        backend = SlurmBackend(SlurmSettings(container="apptainer", patience=10), tmp_path / "a home")
        image = b"environment: {docker_image: {url: example.org/image:1}}\n"
        job = make_job("echo done")
        job = replace(job, files={**job.files, "training_config.yaml": image})
        handle = self.start(backend, job)
        self.end(backend, handle)

        assert self.lines(backend, handle)[-1] == "done"
        assert self.lines(backend, handle)[0].startswith("in ")
