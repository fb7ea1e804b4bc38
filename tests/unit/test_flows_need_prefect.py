"""Prefect is imported by the flows alone, and named when it is missing."""

import sys

import pytest

from airflows import flowruns
from airflows.errors import MissingExtraError


def test_without_prefect_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("airflows.flowruns.", "prefect"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prefect", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'airflows\[prefect\]'"):
        _ = flowruns.run_sweep


def test_the_request_does_without_prefect(monkeypatch):
    monkeypatch.setitem(sys.modules, "prefect", None)
    assert flowruns.SweepRequest(sweep="sweep.yaml").show_trials is False


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = flowruns.nothing
