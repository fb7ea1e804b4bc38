"""When trials of a rehearsal are killed or have done enough, and what is concluded from them."""

from dataclasses import replace
from pathlib import Path

import pytest

from airflows.rehearsal.casting import Cast, Probe
from airflows.rehearsal.directing import Playing, cue
from airflows.rehearsal.estimate import Estimate, estimate, estimate_rows
from airflows.rehearsal.evidence import AttemptSeen, TrialSeen
from airflows.rehearsal.judgement import Wanted, is_go, judge
from airflows.rehearsal.rows import Mark
from airflows.rehearsal.script import Script
from airflows.scores import MetricPoint
from airflows.sweepfile import sweep_from_mapping
from airflows.trial import Reason, State

SCRIPT = Script("demo", branches=1, steps=3, timeout_s=60.0, metrics=("loss",))
LOSS = Wanted(metrics=("loss",))
KILLED = AttemptSeen(100.0, 101.0, asked_at=118.0, ended_at=120.0, exit_code=143, reason=Reason.PAUSED)
RESUMED = AttemptSeen(
    121.0, 122.0, asked_at=138.0, ended_at=140.0, exit_code=143, resumed_from="/c/step-4.pt"
)


def curve(steps, at=110.0, value=lambda step: 1.0 / (step + 1)):
    return [MetricPoint(step, value(step), int((at + n) * 1000)) for n, step in enumerate(steps)]


def playing(**given):
    return Playing(**({"number": 0, "attempt": 0, "seconds": 5.0} | given))


def trial(first=(), later=(), **given):
    """A trial of one or two attempts that has logged the loss at these steps."""
    attempts = (KILLED, RESUMED) if later or given.pop("was_resumed", False) else (KILLED,)
    curves = {"loss": [*curve(first), *curve(later, 130.0)]} if first or later else {}
    return TrialSeen(**({"number": 0, "attempts": attempts, "curves": curves} | given))


def rows(seen, wanted=LOSS, cast=None):
    trials = seen if isinstance(seen, dict) else {0: seen}
    return {row.check: row for row in judge(cast or Cast([{}], [""]), trials, wanted)}


class TestDirecting:
    """`cue`."""

    def test_a_trial_is_killed_once_it_has_a_checkpoint_and_two_steps(self):
        both = playing(now={"loss": curve([0, 1])}, checkpoint="/c/step-1.pt")

        found = cue(SCRIPT, both)

        assert found is not None
        assert found.resumes
        assert "after step 1" in found.words
        assert cue(SCRIPT, replace(both, checkpoint="")) is None
        assert cue(SCRIPT, replace(both, now={"loss": curve([0])})) is None

    def test_without_steps_three_values_are_enough(self):
        stepless = playing(now={"loss": curve([0, 0, 0])}, checkpoint="/c/last.ckpt")

        assert cue(SCRIPT, stepless) is not None
        assert cue(SCRIPT, replace(stepless, now={"loss": curve([0, 0])})) is None

    def test_without_mlflow_a_checkpoint_is_enough_and_a_newer_one_ends_it(self):
        first = playing(checkpoint="/c/a.pt")
        second = playing(attempt=1, checkpoint="/c/b.pt", is_newer=True)

        assert cue(SCRIPT, first, logs=False) is not None
        assert cue(SCRIPT, second, logs=False) is not None
        assert cue(SCRIPT, replace(second, is_newer=False), logs=False) is None

    @pytest.mark.parametrize(
        ("steps", "is_enough"),
        [
            ([5, 6, 7], True),
            ([3, 4, 5, 6], False),
            ([3, 4, 5, 6, 7], True),
            ([0, 1], False),
            ([0, 1, 2], True),
        ],
    )
    def test_a_resumed_trial_has_to_log_new_steps_or_begin_anew(self, steps, is_enough):
        seen = playing(attempt=1, before={"loss": curve(range(5))}, now={"loss": curve(steps)})

        assert (cue(SCRIPT, seen) is not None) is is_enough

    def test_it_is_waited_for_the_metric_that_decides_unless_it_has_another_name(self):
        now = {"train": curve([5, 6, 7])}
        other = playing(attempt=1, before={"train": curve(range(5))}, now=now)

        assert cue(SCRIPT, other) is None
        assert cue(SCRIPT, replace(other, now=now | {"Loss": curve([5])})) is not None

    def test_an_attempt_has_only_so_much_time(self):
        found = cue(SCRIPT, playing(seconds=60.0))

        assert found is not None
        assert not found.resumes

    def test_a_trial_that_is_compared_ends_when_there_is_enough_to_compare(self):
        seen = playing(number=1, now={"loss": curve([0, 1, 2])}, checkpoint="/c/step-1.pt")

        assert cue(SCRIPT, seen) is not None
        assert cue(SCRIPT, replace(seen, now={"loss": curve([0, 1])})) is None
        assert cue(SCRIPT, replace(seen, now={"loss": curve([0, 0, 0])})) is not None


