"""Why an attempt ended: classes and signatures, on the ends of programs that really failed."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflows.backends.base import Observation, Phase
from airflows.failures import classify, last_error, normalise
from airflows.trial import Reason

TAILS = Path(__file__).parents[1] / "data" / "log-tails"
NOT_KEPT = {chr(code) for code in range(32)} - {"\t", "\n"}
CASES = yaml.safe_load((TAILS / "cases.yaml").read_text(encoding="utf-8"))


def ended(exit_code=1, word="", detail=""):
    return Observation(Phase.ENDED, exit_code, word, detail)


def tail(name, number=12):
    return (TAILS / f"{name}.{number}.log").read_bytes().decode().split("\n")


def verdict(name, number=12):
    return classify(ended(CASES[name]["exit_code"]), tail(name, number))


# Real tails


def test_every_stored_tail_is_a_case():
    stored = {path.name for path in TAILS.glob("*.log")}

    assert stored == {f"{name}.{number}.log" for name in CASES for number in (12, 47)}


@pytest.mark.parametrize("name", CASES)
def test_a_real_failure_has_its_class_and_its_own_words(name):
    found = verdict(name)

    assert (found.reason, found.message) == (CASES[name]["reason"], CASES[name]["message"])


@pytest.mark.parametrize("name", CASES)
def test_the_same_failure_in_two_trials_has_one_signature(name):
    assert [verdict(name, number).signature for number in (12, 47)] == [CASES[name]["signature"]] * 2


def test_different_failures_have_different_signatures():
    signatures = {name: verdict(name).signature for name in CASES}
    # A fault handler or a launcher adds words, but the end is the same.
    for name in ("segfault-faulthandler", "srun-task", "mpi-abort-after-traceback", "torchrun-killed"):
        del signatures[name]

    assert len(set(signatures.values())) == len(signatures)


# Classes


def test_exit_code_137_alone_is_not_out_of_memory():
    found = classify(ended(137), ["epoch 3 loss 0.31"])

    assert found.reason is Reason.ERROR
    assert found.message == "ended by SIGKILL, exit code 137"


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of 12.00 GiB",
        "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated)",
        "RuntimeError: CUDA error: out of memory",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 GiB.",
        "RuntimeError: MPS backend out of memory (MPS allocated: 18.11 GiB)",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34359738368 bytes.",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,512]",
        "OSError: [Errno 12] Cannot allocate memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=440575.0. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 3756240.batch cgroup.",
    ],
)
def test_what_memory_running_out_looks_like(line):
    found = classify(ended(1), ["step 7", line, "srun: error: node1: task 0: Exited"])

    assert found.reason is Reason.OUT_OF_MEMORY
    assert line.removeprefix("[rank3]: ").startswith(found.message[:60])


@pytest.mark.parametrize(
    "lines",
    [
        ["MemoryErrors are caught and the batch is halved", "ValueError: no batch left"],
        [
            "Traceback (most recent call last):",
            '  File "t.py", line 3, in f',
            '    return retry_on(f, "CUDA out of memory")',
            "ValueError: no",
        ],
        ["peak memory 12 GiB", "ValueError: out of range"],
    ],
)
def test_words_about_memory_are_not_out_of_memory(lines):
    assert classify(ended(1), lines).reason is Reason.ERROR


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("PREEMPTED", Reason.PREEMPTED),
        ("preempted", Reason.PREEMPTED),
        ("DISRUPTION_TARGET", Reason.PREEMPTED),
        ("NODE_FAIL", Reason.NODE_FAILED),
        ("BOOT_FAIL", Reason.NODE_FAILED),
        ("OUT_OF_MEMORY", Reason.OUT_OF_MEMORY),
        ("OOMKilled", Reason.OUT_OF_MEMORY),
        ("TIMEOUT", Reason.TIMED_OUT),
        ("timed_out", Reason.TIMED_OUT),
        ("lost", Reason.LOST),
        ("invalid", Reason.INVALID),
        ("duplicate", Reason.DUPLICATE),
        ("code-damaged", Reason.CODE_DAMAGED),
        ("no_rendezvous", Reason.NO_RENDEZVOUS),
    ],
)
def test_the_schedulers_word_comes_before_what_the_log_says(word, reason):
    assert classify(ended(1, word), ["torch.OutOfMemoryError: CUDA out of memory."]).reason is reason


def test_a_word_we_do_not_know_leaves_it_to_the_log():
    assert classify(ended(1, "FAILED"), ["MemoryError"]).reason is Reason.OUT_OF_MEMORY


def test_an_end_without_an_exit_status_is_lost_whatever_the_log_says():
    found = classify(ended(None), ["epoch 1", "epoch 2"])

    assert found.reason is Reason.LOST
    assert found.message == "it ended without an exit status"


def test_what_the_backend_adds_is_shown_when_the_log_names_no_error():
    found = classify(ended(1, "NODE_FAIL", "node gpu-7 stopped answering"), ["epoch 2"])

    assert found.message == "node gpu-7 stopped answering"


def test_what_the_backend_adds_stands_beside_the_error():
    lines = ["ValueError: x"]

    assert (
        classify(ended(1, "", "node 3 failed first"), lines).message == "ValueError: x; node 3 failed first"
    )
    assert classify(ended(1, "", "two\nlines\0"), lines).message == "ValueError: x; two lines"
    # It tells trials apart, not causes.
    assert classify(ended(1, "", "node 3"), lines).signature == classify(ended(1), lines).signature


def test_an_empty_log_still_says_how_it_ended():
    assert classify(ended(9), []).message == "exit code 9"
    assert classify(ended(9), ["", "   "]).signature == "error: exit code 9"


def test_exit_codes_stay_apart_where_nothing_else_is_known():
    assert classify(ended(2), []).signature != classify(ended(3), []).signature


def test_a_killed_program_is_not_blamed_on_an_error_it_had_survived():
    lines = [*tail("python-traceback"), "skipping this batch", *tail("killed")]
    long_pid = [line.replace("line 1:  ", "line 1: 12") for line in lines]

    assert classify(ended(137), lines).message == "ended by SIGKILL, exit code 137"
    assert classify(ended(137), long_pid).message == "ended by SIGKILL, exit code 137"


# The line that names the error


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["Traceback (most recent call last):", '  File "t.py", line 1', "KeyError: 'lr'"], "KeyError: 'lr'"),
        # The tail may begin in the middle of a traceback.
        (["    x = 1 / 0", "        ~~^~~", "ZeroDivisionError: division by zero"], "ZeroDivisionError: division by zero"),
        (["click.exceptions.NoSuchOption: No such option: --lrr", "Error: No such option: --lrr"], "Error: No such option: --lrr"),
        (["fatal: not a git repository: .git", "cloning took 3 s"], "fatal: not a git repository: .git"),
        (["2026-01-31 08:00:00,123 - train - ERROR: no data for fold 3"], "2026-01-31 08:00:00,123 - train - ERROR: no data for fold 3"),
        (["(worker pid=71, ip=10.0.0.3) Traceback (most recent call last):", '(worker pid=71, ip=10.0.0.3)   File "t.py", line 1', "(worker pid=71, ip=10.0.0.3) OddThing: 3"], "OddThing: 3"),
        (["0: Traceback (most recent call last):", '0:   File "t.py", line 1', "0: ValueError: on task 0"], "ValueError: on task 0"),
        (["/home/a user/run/command.sh: line 3: foo: command not found"], "command.sh: line 3: foo: command not found"),
        # What is no error: metrics, warnings, talk.
        (["validation error: 0.12", "test error: -3.5e-05", "epoch 3"], ""),
        (["t.py:3: UserWarning: errors may follow"], ""),
        (["loading", "done"], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_the_line_that_names_the_error(lines, line):
    assert last_error(lines) == line


def test_a_launchers_own_error_is_shown_when_there_is_no_other():
    line = "subprocess.CalledProcessError: Command '['python', 't.py']' returned non-zero exit status 1."

    assert last_error(["Traceback (most recent call last):", '  File "a.py", line 1', line]) == line


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        # What a task says may be lost when srun ends it: then the first that it names is the cause.
        (["srun: error: n2: task 1: Exited with exit code 1", "srun: error: n1: task 0: Terminated"], "srun: error: n2: task 1: Exited with exit code 1"),
        (["srun: error: n2: task 1: Exited with exit code 2", "ValueError: x", "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-30T15:41:49 ***"], "ValueError: x"),
        # Of Open MPI 5, and of MPICH.
        (["MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", "  Proc: [[61298,1],1]", "  Errorcode: 17", ""], "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD Proc: [[61298,1],1] Errorcode: 17"),
        (["Abort(17) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 17) - process 1"], "Abort(17) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 17) - process 1"),
        # The other ranks only say that one is gone.
        (["[rank1]: ValueError: bad shard", "[rank0]: RuntimeError: [x.cc:5] Connection closed by peer. Check the logs of the remote worker."], "ValueError: bad shard"),
        (["terminate called after throwing an instance of 'std::runtime_error'", "  what():  no shard 12"], "what():  no shard 12"),
    ],
)  # fmt: skip
def test_a_launchers_echo_comes_second(lines, message):
    assert classify(ended(1), lines).message == message


def test_of_several_nodes_the_block_of_the_one_that_failed_first_counts():
    other = [line.replace("rank1", "rank0") for line in tail("torchrun-one-rank")]
    lines = [*other, *tail("torchrun-error-file")]

    assert classify(ended(1), lines).message == "ValueError: shard 12 of the data is broken"


def test_ranks_that_only_follow_are_not_blamed_where_the_first_was_killed():
    assert "Connection" in "".join(tail("torchrun-killed"))
    assert verdict("torchrun-killed").signature == verdict("killed").signature


def test_a_block_of_torchrun_that_is_not_whole_does_no_harm():
    whole = tail("torchrun-exit-code")
    for length in range(len(whole)):
        assert classify(ended(1), whole[:length]).message
        assert classify(ended(1), whole[length:]).message


# Signatures


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("step 3 of 10", "step 12345 of 10"),
        ("loss 0.1", "loss -3.5e-05"),
        ("object at 0x7fd8c2a11580", "object at 0x55aa"),
        ("no file '/data/a/b/train.csv'", "no file '/scratch/x/train.csv'"),
        ("run 4f2a9c1e8b7d4c3fa1b2c3d4e5f60718 failed", "run a1b2c3d4e5f607184f2a9c1e8b7d4c3f failed"),
        ("id 3f2b8c1e-0000-4000-8000-00000000000a", "id 9a9b8c1e-1111-4111-8111-11111111111f"),
        ("tried to allocate 20.00 MiB", "tried to allocate 1.5 GiB"),
        ("tried to allocate 728. TiB", "tried to allocate 512 bytes"),
        ("no file '/tmp/tmpab12_xyz/x'", "no file '/tmp/tmp00000000/x'"),
        ("in '/tmp/tmpab12_xyz'", "in '/tmp/tmp00000000'"),
        ("in sweep digits-3fa9c1/12/a0", "in sweep digits-3fa9c1/47/a1"),
        ("a  b\tc", "a b c"),
    ],
)
def test_texts_that_differ_only_by_trial_are_levelled(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'lr'", "KeyError: 'momentum'"),
        ("no file '/data/train.csv'", "no file '/data/valid.csv'"),
        ("No module named 'torchvision'", "No module named 'torchaudio'"),
        ("[Errno 2] No such file or directory", "[Errno 28] No space left on device"),
    ],
)
def test_texts_about_different_things_stay_apart(one, other):
    assert normalise(one) != normalise(other)


@given(st.text(max_size=400))
def test_a_signature_holds_no_number_and_is_short(text):
    levelled = normalise(text)

    assert not any(char.isdecimal() for char in levelled)
    assert len(levelled) <= 300


@given(st.lists(st.text(max_size=200), max_size=8), st.integers(-64, 255) | st.none(), st.text(max_size=400))
def test_any_log_gives_words_a_ledger_can_keep(lines, exit_code, detail):
    found = classify(ended(exit_code, "", detail), lines)

    assert found.signature
    assert found.message
    assert len(found.signature) <= 300
    for text in (found.signature, found.message):
        assert len(text) <= 610
        assert not set(text) & NOT_KEPT
        text.encode("utf-8")


def test_colours_and_overwritten_progress_do_not_count():
    lines = ["\x1b[31mValueError: bad \x1b[0m", "\r 10%|#  |\r100%|###|"]

    assert last_error([classify(ended(), lines[:1]).message]) == "ValueError: bad"
    assert classify(ended(3), lines[1:]).message == "exit code 3: 100%|###|"


@pytest.mark.parametrize(
    "line", ["/" * 100_000, "/a" * 50_000, "1" * 100_000, "error " * 20_000, "a: line " * 10_000, "[" * 100_000, "\x1b[" * 50_000, "deadbeef" * 12_000]
)  # fmt: skip
def test_a_hostile_line_costs_no_time(line):
    began = time.process_time()
    classify(ended(1), [line] * 60)

    assert time.process_time() - began < 1.0
