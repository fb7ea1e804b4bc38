"""A cancelled flow run: what its hook makes of a ledger that has no such sweep, or does not answer."""

import asyncio

import pytest

from airflows.errors import LedgerError
from airflows.flowruns import hooks
from airflows.flowruns.looking import recorded

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def failures(monkeypatch) -> list[Exception]:
    """Errors of the ledger, one for each question, until there are none left."""
    errors = []

    def look(*args):
        if errors:
            raise errors.pop()
        return recorded(*args)

    monkeypatch.setattr(hooks, "recorded", look)
    monkeypatch.setattr(hooks, "_PAUSES_S", (0.0, 0.0))
    return errors


def test_a_sweep_that_is_not_in_the_ledger_had_not_begun():
    assert asyncio.run(hooks._cancel("lr-ab12cd")) is None


def test_a_ledger_that_does_not_answer_is_asked_again(failures):
    failures += [LedgerError("away")] * 2
    assert asyncio.run(hooks._cancel("lr-ab12cd")) is None
    assert failures == []


def test_a_ledger_that_never_answers_is_no_sweep_that_had_not_begun(failures):
    failures += [LedgerError("away")] * 9
    with pytest.raises(LedgerError, match="away"):
        asyncio.run(hooks._cancel("lr-ab12cd"))
    assert len(failures) == 6
