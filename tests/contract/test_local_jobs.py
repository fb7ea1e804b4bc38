"""What a trial on this machine sees, and how it is told what is wrong with it."""

import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from airflows.backends.local import LocalBackend, LocalSettings, environment
from airflows.errors import SpecError, SubmitRejectedError, SubmitUnsentError
from airflows.exits import OwnExit
from airflows.failures import classify
from airflows.testing.jobs import BackendSuite, MakeJob
from airflows.train import read_train
from airflows.trial import Reason

VALUE = "hf_S3cr3t"
pytestmark = pytest.mark.usefixtures("clean_env")


@pytest.fixture
def suite():
    return BackendSuite()


@pytest.fixture
def home(tmp_path):
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def backend(home):
    return LocalBackend(LocalSettings(grace=1), home)


@pytest.fixture
def make_job(backend):
    return MakeJob(backend)


def run(suite, backend, job):
    handle = suite.start(backend, job)
    return suite.end(backend, handle), suite.lines(backend, handle)


def test_a_trial_inherits_only_what_is_named(backend, make_job, suite, clean_env, home):
    clean_env.setenv("LD_LIBRARY_PATH", "/opt/lib")
    clean_env.setenv("PRIVATE", "1")
    seen, names = run(suite, backend, make_job("compgen -e", env={"MINE": "1"}))
    assert seen.exit_code == 0
    ours = {"NUM_NODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "WORLD_SIZE"}
    ours |= {"AIRFLOWS_CHECKPOINT_DIR", "AIRFLOWS_RESUME_FROM", "AIRFLOWS_TOKEN", "AIRFLOWS_LAUNCH_DIR"}
    bash = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert {"PATH", "MINE"} | ours <= set(names) <= {"PATH", "HOME", "LANG", "MINE"} | ours | bash

    other = LocalBackend(LocalSettings(inherit=["LD_LIBRARY_PATH", "NOT_SET"]), home)
    assert "LD_LIBRARY_PATH" in run(suite, other, make_job("compgen -e"))[1]


def test_python_is_the_one_that_runs_airflows(backend, make_job, suite):
    _, lines = run(suite, backend, make_job("python3 -c 'import sys; print(sys.prefix)'"))

    assert lines == [sys.prefix]


def test_a_secret_reaches_the_command_and_nothing_else(backend, make_job, suite, clean_env, home):
    clean_env.setenv("NLP__HF_TOKEN", VALUE)
    job = replace(
        make_job('[[ $HF == hf_S3cr3t ]]; tr "\\0" "\\n" <"/proc/$PPID/cmdline"'),
        secrets={"HF": "nlp/hf-token"},
    )
    seen, arguments = run(suite, backend, job)

    assert seen.exit_code == 0
    assert VALUE not in " ".join(arguments)
    written = [
        path for path in home.rglob("*") if path.is_file() and VALUE in path.read_text(errors="replace")
    ]
    assert written == [job.launch_dir / "command.sh"], "the test's own command is the only place"


def test_secret_variables_win_and_are_in_no_argument_and_no_file(backend, make_job, suite, home):
    value = "pa55/w0rd"
    job = make_job('echo "${#TOKEN} $MODE"; tr "\\0" "\\n" <"/proc/$PPID/cmdline"', env={"MODE": "plain"})
    job = replace(job, secret_env={"TOKEN": value, "MODE": "secret"})
    seen, lines = run(suite, backend, job)

    assert seen.exit_code == 0
    assert lines[0] == f"{len(value)} secret"
    assert value not in " ".join(lines)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert not [path for path in files if value in path.read_text(errors="replace")]


def test_a_missing_secret_refuses_the_run_and_names_both_ways_to_give_it(backend, make_job):
    (answer,) = backend.submit([replace(make_job("true"), secrets={"HF": "nlp/hf-token"})])

    assert isinstance(answer, SubmitRejectedError)
    assert "NLP__HF_TOKEN" in str(answer)
    assert "secrets.env" in str(answer)


def test_a_missing_secret_is_known_before_anything_is_submitted(backend):
    text = "experiment_name: e\ncommand: c\ncompute: {accelerator_type: GPU_1xA10, num_accelerators: 1}\n"
    config = read_train(f"{text}secrets: {{HF: nlp/hf-token}}\n", file="train.yaml").config

    with pytest.raises(SpecError, match="NLP__HF_TOKEN"):
        backend.check(config)


def test_packages_that_are_not_installed_are_named(backend):
    text = "experiment_name: e\ncommand: c\ncompute: {accelerator_type: GPU_1xA10, num_accelerators: 1}\n"
    dependencies = "[pytest>=8, 'no-such-package==1', '--no-deps', 'git+https://example.com/x', './wheel']"
    config = read_train(f"{text}environment: {{dependencies: {dependencies}}}\n", file="train.yaml").config

    (notice,) = [text for text in backend.check(config) if "dependencies" in text]

    assert "not installed here: no-such-package." in notice


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": {"A": "nul\0inside"}}, "null byte"),
        ({"env": {"A=B": "1"}}, "illegal environment variable name"),
        ({"env": {"A": "x" * 200_000}}, "Argument list too long"),
        ({"work_dir": "missing"}, "No such file or directory"),
    ],
)
def test_a_job_that_can_never_start_is_refused(backend, make_job, tmp_path, change, words):
    if "work_dir" in change:
        change = {"work_dir": tmp_path / "missing"}
    job = replace(make_job("true"), **change)

    (answer,) = backend.submit([job])

    assert isinstance(answer, SubmitRejectedError)
    assert words in str(answer)
    assert backend.find([job.token]) == {}


