"""`airflows plan` and `airflows sweep --plan`: what was planned is run, and nothing else."""

import json
import re
import shutil

import pytest

from airflows.ids import digest


def project(cli, **fields):
    """Write a sweep with its code in a directory of the same, and a train.yaml."""
    cli.write("train.py", "print('one')\n")
    cli.train_file(command="true", code_source={"type": "snapshot", "snapshot": {"root_path": "."}})
    tree = {
        "name": "lr",
        "base": "train.yaml",
        "space": {"parameters.lr": [0.1, 0.2]},
        "tracking": {"uri": "none"},
    }
    return cli.write("sweep.yaml", {**tree, **fields})


def hash_of(cli, *words):
    done = cli("plan", "sweep.yaml", *words, "-o", "json")
    assert done.status == 0, done.err
    return done.document["hash"]


def test_a_plan_says_what_would_run_and_starts_nothing(cli):
    project(cli, replicates={"key": "parameters.seed", "values": [0, 1]}, include=[{"parameters.lr": 0.1}])
    cli.train_file(command="true", timeout_minutes=30)

    done = cli("plan", "sweep.yaml")

    assert done.status == 0
    assert "lr: 4 trials (2 points x 2 replicates) on local. Nothing was started." in done.out
    assert "1 duplicate point dropped" in done.out
    assert "none of it has run before" in done.out
    assert "accelerator-hours: 2 (at most, by timeout_minutes, with one attempt each" in done.out
    written = json.loads((cli.directory / "plan.json").read_text())
    assert f"plan {written['hash']} is in plan.json" in done.out
    assert written["hash"] == digest({"plan": 1, **written["decides"]})
    assert written["points"] == [{"parameters.lr": 0.1}, {"parameters.lr": 0.2}]
    assert cli("list", "--all", "-o", "json").document == {"sweeps": []}


def test_the_plan_of_a_file_is_run_from_either_name_and_recorded(cli):
    project(cli)
    planned = hash_of(cli)

    first = cli("sweep", "--plan", "plan.json", "-o", "json")
    again = cli("sweep", "sweep.yaml", "--plan", planned[:8], "-o", "json")

    assert (first.status, again.status) == (0, 0), first.err + again.err
    assert first.document["sweep"] == again.document["sweep"]
    assert cli("get", "lr", "-o", "json").document["plan"] == planned
    assert planned in cli("get", "lr").out
    # The plan lies among the code, and is none.
    assert cli("sweep", "sweep.yaml").status == 0
    assert hash_of(cli, "--out", "other.json") == planned


def test_a_plan_holds_the_options_it_was_made_with(cli):
    project(cli)
    options = ["--override", "parameters.opt=sgd", "--set", "limits.concurrent=1"]
    hash_of(cli, *options)

    assert cli("sweep", "--plan", "plan.json").status == 0
    trial = cli("get", "lr/0", "-o", "json").document
    assert trial["config"]["parameters"]["opt"] == "sgd"
    without = cli("sweep", "sweep.yaml", "--plan", "plan.json")
    assert without.status == 2
    assert 'base.parameters.opt was "sgd", and is "adam"' in without.error
    assert "limits.concurrent was 1, and is not there" in without.error
    assert cli("sweep", "sweep.yaml", "--plan", "plan.json", *options).status == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cli: cli.write("train.py", "print('two')\n"), "code: train.py changed"),
        (lambda cli: cli.write("new.py", ""), "code: new.py added"),
        (
            lambda cli: project(cli, space={"parameters.lr": [0.1, 0.3]}),
            "space.parameters.lr.values was [0.1,0.2]",
        ),
        (lambda cli: project(cli, limits={"concurrent": 9}), "limits.concurrent was not there, and is 9"),
        (
            lambda cli: cli.train_file(
                command="false", code_source={"type": "snapshot", "snapshot": {"root_path": "."}}
            ),
            'base.command was "true", and is "false"',
        ),
    ],
    ids=["code", "new file", "space", "limits", "base"],
)
def test_anything_else_is_refused_and_what_differs_is_named(cli, change, words):
    project(cli)
    planned = hash_of(cli)
    change(cli)

    for named in (["sweep.yaml", "--plan", planned[:12]], ["--plan", "plan.json"]):
        done = cli("sweep", *named)
        assert done.status == 2
        assert words in done.error
        assert "Nothing was started." in done.error
    assert cli("list", "--all", "-o", "json").document == {"sweeps": []}


def test_comments_and_other_ways_of_writing_are_no_difference(cli):
    project(cli, retry={"wait": "60s"})
    planned = hash_of(cli)
    path = project(cli, retry={"wait": "1m"})
    path.write_text(f"# a comment\n{path.read_text()}")

    assert cli("sweep", "sweep.yaml", "--plan", planned).status == 0


def test_a_project_may_be_moved_with_its_plan(cli):
    project(cli)
    hash_of(cli)
    moved = cli.directory / "elsewhere"
    moved.mkdir()
    for name in ("train.py", "train.yaml", "sweep.yaml", "plan.json"):
        shutil.move(cli.directory / name, moved / name)

    assert cli("sweep", "--plan", "elsewhere/plan.json").status == 0


