"""GPUs handed out to trials; none is needed for these tests, only their numbers."""

import os
import signal
from dataclasses import replace

import pytest

from airflows.backends.base import Phase
from airflows.backends.local import LocalBackend, LocalSettings
from airflows.errors import SpecError, SubmitRejectedError, SubmitUnsentError
from airflows.testing.jobs import BackendSuite, MakeJob
from airflows.train import read_train

SHOW = 'echo "<${CUDA_VISIBLE_DEVICES-unset}> $LOCAL_WORLD_SIZE $WORLD_SIZE"; echo started'
HOLD = f"{SHOW}; sleep 600"


@pytest.fixture(autouse=True)
def no_gpus_of_this_machine(clean_env, monkeypatch):
    clean_env.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("airflows.backends.local.gpus.installed_gpus", lambda: ())


@pytest.fixture
def suite():
    return BackendSuite()


@pytest.fixture
def opened(tmp_path):
    def open_backend(**settings):
        return LocalBackend(LocalSettings(grace=1, **settings), tmp_path / "home")

    return open_backend


@pytest.fixture
def make_job(opened):
    return MakeJob(opened())


def train(accelerator_type="GPU_1xA10", count=1, extra=""):
    text = f"""
experiment_name: demo
command: "true"
compute: {{accelerator_type: {accelerator_type}, num_accelerators: {count}}}
{extra}
"""
    return read_train(text, file="train.yaml").config


def shown(suite, backend, handle):
    suite.until_logged(backend, handle, "started")
    return suite.lines(backend, handle)[0]


def end_all(suite, backend, handles):
    backend.cancel(handles)
    for handle in handles:
        suite.end(backend, handle)


def test_each_trial_gets_a_gpu_of_its_own_and_gives_it_back(opened, make_job, suite):
    backend = opened(gpus=2)
    first, second = (suite.start(backend, make_job(HOLD)) for _ in range(2))

    assert {shown(suite, backend, first), shown(suite, backend, second)} == {"<0> 1 1", "<1> 1 1"}
    late = make_job(SHOW)
    assert isinstance(backend.submit([late])[0], SubmitUnsentError)

    freed = shown(suite, backend, first)
    end_all(suite, backend, [first])
    third = suite.start(backend, late)
    assert shown(suite, backend, third) == freed
    end_all(suite, backend, [second])
    suite.end(backend, third)


def test_another_driver_on_the_same_root_does_not_take_a_gpu_that_is_held(opened, make_job, suite):
    one, other = opened(gpus=1), opened(gpus=1)
    handle = suite.start(one, make_job(HOLD))

    assert isinstance(other.submit([make_job(SHOW)])[0], SubmitUnsentError)

    end_all(suite, one, [handle])
    assert suite.end(other, suite.start(other, make_job(SHOW))).exit_code == 0


def test_a_gpu_comes_back_when_the_preamble_was_killed(opened, make_job, suite):
    backend = opened(gpus=1)
    handle = suite.start(backend, make_job(HOLD, timeout_s=600))
    suite.until_logged(backend, handle, "started")

    os.kill(int(handle.split(":")[0]), signal.SIGKILL)
    suite.end(backend, handle)

    assert suite.end(backend, suite.start(backend, make_job(SHOW))).exit_code == 0


def test_the_command_holds_neither_lock(opened, make_job, suite):
    backend = opened(gpus=1)
    handle = suite.start(backend, make_job('echo "$(cd /proc/$BASHPID/fd && echo *)"', timeout_s=600))
    suite.end(backend, handle)

    # 255 is bash's own, for the script it reads.
    assert set(suite.lines(backend, handle)[0].split()) <= {"0", "1", "2", "3", "255"}


def test_nodes_share_the_gpus_of_their_run(opened, make_job, suite):
    backend = opened(gpus=["0", "1", "GPU-c"], accelerators={"GPU_1xA10": {"gpus": 1}})
    handle = suite.start(backend, make_job(SHOW, nodes=2))
    assert suite.end(backend, handle).exit_code == 0

    assert [suite.lines(backend, handle, node)[0] for node in range(2)] == ["<0> 1 2", "<1> 1 2"]


def test_named_gpus_are_handed_out_by_their_names(opened, make_job, suite):
    backend = opened(gpus=["GPU-8c1f", "MIG-77aa"])
    handles = [suite.start(backend, make_job(HOLD)) for _ in range(2)]

    assert [shown(suite, backend, h) for h in handles] == ["<GPU-8c1f> 1 1", "<MIG-77aa> 1 1"]
    end_all(suite, backend, handles)


def test_without_gpus_every_trial_runs_with_a_local_world_of_one(opened, make_job, suite):
    backend = opened()
    handle = suite.start(backend, make_job(SHOW, nodes=2))
    assert suite.end(backend, handle).exit_code == 0

    assert suite.lines(backend, handle)[0] == "<unset> 1 2"
    assert any("LOCAL_WORLD_SIZE 1" in note for note in backend.reach().notes)


