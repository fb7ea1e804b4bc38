"""The flows parse, call and return: they import only Prefect and public names of airflows, and decide nothing."""

import ast
from pathlib import Path

import pytest
import yaml

import airflows
from airflows import flowruns

ROOT = Path(__file__).parents[2]
FLOWS = sorted((ROOT / "flows").glob("*.py"))
DECISIONS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
    ast.With,
    ast.AsyncWith,
    ast.Match,
    ast.BoolOp,
    ast.Compare,
    ast.comprehension,
    ast.Lambda,
    ast.Assert,
    ast.Raise,
)
MOST_STATEMENTS = 3


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> set[tuple[str, str]]:
    """Return (module, name) of everything that is imported."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    return found


def is_allowed(module: str, name: str) -> bool:
    public = {"airflows": airflows.__all__, "airflows.flowruns": flowruns.__all__, "typing": ["Any"]}
    return module == "prefect" or name in public.get(module, ())


def test_there_are_three_flows():
    assert [path.name for path in FLOWS] == ["janitor.py", "promote.py", "sweep.py"]


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_a_flow_imports_only_prefect_and_public_names(path):
    assert {found for found in imports(tree_of(path)) if not is_allowed(*found)} == set()


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_a_flow_decides_nothing(path):
    assert [type(node).__name__ for node in ast.walk(tree_of(path)) if isinstance(node, DECISIONS)] == []


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_a_flow_is_one_async_function_of_few_statements(path):
    functions = [
        node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    (function,) = functions
    # A sync flow waits a second for Prefect's heartbeat thread.
    assert isinstance(function, ast.AsyncFunctionDef)
    assert function.name == path.stem
    assert len(function.body) <= MOST_STATEMENTS


def test_a_decision_in_a_flow_would_be_found():
    tree = ast.parse("async def f(x):\n    return await g(x or 1)\n")
    assert any(isinstance(node, DECISIONS) for node in ast.walk(tree))
    assert not is_allowed("airflows.engine.operations", "start")


def test_each_deployment_points_at_a_flow_that_is_there():
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert [each["name"] for each in deployments] == ["sweep", "nightly", "promote", "janitor"]
    for each in deployments:
        file, _, name = each["entrypoint"].partition(":")
        assert (ROOT / file) in FLOWS
        assert Path(file).stem == name
    files = [each["parameters"]["sweep"] for each in deployments if "parameters" in each]
    assert all((ROOT / file).is_file() for file in files)
