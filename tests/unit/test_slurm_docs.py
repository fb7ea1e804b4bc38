"""The page about Slurm knows every setting, and none that is not there."""

import re
from pathlib import Path

from airflows.backends.slurm.settings import Equivalent, SlurmSettings

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"


def test_the_table_of_settings_is_complete():
    table = PAGE.read_text(encoding="utf-8").split("## Settings")[1].split("\n## ")[0]
    named = {
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }

    assert named == SlurmSettings.model_fields.keys() - {"type"}
    assert all(
        f"{name}: " in table for name in Equivalent.model_fields.keys() - SlurmSettings.model_fields.keys()
    )


def test_the_defaults_it_names_are_the_defaults():
    text = PAGE.read_text(encoding="utf-8")
    settings = SlurmSettings()

    assert re.search(rf"`grace`.*; {settings.grace:.0f}s \|", text)
    assert re.search(rf"`patience`.*; {settings.patience:.0f}s \|", text)
    assert f"within {settings.patience:.0f} s" in text
