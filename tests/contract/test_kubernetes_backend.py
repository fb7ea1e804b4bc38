"""What every backend must do, done on a fake Kubernetes cluster that really runs the commands."""

import random
import time
from dataclasses import replace

import pytest

from airflows.backends.base import Phase
from airflows.backends.kubernetes import KubernetesBackend, KubernetesSettings
from airflows.errors import SubmitRejectedError
from airflows.testing.cluster import Cluster
from airflows.testing.contract import BackendContract


@pytest.fixture
def cluster():
    with Cluster(namespaces=["ml"], execute=True, clock_scale=1) as made:
        yield made


def settings_for(cluster, **options):
    return KubernetesSettings(kubeconfig=cluster.kubeconfig, image="python:3.11", patience=5, **options)


def job_of(handle):
    return handle.partition("@")[0]


class TestKubernetesBackend(BackendContract):
    # A Job's times are whole seconds.
    clock_skew_s = 3.0

    @pytest.fixture
    def reopen(self, tmp_path, cluster):
        settings = settings_for(cluster, grace="5s")
        # Its looks are a second apart, by a clock that need not be the real one.
        return lambda: KubernetesBackend(settings, tmp_path / "home", clock=lambda: 20 * time.time())

    @pytest.fixture
    def backend(self, reopen):
        return reopen()

    def test_secrets_are_references_and_reach_the_command(self, cluster, backend, make_job):
        cluster.put("secrets", {"metadata": {"name": "nlp"}, "data": {"hf-token": "czNjcmV0"}})
        job = replace(make_job('echo "<$HF_TOKEN>"'), secrets={"HF_TOKEN": "nlp/hf-token"})
        handle = self.start(backend, job)
        self.end(backend, handle)

        assert self.lines(backend, handle) == ["<s3cret>"]
        assert "s3cret" not in str(cluster.get("jobs", job_of(handle)))

    def test_parameters_reach_the_command_as_a_file(self, backend, make_job):
        job = make_job('cat "$HYPERPARAMETERS_PATH"; ls "$AIRFLOWS_LAUNCH_DIR"')
        text = b"lr: 0.1\nname: 'a $(b) $$'\n"
        handle = self.start(backend, replace(job, files={**job.files, "hyperparameters.yaml": text}))
        self.end(backend, handle)

        assert self.lines(backend, handle) == [
            "lr: 0.1",
            "name: 'a $(b) $$'",
            "command.sh",
            "hyperparameters.yaml",
            "training_config.yaml",
        ]

    def code(self, tmp_path, size=0):
        code = tmp_path / "snapshots" / ("0f" * 32) / "src"
        code.mkdir(parents=True)
        (code / "fit.sh").write_text("echo fitted\n")
        (code / "data.bin").write_bytes(random.Random(0).randbytes(size))
        return code

    @pytest.mark.parametrize("size", [10, 1_500_000])
    def test_code_comes_in_config_maps(self, cluster, backend, make_job, tmp_path, size):
        command = 'cd "$CODE_SOURCE_PATH"; basename "$PWD"; bash fit.sh; wc -c <data.bin; touch new'
        job = replace(make_job(command), code=self.code(tmp_path, size))
        handle = self.start(backend, job)
        self.end(backend, handle)

        assert self.lines(backend, handle) == ["src", "fitted", str(size)]
        maps = [one["metadata"]["name"] for one in cluster.list("configmaps")]
        assert len([name for name in maps if "-code-" in name]) == 1 + size // 900_000

    def test_code_that_is_too_large_is_refused_with_advice(self, backend, make_job, tmp_path):
        (answer,) = backend.submit([replace(make_job("true"), code=self.code(tmp_path, 5_000_000))])

        assert isinstance(answer, SubmitRejectedError)
        assert "more than 4.5 MB when packed" in str(answer)
        assert "backend.pvc" in str(answer)

    def test_damaged_code_is_told(self, cluster, backend, make_job, tmp_path):
        job = replace(make_job("true"), code=self.code(tmp_path))
        self.end(backend, self.start(backend, job))
        (spoiled,) = [one for one in cluster.list("configmaps") if "-code-" in one["metadata"]["name"]]
        cluster.put("configmaps", {**spoiled, "binaryData": {"part": "AAAA"}})

        seen = self.end(backend, self.start(backend, replace(make_job("true"), code=job.code)))

        assert (seen.exit_code, seen.word) == (65, "CODE_DAMAGED")

    def volume(self, cluster, tmp_path, **options):
        claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}
        cluster.put("persistentvolumeclaims", claim)
        pvc = {"claim": "data", "mount": "/mnt/ml", **options}
        settings = settings_for(cluster, pvc=pvc)
        return KubernetesBackend(settings, tmp_path / "home", clock=lambda: 20 * time.time())

    def test_code_is_put_on_a_volume_that_this_machine_sees(self, cluster, make_job, tmp_path):
        backend = self.volume(cluster, tmp_path, local=cluster.claim("data"))
        job = replace(make_job('bash "$CODE_SOURCE_PATH/fit.sh"'), code=self.code(tmp_path, 5_000_000))
        handle = self.start(backend, job)

        assert self.end(backend, handle).exit_code == 0
        assert self.lines(backend, handle) == ["fitted"]
        assert (cluster.claim("data") / "snapshots" / ("0f" * 32) / "src" / "fit.sh").is_file()

    def test_an_attempt_resumes_from_a_volume(self, cluster, make_job, tmp_path):
        there = cluster.claim("data")
        backend = self.volume(cluster, tmp_path, local=there)
        directory = f"{backend.checkpoint_root}/lr-000000/0"
        first = """
            mkdir -p "$AIRFLOWS_CHECKPOINT_DIR/checkpoint-7"
            echo "{}" >"$AIRFLOWS_CHECKPOINT_DIR/checkpoint-7/trainer_state.json"; exit 1
        """
        env = {"AIRFLOWS_CHECKPOINT_DIR": directory}
        ends = [
            self.end(backend, self.start(backend, replace(make_job(command, attempt=number, env=env))))
            for number, command in enumerate((first, 'basename "$AIRFLOWS_RESUME_FROM"'))
        ]

        assert [seen.exit_code for seen in ends] == [1, 0]
        assert ends[1].resumed_from.endswith("/lr-000000/0/checkpoint-7")
        assert backend.newest_checkpoint(directory, "") == (f"{directory}/checkpoint-7", 7)
        assert backend.newest_checkpoint(f"{directory}/none", "") is None
        assert self.volume(cluster, tmp_path).newest_checkpoint(directory, "") is None

    def test_nodes_find_each_other_through_a_service_that_goes_with_the_job(self, cluster, backend, make_job):
        handle = self.start(backend, make_job("sleep 600", nodes=2))
        self.until(backend, handle, Phase.RUNNING)
        (service,) = cluster.list("services")

        assert service["spec"]["clusterIP"] == "None"
        assert service["metadata"]["name"] == job_of(handle)
        backend.cancel([handle])
        self.end(backend, handle)
        assert cluster.list("services") == []

    def test_work_that_was_saved_and_left_off_is_not_done(self, cluster, backend, make_job):
        command = "trap 'echo saved; exit 0' TERM; echo started; while :; do sleep 0.05 || :; done"
        handle = self.start(backend, make_job(command))
        self.until_logged(backend, handle, "started")
        cluster.pods.preempt(job_of(handle))

        seen = self.end(backend, handle)

        assert (seen.exit_code, seen.word) == (143, "PREEMPTED")

    def test_what_the_cluster_has_is_listed(self, backend, make_job, reopen):
        handle, ended = (self.start(backend, make_job(command)) for command in ("sleep 600", "true"))
        self.until(backend, handle, Phase.RUNNING)
        self.end(backend, ended)

        (run,) = reopen().remote_runs()

        assert (run.handle, run.token, run.phase, run.word) == (
            handle,
            job_of(handle),
            Phase.RUNNING,
            "RUNNING",
        )
        assert run.host == "node1"
        assert run.submitted_at <= run.started_at
        backend.cancel([handle])
        self.end(backend, handle)

    def test_the_log_of_a_run_past_its_limit_is_kept(self, cluster, backend, make_job):
        command = "trap 'echo saving; exit 1' TERM; echo started; while :; do sleep 0.05 || :; done"
        handle = self.start(backend, make_job(command, timeout_s=4))
        self.until(backend, handle, Phase.RUNNING)
        self.end(backend, handle)

        found = self.lines(backend, handle)

        assert (found[0], found[-1]) == ("started", "saving")
        assert list(cluster.pods.list(job=job_of(handle))) == []
