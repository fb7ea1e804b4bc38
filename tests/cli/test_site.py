"""The site that `make docs` builds: whole, made of what is there, and complete without a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflows.backends.registry import backend_names, settings_model
from airflows.cli.app import COMMANDS
from airflows.spec import SweepSpec
from airflows.train import TrainConfig

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"<(?:script|link|img|iframe|source|object)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages; what is a warning of mkdocs is an error."""
    target = tmp_path_factory.mktemp("site")
    words = ["build", "--config-file", ROOT / "tools" / "docs" / "mkdocs.yml", "--site-dir", target]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_page_is_there(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert [page for page in pages if not (site / page).exists()] == []


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        # The address of the page itself is none that is fetched.
        assert FETCHED.findall(page.read_text()) == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", sheet.read_text()) == [], sheet


def named(site, page):
    """Return what stands as code on a page of the reference."""
    return set(re.findall(r"<code>([^<]+)</code>", (site / "reference" / page).read_text()))


@pytest.mark.parametrize(
    ("page", "model"), [("sweep-yaml.html", SweepSpec), ("train-yaml.html", TrainConfig)]
)
def test_the_reference_has_every_key(site, page, model):
    parts = [model, *(kind for kind in map(part_of, model.model_fields.values()) if kind)]
    keys = {key for part in parts for key in part.model_fields}
    assert keys - named(site, page) == set()


def part_of(field):
    """Return the model of a field, None for plain values."""
    kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((kind for kind in kinds if hasattr(kind, "model_fields")), None)


def test_the_reference_has_every_option_of_every_backend(site):
    names = named(site, "backends.html")
    for backend in backend_names():
        assert settings_model(backend).model_fields.keys() - names == set(), backend


def test_the_reference_has_every_command(site):
    text = (site / "reference" / "commands.html").read_text()
    assert [name for name in COMMANDS if name[0] != "_" and f'<h2 id="{name}">' not in text] == []
