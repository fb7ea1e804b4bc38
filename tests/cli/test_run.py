"""`airflows run`: one train.yaml."""

import pytest

NO_MLFLOW = {"MLFLOW_TRACKING_URI": "none"}


@pytest.fixture
def run(cli):
    """Run a train.yaml with this command, without MLflow."""

    def go(command, *words):
        cli.train_file(command=command, max_retries=0)
        return cli("run", "-f", "train.yaml", *words, env=NO_MLFLOW)

    return go


def test_a_run_is_a_sweep_of_one_trial(cli, run):
    document = run("true", "-o", "json").document
    assert document["state"] == "succeeded"
    assert document["trials"]["total"] == 1
    assert document["sweep"].startswith("demo-")
    assert cli("get", document["sweep"] + "/0", "-o", "json").document["state"] == "succeeded"


def test_a_failing_run_has_status_1_and_shows_its_last_lines(run):
    done = run("echo one; echo RuntimeError: two; exit 4")
    assert done.status == 1
    assert "  | RuntimeError: two" in done.err
    assert "exit" in done.out or "RuntimeError: two" in done.out


def test_every_call_is_another_run(cli, run):
    assert run("true", "-o", "json").document["sweep"] != run("true", "-o", "json").document["sweep"]
    assert len(cli.launches()) == 2


def test_calls_with_the_same_key_are_one_run(cli, run):
    words = ("--idempotency-key", "abc", "-o", "json")
    assert run("true", *words).document == run("true", *words).document
    assert len(cli.launches()) == 1


def test_the_token_in_the_file_is_a_key(cli):
    cli.train_file(idempotency_token="abc")
    first, second = (cli("run", "-f", "train.yaml", "-o", "json", env=NO_MLFLOW) for _ in range(2))
    assert first.document["sweep"] == second.document["sweep"]
    assert len(cli.launches()) == 1


def test_an_override_is_said_and_applied(run):
    done = run('cat "$HYPERPARAMETERS_PATH"', "--override", "parameters.lr=1e-3", "--watch")
    assert "lr: 0.001" in done.out
    assert "changing parameters.lr from 0.01 to 0.001" in done.err


def test_an_override_is_said_as_people_write_it(cli):
    cli.train_file(env_variables={"FLAG": "x"})
    words = ("--override", "env_variables.FLAG=true", "--override", "parameters.on=false")
    done = cli("run", "-f", "train.yaml", *words, "--dry-run", "-o", "json")
    assert "changing env_variables.FLAG from 'x' to true" in done.err
    assert "setting parameters.on to false" in done.err
    assert done.document["config"]["env_variables"] == {"FLAG": "true"}


def test_watch_prints_the_log_while_it_runs(run):
    done = run("echo first; sleep 0.3; echo last", "--watch")
    assert done.out.index("first") < done.out.index("last")


def test_with_json_the_log_does_not_stand_on_stdout(run):
    done = run("echo hello", "--watch", "-o", "json")
    assert done.document["state"] == "succeeded"
    assert "hello" in done.err


def test_dry_run_of_a_run(cli, run):
    document = run("true", "--dry-run", "--override", "parameters.lr=0.5", "-o", "json").document
    assert (document["trials"], document["sweep"]) == (1, None)
    assert document["config"]["parameters"]["lr"] == 0.5
    assert not cli.home.exists()


def test_a_wrong_file_starts_nothing(cli):
    cli.train_file(command=None)
    done = cli("run", "-f", "train.yaml", "-o", "json", env=NO_MLFLOW)
    assert done.status == 2
    assert done.document["error"]["field"] == "command"
    assert not cli.home.exists()


def test_watching_and_detaching_exclude_each_other(run):
    assert run("true", "--watch", "--detach").status == 2
