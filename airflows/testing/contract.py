"""What every backend must do, as a test class: subclass it, give the `backend` fixture, run pytest.

Example:
    >>> class TestMine(BackendContract):  # doctest: +SKIP
    ...     @pytest.fixture
    ...     def backend(self, tmp_path):
    ...         return MyBackend(root=tmp_path)

The tests run small bash commands for real. They ask `backend.capabilities` where backends may differ, and
never which backend it is.
"""

# ruff: noqa: D102, S101, PLR2004  (tests: their names say what they hold, with assert and literal numbers)

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from airflows.backends.base import Backend, Phase
from airflows.errors import SubmitError
from airflows.ids import Token
from airflows.testing.jobs import BackendSuite, MakeJob

_FOREVER = "echo started; sleep 600"


class BackendContract(BackendSuite):
    """The behaviour of a backend."""

    # What is reported

    @pytest.mark.parametrize("code", [0, 1, 3, 64, 76, 137, 255])
    def test_the_exit_code_of_the_command_is_reported(
        self, backend: Backend, make_job: MakeJob, code: int
    ) -> None:
        seen = self.end(backend, self.start(backend, make_job(f"exit {code}")))

        assert (code, "") == (seen.exit_code, seen.word)

    def test_a_command_killed_by_a_signal_is_no_success(self, backend: Backend, make_job: MakeJob) -> None:
        seen = self.end(backend, self.start(backend, make_job("kill -KILL $$")))

        assert seen.exit_code != 0

    def test_the_command_runs_under_strict_bash(self, backend: Backend, make_job: MakeJob) -> None:
        handles = [
            self.start(backend, make_job(command))
            for command in ("false; true", "false | true", "echo $NOT_SET; true", "[[ -n $BASH_VERSION ]]")
        ]

        failed = [self.end(backend, handle).exit_code != 0 for handle in handles]

        assert failed == [True, True, True, False]

    def test_an_ended_run_tells_when_and_where_it_ran(self, backend: Backend, make_job: MakeJob) -> None:
        before = time.time() - self.clock_skew_s

        seen = self.end(backend, self.start(backend, make_job("sleep 0.3")))

        assert seen.started_at is not None
        assert seen.ended_at is not None
        assert before <= seen.started_at < seen.ended_at <= time.time() + self.clock_skew_s
        assert seen.ended_at - seen.started_at < self.patience_s
        assert seen.host

    def test_an_ended_run_is_reported_alike_again(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job("exit 5"))

        first, second = self.end(backend, handle), self.end(backend, handle)

        assert (first.phase, first.exit_code, first.word) == (second.phase, second.exit_code, second.word)

    def test_a_run_is_running_until_it_ends(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job(_FOREVER))

        seen = self.until(backend, handle, Phase.RUNNING)

        assert seen.exit_code is None
        assert seen.ended_at is None
        backend.cancel([handle])
        self.end(backend, handle)

    def test_only_the_handles_asked_for_are_observed(self, backend: Backend, make_job: MakeJob) -> None:
        one, other = (self.start(backend, make_job("true")) for _ in range(2))

        assert set(backend.poll([one])) <= {one}
        assert backend.poll([]) == {}
        assert self.end(backend, other).exit_code == 0

    def test_submit_answers_in_the_order_of_the_jobs(self, backend: Backend, make_job: MakeJob) -> None:
        count = min(4, backend.capabilities.max_batch, backend.capabilities.slots)
        jobs = [make_job(f"exit {number + 1}") for number in range(count)]

        answers = backend.submit(jobs)
        codes = [
            self.end(backend, answer).exit_code for answer in answers if not isinstance(answer, SubmitError)
        ]

        assert [number + 1 for number in range(count)] == codes

    # Finding

    def test_a_token_that_was_never_submitted_is_not_found(self, backend: Backend, make_job: MakeJob) -> None:
        assert backend.find([make_job("true").token, Token("other-000000-0001-a0")]) == {}

    def test_a_run_whose_handle_was_lost_is_found(
        self, backend: Backend, make_job: MakeJob, reopen: Callable[[], Backend]
    ) -> None:
        job = make_job("sleep 0.5; exit 7")
        self.start(backend, job)

        other = reopen()
        self.until_found(other, job.token)
        found = other.find([job.token, Token("other-000000-0001-a0")])

        assert [job.token] == list(found)
        assert self.end(other, found[job.token]).exit_code == 7

    def test_an_ended_run_is_found(
        self, backend: Backend, make_job: MakeJob, reopen: Callable[[], Backend]
    ) -> None:
        job = make_job("exit 9")
        self.end(backend, self.start(backend, job))

        other = reopen()
        found = other.find([job.token])

        assert self.end(other, found[job.token]).exit_code == 9

    def test_a_handle_is_taken_over_by_the_next_driver(
        self, backend: Backend, make_job: MakeJob, reopen: Callable[[], Backend]
    ) -> None:
        running = self.start(backend, make_job("sleep 0.5; exit 4"))
        ended = self.start(backend, make_job("exit 2"))
        self.end(backend, ended)

        other = reopen()

        assert [self.end(other, handle).exit_code for handle in (running, ended)] == [4, 2]

    def test_a_token_submitted_twice_is_one_run(self, backend: Backend, make_job: MakeJob) -> None:
        if not backend.capabilities.idempotent_submit:
            pytest.skip("the backend does not promise it")
        job = make_job("echo once")

        first, second = self.start(backend, job), self.start(backend, job)
        self.end(backend, first)
        self.end(backend, second)

        assert self.lines(backend, second) == ["once"]

    # Ending

    def test_a_cancelled_run_ends_and_is_no_success(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job(_FOREVER))
        self.until_logged(backend, handle, "started")

        backend.cancel([handle])
        seen = self.end(backend, handle)

        assert seen.exit_code != 0
        assert seen.word

    def test_a_run_cancelled_at_once_ends(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job(_FOREVER))

        backend.cancel([handle])

        assert self.end(backend, handle).exit_code != 0

    def test_a_cancelled_command_gets_the_signal_and_time_to_save(
        self, backend: Backend, make_job: MakeJob
    ) -> None:
        command = """
            trap 'echo saving; sleep 0.2; echo saved; exit 1' TERM
            echo started
            while :; do sleep 0.05 || :; done
        """
        handle = self.start(backend, make_job(command))
        self.until_logged(backend, handle, "started")

        backend.cancel([handle])
        self.end(backend, handle)

        assert [x for x in self.lines(backend, handle) if x.startswith("sav")] == ["saving", "saved"]

    def test_cancelling_twice_or_too_late_does_no_harm(self, backend: Backend, make_job: MakeJob) -> None:
        running, ended = self.start(backend, make_job(_FOREVER)), self.start(backend, make_job("exit 0"))
        assert self.end(backend, ended).exit_code == 0

        backend.cancel([running, ended])
        backend.cancel([running, ended])
        self.end(backend, running)
        backend.cancel([running])

        assert (self.end(backend, ended).exit_code, self.end(backend, ended).word) == (0, "")

    def test_cancelling_one_leaves_the_others(self, backend: Backend, make_job: MakeJob) -> None:
        one = self.start(backend, make_job(_FOREVER))
        other = self.start(backend, make_job("sleep 0.5; exit 6"))

        backend.cancel([one])
        self.end(backend, one)

        assert self.end(backend, other).exit_code == 6

    def test_an_attempt_past_its_time_limit_is_ended(self, backend: Backend, make_job: MakeJob) -> None:
        seen = self.end(backend, self.start(backend, make_job(_FOREVER, timeout_s=1)))

        assert seen.word.lower().replace("_", "") in {"timedout", "timeout"}

    # Logs

    def test_the_log_has_what_the_command_printed(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job("echo out; echo 'ünï' >&2; printf 'no newline'"))
        self.end(backend, handle)

        assert self.lines(backend, handle) == ["out", "ünï", "no newline"]

    def test_only_the_last_lines_are_given_when_asked(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job("for i in {1..5000}; do echo line $i; done"))
        self.end(backend, handle)

        last = list(backend.logs(handle, node=0, follow=False, lines=2))

        assert last == ["line 4999", "line 5000"]

    def test_a_log_is_followed_to_its_end(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job("for i in 1 2 3; do echo $i; sleep 0.1; done"))

        assert list(backend.logs(handle, node=0, follow=True)) == ["1", "2", "3"]

    # What the command sees

    def test_variables_and_files_reach_the_command(self, backend: Backend, make_job: MakeJob) -> None:
        value = "a 'b' \"c\" $HOME `d` ü \\ # end"
        handle = self.start(backend, make_job('printf "%s\\n" "$VALUE"', env={"VALUE": value}))
        self.end(backend, handle)

        assert [value] == self.lines(backend, handle)

    def test_every_node_runs_the_command_and_knows_its_place(
        self, backend: Backend, make_job: MakeJob
    ) -> None:
        command = (
            'echo "$NODE_RANK of $NUM_NODES, $LOCAL_WORLD_SIZE of $WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT"'
        )
        handle = self.start(backend, make_job(command, nodes=2))
        assert self.end(backend, handle).exit_code == 0

        shown = [self.lines(backend, handle, node)[0].split(", ") for node in range(2)]

        assert [words[0] for words in shown] == ["0 of 2", "1 of 2"]
        assert shown[0][1:] == shown[1][1:]
        address, _, port = shown[0][2].rpartition(":")
        assert address
        assert int(port) > 0

    def test_a_failing_node_ends_the_others_and_gives_the_exit_code(
        self, backend: Backend, make_job: MakeJob
    ) -> None:
        command = "if ((NODE_RANK == 1)); then exit 11; fi; sleep 600"
        seen = self.end(backend, self.start(backend, make_job(command, nodes=2)))

        assert seen.exit_code == 11

    def test_an_attempt_resumes_from_the_newest_complete_checkpoint(
        self, backend: Backend, make_job: MakeJob
    ) -> None:
        job = make_job('printf "%s\\n" "$AIRFLOWS_RESUME_FROM"', attempt=1)
        self._save(Path(job.checkpoint_dir))
        handle = self.start(backend, job)
        seen = self.end(backend, handle)

        newest = str(Path(job.checkpoint_dir, "checkpoint-2"))

        assert [newest] == self.lines(backend, handle)
        assert newest == seen.resumed_from

    def _save(self, directory: Path) -> None:
        """Leave two complete checkpoints and a newer one that was being written."""
        for step in (1, 2):
            (directory / f"checkpoint-{step}").mkdir()
            state = json.dumps({"global_step": step})
            (directory / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
        (directory / "checkpoint-3").mkdir()

    def test_a_first_attempt_resumes_from_nothing(self, backend: Backend, make_job: MakeJob) -> None:
        handle = self.start(backend, make_job('echo "<${AIRFLOWS_RESUME_FROM}>"'))
        self.end(backend, handle)

        assert self.lines(backend, handle) == ["<>"]

    # Waiting and reaching

    def test_waiting_takes_no_longer_than_asked(self, backend: Backend) -> None:
        began = time.monotonic()

        backend.wait(0.1)

        assert time.monotonic() - began < 5

    def test_it_can_be_reached(self, backend: Backend) -> None:
        reach = backend.reach()

        assert reach.available, reach.why_not
        assert backend.capabilities.slots > 0
        assert backend.capabilities.max_batch > 0


class PlaceContract(BackendSuite):
    """What of the contract depends on how a backend among several is told its jobs and its handles."""

    test_submit_answers_in_the_order_of_the_jobs = (
        BackendContract.test_submit_answers_in_the_order_of_the_jobs
    )
    test_a_run_whose_handle_was_lost_is_found = BackendContract.test_a_run_whose_handle_was_lost_is_found
    test_a_handle_is_taken_over_by_the_next_driver = (
        BackendContract.test_a_handle_is_taken_over_by_the_next_driver
    )
    test_cancelling_one_leaves_the_others = BackendContract.test_cancelling_one_leaves_the_others
    test_a_log_is_followed_to_its_end = BackendContract.test_a_log_is_followed_to_its_end