def test_a_type_that_runs_on_cpus_sees_no_gpu(opened, make_job, suite):
    backend = opened(gpus=1, accelerators={"GPU_1xA10": {"cpu": True}})
    handles = [suite.start(backend, make_job(SHOW)) for _ in range(2)]

    assert [suite.end(backend, handle).exit_code for handle in handles] == [0, 0]
    assert suite.lines(backend, handles[0])[0] == "<> 1 1"


def test_a_trial_that_needs_more_gpus_than_there_are_is_refused(opened, make_job):
    backend = opened(gpus=2)

    with pytest.raises(SpecError, match="needs 8 GPUs, and 2 may be used") as caught:
        backend.check(train("GPU_8xH100", 8))

    assert caught.value.exit_code == 2
    assert "accelerators: {GPU_8xH100: {gpus: N}}" in caught.value.message
    assert isinstance(backend.submit([make_job("true", nodes=3)])[0], SubmitRejectedError)


def test_what_stands_for_a_type_decides_how_many_gpus_it_gets(opened):
    backend = opened(gpus=2, accelerators={"GPU_8xH100": {"gpus": 1}})

    assert backend.check(train("GPU_8xH100", 16)) == ()


@pytest.mark.parametrize(
    ("settings", "visible", "slots"),
    [
        ({"gpus": 3}, None, 3),
        ({"gpus": 1}, "4,5", 1),
        ({}, "4,5", 2),
        ({}, "4,-1,5", 1),
        ({}, "", len(os.sched_getaffinity(0))),
        ({}, None, len(os.sched_getaffinity(0))),
        ({"gpus": 3, "slots": 7}, None, 7),
    ],
)
def test_slots_are_gpus_else_cpus(opened, monkeypatch, settings, visible, slots):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert opened(**settings).capabilities.slots == slots


def test_gpus_hidden_from_the_driver_stay_hidden_from_trials(opened, make_job, suite, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    backend = opened()
    handle = suite.start(backend, make_job(SHOW))
    assert suite.end(backend, handle).phase is Phase.ENDED

    assert suite.lines(backend, handle)[0] == "<> 1 1"


def test_no_more_runs_go_on_at_once_than_there_are_gpus_for(opened):
    assert opened(gpus=["0", "1", "2", "3", "4"]).room_for(train("GPU_1xH100", 2)) == 2
    assert opened(gpus=["0"]).room_for(train("GPU_1xH100", 1)) == 1
    assert opened(gpus=["0", "1"], slots=1).room_for(train("GPU_1xH100", 1)) == 1


# Packed


def packed(make_job, pack, *, count=1, gpus=1):
    jobs = [replace(make_job(HOLD), pack=pack, accelerators_per_node=gpus) for _ in range(count)]
    return [replace(job, accelerator_type=f"GPU_{gpus}xA10") for job in jobs]


def test_so_many_trials_share_a_gpu_as_are_packed_and_no_more(opened, make_job, suite):
    one, other = opened(gpus=1), opened(gpus=1)
    handles = [suite.start(backend, *packed(make_job, 2)) for backend in (one, other)]

    assert [shown(suite, one, handle) for handle in handles] == ["<0> 1 1", "<0> 1 1"]
    assert isinstance(one.submit(packed(make_job, 2))[0], SubmitUnsentError)

    end_all(suite, one, handles[:1])
    handles.append(suite.start(other, *packed(make_job, 2)))
    end_all(suite, other, handles)


def test_a_gpu_is_not_shared_with_a_trial_that_wants_it_alone(opened, make_job, suite):
    backend = opened(gpus=1)
    sharing = suite.start(backend, *packed(make_job, 2))
    suite.until_logged(backend, sharing, "started")

    assert isinstance(backend.submit([make_job(HOLD)])[0], SubmitUnsentError)

    end_all(suite, backend, [sharing])
    alone = suite.start(backend, make_job(HOLD))
    assert isinstance(backend.submit(packed(make_job, 2))[0], SubmitUnsentError)
    end_all(suite, backend, [alone])


@pytest.mark.parametrize(
    ("pack", "gpus", "expected"),
    [
        (2, 4, ["<0,1> 2 2", "<2,3> 2 2"]),
        (4, 2, ["<0> 1 1", "<0> 1 1", "<1> 1 1", "<1> 1 1"]),
        (2, 3, ["<0,1,2> 3 3", "<0,1,2> 3 3"]),
    ],
)
def test_the_gpus_of_one_trial_are_parted_among_those_packed(opened, make_job, suite, pack, gpus, expected):
    backend = opened(gpus=gpus)
    handles = [suite.start(backend, job) for job in packed(make_job, pack, count=pack, gpus=gpus)]

    assert [shown(suite, backend, handle) for handle in handles] == expected
    assert isinstance(backend.submit(packed(make_job, pack, gpus=gpus))[0], SubmitUnsentError)
    end_all(suite, backend, handles)
