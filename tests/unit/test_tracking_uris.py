"""Which store is used, how it is named to people, and what jobs get of it."""

from pathlib import Path

import pytest

from airflows.errors import SpecError
from airflows.tracking.uris import (
    choose_uri,
    embedded_uri,
    is_sqlite,
    job_variables,
    shown_uri,
    sqlite_path,
    sqlite_uri,
    without_secrets,
)

HOME = Path("/home/ada/.airflows")


def test_the_file_comes_before_the_environment_and_that_before_the_embedded_store():
    environment = {"MLFLOW_TRACKING_URI": "http://tracking:5000"}
    assert choose_uri("https://other", environment, HOME) == "https://other"
    assert choose_uri(None, environment, HOME) == "http://tracking:5000"
    assert choose_uri(None, {}, HOME) == "sqlite:////home/ada/.airflows/mlflow.db"
    assert choose_uri("none", environment, HOME) == "none"
    assert choose_uri("databricks", {}, HOME) == "databricks"
    assert choose_uri("postgresql://u@h/db", {}, HOME) == "postgresql://u@h/db"


def test_a_relative_sqlite_file_is_made_absolute_for_jobs_that_run_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert choose_uri("sqlite:///runs.db", {}, HOME) == f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.parametrize("name", ["mlflow.db", "a b.db", "50%.db", "50%25.db", "what?.db", "µ.db", "a#b.db"])
def test_any_file_name_makes_the_round_trip(name):
    uri = sqlite_uri(HOME / name)
    assert is_sqlite(uri)
    assert sqlite_path(uri) == HOME / name
    assert choose_uri(uri, {}, HOME) == uri


@pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "file:///data/mlruns", "/data/mlruns"])
def test_a_directory_of_files_is_refused_as_mlflow_does(uri):
    with pytest.raises(SpecError, match="no longer writes to directories") as caught:
        choose_uri(uri, {}, HOME)
    assert caught.value.field == "tracking.uri"
    allowed = {"MLFLOW_ALLOW_FILE_STORE": "true"}
    assert choose_uri(uri, allowed, HOME) == uri
    assert job_variables(uri, allowed)[0]["MLFLOW_ALLOW_FILE_STORE"] == "true"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://ada:s3cret@host:5000/a", "http://ada:***@host:5000/a"),
        ("postgresql+psycopg2://u:p%40ss@host/db", "postgresql+psycopg2://u:***@host/db"),
        ("https://:token@host", "https://:***@host"),
        ("http://host:5000", "http://host:5000"),
        ("https://token@host", "https://***@host"),
        ("postgresql://ada@host/db", "postgresql://ada@host/db"),
        ("sqlite:////home/a/b.db", "sqlite:////home/a/b.db"),
        ("databricks://profile", "databricks://profile"),
    ],
)
def test_passwords_are_not_shown(uri, shown):
    assert shown_uri(uri) == shown


def test_a_password_is_taken_out_of_a_message_in_every_spelling():
    uri = "postgresql://u:p%40ss@host/db"
    message = "connection to postgresql://u:p%40ss@host/db failed: password p@ss is wrong"
    assert (
        without_secrets(message, uri)
        == "connection to postgresql://u:***@host/db failed: password *** is wrong"
    )
    assert without_secrets("nothing here", "http://host") == "nothing here"


def test_jobs_get_the_uri_plainly_unless_it_holds_a_password():
    plain, secret = job_variables("http://host", {})
    assert (plain, secret) == ({"MLFLOW_TRACKING_URI": "http://host"}, {})
    plain, secret = job_variables("http://ada:pw@host", {})
    assert (plain, secret) == ({}, {"MLFLOW_TRACKING_URI": "http://ada:pw@host"})


def test_credentials_of_the_environment_reach_jobs_as_secrets():
    environment = {
        "MLFLOW_TRACKING_USERNAME": "ada",
        "MLFLOW_TRACKING_PASSWORD": "pw",
        "MLFLOW_TRACKING_INSECURE_TLS": "true",
        "DATABRICKS_TOKEN": "dapi",
        "PATH": "/bin",
    }
    plain, secret = job_variables("https://host", environment)
    assert plain == {"MLFLOW_TRACKING_URI": "https://host", "MLFLOW_TRACKING_INSECURE_TLS": "true"}
    assert secret == {"MLFLOW_TRACKING_USERNAME": "ada", "MLFLOW_TRACKING_PASSWORD": "pw"}
    _, secret = job_variables("databricks", environment)
    assert secret["DATABRICKS_TOKEN"] == "dapi"


def test_without_tracking_jobs_get_nothing():
    assert job_variables("none", {"MLFLOW_TRACKING_PASSWORD": "pw"}) == ({}, {})


def test_the_embedded_store_is_in_the_home():
    assert embedded_uri(HOME) == "sqlite:////home/ada/.airflows/mlflow.db"
