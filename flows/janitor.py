"""The flow that takes over sweeps whose driver is gone."""

from typing import Any

from prefect import flow

from airflows.flowruns import AtOnce, take_over


@flow(name="janitor")
async def janitor(at_once: AtOnce = 4) -> Any:
    """Drive on every sweep that is wanted but that nobody drives any more, and report what became of it.

    Args:
        at_once: Sweeps driven at the same time; the others wait.
    """
    return await take_over(at_once=at_once)