def test_a_hash_without_its_plan_tells_only_that_it_differs(cli):
    project(cli)
    planned = hash_of(cli)
    (cli.directory / "plan.json").unlink()
    assert cli("sweep", "sweep.yaml", "--plan", planned[:10]).status == 0

    done = cli("sweep", "sweep.yaml", "--plan", "0123456789")
    assert done.status == 2
    assert f"this is not plan 0123456789: its hash is {planned[:12]}" in done.error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sweep.yaml", "--plan", "nothex"], "neither a plan.json nor the hash of a plan"),
        (["sweep.yaml", "--plan", "abc"], "8 to 64 hex digits"),
        (["--plan", "none.json"], "none.json: it cannot be read"),
        (["--plan", "0123456789abcdef"], "no plan.json here tells which sweep.yaml it is of"),
        (["--plan", "plan.json", "--set", "limits.concurrent=2"], "are in the plan already"),
        ([], "no sweep.yaml is named"),
    ],
)
def test_what_names_no_plan_is_said_so(cli, words, told):
    project(cli)
    hash_of(cli)

    done = cli("sweep", *words)

    assert done.status == 2
    assert told in done.error


def test_a_password_among_the_options_is_kept_nowhere_and_is_to_be_given_again(cli):
    project(cli)
    options = ["--override", "env_variables.DB=postgres://me:hunter2@host/x"]
    done = cli("plan", "sweep.yaml", *options, "-o", "json")

    assert "hunter2" not in done.out + done.err + (cli.directory / "plan.json").read_text()
    refused = cli("sweep", "--plan", "plan.json")
    assert refused.status == 2
    assert "a secret among its options" in refused.error
    assert cli("sweep", "sweep.yaml", "--plan", "plan.json", *options).status == 0


def test_a_plan_that_was_changed_by_hand_is_refused(cli):
    project(cli)
    hash_of(cli)
    path = cli.directory / "plan.json"
    document = json.loads(path.read_text())
    document["decides"]["limits"]["concurrent"] = 100
    path.write_text(json.dumps(document))

    done = cli("sweep", "--plan", "plan.json")

    assert done.status == 2
    assert "plan.json: it was changed after it was made" in done.error


def test_what_a_start_would_refuse_has_no_plan(cli):
    project(cli, space={"compute.num_accelerators": [1, 3], "compute.accelerator_type": ["GPU_8xH100"]})

    done = cli("plan", "sweep.yaml")

    assert done.status == 2
    assert "Trial 0 cannot run" in done.error
    assert not (cli.directory / "plan.json").exists()


def test_the_cost_is_estimated_by_what_has_run_and_what_has_run_is_told(cli):
    project(cli)
    done = cli("sweep", "sweep.yaml", "-o", "json")
    project(cli, space={"parameters.lr": [0.1, 0.2, 0.3, 0.4]})

    planned = cli("plan", "sweep.yaml", "-o", "json").document

    sweep = done.document["sweep"]
    assert planned["history"] == {
        "sweep": sweep,
        "attaches": False,
        "succeeded": 2,
        "failed": 0,
        "unfinished": 0,
        "new": 2,
    }
    estimate = planned["estimate"]
    assert (estimate["basis"], estimate["sweep"], estimate["trials"]) == ("trials", sweep, 2)
    assert 0 < estimate["accelerator_hours"] == estimate["accelerator_hours_left"]
    assert f"airflows resume {sweep} --add sweep.yaml" in cli("plan", "sweep.yaml").out


def test_a_plan_of_what_is_there_says_that_a_start_goes_on_with_it(cli):
    project(cli)
    cli("sweep", "sweep.yaml")

    done = cli("plan", "sweep.yaml")

    assert "points: 2 succeeded, 0 new" in done.out
    assert "a start goes on with that one" in done.out
    assert "0 of them for what is left to run" in done.out
    file = cli.directory / "sweep.yaml"
    (cli.directory / "other.yaml").write_text(
        re.sub(r"^name: .*$", "name: other", file.read_text(), flags=re.MULTILINE)
    )
    other = cli("plan", "other.yaml").out
    assert "a start is another sweep and runs all of them" in other
    assert "--add" not in other
    assert cli("plan", "sweep.yaml", "--new", "-o", "json").document["sweep"] is None


def test_a_method_that_learns_is_planned_by_what_it_chooses_by(cli):
    pytest.importorskip("optuna")
    learns = {
        "space": {"parameters.lr": {"min": 0.1, "max": 0.9}},
        "search": {"method": "tpe", "trials": 30},
        "objective": {"metric": "loss", "goal": "minimize"},
        "tracking": {},
    }
    project(cli, **learns)

    done = cli("plan", "sweep.yaml")

    assert done.status == 0, done.err
    assert "Its first 10 points are known; tpe chooses the others" in done.out


def test_a_dry_run_of_a_plan_looks_at_the_plan(cli):
    project(cli)
    hash_of(cli, "--override", "env_variables.HF_TOKEN=hunter2")
    written = cli.directory / "plan.json"
    assert "hunter2" not in written.read_text()
    assert written.stat().st_mode & 0o777 == 0o600

    done = cli("sweep", "sweep.yaml", "--plan", "plan.json", "--dry-run")

    assert done.status == 2
    assert "this is not what plan.json says" in done.error


def test_a_file_that_only_begins_like_a_plan_is_code(cli):
    project(cli)
    head = {"plan": 1, "hash": "0" * 64}
    cli.write("settings.json", json.dumps({**head, "depth": 1}))
    hash_of(cli)
    cli.write("settings.json", json.dumps({**head, "depth": 2}))

    done = cli("sweep", "--plan", "plan.json")

    assert done.status == 2
    assert "settings.json changed" in done.error
