"""A fake Databricks workspace with AI Runtime: a real HTTP server with a clock of its own.

In a test, `with FakeWorkspace() as workspace:`; from a shell, `python -m airflows.testing.workspace`. What
runs do and what goes wrong is said beforehand, by `Settings`, or while it serves.
"""

from airflows.testing.workspace.faults import KINDS, Fault
from airflows.testing.workspace.plans import AttemptPlan, Outcome, RunPlan, Submission
from airflows.testing.workspace.samples import launch, submission
from airflows.testing.workspace.settings import Settings, load_settings
from airflows.testing.workspace.workspace import FakeWorkspace

__all__ = [
    "KINDS",
    "AttemptPlan",
    "FakeWorkspace",
    "Fault",
    "Outcome",
    "RunPlan",
    "Settings",
    "Submission",
    "launch",
    "load_settings",
    "submission",
]