class TestResuming:
    """The row about checkpoints."""

    def test_going_on_past_the_kill_is_ok(self):
        row = rows(trial(range(5), range(5, 9)))["resumes"]

        assert row.mark is Mark.OK
        assert row.words == "killed at step 4, went on from step-4.pt at step 5, to step 8"

    def test_steps_that_are_done_again_are_told(self):
        row = rows(trial(range(5), range(3, 9)))["resumes"]

        assert row.mark is Mark.OK
        assert "loss of steps 3 to 4 was logged twice" in row.words

    def test_beginning_again_is_a_failure(self):
        row = rows(trial(range(5), range(4)))["resumes"]

        assert (row.mark, row.words) == (
            Mark.FAIL,
            "began again at step 0 (killed at step 4, started from step-4.pt)",
        )

    def test_values_that_replaced_all_earlier_ones_are_a_beginning_from_the_start(self):
        row = rows(trial([], range(4)))["resumes"]

        assert row.mark is Mark.FAIL
        assert "began again from the start" in row.words

    def test_logging_nothing_after_the_kill_is_a_failure(self):
        row = rows(trial(range(5), was_resumed=True))["resumes"]

        assert row.mark is Mark.FAIL

    def test_a_resumed_attempt_that_fails_is_a_failure(self):
        row = rows(trial(range(5), [5], state=State.FAILED, message="KeyError: 'optimizer'"))["resumes"]

        assert row.mark is Mark.FAIL
        assert "KeyError" in row.words

    def test_without_steps_nothing_can_be_told(self):
        assert rows(trial([0, 0, 0], [0, 0]))["resumes"].mark is Mark.WARN

    def test_the_metric_with_steps_is_looked_at(self):
        seen = trial(range(5), range(5, 9))
        curves = {"loss": curve([0]) + curve([0], 130.0), "train": seen.curves["loss"]}

        assert rows(replace(seen, curves=curves))["resumes"].mark is Mark.OK

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"state": State.SUCCEEDED}, "ended by itself"),
            ({}, "a preempted trial starts from 0"),
            ({"checkpoint": "step-0.pt"}, "did not log two steps"),
            ({"state": State.FAILED}, "it failed before"),
        ],
    )
    def test_what_is_not_shown_is_a_warning_or_a_no_go_where_it_is_required(self, given, words):
        seen = trial([0], **given)

        relaxed, strict = (
            rows(seen)["resumes"],
            rows(seen, replace(LOSS, requires_checkpoint=True))["resumes"],
        )

        assert (relaxed.mark, strict.mark) == (Mark.WARN, Mark.FAIL)
        assert words in relaxed.words

    def test_a_preemption_by_the_place_serves_as_well(self):
        seen = trial(range(5), range(5, 9))
        taken = replace(KILLED, asked_at=None, reason=Reason.PREEMPTED)

        found = rows(replace(seen, attempts=(taken, RESUMED)))

        assert (found["resumes"].mark, found["ends on SIGTERM"].mark) == (Mark.OK, Mark.INFO)


