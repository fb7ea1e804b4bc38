"""What pods do when they are not really run."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict, Field


class PodPlan(BaseModel):
    """The course of a pod, in seconds of the cluster's clock."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start_s: float = Field(0.4, ge=0, description="from being scheduled to running")
    run_s: float | None = Field(5.0, ge=0, description="how long main runs; null: until told to end")
    exit_code: int = Field(0, ge=0, le=255, description="of main; of code above 128, such as 137: a signal's")
    oom: bool = Field(False, description="main is killed for its memory: 137, OOMKilled")
    logs: Sequence[str] = Field((), description="lines that main writes when it starts")
    termination_message: str = Field("", description="what main leaves in /dev/termination-log")
    init_exit_code: int = Field(0, ge=0, le=255, description="of the init container, if there is one")
    start_error: str = Field("", description="main cannot be started: 128, StartError, with this message")
    waiting: str = Field("", description="main never starts: the reason, such as ImagePullBackOff")
    message: str = Field("", description="beside the reason of `waiting`")
    unschedulable: str = Field("", description="no node takes it: what the scheduler says")
    on_term_exit_code: int = Field(143, ge=0, le=255, description="of main after SIGTERM")
    on_term_s: float | None = Field(0.1, ge=0, description="from SIGTERM to the end; null: it is ignored")


class PlanRule(BaseModel):
    """Whose course it is; the last rule that fits a pod counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: str = Field("*", description="name of the Job, a glob")
    namespace: str = Field("*", description="a glob")
    index: int | None = Field(None, ge=0, description="completion index; null: each")
    plan: PodPlan = PodPlan()

    def fits(self, namespace: str, job: str, index: int) -> bool:
        """Whether it is about a pod."""
        return (
            fnmatchcase(namespace, self.namespace)
            and fnmatchcase(job, self.job)
            and self.index in (None, index)
        )
