"""results.csv and winner.yaml."""

import csv
import io
import math
from dataclasses import dataclass, field

import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflows.pareto import rank_front
from airflows.ranking import Aim, Ranking, Scored, rank
from airflows.report.tables import COLUMNS, results_csv, winner_yaml
from airflows.scores import Take
from airflows.trial import Reason, State, Trial


@dataclass(frozen=True)
class Objective:
    metric: str = "loss"
    goal: str = "minimize"
    take: object = "best"


@dataclass(frozen=True)
class Results:
    ranking: Ranking | None = None
    objective: Objective | None = field(default_factory=Objective)


def sweep():
    trials = [
        Trial("s-123456", 0, 0, 0, State.SUCCEEDED, run_id="r0", value=0.31, value_step=4),
        Trial("s-123456", 1, 1, 0, State.SUCCEEDED, run_id="r1", raw_value="NaN"),
        Trial("s-123456", 2, 2, 0, State.FAILED, Reason.ERROR, "ValueError: no"),
        Trial("s-123456", 3, 3, 0, State.SUCCEEDED, run_id="r3", value=0.2),
    ]
    rows = [(trial, {"parameters.lr": trial.number / 10, "parameters.opt": "adam"}) for trial in trials]
    scored = [
        Scored(
            t.number,
            t.point,
            o,
            t.state,
            t.reason,
            t.value,
            t.raw_value,
            t.value_step,
            {},
            t.message,
            t.run_id,
        )
        for t, o in rows
    ]
    return Results(rank(Aim("loss", "minimize", Take("best")), scored)), rows


def read(lines):
    return list(csv.DictReader(io.StringIO("".join(lines), newline="")))


def test_every_trial_has_a_row_with_rank_raw_value_step_and_why_it_is_unranked():
    results, rows = sweep()
    table = read(results_csv(results, rows))
    assert [row["trial"] for row in table] == [f"s-123456/{n}" for n in range(4)]
    assert [row["rank"] for row in table] == ["2", "", "", "1"]
    assert [row["value"] for row in table] == ["0.31", "NaN", "", "0.2"]
    assert [row["step"] for row in table] == ["4", "", "", ""]
    assert [row["note"] for row in table] == ["", "diverged: NaN", "failed: ValueError: no", ""]
    assert table[0]["mlflow_run_id"] == "r0"
    assert table[3]["parameters.lr"] == "0.3"


def test_columns_are_in_the_same_order_whatever_the_trials():
    results, rows = sweep()
    header = next(iter(results_csv(results, rows)))
    assert header == ",".join([*COLUMNS, "parameters.lr", "parameters.opt"]) + "\n"
    given_keys = next(iter(results_csv(results, rows, ["parameters.opt", "parameters.lr", "parameters.wd"])))
    assert given_keys.endswith("parameters.opt,parameters.lr,parameters.wd\n")


def test_a_sweep_without_trials_or_objective_still_has_its_header():
    assert "".join(results_csv(Results(objective=None), [])) == ",".join(COLUMNS) + "\n"


@given(
    st.lists(
        st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.lists(st.integers())), min_size=1
    )
)
def test_any_value_comes_out_of_the_csv_as_it_went_in(values):
    overrides = {f"parameters.k{n}": value for n, value in enumerate(values)}
    trial = Trial("s-123456", 0, 0, 0, State.SUCCEEDED, message="x")
    (row,) = read(results_csv(Results(), [(trial, overrides)]))
    for key, value in overrides.items():
        assert row[key] == value if isinstance(value, str) else yaml.safe_load(row[key]) == value


def test_winner_yaml_says_why_it_won_and_runs_again():
    results, _ = sweep()
    winner = results.ranking.winner
    document = winner.group.to_dict() | {"trial": "s-123456/3", "mlflow_run_id": winner.run_id}
    base = {"experiment_name": "demo", "parameters": {"lr": 1.0, "opt": "sgd", "seed": 0}}
    read_back = yaml.safe_load(winner_yaml(results, document, base))
    assert read_back["objective"] == {"metric": "loss", "goal": "minimize", "take": "best"}
    assert read_back["winner"]["trial"] == "s-123456/3"
    assert read_back["winner"]["mlflow_run_id"] == "r3"
    assert read_back["winner"]["value"] == 0.2
    assert read_back["overrides"] == {"parameters.lr": 0.3, "parameters.opt": "adam"}
    assert read_back["train"] == {
        "experiment_name": "demo",
        "parameters": {"lr": 0.3, "opt": "adam", "seed": 0},
    }
    assert base["parameters"]["lr"] == 1.0


def test_without_a_winner_the_file_says_so():
    assert yaml.safe_load(winner_yaml(Results(), None, {})) == {"winner": None}


def several():
    aims = (Aim("loss", "minimize"), Aim("ms", "minimize"))
    rows = [(1.0, 9.0), (2.0, 2.0), (9.0, 1.0), (9.0, 9.5)]
    scored = [
        Scored(number, number, {"parameters.lr": number}, State.SUCCEEDED, value=row[0], others=row[1:])
        for number, row in enumerate(rows)
    ]
    trials = [
        (Trial("s-123456", t.number, t.point, 0, State.SUCCEEDED, value=t.value), t.overrides) for t in scored
    ]
    return Results(rank_front(aims, scored)), trials


def test_further_objectives_have_columns_of_their_own_and_the_front_is_marked():
    results, trials = several()
    rows = read(results_csv(results, trials, further={"ms": {0: 9.0, 1: 2.0, 2: 1.0, 3: math.nan}}))
    assert [row["ms"] for row in rows] == ["9.0", "2.0", "1.0", "NaN"]
    assert [row["note"] for row in rows] == [
        "on the Pareto front",
        "knee of the Pareto front",
        "on the Pareto front",
        "",
    ]


def test_the_winner_of_several_objectives_is_a_front_and_a_train_yaml_of_its_knee():
    results, _ = several()
    knee = {**results.ranking.knee.group.to_dict(), "trial": "s-123456/1", "changed": {}}
    written = yaml.safe_load(winner_yaml(results, knee, {"command": "true", "parameters": {"lr": 0.1}}))
    assert written["winner"] is None
    assert [point["trials"] for point in written["pareto"]] == [[1], [0], [2]]
    assert written["pareto"][0]["objectives"] == [
        {"metric": "loss", "value": 2.0},
        {"metric": "ms", "value": 2.0},
    ]
    assert (written["knee"], written["train"]["parameters"]) == ("s-123456/1", {"lr": 1})


def test_winner_yaml_has_no_secrets_and_says_so():
    document = {"trial": "s-1/0", "overrides": {"parameters.api_key": "sk_one"}, "value": 1.0}
    base = {"command": "true", "env_variables": {"HF_TOKEN": "hf_two", "URI": "postgresql://me:hunter2@db/x"}}
    written = winner_yaml(Results(), document, base)
    assert written.startswith("# Secrets are not in this file.")
    for secret in ("sk_one", "hf_two", "hunter2"):
        assert secret not in written