class TestMetrics:
    """The rows about metrics."""

    def test_another_name_is_a_failure_that_names_the_nearest(self):
        row = rows(trial(range(5), range(5, 9)), Wanted(metrics=("val_loss",)))["metric val_loss"]

        assert row.mark is Mark.FAIL
        assert "'loss'" in row.words

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.7976931348623157e308])
    def test_a_value_that_is_no_number_is_a_failure(self, value):
        seen = replace(trial(), curves={"loss": curve([0, 1], value=lambda _: value)})

        assert rows(seen)["metric loss"].mark is Mark.FAIL

    def test_what_a_constraint_looks_at_must_be_logged_with_or_without_steps(self):
        bounded = replace(LOSS, bounded=["latency_ms"], needs_steps=True)
        seen = trial(range(5), range(5, 9))
        there = replace(seen, curves={**seen.curves, "latency_ms": curve([0, 0])})

        assert rows(seen, bounded)["metric latency_ms"].mark is Mark.FAIL
        assert rows(there, bounded)["metric latency_ms"].mark is Mark.WARN

    def test_missing_steps_are_a_warning_and_a_failure_for_a_stopping_rule(self):
        seen = trial([0, 0, 0])

        assert rows(seen)["metric loss"].mark is Mark.WARN
        assert rows(seen, replace(LOSS, needs_steps=True))["metric loss"].mark is Mark.FAIL

    def test_without_an_objective_what_is_logged_is_listed(self):
        row = rows(trial(range(3)), Wanted())["metric"]

        assert row.mark is Mark.INFO
        assert "loss" in row.words

    def test_what_mlflow_logs_by_itself_is_not_the_programs(self):
        seen = replace(trial(), curves={"system/cpu": curve([0, 1])})

        assert "nothing" in rows(seen, Wanted())["metric"].words


