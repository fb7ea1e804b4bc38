import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from airflows.backends import registry
from airflows.backends.local import LocalBackend, LocalSettings
from airflows.backends.registry import backend_names, open_backend, settings_model
from airflows.errors import SpecError


def test_a_name_alone_opens_a_backend_with_its_defaults(tmp_path):
    backend = open_backend("local", tmp_path)

    assert isinstance(backend, LocalBackend)
    assert backend.name == "local"
    assert backend.root == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_options_come_with_the_type(tmp_path):
    backend = open_backend(
        {"type": "local", "slots": 3, "root": str(tmp_path / "r"), "grace": "2m"}, tmp_path
    )

    assert backend.capabilities.slots == 3
    assert backend.root == tmp_path / "r"


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"slot": 2}, "backend.slot", "Did you mean slots?"),
        ({"zzz": 2}, "backend.zzz", "Options are: type, root"),
        ({"slots": 0}, "backend.slots", "greater than or equal to 1"),
        ({"grace": "soon"}, "backend.grace", "is not a duration"),
        ({"environment": "venv"}, "backend.environment", "'current' or 'isolated'"),
        ({"accelerators": {"GPU_1xA10": {"cpus": True}}}, "backend.accelerators.GPU_1xA10.cpus", "no option"),
        ({"gpus": "two"}, "backend.gpus", ""),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(tmp_path, options, field, words):
    with pytest.raises(SpecError) as caught:
        open_backend({"type": "local", **options}, tmp_path)

    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [("lokal", "Did you mean local?"), ("cloud", "There are: ")],
)
def test_an_unknown_backend_is_an_error_that_names_the_known_ones(tmp_path, name, words, monkeypatch):
    monkeypatch.setattr(registry, "_OWN", {"local": registry._OWN["local"]})

    with pytest.raises(SpecError) as caught:
        open_backend(name, tmp_path)

    assert words in str(caught.value)


def test_other_packages_bring_backends_by_entry_point(monkeypatch):
    point = EntryPoint("mine", "airflows.backends.local.backend:LocalBackend", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.GROUP else [])

    assert {"local", "mine"} <= set(backend_names())
    assert settings_model("mine") is LocalSettings


def test_every_option_has_a_description():
    schema = settings_model("local").model_json_schema()
    described = [*schema["properties"].values(), *schema["$defs"]["Equivalent"]["properties"].values()]

    assert all(option.get("description") for option in described)


def test_the_registry_imports_no_backend():
    code = "import sys, airflows.backends.registry; print([n for n in sys.modules if n.startswith('airflows.backends.local')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown == "[]\n"
