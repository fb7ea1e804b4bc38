"""The flow that runs a sweep and promotes its winner in MLflow's model registry."""

from typing import Any

from prefect import flow

from airflows.flowruns import SweepParameter, SweepRequest, promote_winner, stop_trials, take_up_again


@flow(
    name="promote",
    retries=3,
    retry_delay_seconds=30,
    on_cancellation=[stop_trials],
    on_crashed=[take_up_again],
)
async def promote(
    sweep: SweepParameter,
    model: str,
    *,
    alias: str = "champion",
    artifact: str = "model",
    overrides: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    backend: str | None = None,
    instance: str | None = None,
) -> Any:
    """Point a registered model's alias at a sweep's winner, if that is better than what has it now.

    Args:
        sweep: Path of a sweep.yaml or the mapping itself; or the id or name of a sweep in the ledger.
        model: The registered model in MLflow; made when it is not there.
        alias: Its alias.
        artifact: The name under which the training script logged its model.
        overrides: KEY=VALUE changes of the train.yaml, as --override.
        settings: KEY=VALUE changes of the sweep.yaml, as --set, such as limits.concurrent=4.
        backend: Where trials run, as --backend.
        instance: What makes two runs of the same file different sweeps. Default: the scheduled time.
    """
    request = SweepRequest(
        sweep=sweep, overrides=overrides, settings=settings, backend=backend, instance=instance
    )
    return await promote_winner(request, model=model, alias=alias, artifact=artifact)
