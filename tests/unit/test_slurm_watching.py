"""Watching with a queue that says what the test wants: late files, lost rows, copies, silence."""

import json
from pathlib import Path

import pytest

from airflows.backends.base import Phase
from airflows.backends.slurm.batches import Batches, Element
from airflows.backends.slurm.commands import Answer
from airflows.backends.slurm.finding import Finder
from airflows.backends.slurm.parsing import Row, TaskId
from airflows.backends.slurm.remains import never_began, read_claim
from airflows.backends.slurm.watching import FILES_LATE_S, LOST_AFTER_S, UNBEGUN_AFTER_S, Watcher, interval_s
from airflows.errors import BackendUnavailableError
from airflows.exits import OwnExit
from airflows.failures import classify
from airflows.ids import Token
from airflows.testing.fake import ManualClock
from airflows.trial import Reason

BATCH = "d-0a1b2c-b01234567"
START = 1_700_000_000.0


class Queue:
    """Slurm's commands, answered from what a test sets."""

    def __init__(self) -> None:
        self.squeue: list[str] = []
        self.sacct: list[str] = []
        self.show = ""
        self.error = ""
        self.calls: list[str] = []
        self.asked: list[tuple[str, ...]] = []

    def ask(self, *words: str) -> Answer:
        self.calls.append(words[0])
        self.asked.append(words)
        if words[0] == "squeue" and self.error:
            return Answer(1, "", self.error)
        out = {"squeue": self.squeue, "sacct": self.sacct, "scontrol": [self.show]}.get(words[0], [])
        return Answer(0, "".join(f"{line}\n" for line in out), "")

    def lists(self, *states: str, name: str = BATCH, reason: str = "None") -> None:
        self.squeue = [
            f"7|{index}|{state}|{START:.0f}|{START:.0f}|N/A|n1|{reason}|{name}"
            for index, state in enumerate(states)
            if state
        ]


class Site:
    """A watcher, its queue, its clock and its disk."""

    def __init__(self, root: Path, *, accounts: bool = True) -> None:
        self.root = root
        self.queue = Queue()
        self.clock = ManualClock(START)
        self.batches = Batches(root)
        self.batches.directory(BATCH).mkdir(parents=True)
        pairs = [f"d-0a1b2c-000{number}-a0\t{root / str(number)}" for number in range(4)]
        (self.batches.directory(BATCH) / "tasks").write_text("\n".join(pairs))
        (root / "claims").mkdir()
        self.watcher = Watcher(
            self.queue, self.batches, root / "claims", lambda: accounts, lambda: 300.0, self.clock
        )
        self.finder = Finder(self.queue, self.batches, root / "claims", lambda: accounts, self.clock)
        self.handles = [Element(TaskId(7, number), BATCH).to_handle() for number in range(4)]

    def look(self, number: int = 0, advance: float = 61):
        self.clock.advance(advance)
        return self.watcher.poll([self.handles[number]])[self.handles[number]]

    def leaves(self, number: int, code: int, word: str = "") -> None:
        (self.root / str(number)).mkdir(exist_ok=True)
        left = {"exit_code": code, "word": word, "host": "n1", "began": START, "ended": START + 9}
        (self.root / str(number) / "exit.json").write_text(json.dumps(left))

    def claims(self, number: int, task: str = "", began: float = START) -> None:
        path = self.root / "claims" / f"d-0a1b2c-000{number}-a0.0"
        path.write_text(f"{task or f'7_{number}'} n1 {began}\n")


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


def test_a_pending_task_tells_why_it_waits(site):
    site.queue.lists("PENDING", reason="PartitionTimeLimit")

    seen = site.look()

    assert seen.phase is Phase.QUEUED
    assert seen.detail == "Slurm says PartitionTimeLimit, which does not go away by itself"


def test_an_exit_file_says_more_than_completed(site):
    site.queue.lists("COMPLETED")
    site.leaves(0, 0)

    seen = site.look()

    assert (seen.phase, seen.exit_code, seen.word, seen.host) == (Phase.ENDED, 0, "", "n1")
    assert site.queue.calls == ["squeue"]


