"""Sweeps on two places of this machine, as a person drives them and looks at them."""

import json
from collections import Counter

import pytest

# Trial 0 holds the first place until it is let go; trial 1 fails once.
COMMAND = """\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"{directory}/runs.txt"
echo "trial $AIRFLOWS_TRIAL speaks"
case "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" in
  0.*) while [ ! -e "{directory}/go" ]; do sleep 0.05; done ;;
  1.0) echo "ValueError: no luck"; exit 3 ;;
esac
"""


@pytest.fixture
def burst(cli):
    """Write a sweep whose first place has room for one trial."""
    other = {"type": "local", "name": "other", "root": f"{cli.directory}/other", "concurrent": 1}
    other["compute"] = {"accelerator_type": "GPU_8xH100", "num_accelerators": 8}
    cli.sweep_file(
        COMMAND.format(directory=cli.directory),
        backend={"type": "burst", "first": {"type": "local", "concurrent": 1}, "then": other, "after": "1h"},
        retry={"max": 1, "wait": "0s"},
    )
    return cli


def runs(cli):
    path = cli.directory / "runs.txt"
    return Counter(path.read_text().split()) if path.exists() else Counter()


ONCE = {"0.0": 1, "1.0": 1, "1.1": 1, "2.0": 1}


def test_a_sweep_s_story_tells_where_each_trial_ran_and_what_it_took(burst):
    driving = burst.start("sweep", "sweep.yaml")
    burst.wait_for(lambda: set(runs(burst)) == set(ONCE), "the trials of the second place")
    (burst.directory / "go").touch()

    assert driving.wait(60) == 0
    assert runs(burst) == ONCE
    shown = burst("results", "lr", "-o", "json").document["places"]
    assert {one["place"]: one["trials"] for one in shown} == {"local": [0], "other": [1, 2]}
    assert shown == burst("get", "lr", "-o", "json").document["places"]
    ran = {one["place"]: one["run_s"] for one in shown}
    hours = {one["place"]: sum(one["accelerator_hours"].values()) for one in shown}
    # A trial of the second place has eight accelerators.
    assert hours["local"] == pytest.approx(ran["local"] / 3600)
    assert hours["other"] == pytest.approx(8 * ran["other"] / 3600)
    table = [line.split()[:3] for line in burst("get", "lr").out.splitlines()]
    assert table[table.index(["PLACE", "TRIALS", "MOVED"]) + 1 :][:2] == [
        ["local", "1", "0"],
        ["other", "2", "0"],
    ]
    failed = burst("get", "lr/1.0", "-o", "json").document["attempts"][0]
    assert (failed["backend"], failed["launch_dir"]) == ("other", f"{burst.directory}/other/{lies(failed)}")
    assert burst("logs", "lr/1.0").out.splitlines() == ["trial 1 speaks", "ValueError: no luck"]
    handle = burst("list", "--runs", "--all", "-o", "json").document["runs"][0]["handle"]
    assert burst("get", handle, "-o", "json").document["backend"] in {"local", "other"}


def lies(attempt):
    return "/".join(attempt["launch_dir"].rsplit("/", 4)[1:])


def test_a_trial_is_cancelled_in_its_place_and_the_sweep_goes_on(burst):
    driving = burst.start("sweep", "sweep.yaml")
    burst.wait_for(lambda: set(runs(burst)) == set(ONCE), "the trials of the second place")

    assert burst("cancel", "lr/0", "--yes").status == 0
    assert driving.wait(60) == 0
    assert burst.states() == {"succeeded": 2, "cancelled": 1}


def test_a_lost_ledger_is_rebuilt_from_both_places(burst):
    driving = burst.start("sweep", "sweep.yaml")
    burst.wait_for(lambda: burst.states().get("succeeded") == 2, "the trials of the second place")
    driving.kill()
    driving.wait()
    for path in burst.home.glob("ledger.db*"):
        path.unlink()
    rebuilding = burst.start("resume", "sweep.yaml", "--rebuild")
    burst.wait_for(lambda: burst.states().get("running") == 1, "the one that still runs")
    (burst.directory / "go").touch()

    assert rebuilding.wait(60) == 0, rebuilding.stderr.read()
    assert runs(burst) == ONCE
    attempts = burst("get", "lr/1", "-o", "json").document["attempts"]
    assert [one["backend"] for one in attempts] == ["other", "other"]
    assert burst("get", "lr/0", "-o", "json").document["backend"] == "local"


def test_what_a_place_is_like_is_told_before_anything_runs(burst):
    told = burst(
        "sweep", "sweep.yaml", "--dry-run", "--override", "timeout_minutes=30", "-o", "json"
    ).document
    shown = told["backend"]

    # All three trials in the dearer place.
    assert told["accelerator_hours_once"] == 3 * 8 * 0.5
    assert shown["type"] == "burst"
    assert {note.partition(":")[0] for note in shown["notes"]} == {"local", "other"}
    assert burst("validate", "sweep.yaml").status == 0
    assert not burst.home.joinpath("ledger.db").exists()


def test_a_file_with_one_place_says_how_two_are_written(burst):
    burst.sweep_file(backend={"type": "burst", "first": "local"})

    done = burst("sweep", "sweep.yaml")

    assert done.status == 2
    assert "then: databricks, after: 10m" in done.error


def test_the_options_of_bursting_are_listed(cli):
    shown = cli("backends", "burst", "-o", "json").document["backends"][0]

    assert set(shown["options"]["properties"]) == {"type", "first", "then", "after"}
    assert "where trials go `first`" in shown["why_not"]
    schema = json.loads(cli("validate", "--schema", "sweep").out)
    assert "burst" in json.dumps(schema["properties"]["backend"])


def test_a_place_with_trials_in_flight_cannot_be_left_out(burst):
    driving = burst.start("sweep", "sweep.yaml")
    burst.wait_for(lambda: set(runs(burst)) == set(ONCE), "the trials of the second place")
    driving.kill()
    driving.wait()

    then = json.dumps({"type": "local", "name": "third", "root": f"{burst.directory}/third"})
    first = json.dumps({"type": "local", "name": "fourth"})
    done = burst("resume", "lr", "--set", f"backend.then={then}", "--set", f"backend.first={first}")

    assert done.status != 0
    assert "has trials in flight on local" in done.error
    (burst.directory / "go").touch()
    assert burst("resume", "lr").status == 0
    assert runs(burst) == ONCE
