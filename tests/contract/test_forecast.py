"""How far a sweep will come within its limits, from a ledger in the middle of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflows.cli.forecasting import cost_fields, forecast_of, forecast_text
from airflows.cli.looking import sweep_story
from airflows.engine.following import Follower
from airflows.engine.results import gather
from airflows.ledger import SweepRow, schema
from airflows.testing.crash import Boundaries, Died, World
from airflows.testing.fake import Script
from airflows.trial import State

Make = Callable[..., World]
TWENTY = {"parameters.seed": list(range(20))}


def halfway(make: Make, **limits: object) -> World:
    """Four or six of twenty trials have ended, each after 100 seconds on an accelerator, two at a time."""
    world = make(lambda _job: Script(seconds=100), space=TWENTY, limits={"concurrent": 2, **limits})

    def is_there(_name: str) -> bool:
        return len(world.cluster.runs) >= 7

    with pytest.raises(Died):
        world.drive(Boundaries(die_if=is_there), dead_for_sure=False)
    return world


def driven(row: SweepRow, world: World) -> SweepRow:
    """Return the sweep as it was while its driver was alive."""
    return replace(row, lease_until=world.cluster.clock() + 30)


def forecast(world: World) -> dict | None:
    (row,) = world.ledger.sweeps()
    return forecast_of(world.ledger, driven(row, world), gather(world.ledger, row), world.cluster.clock())


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({}, None),
        ({"wall_time": "500s"}, "limits.wall_time"),
        ({"accelerator_hours": 0.2}, "limits.accelerator_hours"),
    ],
)
def test_a_sweep_says_how_many_will_have_ended(make: Make, limits: dict, limit: str | None) -> None:
    world = halfway(make, **limits)
    found = forecast(world)
    (row,) = world.ledger.sweeps()
    ended = world.ledger.counts(row.id)[State.SUCCEEDED]

    assert found["limit"] == limit
    assert found["total"] == 20
    assert found["trials"] == 20 if limit is None else ended <= found["trials"] < 20
    # What the driver will find: two trials in 100 seconds.
    expected = {"limits.wall_time": 10, "limits.accelerator_hours": 7}.get(limit, 20)
    assert abs(found["trials"] - expected) <= 2


def test_results_from_before_do_not_mislead(make: Make) -> None:
    world = halfway(make)
    row = driven(*world.ledger.sweeps(), world)
    results = gather(world.ledger, row)
    stale = replace(results, counts={State.PENDING: 20})
    now = world.cluster.clock()

    assert forecast_of(world.ledger, row, stale, now) == forecast_of(world.ledger, row, results, now)


def test_a_pause_is_no_part_of_the_pace(make: Make) -> None:
    world = halfway(make)
    row = driven(*world.ledger.sweeps(), world)
    now = world.cluster.clock()
    results = gather(world.ledger, row)
    # Started a day before, and left alone until its driver took it up as it was.
    paused = replace(row, created_at=row.created_at - 86_400)

    assert forecast_of(world.ledger, paused, results, now) == forecast_of(world.ledger, row, results, now)

    with world.ledger._write() as connection:
        table = schema.sweeps
        connection.execute(table.update().values(created_at=paused.created_at, lease_until=now + 30))
    seen = Follower(world.ledger, paused, world.sweep.spec, world.cluster.clock).look().forecast
    assert seen.left_s == pytest.approx(forecast_of(world.ledger, row, results, now)["left_s"])


def test_nobody_drives_so_nothing_is_foretold(make: Make) -> None:
    world = halfway(make)
    row = replace(*world.ledger.sweeps(), lease_owner="")
    assert forecast_of(world.ledger, row, gather(world.ledger, row), world.cluster.clock()) is None


def test_what_has_ended_foretells_nothing(make: Make) -> None:
    world = make()
    world.drive(Boundaries(), dead_for_sure=True)
    assert forecast(world) is None


def test_get_tells_cost_and_forecast(make: Make, home) -> None:  # noqa: ARG001 - nobody's ledger is read
    world = halfway(make, wall_time="500s")
    (row,) = world.ledger.sweeps()
    story = sweep_story(world.ledger, row)
    assert story["accelerator_hours"]["useful"] > 0
    assert story["accelerator_hours"]["lost"] == 0
    assert story["run_s"] > 0


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, ""),
        (
            {"trials": 143, "total": 200, "limit": "limits.wall_time", "left_s": 60.0},
            "at this pace 143 of 200 within limits.wall_time",
        ),
        ({"trials": 9, "total": 9, "limit": None, "left_s": 90.0}, "at this pace all 9 in about 1m30s"),
    ],
)
def test_a_forecast_in_words(document: dict | None, text: str) -> None:
    assert forecast_text(document) == text


def test_what_never_ran_has_cost_nothing() -> None:
    free = {"queue_s": 0.0, "run_s": 0.0, "accelerator_hours": {"useful": 0.0, "lost": 0.0}}
    assert cost_fields(free) == []
    (time, _), (hours, told) = cost_fields(
        {"queue_s": 60.0, "run_s": 7200.0, "accelerator_hours": {"useful": 1.5, "lost": 0.5}}
    )
    assert (time, hours, told) == ("time", "accelerator-hours", "1.5 useful, 0.5 lost")