def test_a_full_process_table_leaves_the_job_unsent(backend, make_job, monkeypatch, suite):
    def no_more(*_args, **_kwargs):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    job = make_job("exit 0")
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", no_more)
        (answer,) = backend.submit([job])
        assert isinstance(answer, SubmitUnsentError)

    assert run(suite, backend, job)[0].exit_code == 0


def test_a_root_that_cannot_be_written_leaves_jobs_unsent_and_is_said_beforehand(make_job, tmp_path):
    (tmp_path / "file").write_text("")
    backend = LocalBackend(LocalSettings(root=tmp_path / "file"), tmp_path)

    (answer,) = backend.submit([make_job("true")])

    assert isinstance(answer, SubmitUnsentError)
    assert not backend.reach().available
    assert "AIRFLOWS_HOME" in backend.reach().why_not


def test_a_command_that_looks_for_its_code_in_the_wrong_place_is_told_where_it_is(
    backend, make_job, suite, tmp_path
):
    job = make_job("python3 train.py", env={"CODE_SOURCE_PATH": str(tmp_path)})
    (job.launch_dir / "training_config.yaml").write_text("command: x\ncode_source:\n  type: snapshot\n")
    seen, _ = run(suite, backend, job)

    assert seen.exit_code == 2
    assert "$CODE_SOURCE_PATH" in seen.detail


def test_code_that_is_gone_is_reported_as_damaged(backend, make_job, suite, tmp_path):
    seen, lines = run(suite, backend, make_job("echo ran", env={"CODE_SOURCE_PATH": str(tmp_path / "gone")}))

    assert (seen.exit_code, seen.word) == (OwnExit.CODE_DAMAGED, "code_damaged")
    assert "ran" not in lines


def test_a_launch_directory_without_a_command_is_invalid(backend, make_job, suite):
    job = make_job("true")
    (job.launch_dir / "command.sh").unlink()
    seen, _ = run(suite, backend, job)

    assert (seen.exit_code, seen.word) == (OwnExit.INVALID, "invalid")


def test_a_command_runs_in_the_work_directory_of_its_job(backend, make_job, suite, tmp_path):
    assert run(suite, backend, replace(make_job("pwd"), work_dir=tmp_path))[1] == [str(tmp_path)]
    job = make_job("pwd")
    assert run(suite, backend, job)[1] == [str(job.launch_dir)]


def test_startup_files_of_bash_have_no_say(backend, make_job, suite, tmp_path):
    (tmp_path / "rc").write_text("exit 9\n")

    seen, _ = run(suite, backend, make_job("true", env={"BASH_ENV": str(tmp_path / "rc")}))

    # The preamble ignores it; the command's own bash obeys what the train.yaml asks for.
    assert (seen.exit_code, seen.word) == (9, "")


def test_ports_of_runs_that_are_started_together_differ(backend, make_job, suite):
    handles = [suite.start(backend, make_job("echo $MASTER_PORT")) for _ in range(20)]
    for handle in handles:
        suite.end(backend, handle)

    assert len({suite.lines(backend, handle)[0] for handle in handles}) == 20


def test_an_upgrade_does_not_change_a_running_preamble(backend, make_job, suite, home):
    handle = suite.start(backend, make_job("echo started; sleep 0.2"))
    suite.until_logged(backend, handle, "started")

    (kept,) = (home / "preambles").iterdir()

    assert sorted(path.name for path in kept.iterdir()) == ["checkpoints.py", "preamble.sh"]
    assert suite.end(backend, handle).exit_code == 0


def test_a_disk_that_is_full_at_the_end_does_not_lose_the_exit_code(backend, make_job, suite):
    job = make_job("exit 7")
    # As good as a full disk: the shell's redirection fails.
    (job.launch_dir / "exit.json").mkdir()
    seen, _ = run(suite, backend, job)

    assert seen.exit_code == 7
    assert "disk full" in seen.detail


def test_a_disk_that_is_full_at_the_end_does_not_lose_a_success(backend, make_job, suite):
    job = make_job("exit 0")
    (job.launch_dir / "exit.json").mkdir()
    seen, _ = run(suite, backend, job)

    assert (seen.exit_code, seen.word) == (0, "")


