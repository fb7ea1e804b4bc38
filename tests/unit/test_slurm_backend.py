"""The Slurm backend with commands that say what the test wants: what it asks, notes, lists and refuses."""

import os
import pwd
from pathlib import Path
from socket import gethostname

import pytest

from airflows.backends.base import ListsRuns, Phase
from airflows.backends.slurm import SlurmBackend, SlurmSettings
from airflows.backends.slurm import backend as module
from airflows.errors import BackendUnavailableError, SpecError
from airflows.train import decode
from airflows.trial import Handle

BASE = {
    "experiment_name": "e",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
}
CONFIG = (
    "SLURM_VERSION = 22.05.8\nMaxArraySize = 11\nMaxJobCount = 1000\nAccountingStorageType = x/slurmdbd\n"
)


@pytest.fixture
def commands(tmp_path, clean_env) -> Path:
    """An empty PATH but for `timeout`; `say` puts commands there."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "timeout").symlink_to("/usr/bin/timeout")
    clean_env.setenv("PATH", str(directory))
    return directory


@pytest.fixture
def say(commands):
    def put(name: str, out: str = "", *, err: str = "", code: int = 0) -> None:
        (commands / f"{name}.out").write_text(out)
        (commands / f"{name}.err").write_text(err)
        text = f'#!/bin/sh\necho "$*" >>{commands}/{name}.calls\n'
        text += f'while IFS= read -r l; do echo "$l"; done <{commands}/{name}.out\n'
        text += f'while IFS= read -r l; do echo "$l"; done <{commands}/{name}.err >&2\nexit {code}\n'
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)

    for name in ("sbatch", "squeue", "scancel", "sinfo"):
        put(name)
    put("scontrol", CONFIG)
    return put


@pytest.fixture
def user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def backend(tmp_path: Path, **settings) -> SlurmBackend:
    return SlurmBackend(SlurmSettings.model_validate(settings), tmp_path / "home")


@pytest.mark.usefixtures("commands")
def test_missing_commands_are_named_before_anything_is_asked(tmp_path):
    reach = backend(tmp_path).reach()

    assert not reach.available
    assert reach.why_not.startswith("sbatch, squeue, scancel, scontrol not found")


@pytest.mark.usefixtures("say")
def test_a_single_missing_command_is_named(commands, tmp_path):
    (commands / "scancel").unlink()

    assert backend(tmp_path).reach().why_not.startswith("scancel not found")


def test_a_machine_that_belongs_to_no_cluster_is_told_so(say, tmp_path):
    say("scontrol", err="scontrol: fatal: Could not establish a configuration source\n", code=1)

    assert "Could not establish a configuration source" in backend(tmp_path).reach().why_not


POLICY = "allocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("allocation failure: Invalid account or account/partition combination specified", "Invalid account"),
        (f"sbatch: error: QOSMaxCpuPerJobLimit\n{POLICY}", "QOSMaxCpuPerJobLimit"),
        ("sbatch: error: invalid partition specified: nosuch", "invalid partition"),
    ],
)
def test_what_slurm_would_refuse_is_an_error_of_the_file(say, tmp_path, words, shown):
    say("sbatch", err=f"{words}\n", code=1)

    with pytest.raises(SpecError, match=shown) as caught:
        backend(tmp_path).check(decode(BASE))
    assert caught.value.exit_code == 2


def test_a_queue_that_is_full_now_is_no_reason_to_refuse_a_sweep(say, tmp_path):
    say("sbatch", err=f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}\n", code=1)

    assert backend(tmp_path).check(decode(BASE)) == ()


def test_a_root_on_a_disk_of_this_machine_is_said_where_other_machines_run(say, tmp_path):
    say("sinfo", "n2 node2.example.org\nn1 localhost\n")

    (note,) = backend(tmp_path).check(decode(BASE))

    assert "the nodes (n2) must see it" in note


@pytest.mark.parametrize("nodes", ["n1 localhost\n", "n1 127.0.0.1\n", f"{gethostname()} 10.1.2.3\n", ""])
def test_nothing_is_said_of_the_root_where_the_cluster_is_this_machine(say, tmp_path, nodes):
    say("sinfo", nodes)

    assert backend(tmp_path).check(decode(BASE)) == ()


def test_nothing_is_said_of_a_root_on_a_network_file_system(say, tmp_path, monkeypatch):
    say("sinfo", "node2 node2\n")
    monkeypatch.setattr(module, "is_on_network", lambda _: True)

    assert backend(tmp_path).check(decode(BASE)) == ()


def test_the_smallest_of_the_sites_limits_is_the_most_in_the_queue(say, tmp_path, user):
    say("scontrol", f"{CONFIG}\nClusterName=x UserName={user}(7) ID=2\n    MaxSubmitJobs=50(0) MaxWallPJ=\n")

    can = backend(tmp_path).capabilities

    assert (can.max_batch, can.slots, can.queues_itself) == (50, 50, True)
    assert backend(tmp_path, queue=7).capabilities.max_batch == 7


def test_where_the_controller_keeps_limits_to_itself_the_accounts_tell_them(say, tmp_path):
    say("sacctmgr", "\n70\n50\n")

    can = backend(tmp_path).capabilities

    assert (can.max_batch, can.slots, can.queues_itself) == (50, 50, True)
    assert backend(tmp_path, queue=7).capabilities.max_batch == 7


@pytest.mark.usefixtures("say")
def test_limits_are_learnt_once(commands, tmp_path):
    made = backend(tmp_path)
    for _ in range(3):
        made.reach()
        assert made.capabilities.max_batch == 1000
        made.room_for(decode(BASE))

    assert (commands / "scontrol.calls").read_text().count("show config") == 1


# What squeue shows


def test_it_lists_what_bears_a_name_of_ours_and_nothing_else(say, commands, tmp_path):
    ours = "digits-lr-0a1b2c-b01234567"
    rows = [
        f"7|0|RUNNING|100|110|N/A|n[2-3]|None|{ours}",
        f"7|1|PENDING|100|900|N/A||Priority|{ours}",
        "8|0|RUNNING|100|110|N/A|n1|None|somebody-elses",
        "9|0|PENDING|100|N/A|N/A||JobHeldUser|run-0a1b2c-b0123456x",
    ]
    say("squeue", "".join(f"{row}\n" for row in rows))
    made = backend(tmp_path)
    directory = tmp_path / "home" / "batches" / "digits-lr-0a1b2c" / ours
    directory.mkdir(parents=True)
    (directory / "tasks").write_text("digits-lr-0a1b2c-0004-a1\t/x\n")

    running, waiting = made.remote_runs()

    assert isinstance(made, ListsRuns)
    assert (running.handle, running.token) == (f"7_0@{ours}", "digits-lr-0a1b2c-0004-a1")
    assert (running.phase, running.word, running.host, running.started_at) == (
        Phase.RUNNING,
        "RUNNING",
        "n2",
        110,
    )
    assert (waiting.phase, waiting.detail, waiting.token) == (Phase.QUEUED, "Slurm says Priority", "")
    assert waiting.started_at is None
    assert "--me" in (commands / "squeue.calls").read_text()


def test_a_queue_that_does_not_answer_lists_nothing(say, tmp_path):
    say("squeue", err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", code=1)

    with pytest.raises(BackendUnavailableError, match="Unable to contact"):
        backend(tmp_path).remote_runs()


# Containers, of which no machine for tests has the real thing


@pytest.mark.usefixtures("say")
def test_an_image_without_a_container_setting_is_refused(tmp_path):
    config = decode({**BASE, "environment": {"docker_image": {"url": "example.org/x:1"}}})

    with pytest.raises(SpecError, match="container: pyxis"):
        backend(tmp_path).check(config)


@pytest.mark.usefixtures("say")
def test_the_environment_of_a_job_is_named_and_nothing_steers_slurms_commands(commands, tmp_path, clean_env):
    clean_env.setenv("SQUEUE_STATES", "PENDING")
    clean_env.setenv("SLURM_CLUSTERS", "other")
    clean_env.setenv("WANDB_MODE", "offline")
    (commands / "squeue").write_text(
        '#!/bin/sh\necho "1|0|RUNNING|1|2|N/A|$SQUEUE_STATES$SLURM_CLUSTERS|None|a-0a1b2c-b01234567"\n'
    )
    made = backend(tmp_path, inherit=["WANDB_MODE"])

    assert [run.host for run in made.remote_runs()] == [""]
    assert made._inherited["WANDB_MODE"] == "offline"
    assert not [name for name in made._inherited if name.startswith(("SLURM_", "SBATCH_"))]


@pytest.mark.usefixtures("say")
def test_a_variable_that_would_override_directives_does_not_reach_sbatch(commands, tmp_path, clean_env):
    clean_env.setenv("SBATCH_PARTITION", "wrong")
    (commands / "sbatch").write_text(f'#!/bin/sh\necho "<$SBATCH_PARTITION>" >{commands}/seen\n')
    backend(tmp_path).check(decode(BASE))

    assert (commands / "seen").read_text() == "<>\n"


def test_times_are_asked_for_as_epochs_and_lists_uncut(commands, tmp_path):
    names = ("scontrol", "sbatch", "scancel", "squeue")
    for name in names:
        (commands / name).write_text(
            f"#!/bin/sh\necho $SLURM_TIME_FORMAT $SLURM_BITSTR_LEN $LC_ALL >{commands}/seen\n"
        )
        (commands / name).chmod(0o755)
    backend(tmp_path).remote_runs()

    assert (commands / "seen").read_text() == "%s 0 C\n"


@pytest.mark.usefixtures("say")
def test_cancelling_names_each_array_once_and_takes_waiting_ones_out_first(commands, tmp_path):
    elements = [Handle(f"4711_{index}@d-0a1b2c-b01234567") for index in (0, 1, 2, 4)]
    backend(tmp_path).cancel([*elements, Handle("4712_7@d-0a1b2c-b76543210")])

    assert (commands / "scancel.calls").read_text().splitlines() == [
        "--state=PENDING 4711_[0-2,4] 4712_[7]",
        "--batch --signal=USR2 4711_[0-2,4] 4712_[7]",
    ]


@pytest.mark.usefixtures("say")
def test_the_locale_is_loaded_by_the_command_alone(tmp_path):
    assert backend(tmp_path)._submitter.environment["LC_ALL"] == "C"


@pytest.mark.usefixtures("say")
def test_a_locale_that_is_wanted_reaches_the_command(tmp_path, clean_env):
    clean_env.setenv("LC_ALL", "C.UTF-8")
    made = backend(tmp_path, inherit=["LC_ALL"])

    assert made._submitter.environment["LC_ALL"] == "C.UTF-8"
