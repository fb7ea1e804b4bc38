"""The flow that runs a sweep: what `prefect deploy` points at."""

from typing import Any

from prefect import flow

from airflows.flowruns import SweepParameter, SweepRequest, run_sweep, stop_trials, take_up_again


@flow(
    name="sweep",
    retries=3,
    retry_delay_seconds=30,
    on_cancellation=[stop_trials],
    on_crashed=[take_up_again],
)
async def sweep(
    sweep: SweepParameter,
    overrides: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    backend: str | None = None,
    instance: str | None = None,
    show_trials: bool = False,
) -> Any:
    """Run a sweep to its winner; a retry, a rerun or the same instance attaches to the same sweep.

    Args:
        sweep: Path of a sweep.yaml or the mapping itself; or the id or name of a sweep in the ledger.
        overrides: KEY=VALUE changes of the train.yaml, as --override.
        settings: KEY=VALUE changes of the sweep.yaml, as --set, such as limits.concurrent=4.
        backend: Where trials run, as --backend.
        instance: What makes two runs of the same file different sweeps. Default: the scheduled time.
        show_trials: Mirror the trials as task runs, up to 1,000.
    """
    return await run_sweep(
        SweepRequest(
            sweep=sweep,
            overrides=overrides,
            settings=settings,
            backend=backend,
            instance=instance,
            show_trials=show_trials,
        )
    )
