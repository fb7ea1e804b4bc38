"""The page about job arrays shows what really happens."""

import re
from pathlib import Path

from airflows.migrate import migrate

PAGE = (Path(__file__).parents[2] / "docs" / "from-slurm-job-arrays.md").read_text()


def block(kind: str, number: int = 0) -> str:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[number]


def test_the_script_becomes_the_files_shown():
    made = migrate(block("bash"), name="finetune.sbatch", directory="/home/me/finetune", read=lambda _: None)
    assert made.sweep_text == block("yaml", 0)
    assert made.train_text == block("yaml", 1)
