"""`pack`: several trials on what one would have, and what is said of what that saves."""

import pytest

MEETS = """
touch "$HERE/$AIRFLOWS_TRIAL"
for i in {1..300}; do
  [ "$(ls "$HERE" | wc -l)" -lt 3 ] || exit 0
  sleep 0.1
done
exit 1
"""


@pytest.fixture
def packed(cli):
    """Writes a sweep whose three trials end well only if they run at the same time."""
    (cli.directory / "here").mkdir()
    base = {
        "experiment_name": "demo",
        "command": MEETS,
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "parameters": {"lr": 0.01},
        "env_variables": {"HERE": str(cli.directory / "here")},
    }

    def write(**fields):
        return cli.sweep_file(**{"base": base, "pack": 3, "backend": {"type": "local", "slots": 1}, **fields})

    return write


def test_packed_trials_run_side_by_side_and_what_that_saved_is_told(cli, packed):
    assert cli("sweep", packed()).status == 0

    gain = cli("get", "lr", "-o", "json").document["packing"]
    assert {name: gain[name] for name in ("pack", "kind", "used", "alone")} == {
        "pack": 3,
        "kind": "slots",
        "used": 1,
        "alone": 3,
    }
    hours = cli("get", "lr", "-o", "json").document["accelerator_hours"]["useful"]
    assert gain["accelerator_hours"] == pytest.approx(hours)
    assert gain["accelerator_hours_alone"] == pytest.approx(3 * hours)
    assert "1 slot in place of 3, " in cli("get", "lr").out
    assert cli("results", "lr", "-o", "json").document["packing"] == gain


def test_a_limit_on_trials_in_flight_holds_for_packed_ones_too(cli, packed):
    done = cli("sweep", packed(base={**_true()}, limits={"concurrent": 2}), "--dry-run")

    assert "packed: 1 slot in place of 2" in done.out


def _true():
    return {
        "experiment_name": "demo",
        "command": "true",
        "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 8},
        "parameters": {"lr": 0.01},
        "timeout_minutes": 60,
    }


def test_a_dry_run_tells_what_packing_will_save(cli):
    backend = {"type": "slurm", "accelerators": {"GPU_8xH100": {"gpus": 8}}}
    file = cli.sweep_file(base=_true(), pack=2, backend=backend)

    document = cli("sweep", file, "--dry-run", "-o", "json").document

    assert document["packing"] == {
        "pack": 2,
        "kind": "array elements",
        "used": 2,
        "alone": 3,
        "accelerator_hours": None,
        "accelerator_hours_alone": None,
    }
    # Three trials of an hour, each with half of eight.
    assert document["accelerator_hours_once"] == 12
    assert "#SBATCH --array=0-1\n" in document["backend"]["files"]["script.sh"]
    assert [len(line.split("\t")) for line in document["backend"]["files"]["packs"].splitlines()] == [4, 2]


def test_a_sweep_without_packs_says_nothing_of_them(cli):
    assert cli("sweep", cli.sweep_file(), "--dry-run", "-o", "json").document["packing"] is None


@pytest.mark.parametrize(
    ("backend", "name"),
    [({"type": "kubernetes"}, "kubernetes"), ({"type": "slurm", "container": "pyxis"}, "slurm")],
)
def test_a_backend_that_cannot_pack_is_refused_before_anything_is_started(cli, backend, name):
    done = cli("sweep", cli.sweep_file(pack=2, backend=backend))

    assert done.status == 2
    assert f"pack does not work on backend {name} as it is set up" in done.error
    assert "It works on local, and on slurm" in done.err
    assert not (cli.home / "runs").exists()


@pytest.mark.parametrize("pack", [0, "auto", True, 2000])
def test_a_pack_is_a_number(cli, pack):
    assert cli("validate", cli.sweep_file(pack=pack)).status == 2
