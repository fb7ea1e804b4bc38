"""What every backend must do, done on a fake Databricks workspace that really runs the commands."""

import time
from dataclasses import replace

import pytest

from airflows.backends.base import Phase
from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.testing.contract import BackendContract
from airflows.testing.workspace import FakeWorkspace


@pytest.fixture
def workspace(monkeypatch):
    with FakeWorkspace(execute=True, clock_scale=1.0, default={"queue_s": 0.0}) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


class TestDatabricksBackend(BackendContract):
    # Its looks are a second apart, by a clock that need not be the real one.
    @pytest.fixture
    def reopen(self, tmp_path, workspace):
        del workspace
        settings = DatabricksSettings(patience=5)
        return lambda: DatabricksBackend(settings, tmp_path / "home", clock=lambda: 20 * time.time())

    @pytest.fixture
    def backend(self, reopen):
        return reopen()

    def test_secrets_are_resolved_on_the_node(self, workspace, backend, make_job):
        workspace.world.secrets["nlp"] = {"hf-token": "s3cret"}
        rows = b'[{"name": "HF_TOKEN", "secret_scope": "nlp", "secret_key": "hf-token"}]'
        job = make_job('echo "<$HF_TOKEN>"')
        job = replace(job, files={**job.files, "secret_env_vars.json": rows})
        handle = self.start(backend, job)
        self.end(backend, handle)

        assert self.lines(backend, handle) == ["<s3cret>"]

    def test_parameters_reach_the_command_as_a_file(self, backend, make_job):
        job = make_job('cat "$HYPERPARAMETERS_PATH"')
        job = replace(job, files={**job.files, "hyperparameters.yaml": b"lr: 0.1\nname: 'a $b'\n"})
        shared, own = job, replace(make_job('cat "$HYPERPARAMETERS_PATH"'), files=job.files, is_single=True)
        for each in (shared, own):
            handle = self.start(backend, each)
            assert self.end(backend, handle).exit_code == 0
            assert self.lines(backend, handle) == ["lr: 0.1", "name: 'a $b'"]

    def test_the_code_is_unpacked_on_the_node(self, backend, make_job, tmp_path):
        code = tmp_path / "snapshots" / ("0f" * 32) / "src"
        code.mkdir(parents=True)
        (code / "fit.sh").write_text("echo fitted\n")
        job = replace(make_job('cd "$CODE_SOURCE_PATH"; basename "$PWD"; bash fit.sh'), code=code)
        handle = self.start(backend, job)
        self.end(backend, handle)

        assert self.lines(backend, handle) == ["src", "fitted"]

    def test_the_mlflow_run_of_an_attempt_is_told(self, workspace, backend, make_job):
        handle = self.start(backend, make_job("sleep 0.3"))

        seen = self.until(backend, handle, Phase.RUNNING, Phase.ENDED)

        assert seen.mlflow_run_id == workspace.runs[0].last.mlflow_run_id != ""
        assert self.end(backend, handle).mlflow_run_id == seen.mlflow_run_id

    def test_an_attempt_resumes_from_a_volume(self, workspace, backend, make_job):
        directory = "/Volumes/main/ml/runs/checkpoints/lr/0"
        place = workspace.world.files.place(f"{directory}/checkpoint-7")
        place.mkdir(parents=True)
        (place / "trainer_state.json").write_text("{}")
        job = make_job(
            'basename "$AIRFLOWS_RESUME_FROM"', attempt=1, env={"AIRFLOWS_CHECKPOINT_DIR": directory}
        )
        handle = self.start(backend, replace(job, checkpoint_dir=directory))
        seen = self.end(backend, handle)

        assert self.lines(backend, handle) == ["checkpoint-7"]
        assert seen.resumed_from.endswith("/checkpoint-7")
        assert backend.newest_checkpoint(directory, "") == (f"{directory}/checkpoint-7", 7)
        assert backend.newest_checkpoint("/Volumes/main/ml/none", "") is None
        assert backend.newest_checkpoint("/tmp/elsewhere", "") is None  # noqa: S108
