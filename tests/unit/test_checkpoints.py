import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflows import checkpoints
from airflows.checkpoints import Checkpoint, newest

NOW = 1_700_000_000.0


@pytest.fixture
def keep(tmp_path):
    """Make a file or, with a trailing slash, a directory; older than anything that is being written."""

    def make(name, content=b"x", age_s=60.0):
        path = tmp_path / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        os.utime(path, (NOW - age_s, NOW - age_s))
        return path

    return make


@pytest.fixture
def find(tmp_path):
    def newest_here(pattern="", pause=lambda _s: None):
        found = newest(str(tmp_path), pattern, clock=lambda: NOW, pause=pause)
        return None if found is None else (Path(found.path).relative_to(tmp_path).as_posix(), found.step)

    return newest_here


def archive(path):
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("data.pkl", "x" * 100)
    content = path.read_bytes()
    path.unlink()
    return content


def test_a_directory_that_is_missing_or_empty_has_none(tmp_path):
    assert newest(str(tmp_path)) is None
    assert newest(str(tmp_path / "missing")) is None


def test_the_highest_step_is_newest_whatever_the_names_sort_like(keep, find):
    for step in (900, 1000, 20):
        keep(f"checkpoint-{step}/trainer_state.json", b"{}")

    assert find() == ("checkpoint-1000", 1000)


def test_a_hugging_face_checkpoint_without_its_state_is_passed_over(keep, find):
    keep("checkpoint-1/trainer_state.json", b"{}")
    keep("checkpoint-2/trainer_state.json", b'{"global_step": 2, "epo')
    keep("checkpoint-3/optimizer.pt")

    assert find() == ("checkpoint-1", 1)


def test_the_parts_of_a_hugging_face_checkpoint_are_no_checkpoints(keep, find):
    keep("checkpoint-3/optimizer.pt")
    keep("checkpoint-3/scheduler.pt")

    assert find() is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["epoch=1-step=200.ckpt", "epoch=9-step=100.ckpt"], ("epoch=1-step=200.ckpt", 200)),
        (["model_epoch_9.pt", "model_epoch_10.pt"], ("model_epoch_10.pt", 10)),
        (["resnet50-epoch3.pth", "resnet50-epoch12.pth"], ("resnet50-epoch12.pth", 12)),
        (["lightning_logs/version_0/checkpoints/epoch=2-step=30.ckpt", "last.ckpt"],
         ("lightning_logs/version_0/checkpoints/epoch=2-step=30.ckpt", 30)),
        (["step_100/model.pt", "step_20/model.pt"], ("step_100/model.pt", 100)),
        (["best.pt"], ("best.pt", -1)),
        (["weights.safetensors", "notes.txt"], None),
    ],
)  # fmt: skip
def test_files_of_torch_and_lightning_are_ordered_by_their_step(keep, find, names, expected):
    for name in names:
        keep(name)

    assert find() == expected


def test_of_equal_steps_the_one_changed_last_is_newest(keep, find):
    keep("a.pt", age_s=10)
    keep("b.pt", age_s=20)

    assert find() == ("a.pt", -1)


@pytest.mark.parametrize(
    "name",
    ["m-3.pt.tmp", "m-3.tmp.pt", "m-3.part.ckpt", ".m-3.pt", "tmp-checkpoint-3/x.pt", "m-3.incomplete.pth"],
)
def test_names_of_what_is_being_written_do_not_count(keep, find, name):
    keep("m-2.pt")
    keep(name)

    assert find() == ("m-2.pt", 2)


def test_an_empty_file_does_not_count(keep, find):
    keep("m-2.pt")
    keep("m-3.pt", b"")

    assert find() == ("m-2.pt", 2)


def test_a_file_that_is_growing_is_passed_over(keep, find):
    keep("m-2.pt")
    growing = keep("m-3.pt", age_s=0.1)

    def write_on(seconds):
        assert seconds < 0.5
        growing.write_bytes(b"more than before")

    assert find(pause=write_on) == ("m-2.pt", 2)


def test_a_file_that_was_just_finished_counts_after_a_second_look(keep, find):
    keep("m-2.pt")
    keep("m-3.pt", age_s=0.1)
    looks = []

    assert find(pause=looks.append) == ("m-3.pt", 3)
    assert len(looks) == 1


def test_an_old_file_needs_no_second_look(keep, find):
    keep("m-3.pt", age_s=5)

    assert find(pause=lambda _s: pytest.fail("it waited")) == ("m-3.pt", 3)


def test_an_archive_that_was_cut_off_is_passed_over(keep, find, tmp_path):
    whole = archive(tmp_path / "made")
    keep("m-2.pt", whole)
    keep("m-3.pt", whole[:-30])

    assert find() == ("m-2.pt", 2)


def test_a_distributed_checkpoint_counts_with_its_metadata(keep, find):
    keep("step_10/.metadata")
    keep("step_10/__0_0.distcp")
    keep("step_20/__0_0.distcp")

    assert find() == ("step_10", 10)


def test_a_pattern_replaces_the_known_forms(keep, find):
    keep("m-9.pt")
    keep("state/run_3.bin")
    keep("state/run_12.bin")
    keep("state/run_15.bin.tmp")

    assert find("state/*.bin*") == ("state/run_12.bin", 12)
    assert find("**/*.bin") == ("state/run_12.bin", 12)
    assert find("*.bin") is None


def test_a_pattern_may_name_directories(keep, find):
    keep("global_step100/mp_rank_00_model_states.pt")
    keep("global_step20/mp_rank_00_model_states.pt")

    assert find("global_step*") == ("global_step100", 100)


def test_links_are_followed_to_files_and_never_around_in_circles(keep, find, tmp_path):
    keep("m-2.pt")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone-9.pt").symlink_to(tmp_path / "nothing")

    assert find() == ("m-2.pt", 2)
    assert find("**/m-*.pt") == ("m-2.pt", 2)


def test_as_a_program_it_prints_the_path_and_needs_nothing_else(keep, tmp_path):
    state = json.dumps({"global_step": 5})
    keep("checkpoint-5/trainer_state.json", state.encode())
    command = [sys.executable, "-I", "-S", checkpoints.__file__]

    found = subprocess.run([*command, str(tmp_path), ""], capture_output=True, text=True, check=True)
    nothing = subprocess.run([*command, str(tmp_path), "*.bin"], capture_output=True, text=True, check=True)

    assert found.stdout == f"{tmp_path}/checkpoint-5\n"
    assert nothing.stdout == ""


def test_a_checkpoint_is_a_path_and_a_step(keep, tmp_path):
    path = keep("m-4.pt")

    assert newest(str(tmp_path), clock=lambda: NOW) == Checkpoint(str(path), 4)