@pytest.mark.parametrize(
    ("state", "code", "word", "expected"),
    [
        ("FAILED", 1, "", ""),
        ("NODE_FAIL", 1, "", "NODE_FAIL"),
        ("NODE_FAIL", 0, "", ""),
        ("CANCELLED", 143, "signalled", "CANCELLED"),
        ("CANCELLED", 143, "killed", "killed"),
        ("FAILED", 143, "signalled", "PREEMPTED"),
        ("COMPLETED", 0, "signalled", "PREEMPTED"),
        ("TIMEOUT", 143, "timed_out", "TIMEOUT"),
        ("FAILED", 143, "timed_out", "timed_out"),
        ("OUT_OF_MEMORY", 137, "", "OUT_OF_MEMORY"),
    ],
)
def test_the_word_comes_from_whoever_knows_it(site, state, code, word, expected):
    site.queue.lists(state)
    site.leaves(0, code, word)

    assert site.look().word == expected


@pytest.mark.parametrize(
    ("state", "reason", "detail"),
    [
        ("NODE_FAIL", "NodeDown", "Slurm says NODE_FAIL (NodeDown)"),
        ("OUT_OF_MEMORY", "None", "Slurm says OUT_OF_MEMORY"),
        ("TIMEOUT", "TimeLimit", "Slurm says TIMEOUT (TimeLimit)"),
        ("FAILED", "NonZeroExitCode", ""),
    ],
)
def test_slurms_own_words_for_an_end_are_told(site, state, reason, detail):
    site.queue.lists(state, reason=reason)
    site.leaves(0, 1)

    assert site.look().detail == detail


def test_without_an_exit_file_slurms_words_are_told_as_well(site):
    site.queue.lists("NODE_FAIL", reason="NodeDown")

    seen = site.look()

    assert (seen.exit_code, seen.word, seen.detail) == (None, "NODE_FAIL", "Slurm says NODE_FAIL (NodeDown)")


@pytest.mark.parametrize("name", [b"step \xff\xfe 1", b"step\n2", "Schritt ä".encode()])
def test_an_exit_file_may_name_a_checkpoint_that_is_no_utf8(site, name):
    site.queue.lists("COMPLETED")
    site.leaves(0, 0)
    path = site.root / "0" / "exit.json"
    path.write_bytes(path.read_bytes().replace(b'"word"', b'"resumed_from": "/c/' + name + b'", "word"'))
    (site.root / "claims" / "d-0a1b2c-0000-a0.0").write_bytes(b"7_0 n1 5\n/c/" + name + b"\n")

    seen = site.look()

    assert (seen.phase, seen.exit_code) == (Phase.ENDED, 0)
    assert seen.resumed_from == f"/c/{name.decode('utf-8', 'replace')}"


def test_a_claim_that_is_no_utf8_is_still_a_claim(site):
    (site.root / "claims" / "d-0a1b2c-0000-a0.0").write_bytes(b"7_0 n1 5\n/c/\xff\n")

    claim = read_claim(site.root / "claims", "d-0a1b2c-0000-a0")

    assert (claim.task, claim.resumed_from) == (TaskId(7, 0), "/c/\ufffd")


def test_a_file_that_is_not_visible_yet_is_waited_for(site):
    site.queue.lists("COMPLETED")

    assert site.look().phase is Phase.UNKNOWN
    site.leaves(0, 3)
    assert site.look().exit_code == 3


def test_without_a_file_the_accounts_tell_the_exit_code(site):
    site.queue.lists("FAILED")
    site.queue.sacct = [f"7_0|FAILED|0:53|1|2|3|n1|{BATCH}"]
    site.look()

    seen = site.look()

    assert (seen.phase, seen.exit_code, seen.word) == (Phase.ENDED, None, "invalid")
    assert f"node n1 does not see {site.root}/0" in seen.detail
    assert "on a disk that all nodes share" in seen.detail


def test_a_node_that_alone_does_not_see_the_root_is_at_fault_itself(site):
    site.queue.lists("FAILED", "COMPLETED")
    site.queue.sacct = [f"7_0|FAILED|0:53|1|2|3|n1|{BATCH}"]
    site.claims(1)
    site.look()

    assert site.look().word == "NODE_FAIL"


