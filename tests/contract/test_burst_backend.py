"""What every backend must do, done on two places: a fake one first, and this machine."""

from dataclasses import replace

import pytest

from airflows.backends.base import Phase
from airflows.backends.burst import BurstBackend, BurstSettings
from airflows.backends.local import LocalBackend, LocalSettings
from airflows.backends.places import place_named, places_of
from airflows.backends.registry import open_backend
from airflows.errors import BackendUnavailableError, SpecError, SubmitAmbiguousError
from airflows.testing.cluster import Cluster
from airflows.testing.contract import BackendContract, PlaceContract
from airflows.testing.fake import FakeBackend, FakeCluster
from airflows.testing.jobs import MakeJob
from airflows.train import decode

SETTINGS = {
    "first": {"type": "fake", "concurrent": 1},
    "then": {"type": "local", "compute": {"num_accelerators": 2}},
}
CONFIG = decode(
    {
        "experiment_name": "lr",
        "command": "true",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    }
)


@pytest.fixture
def fake(tmp_path):
    return FakeBackend(FakeCluster(), tmp_path / "fake")


@pytest.fixture
def reopen(tmp_path, fake):
    def open_one(options, home):
        return fake if options["type"] == "fake" else LocalBackend(LocalSettings(**options), home)

    return lambda: BurstBackend(BurstSettings(**SETTINGS), tmp_path / "home", open_one=open_one)


class TestLocalBehindAnother(BackendContract):
    @pytest.fixture
    def backend(self, reopen):
        return reopen()

    @pytest.fixture
    def reopen(self, reopen):
        return reopen

    @pytest.fixture
    def make_job(self, backend):
        make = MakeJob(backend, self.accelerator_type)
        return lambda *given, **fields: replace(make(*given, **fields), place="local")


class TestKubernetesBehindLocal(PlaceContract):
    @pytest.fixture
    def reopen(self, tmp_path):
        with Cluster(namespaces=["ml"], execute=True, clock_scale=1) as cluster:
            kubernetes = {"type": "kubernetes", "kubeconfig": str(cluster.kubeconfig), "image": "python:3.11"}
            settings = BurstSettings(first="local", then=kubernetes)
            yield lambda: BurstBackend(settings, tmp_path / "home")

    @pytest.fixture
    def backend(self, reopen):
        return reopen()

    @pytest.fixture
    def make_job(self, backend):
        make = MakeJob(backend, self.accelerator_type)
        return lambda *given, **fields: replace(make(*given, **fields), place="kubernetes")


def jobs_for(backend, *places):
    make = MakeJob(backend)
    return [replace(make("true"), place=place) for place in places]


def test_each_job_goes_to_its_place_and_each_handle_tells_where_it_is_from(reopen):
    backend = reopen()
    jobs = jobs_for(backend, "local", "fake", "")

    handles = backend.submit(jobs)

    assert [handle.partition(":")[0] for handle in handles] == ["local", "fake", "fake"]
    assert len(backend.find([job.token for job in jobs])) == 3
    assert set(backend.poll(handles)) == set(handles)


def test_a_place_that_does_not_answer_leaves_its_own_jobs_in_doubt(reopen, fake):
    fake.away = True
    backend = reopen()

    lost, accepted = backend.submit(jobs_for(backend, "fake", "local"))

    assert isinstance(lost, SubmitAmbiguousError)
    assert backend.poll([accepted])[accepted].phase in {Phase.RUNNING, Phase.ENDED}
    with pytest.raises(BackendUnavailableError):
        backend.find([])


def test_each_place_has_its_own_room_and_compute(reopen):
    backend = reopen()
    first, second = places_of(backend)

    assert backend.room_at(first, CONFIG) == 1
    assert backend.room_for(CONFIG) == 1 + second.own.room_for(CONFIG)
    assert (first.compute, second.compute) == ({}, {"num_accelerators": 2})
    assert place_named(backend, "elsewhere") is first
    assert not backend.capabilities.idempotent_submit


def test_a_place_is_checked_with_the_compute_that_it_has(tmp_path, reopen, monkeypatch):
    checked = []
    monkeypatch.setattr(LocalBackend, "check", lambda _self, config, _dir: checked.append(config) or ["so"])

    notes = reopen().check(CONFIG, tmp_path)

    assert notes == ["local: so"]
    assert [config.compute.num_accelerators for config in checked] == [2]


def test_all_places_must_be_reached_to_begin_with(reopen, fake):
    assert reopen().reach().available
    fake.away = True

    assert reopen().reach().why_not == "fake: it is away"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Say where trials go `first`"),
        ({"first": "local"}, "Say where trials go `first`"),
        ({"first": "local", "then": "local"}, "2 places are called local"),
        ({"first": "local", "then": {"type": "burst"}}, "several places itself"),
        ({"first": {"type": "local", "slotz": 2}, "then": "slurm"}, "backend.first.slotz: .*slots"),
        ({"first": "slurm", "then": ["local", {"type": "loca"}]}, "backend.then.1: .*local"),
        ({"first": {"type": "local", "compute": {"gpus": 2}}, "then": "slurm"}, "backend.first.compute.gpus"),
        ({"first": {"type": "local", "concurrent": 0}, "then": "slurm"}, "backend.first.concurrent"),
        ({"first": "local", "then": "slurm", "after": "soon"}, "backend.after"),
    ],
)
def test_what_is_wrong_with_a_place_is_told_with_where_it_stands(tmp_path, given, message):
    with pytest.raises(SpecError, match=message):
        open_backend({"type": "burst", **given}, tmp_path)