@pytest.mark.parametrize("last_words", ["exit 0", "exit 9"])
def test_a_run_that_was_out_of_time_is_no_success_where_the_disk_is_full(
    backend, make_job, suite, last_words
):
    """It exits with 0 after the signal, and the word for it cannot be written."""
    command = f"trap '{last_words}' TERM; while :; do sleep 0.02; done"
    job = make_job(command, timeout_s=0.3)
    (job.launch_dir / "exit.json").mkdir()
    seen, _ = run(suite, backend, job)

    assert (seen.exit_code, seen.word) == (OwnExit.TIMED_OUT, "timed_out")
    assert "disk full" in seen.detail
    assert classify(seen, []).reason is Reason.TIMED_OUT


def test_a_run_that_was_asked_to_end_is_no_success_where_the_disk_is_full(backend, make_job, suite):
    job = make_job("trap 'exit 0' TERM; echo started; while :; do sleep 0.02; done")
    (job.launch_dir / "exit.json").mkdir()
    handle = suite.start(backend, job)
    suite.until_logged(backend, handle, "started")

    os.kill(int(handle.split(":")[0]), signal.SIGTERM)

    assert suite.end(backend, handle).exit_code == 143


def test_a_checkpoint_with_any_name_does_not_cost_the_exit_code(backend, make_job, suite):
    job = make_job("exit 3")
    Path(job.checkpoint_dir, os.fsdecode(b"step_1\xff.pt")).write_text("x")
    seen, _ = run(suite, backend, replace(job, checkpoint_pattern="*.pt"))

    assert seen.exit_code == 3
    assert seen.resumed_from.endswith("step_1\ufffd.pt")


def wheel(directory, name):
    """Make a package that pip can install without asking anybody."""
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "VALUE = 41 + 1\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.slow
def test_an_isolated_environment_is_built_once_from_the_dependencies(home, make_job, suite, tmp_path):
    backend = LocalBackend(LocalSettings(environment="isolated"), home)
    wheel(tmp_path, "own_package")
    config = b"environment:\n  dependencies:\n    - '-r requirements.txt'\n"
    (tmp_path / "requirements.txt").write_text("./own_package-1.0-py3-none-any.whl\n")

    for _ in range(2):
        job = make_job("python -c 'import own_package, sys; print(own_package.VALUE, sys.prefix)'")
        files = {**job.files, "training_config.yaml": config}
        seen, lines = run(suite, backend, replace(job, files=files, work_dir=tmp_path))
        assert seen.exit_code == 0, lines
        (built,) = [path for path in (home / "environments").iterdir() if path.is_dir()]
        assert lines == [f"42 {built}"]


@pytest.mark.slow
def test_an_environment_that_cannot_be_built_refuses_the_run_and_leaves_nothing(home, make_job, tmp_path):
    backend = LocalBackend(LocalSettings(environment="isolated"), home)
    job = make_job("true")
    files = {**job.files, "training_config.yaml": b"environment:\n  dependencies: [./missing.whl]\n"}

    (answer,) = backend.submit([replace(job, files=files, work_dir=tmp_path)])

    assert isinstance(answer, SubmitRejectedError)
    assert "missing.whl" in str(answer)
    assert [path for path in (home / "environments").iterdir() if path.is_dir()] == []


def test_the_password_of_an_index_is_not_told(tmp_path, monkeypatch):
    def refuse(command, _):
        said = "ERROR: no answer from 'https://kim:s3cr@t@index.example/simple' or https://t0k@host/x"
        raise subprocess.CalledProcessError(1, command, stderr=said)

    monkeypatch.setattr(environment, "_run", refuse)
    with pytest.raises(SpecError) as caught:
        environment.isolated(["--index-url https://kim:s3cr@t@index.example/simple"], tmp_path, tmp_path)

    assert "no answer from 'https://kim:***@index.example/simple' or https://***@host/x" in str(caught.value)


def test_no_descriptor_is_left_open(backend, make_job, suite):
    run(suite, backend, make_job("true"))
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(5):
        run(suite, backend, make_job("true"))

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_paths_with_odd_characters_do_no_harm(tmp_path, suite):
    home = tmp_path / "a 'b' \"c\" $HOME `d` \\ \t ü *"
    backend = LocalBackend(LocalSettings(grace=1), home)
    job = MakeJob(backend)('[[ -e $AIRFLOWS_RESUME_FROM ]]; echo "$PWD"', attempt=1)
    (Path(job.checkpoint_dir) / "m-1.pt").write_text("x")
    handle = suite.start(backend, job)

    seen = suite.end(backend, handle)

    assert (seen.exit_code, suite.lines(backend, handle)) == (0, [str(job.launch_dir)])
    assert seen.resumed_from == f"{job.checkpoint_dir}/m-1.pt"
    assert suite.end(backend, backend.find([job.token])[job.token]).exit_code == 0
