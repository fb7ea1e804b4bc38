"""The points of a sweep whose file was changed after it had begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.edits import Edits, Made, Stage, difference, edited
from airflows.engine.results import ORPHANED, ranking_by
from airflows.errors import ConflictError
from airflows.ranking import Aim, Scored
from airflows.scores import Take
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.trial import State

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01, "opt": "adam"},
}


def file(lrs: Any, **tree: Any) -> LoadedSweep:
    mapping = {"name": "demo", "base": BASE, "space": {"parameters.lr": lrs}, **tree}
    return sweep_from_mapping(mapping, directory=Path())


def values(sweep: LoadedSweep, start: int = 0) -> list[Any]:
    return [point.overrides["parameters.lr"] for point in sweep.expansion.points(start)]


class Sweep:
    """A sweep as a ledger has it: its points, by the numbers they got, and the files it had."""

    def __init__(self, first: LoadedSweep) -> None:
        self.present, self.edits = first, Edits()
        self.points: list[dict[str, Any]] = []

    @property
    def loaded(self) -> LoadedSweep:
        return edited(self.present, self.edits)

    def create(self, most: int) -> None:
        """Create points as a driver does, from where it stopped."""
        for point in self.loaded.expansion.points(len(self.points)):
            if most == 0:
                return
            assert point.index == len(self.points)
            self.points.append(point.overrides)
            most -= 1

    def compare(self, new: LoadedSweep, ended: frozenset[int] = frozenset()) -> Any:
        made = [Made(number, point, number in ended) for number, point in enumerate(self.points)]
        return difference(made, self.loaded, new, self.edits, len(self.points))

    def add(self, new: LoadedSweep) -> Any:
        found = self.compare(new)
        self.present, self.edits = new, found.edits
        return found


def test_the_three_files_tell_what_is_added_kept_orphaned_and_cancelled() -> None:
    sweep = Sweep(file([1, 2, 3, 4, 5]))
    sweep.create(3)

    found = sweep.compare(file([2, 3, 5, 9]), ended=frozenset({0}))

    assert (found.kept, found.orphaned, found.cancelled) == ((1, 2), (0,), ())
    # 5 was planned before, 9 is new; 4 was planned and is not wanted any more.
    assert (found.added, found.waiting, found.dropped) == (2, 1, 1)
    assert found.first_added == ({"parameters.lr": 5}, {"parameters.lr": 9})
    assert sweep.compare(file([2, 3])).cancelled == (0,)


def test_what_an_earlier_edit_orphaned_comes_back_under_its_number() -> None:
    sweep = Sweep(file([1, 2]))
    sweep.create(2)
    sweep.add(file([2, 3]))
    sweep.create(9)

    found = sweep.add(file([1, 3]))

    assert (found.kept, found.back, found.orphaned, found.added) == ((0, 2), (0,), (1,), 0)
    assert sweep.points == [{"parameters.lr": lr} for lr in (1, 2, 3)]


def test_numbers_that_only_look_different_are_the_same_point() -> None:
    sweep = Sweep(file([1, 2]))
    sweep.create(2)

    found = sweep.add(file([1, 2.0, 2.5]))
    sweep.create(9)

    assert (found.kept, found.added) == ((0, 1), 1)
    assert sweep.points[2] == {"parameters.lr": 2.5}


def test_rows_that_only_look_different_are_one_point_of_a_space() -> None:
    sweep = Sweep(file([5], include=[{"parameters.lr": 7}]))
    sweep.create(2)
    found = sweep.add(
        file([5], include=[{"parameters.opt": "a"}, {"parameters.lr": 1}, {"parameters.lr": 1.0}])
    )
    sweep.create(9)

    assert found.added == 2
    assert len(sweep.points) == 4


def test_files_that_no_longer_make_their_points_are_refused() -> None:
    sweep = Sweep(file([1, 2]))
    sweep.create(2)
    source = sweep.add(file([2, 3])).edits.stages[0].source

    with pytest.raises(ConflictError, match="earlier files made 3 points, and now they make 2"):
        list(edited(sweep.present, Edits((Stage(source, 3),))).expansion.points())


def test_a_file_that_only_goes_on_longer_is_no_edit() -> None:
    def drawn(trials: int) -> LoadedSweep:
        return file({"min": 0.1, "max": 1}, search={"method": "random", "trials": trials, "seed": 3})

    sweep = Sweep(drawn(3))
    sweep.create(3)
    found = sweep.add(drawn(7))

    assert (found.added, found.kept, bool(found.edits)) == (4, (0, 1, 2), False)
    assert values(sweep.loaded)[:3] == values(drawn(3))


def test_a_shorter_one_orphans_its_last_points() -> None:
    sweep = Sweep(file([1, 2, 3, 4]))
    sweep.create(4)
    found = sweep.add(file([1, 2, 3, 4], search={"trials": 2}))

    assert (found.kept, found.orphaned, found.added) == ((0, 1), (2, 3), 0)
    assert values(sweep.loaded) == [1, 2, 3, 4]


def test_an_edit_that_made_no_point_leaves_no_trace() -> None:
    sweep = Sweep(file([1, 2]))
    sweep.create(2)
    sweep.add(file([7, 8]))
    found = sweep.add(file([2, 9]))

    assert [stage.points for stage in found.edits.stages] == [2]
    sweep.create(9)
    assert [point["parameters.lr"] for point in sweep.points] == [1, 2, 9]


def test_edits_are_kept_as_text() -> None:
    edits = Edits((Stage("name: a\n", 3),), frozenset({2, 0}))

    assert Edits.from_text(edits.to_text()) == edits
    assert (Edits().to_text(), Edits.from_text("")) == ("", Edits())


@pytest.mark.parametrize("lr", [3, 4, 2.5])
def test_a_point_of_an_edited_sweep_is_found_by_its_overrides(lr: float) -> None:
    sweep = Sweep(file([1, 2, 3]))
    sweep.create(3)
    sweep.add(file([1, 2.5, 4]))
    expansion = sweep.loaded.expansion
    numbers = {point.overrides["parameters.lr"]: point.index for point in expansion.points()}

    assert expansion.number({"parameters.lr": lr}) == numbers[lr]
    assert expansion.find({"parameters.lr": lr}).index == numbers[lr]
    assert expansion.number({"parameters.lr": 77}) is None
    assert expansion.find({"parameters.lr": 77}) is None


def test_an_edit_of_a_grid_of_a_million_points_walks_none_of_them() -> None:
    axis = {"min": 0, "max": 999, "step": 1}
    space = {"parameters.a": axis, "parameters.b": axis}
    sweep = Sweep(file([1], space=space))
    sweep.create(500)

    found = sweep.add(file([1], space=space, exclude=[{"parameters.b": 0}]))

    assert (len(found.kept), found.orphaned, found.added) == (499, (0,), 999_000 - 499)
    assert (found.waiting, found.dropped) == (None, None)
    assert sweep.loaded.expansion.count() == 999_001


LISTS = st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LISTS, st.integers(0, 6)), min_size=1, max_size=4))
def test_whatever_is_edited_numbers_stay_and_all_wanted_points_are_there_once(
    files: list[tuple[list[int], int]],
) -> None:
    sweep = Sweep(file(files[0][0]))
    sweep.create(files[0][1])
    for lrs, most in files[1:]:
        before = list(sweep.points)
        found = sweep.add(file(lrs))
        wanted = {lr for lr in lrs if {"parameters.lr": lr} in before}
        assert {before[number]["parameters.lr"] for number in found.kept} == wanted
        assert set(found.kept) | set(found.orphaned) == set(range(len(before)))
        assert found.added == len(lrs) - len(wanted)
        assert sweep.loaded.expansion.count() == len(before) + found.added
        sweep.create(most)
        assert sweep.points[: len(before)] == before
    sweep.create(-1)
    made = [point["parameters.lr"] for point in sweep.points]
    assert len(made) == len(set(made)) == sweep.loaded.expansion.count()
    assert set(files[-1][0]) <= set(made)
    assert values(sweep.loaded) == made


def test_what_an_edit_took_out_is_ranked_by_no_metric() -> None:
    edits = Edits(orphaned=frozenset({1})).to_text()
    scored = [
        Scored(number=n, point=n, overrides={}, state=State.SUCCEEDED, value=float(-n)) for n in range(3)
    ]
    made = ranking_by(edits, [Aim("accuracy", "minimize", Take("last"))], scored)
    assert [group.trials for group in made.ranked] == [(2,), (0,)]
    assert [(one.number, one.reason) for one in made.unranked] == [(1, ORPHANED)]