class TestKeys:
    """The rows about swept keys."""

    cast = Cast([{}] * 3, [""], controls={0: 1}, probes=[Probe("parameters.lr", 2, 0, 0.1, 0.2)])

    def rows_for(self, probe, control=None, first=None, **wanted):
        base = {"loss": curve(range(3))} if first is None else first
        trials = {
            0: TrialSeen(0, attempts=(KILLED,), curves=base),
            1: TrialSeen(1, attempts=(KILLED,), curves=base if control is None else control),
            2: probe if isinstance(probe, TrialSeen) else TrialSeen(2, attempts=(KILLED,), curves=probe),
        }
        return rows(trials, replace(LOSS, **wanted), self.cast)

    def test_a_change_that_changes_a_metric_is_ok_and_shown(self):
        row = self.rows_for({"loss": curve(range(3), value=lambda s: s + 1.0)})["key parameters.lr"]

        assert (row.mark, row.words) == (Mark.OK, "0.1 -> 0.2: loss 0.5 -> 2 at step 1")

    def test_a_change_that_changes_nothing_is_a_failure_unless_it_is_excused(self):
        same = {"loss": curve(range(3), at=115.0)}

        assert self.rows_for(same)["key parameters.lr"].mark is Mark.FAIL
        assert self.rows_for(same, excused=["parameters.lr"])["key parameters.lr"].mark is Mark.INFO

    def test_times_do_not_hide_that_what_decides_has_not_changed(self):
        def logged(offset):
            return {"loss": curve(range(3)), "s": curve(range(3), value=lambda s: s + offset)}

        row = self.rows_for(logged(0.3), logged(0.2), logged(0.1))["key parameters.lr"]

        assert (row.mark, "loss has not changed" in row.words) == (Mark.FAIL, True)

    def test_where_two_equal_runs_differ_nothing_can_be_told(self):
        def noisy(offset):
            return {"loss": curve(range(3), value=lambda s: s + offset)}

        row = self.rows_for(noisy(0.3), noisy(0.2), noisy(0.1))["key parameters.lr"]

        assert (row.mark, "cannot be told" in row.words) == (Mark.WARN, True)

    def test_steps_that_the_repetition_never_reached_prove_nothing(self):
        def seen(count, last):
            return {"loss": curve(range(count), value=lambda s: last if s == 4 else 1.0), "s": curve([0])}

        row = self.rows_for(seen(5, 3.0), control=seen(3, 1.0), first=seen(5, 2.0))["key parameters.lr"]

        assert (row.mark, "loss has not changed (3 steps" in row.words) == (Mark.FAIL, True)

    def test_a_probe_is_judged_by_the_repetition_of_its_own_branch(self):
        cast = Cast(
            [{}] * 5, ["a", "b"], controls={0: 2, 1: 3}, probes=[Probe("parameters.lr", 4, 1, 0.1, 0.2)]
        )
        values = {0: 1.0, 1: 2.0, 2: 1.0, 3: 3.0, 4: 4.0}
        trials = {
            n: TrialSeen(n, attempts=(KILLED,), curves={"loss": curve(range(3), value=lambda _, v=v: v)})
            for n, v in values.items()
        }

        row = rows(trials, LOSS, cast)["key parameters.lr"]

        assert (row.mark, "cannot be told" in row.words) == (Mark.WARN, True)

    def test_an_effect_that_comes_with_other_keys_is_a_warning(self):
        cast = replace(
            self.cast,
            rows=[
                {"parameters.lr": 0.1, "parameters.m": 1},
                {},
                {"parameters.lr": 0.2},
            ],
        )
        base = {"loss": curve(range(3))}
        changed = {"loss": curve(range(3), value=lambda s: s + 5.0)}
        trials = {n: TrialSeen(n, attempts=(KILLED,), curves=changed if n == 2 else base) for n in range(3)}

        row = rows(trials, LOSS, cast)["key parameters.lr"]

        assert (row.mark, "changed together with parameters.m" in row.words) == (Mark.WARN, True)

    @pytest.mark.parametrize(
        ("control", "words"),
        [
            (TrialSeen(1, State.FAILED, "port 29500 is in use", (KILLED,)), "port 29500"),
            (TrialSeen(1, State.CANCELLED, "", (KILLED,)), "cancelled"),
            (TrialSeen(1, attempts=(KILLED,)), "logged nothing"),
            (None, "never started"),
        ],
    )
    def test_a_repetition_that_does_not_go_well_is_a_failure(self, control, words):
        seen = {n: TrialSeen(n, attempts=(KILLED,), curves={"loss": curve(range(3))}) for n in (0, 2)}

        row = rows(seen | ({} if control is None else {1: control}), LOSS, self.cast)["runs again"]

        assert (row.mark, words in row.words) == (Mark.FAIL, True)

    @pytest.mark.parametrize("state", [State.FAILED, State.STOPPED])
    def test_a_trial_that_fails_or_logs_nothing_is_not_excused(self, state):
        row = self.rows_for(TrialSeen(2, state, "", (KILLED,)), excused=["parameters.lr"])

        assert row["key parameters.lr"].mark is Mark.FAIL

    def test_a_key_that_the_program_would_see_and_that_is_not_tried_is_a_warning(self):
        cast = Cast(
            [{}],
            [""],
            keys_left={"parameters.lr": "no time", "compute.num_accelerators": "the backend's"},
            out_of_sight={"compute.num_accelerators"},
        )

        found = rows(trial(range(5)), LOSS, cast)

        marks = found["key parameters.lr"].mark, found["key compute.num_accelerators"].mark
        assert marks == (Mark.WARN, Mark.INFO)

    def test_an_unread_file_is_no_failure_where_what_it_holds_is_not_swept(self):
        cast = Cast([{}] * 3, [""], controls={0: 1}, probes=[Probe("env_variables.X", 2, 0, "1", "2")])
        seen = {n: TrialSeen(n, attempts=(KILLED,), checkpoint="a.ckpt", was_read=False) for n in range(3)}

        assert rows(seen, Wanted(logs=False), cast)["parameters file"].mark is Mark.WARN

    def test_trials_without_a_step_in_common_tell_nothing(self):
        assert self.rows_for({"loss": curve([7])})["key parameters.lr"].mark is Mark.WARN

    def test_a_change_with_which_the_trial_fails_is_a_failure(self):
        failed = TrialSeen(2, State.FAILED, "CUDA out of memory", (KILLED,))

        row = self.rows_for(failed)["key parameters.lr"]

        assert (row.mark, "CUDA out of memory" in row.words) == (Mark.FAIL, True)

    @pytest.mark.parametrize(
        ("was_read", "has_effect", "mark"),
        [
            (True, False, Mark.OK),
            (None, False, Mark.INFO),
            (False, True, Mark.INFO),
            (False, False, Mark.FAIL),
        ],
    )
    def test_an_unread_file_is_a_failure_unless_values_arrive_anyway(self, was_read, has_effect, mark):
        curves = {"loss": curve(range(3), value=lambda s: s + 9.0 if has_effect else 1 / (s + 1))}
        trials = {n: TrialSeen(n, attempts=(KILLED,), was_read=was_read) for n in range(3)}
        base = {"loss": curve(range(3))}
        trials |= {n: replace(trials[n], curves=base) for n in (0, 1)}
        trials[2] = replace(trials[2], curves=curves)

        assert rows(trials, LOSS, self.cast)["parameters file"].mark is mark


