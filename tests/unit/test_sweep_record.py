"""The record beside the launch directories."""

import json
from dataclasses import replace

import pytest

from airflows.drivers import current_owner
from airflows.engine.record import FILE_NAME, fresh_row, keep, read, records_named

ROW = fresh_row(id="lr-0a1b2c", name="lr", source="name: lr\n", nonce="n1", created_at=5.0, single=False)


def test_what_was_kept_is_read_again(tmp_path):
    keep(tmp_path, ROW, current_owner())
    found = read(tmp_path, ROW.id)
    assert (found.row, found.driver) == (ROW, current_owner())

    keep(tmp_path, ROW, None)
    assert read(tmp_path, ROW.id).driver is None


def test_how_far_a_sweep_has_come_is_not_kept(tmp_path):
    keep(tmp_path, replace(ROW, expanded=7, ended_at=9.0, winner={"trial": "x"}), None)

    assert read(tmp_path, ROW.id).row == ROW


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id": "lr-0a1b2c"}'])
def test_a_damaged_record_is_none(tmp_path, text):
    keep(tmp_path, ROW, None)
    (tmp_path / "runs" / ROW.id / FILE_NAME).write_text(text)

    assert read(tmp_path, ROW.id) is None
    assert list(records_named(tmp_path, "lr")) == []


def test_a_name_is_that_of_its_newest_sweep_and_of_a_single_run_last(tmp_path):
    newer = replace(ROW, id="lr-111111", created_at=6.0)
    single = replace(ROW, id="lr-222222", created_at=7.0, single=True)
    for row in (ROW, newer, single):
        keep(tmp_path, row, None)

    assert [one.row.id for one in records_named(tmp_path, "lr")] == ["lr-111111", "lr-0a1b2c", "lr-222222"]
    assert [one.row.id for one in records_named(tmp_path, "lr-0a1b2c")] == ["lr-0a1b2c"]


def test_a_place_that_cannot_be_written_is_left_to_what_must_be_written_there(tmp_path):
    (tmp_path / "runs").write_text("a file")

    keep(tmp_path, ROW, None)

    assert read(tmp_path, ROW.id) is None


def test_a_record_from_before_sweeps_could_be_edited_is_read(tmp_path):
    keep(tmp_path, ROW, None)
    path = tmp_path / "runs" / ROW.id / FILE_NAME
    known = json.loads(path.read_text())
    del known["edits"], known["plan"]
    path.write_text(json.dumps(known))

    assert read(tmp_path, ROW.id).row == ROW


def test_an_edited_sweep_and_its_plan_are_kept(tmp_path):
    row = replace(ROW, edits='{"stages": [], "orphaned": [1]}', plan="ab" * 32)
    keep(tmp_path, row, None)

    assert read(tmp_path, ROW.id).row == row