def test_a_preamble_that_is_not_there_says_the_same(site):
    site.queue.sacct = [f"7_0|FAILED|64:0|1|2|3|n1|{BATCH}"]
    site.look()

    assert "does not see" in site.look().detail


UNBEGUN = [
    # Exit code, lines of setup, another attempt that began; what is made of it.
    (0, False, "", "node_failed"),
    (2, False, "", "node_failed"),
    (255, False, "", "node_failed"),
    (127, True, "d-0a1b2c-0003-a0", "node_failed"),
    (127, True, "d-0a1b2c-0000-a1", "node_failed"),
    (127, True, "d-0a1b2d-0003-a0", "error"),
    (2, True, "", "error"),
    (0, True, "", "invalid"),
]


def never_comes_to_its_preamble(site, code):
    state = "FAILED" if code else "COMPLETED"
    site.queue.lists(state)
    site.queue.sacct = [f"7_0|{state}|{code}:0|{START:.0f}|{START:.0f}|{START + 9:.0f}|n1|{BATCH}"]


@pytest.mark.parametrize(("code", "has_setup", "other", "reason"), UNBEGUN)
def test_a_script_that_never_came_to_its_preamble_has_not_run_the_command(
    site, code, has_setup, other, reason
):
    """As when a node has lost the script, or a line of `setup` leaves the shell."""
    never_comes_to_its_preamble(site, code)
    site.watcher.has_setup = has_setup
    if other:
        (site.root / "claims" / f"{other}.0").write_text(f"7_3 n2 {START}\n")
    site.look()
    site.look()

    seen = site.look()

    assert seen.phase is Phase.ENDED
    assert classify(seen, []).reason is Reason(reason)
    assert f"ended with exit code {code} before the command, so nothing was run" in seen.detail
    assert ("`setup`" in seen.detail) == (reason != "node_failed")
    assert ("node n1" in seen.detail) == (reason == "node_failed")


@pytest.mark.parametrize("code", [0, 2])
def test_a_claim_that_is_seen_late_is_not_taken_for_none(site, code):
    never_comes_to_its_preamble(site, code)
    site.look()
    site.clock.advance(UNBEGUN_AFTER_S - 62)

    assert site.look().phase is Phase.UNKNOWN
    site.claims(0)
    assert site.look().exit_code == code


def test_a_script_that_slurm_forgets_while_it_is_doubted_is_judged_all_the_same(tmp_path):
    site = Site(tmp_path, accounts=False)
    site.queue.lists("FAILED")
    site.queue.show = "JobId=9 ArrayJobId=7 JobName=a b ExitCode=127:0 RunTime=1"
    site.look()
    assert site.look(advance=30).phase is Phase.UNKNOWN
    site.queue.squeue, site.queue.show = [], ""
    site.queue.lists("", "RUNNING")

    assert site.look().word == "NODE_FAIL"


def test_the_exit_code_of_a_doubted_script_is_asked_for_once(site):
    never_comes_to_its_preamble(site, 127)
    for _ in range(4):
        site.look(advance=15)

    assert site.queue.calls.count("sacct") == 1


@pytest.mark.parametrize(("code", "signal"), [(0, 9), (OwnExit.DUPLICATE, 0), (OwnExit.INVALID, 0)])
def test_not_every_end_without_a_claim_is_a_script_that_never_began(code, signal):
    row = Row("FAILED", START, START, START, "n1", "", BATCH, int(code), signal)

    assert not never_began(row, None)


def test_a_second_copy_that_failed_turns_to_the_first(site):
    never_comes_to_its_preamble(site, 127)
    site.claims(0, task="5_0", began=START - 120)
    site.look()

    seen = site.look()

    assert (seen.phase, seen.detail) == (Phase.UNKNOWN, "it is a copy of 5_0")


def test_without_file_and_accounts_the_controller_tells_the_exit_code(tmp_path):
    site = Site(tmp_path, accounts=False)
    site.claims(0)
    site.queue.lists("FAILED")
    site.queue.show = "JobId=9 ArrayJobId=7 JobName=a b ExitCode=4:0 RunTime=1"
    site.look()

    assert site.look().exit_code == 4
    assert "sacct" not in site.queue.calls