def test_a_branch_that_never_started_is_no_go():
    made = judge(Cast([{}, {}], ["opt: a", "opt: b"]), {0: trial(range(5), range(5, 9))}, LOSS)

    assert [(row.branch, row.mark) for row in made if row.check == "runs"] == [
        ("opt: a", Mark.OK),
        ("opt: b", Mark.FAIL),
    ]
    assert not is_go(made)


def test_a_branch_that_shows_neither_value_nor_checkpoint_is_no_go():
    assert rows(TrialSeen(0, attempts=(KILLED,)), Wanted())["runs"].mark is Mark.FAIL


def test_a_branch_that_the_backend_refused_says_why():
    seen = TrialSeen(0, State.FAILED, "no such partition")

    assert rows(seen)["runs"].words == "no such partition"


def sweep(**fields):
    base = {
        "experiment_name": "demo",
        "command": "true",
        "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 8},
        "parameters": {"lr": 0.1},
    }
    tree = {"name": "demo", "base": base, "space": {"parameters.lr": [0.1, 0.2, 0.3]}, **fields}
    return sweep_from_mapping(tree, directory=Path("/work"))


def test_the_price_of_the_whole_is_that_of_its_steps_and_the_time_before_the_first():
    # A second a step, nine seconds before the first one.
    seen = {0: replace(trial(range(5), range(5, 9)), host_bytes=3 * 2**30)}

    known = estimate(sweep(), Cast([{}], [""]), seen, 1791)

    assert known == Estimate(3 * 2**30, None, 1.0, 9.0, 1800.0, 3 * 8 * 0.5)
    words = {row.check: row.words for row in estimate_rows(sweep(), known)}
    assert words["memory"] == "on the host 3.00 GiB, on GPUs not known here"
    assert words["whole sweep"] == "12 accelerator-hours, 30m00s a trial"


def test_more_than_may_be_spent_is_a_warning():
    limited = sweep(limits={"accelerator_hours": 10})

    rows = estimate_rows(limited, Estimate(trial_s=1800.0, accelerator_hours=12.0))

    assert rows[-1].mark is Mark.WARN


def test_a_trial_that_ended_by_itself_says_how_long_all_take():
    seen = {0: replace(trial([0]), state=State.SUCCEEDED)}

    known = estimate(sweep(), Cast([{}], [""]), seen, None)

    assert known.trial_s == 19.0


def test_without_the_number_of_steps_a_thousand_are_priced():
    known = estimate(sweep(), Cast([{}], [""]), {0: trial(range(5))}, None)

    assert known.accelerator_hours is None
    assert "6.67 accelerator-hours if a trial has 1,000 steps" in estimate_rows(sweep(), known)[-1].words
