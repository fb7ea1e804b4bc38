"""The AI Runtime cases: which train.yaml files are accepted, and what overrides make of them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflows import yamlio
from airflows.errors import SpecError
from airflows.train import TrainConfig, get_key, read_train, split_key
from airflows.train.load import merge

DATA = Path(__file__).parents[1] / "data" / "ai-runtime"


def cases(name: str) -> list[Any]:
    loaded = yaml.safe_load((DATA / f"{name}.yaml").read_text())
    return [pytest.param(case, id=case["name"]) for case in loaded]


def problem(case: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        read_train(case["yaml"], file="train.yaml", overrides=case["overrides"])
    return str(caught.value)


def typed(config: TrainConfig, key: str) -> Any:
    return get_key(config.model_dump(), split_key(key))


def exact(value: Any) -> Any:
    """Make 16 and 16.0 differ."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return (type(value), value)


def test_all_cases_are_there():
    assert (len(cases("configs")), len(cases("overrides"))) == (100, 19)


@pytest.mark.parametrize("case", cases("configs"))
def test_config_case(case):
    if case["ok"]:
        read_train(case["yaml"], file="train.yaml", overrides=case["overrides"])
    else:
        text = problem(case)
        assert [word for word in case["error_mentions"] if word.lower() not in text.lower()] == []


@pytest.mark.parametrize("case", cases("overrides"))
def test_override_case(case):
    if "error_mentions" in case:
        text = problem(case)
        assert [word for word in case["error_mentions"] if word.lower() not in text.lower()] == []
        return
    document = yamlio.parse(case["yaml"], file="train.yaml", dialect="train")
    split = [text.split("=", 1) for text in case["overrides"]]
    merged = merge(document, [(key.strip(), value) for key, value in split])
    assert exact(merged.tree) == exact(case["merged"])
    config = read_train(case["yaml"], file="train.yaml", overrides=case["overrides"]).config
    for key, value in case.get("effective", {}).items():
        assert exact(typed(config, key)) == exact(value)