def test_what_squeue_no_longer_lists_is_read_from_its_exit_file(site):
    site.queue.lists("", "RUNNING")
    site.leaves(0, 0)

    assert site.look().exit_code == 0
    assert site.queue.calls == ["squeue"]


def test_what_squeue_no_longer_lists_is_asked_of_the_accounts(site):
    site.queue.sacct = [f"7_0|TIMEOUT|0:0|1|2|3|n1|{BATCH}"]

    seen = site.look()

    assert (seen.phase, seen.word) == (Phase.ENDED, "TIMEOUT")


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "REQUEUED", "WHATEVER"])
def test_accounts_that_are_behind_end_nothing_before_it_is_lost(site, state):
    site.queue.sacct = [f"7_0|{state}|0:0|1|2|3|n1|{BATCH}"]
    site.claims(0)

    assert site.look().phase is Phase.UNKNOWN
    site.clock.advance(LOST_AFTER_S)
    assert site.look().word == "LOST"


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "REQUEUED"])
def test_what_the_accounts_say_of_an_earlier_start_counts_for_nothing_while_it_is_queued_again(site, state):
    site.queue.lists("PENDING", reason="BeginTime")
    site.queue.sacct = [f"7_0|{state}|0:0|1|2|3|n1|{BATCH}"]

    seen = site.look()

    assert (seen.phase, seen.detail) == (Phase.QUEUED, "Slurm says BeginTime")
    assert site.queue.calls == ["squeue"]


@pytest.mark.parametrize("state", ["COMPLETING", "SUSPENDED", "STAGE_OUT"])
def test_a_state_that_hides_the_end_is_no_end(site, state):
    site.queue.lists(state)
    site.leaves(0, 1)

    seen = site.look()

    assert (seen.phase, seen.detail) == (Phase.RUNNING, f"Slurm says {state}")


def test_the_accounts_are_asked_for_a_window_that_holds_the_run(site):
    site.look()

    (asked,) = [words for words in site.queue.asked if words[0] == "sacct"]
    assert asked[asked.index("-S") + 1] == "now-30days"
    assert asked[asked.index("-E") + 1] == "now"
    assert "-j" in asked


def test_only_the_last_of_several_starts_counts(site):
    site.queue.sacct = [f"7_0|NODE_FAIL|0:0|1|2|3|n1|{BATCH}", f"7_0|TIMEOUT|0:0|1|4|5|n2|{BATCH}"]

    assert site.look().word == "TIMEOUT"


def test_what_nobody_knows_is_lost_only_after_a_while(site):
    assert site.look().phase is Phase.UNKNOWN
    site.clock.advance(LOST_AFTER_S)
    assert (site.look().phase, site.look().word) == (Phase.ENDED, "LOST")


def test_another_job_under_the_same_id_is_not_ours(site):
    site.queue.lists("COMPLETED", name="somebody-elses")
    site.queue.sacct = ["7_0|COMPLETED|0:0|1|2|3|n1|somebody-elses"]

    assert site.look().phase is Phase.UNKNOWN


def test_an_element_that_vanished_while_it_waited_was_cancelled(site):
    site.queue.lists("PENDING", "PENDING")
    site.look()
    site.queue.lists("", "PENDING")

    assert site.look().word == "CANCELLED"


def test_an_element_nobody_saw_is_cancelled_once_a_claim_would_be_visible(site):
    site.queue.lists("", "PENDING")

    assert site.look().phase is Phase.UNKNOWN
    site.clock.advance(FILES_LATE_S)
    assert site.look().word == "CANCELLED"


def test_an_array_cancelled_as_a_whole_leaves_one_row_for_all(site):
    site.queue.squeue = [f"7|N/A|CANCELLED|1|2|3||None|{BATCH}"]
    site.look()

    assert site.look().word == "CANCELLED"


