"""No secret of an address is ever shown, kept or handed out as if it were none."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows import addresses, documents, gitrepo
from airflows.sweepfile import sweep_from_mapping
from airflows.tracking.uris import job_variables, shown_uri, without_secrets

MARK = "Kx9q"
TREE = {
    "name": "demo",
    "base": {
        "experiment_name": "demo",
        "command": "true",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    },
    "include": [{}],
}


def passwords(signs):
    """Passwords of which every part can be told from the rest of an address."""
    return st.lists(st.sampled_from(signs), min_size=0, max_size=6).map(
        lambda between: MARK + "".join(sign + MARK for sign in between)
    )


SIGNS = list("/:@?&=#%;,'\"$![]{}|\\^~`<>()*+")
USER_PASSWORD = st.builds(
    "{}://{}:{}@{}".format,
    st.sampled_from(["postgresql", "mysql+pymysql", "mssql", "http", "https", "ssh", "git+https"]),
    st.sampled_from(["", "u", "ada.b", "u%40x"]),
    passwords(SIGNS),
    st.sampled_from(["h", "h:5432/db", "[::1]:5000/p", "h/db?sslmode=require"]),
)
QUERY = st.builds(
    "{}?user=u&{}={}{}".format,
    st.sampled_from(["postgresql://h/db", "postgresql:///db", "https://h:1/p", "postgresql://u:p@h/db"]),
    st.sampled_from(
        ["password", "PWD", "passwd", "token", "sslpassword", "access_key", "pass%77ord", "client_secret"]
    ),
    passwords([sign for sign in SIGNS if sign != "&"]),
    st.sampled_from(["", "&x=1"]),
)
LONE_TOKEN = st.builds(
    "{}://{}{}@{}".format,
    st.sampled_from(["http", "https", "git+https"]),
    passwords([sign for sign in SIGNS if sign not in "/:?#"]),
    st.sampled_from(["", ":", ":x-oauth-basic"]),
    st.sampled_from(["h", "h:8080", "h:8080/a@b", "h/o/r.git"]),
)
ANY = st.one_of(USER_PASSWORD, QUERY, LONE_TOKEN)


@given(ANY)
def test_a_secret_is_in_no_output(uri):
    assert addresses.has_secret(uri)
    assert MARK not in addresses.hidden(uri)
    assert MARK not in addresses.bare(uri)
    assert MARK not in shown_uri(uri)
    assert MARK not in str(documents.without_passwords({"a": [f"see {uri} and {uri}"]}))
    assert MARK not in str(gitrepo._without_credentials(uri))


@given(ANY)
def test_what_is_shown_holds_no_secret_that_could_be_hidden_again(uri):
    assert shown_uri(shown_uri(uri)) == shown_uri(uri)


@given(ANY)
def test_a_secret_is_in_no_message_however_it_is_spelled_there(uri):
    secret = addresses.secrets(uri)[0]
    for message in (f"cannot open {uri}", f"no host {secret}", f"wrong: '{unquote(secret)}'"):
        assert MARK not in without_secrets(message, uri)


@given(ANY)
def test_a_job_gets_a_uri_with_a_secret_as_a_secret(uri):
    assert job_variables(uri, {}) == ({}, {"MLFLOW_TRACKING_URI": uri})


@given(ANY)
def test_the_kept_source_has_no_uri_with_a_secret(uri):
    made = sweep_from_mapping(TREE | {"tracking": {"uri": uri, "experiment": "e"}}, directory=Path())

    assert MARK not in made.source
    assert "experiment" in made.source
    assert "uri" not in made.source
    (notice,) = [notice for notice in made.notices if notice.field == "tracking.uri"]
    assert "MLFLOW_TRACKING_URI" in notice.message
    assert MARK not in notice.message


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:p/w@h/db", "postgresql://u:***@h/db"),
        ("postgresql://h/db?user=u&password=sekret&x=1", "postgresql://h/db?user=u&password=***&x=1"),
        ("https://tok@h/p", "https://***@h/p"),
        ("https://tok@h:8080/a@b", "https://***@h:8080/a@b"),
        ("https://tok:x-oauth-basic@h/p", "https://***:x-oauth-basic@h/p"),
        ("postgresql://ada@corp:123/4@h", "postgresql://ada@corp:***@h"),
        ("postgresql://u:p@h/db?password=a@b", "postgresql://u:***"),
        ("postgresql://u:two words@h", "postgresql://u:***@h"),
    ],
)
def test_only_the_secret_is_hidden(address, shown):
    assert addresses.hidden_in(address) == shown


@pytest.mark.parametrize(
    "address",
    [
        "ssh://git@host/p.git",
        "ssh://git@host:22/p@v1",
        "git@host:p.git",
        "postgresql://ada@h/db",
        "http://host:5000/x@y",
        "http://[::1]:5000/x@y",
        "https://host/x@y?mail=a@b:c",
        "sqlite:////home/a@b/c:d@e.db",
        "s3://bucket/a@b",
        "databricks://profile",
        "http://host/?max=5&user=u",
        "a@b no address, password=x",
        "",
    ],
)
def test_what_is_no_secret_is_left_alone(address):
    assert addresses.hidden(address) == addresses.bare(address) == address
    assert not addresses.has_secret(address)
    assert addresses.secrets(address) == ()


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://kim:hidden@example.com/p.git", "https://example.com/p.git"),
        ("https://token@example.com/p@v1.git", "https://example.com/p@v1.git"),
        ("ssh://git@example.com/p.git", "ssh://git@example.com/p.git"),
        (
            "https://example.com/p.git?private_token=t&a=b@c",
            "https://example.com/p.git?private_token=***&a=b@c",
        ),
    ],
)
def test_an_address_without_its_user_still_leads_there(url, kept):
    assert addresses.bare(url) == kept
