"""The examples in docstrings are run as they stand."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import airflows

PACKAGE = Path(airflows.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)
SWEEP = """
name: lr
base:
  experiment_name: lr
  command: "true"
  compute: {accelerator_type: GPU_1xA10, num_accelerators: 1}
  parameters: {lr: 0.1}
space: {parameters.lr: [0.1, 0.2]}
tracking: {uri: none}
"""


@pytest.fixture
def project(tmp_path, home, clean_env):
    """A directory with a sweep.yaml, which the Python API's examples start and look at; inside a trial."""
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    clean_env.chdir(tmp_path)
    clean_env.setenv("AIRFLOWS_CHECKPOINT_DIR", str(tmp_path))
    return home


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_hold(module):
    imported = import_module(module)
    finder = doctest.DocTestFinder()
    # `run` comes before those that look at what it ran.
    found = sorted(finder.find(imported), key=lambda test: (test.name != f"{module}.run", test.name))
    runner = doctest.DocTestRunner(verbose=False)
    for test in found:
        runner.run(test)
    assert runner.failures == 0


def test_the_functions_that_people_call_have_an_example():
    for name in ("load_sweep", "run", "resume", "attach"):
        assert ">>> " in getattr(airflows, name).__doc__