def test_a_second_copy_is_followed_to_the_first(site):
    site.queue.squeue = [
        f"7|0|FAILED|1|2|3|n1|None|{BATCH}",
        f"5|0|RUNNING|1|2|N/A|n2|None|{BATCH}",
    ]
    site.claims(0, "5_0")
    site.look()
    site.look()

    assert (site.look().phase, site.look().host) == (Phase.RUNNING, "n2")


def test_a_queue_that_does_not_answer_says_nothing_of_any_run(site):
    site.queue.error = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"

    with pytest.raises(BackendUnavailableError, match="Unable to contact"):
        site.look()


def test_an_id_the_queue_has_forgotten_is_no_error(site):
    site.queue.error = "slurm_load_jobs error: Invalid job id specified"
    site.leaves(0, 0)

    assert site.look().exit_code == 0


def test_between_two_looks_the_last_one_is_told_again(site):
    site.queue.lists("RUNNING", "RUNNING")
    for _ in range(5):
        site.watcher.poll(site.handles[:2])
        site.clock.advance(0.1)

    assert site.queue.calls == ["squeue"]


def test_between_two_looks_an_exit_file_tells_of_a_good_end(site):
    site.queue.lists("RUNNING", "RUNNING")
    site.watcher.poll(site.handles[:2])
    site.leaves(0, 0)
    site.clock.advance(0.5)

    seen = site.watcher.poll(site.handles[:2])

    assert [seen[handle].phase for handle in site.handles[:2]] == [Phase.ENDED, Phase.RUNNING]
    assert site.queue.calls == ["squeue"]


def test_of_a_bad_end_slurm_is_asked_as_soon_as_may_be(site):
    site.queue.lists("RUNNING")
    site.look()
    site.clock.advance(40)
    site.look()
    calls = len(site.queue.calls)
    site.leaves(0, 1)
    site.queue.lists("PREEMPTED")
    site.clock.advance(3)

    assert site.watcher.poll(site.handles[:1])[site.handles[0]].phase is Phase.RUNNING
    site.clock.advance(1)
    assert site.watcher.poll(site.handles[:1])[site.handles[0]].word == "PREEMPTED"
    assert len(site.queue.calls) == calls + 1


def test_waiting_ends_with_an_exit_file(site):
    site.queue.lists("RUNNING")
    site.watcher.poll(site.handles[:1])
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        site.clock.advance(seconds)
        if len(pauses) == 2:
            site.leaves(0, 0)

    site.watcher.wait(1.0, pause)

    assert len(pauses) == 2
    assert sum(pauses) < 0.5


def test_waiting_for_nothing_in_particular_takes_its_time(site):
    pauses = []
    site.watcher.wait(0.7, pauses.append)

    assert pauses == [0.7]


def test_a_bad_end_is_told_once_and_then_waited_for(site):
    site.queue.lists("RUNNING")
    site.watcher.poll(site.handles[:1])
    site.leaves(0, 1)
    site.clock.advance(0.5)
    site.watcher.poll(site.handles[:1])
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        site.clock.advance(seconds)

    site.watcher.wait(1.0, pause)

    assert sum(pauses) == pytest.approx(1.0)


def test_looks_become_rare_where_nothing_changes_and_many_run():
    assert [interval_s(since) for since in (0, 10, 100, 10_000)] == [1, 1, 10, 60]
    assert interval_s(0, 1000) == 10


def test_a_lost_answer_is_found_by_the_name_and_a_second_array_is_cancelled(site):
    site.queue.squeue = [
        f"9|0|RUNNING|200|2|N/A|n1|None|{BATCH}",
        f"8|0|PENDING|100|N/A|N/A||None|{BATCH}",
    ]

    found = site.finder.find([Token("d-0a1b2c-0000-a0"), Token("d-0a1b2c-0009-a0")])

    assert found == {"d-0a1b2c-0000-a0": f"8_0@{BATCH}"}
    assert site.queue.calls == ["squeue", "scancel"]
    assert site.batches.job_of(BATCH) == (8, site.clock())


def test_what_started_once_is_found_when_slurm_has_forgotten_it(site):
    site.claims(2)

    assert site.finder.find([Token("d-0a1b2c-0002-a0")]) == {"d-0a1b2c-0002-a0": f"7_2@{BATCH}"}
