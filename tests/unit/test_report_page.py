"""The HTML report as text: whole, safe whatever people wrote, and without any address to ask."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from airflows.hiding import public_overrides, public_source, public_text
from airflows.report.description import MOST_BYTES, description
from airflows.report.facts import Curve, Curves, Goal, Parameter
from airflows.report.page import page
from airflows.report.ranked import columns, rows
from airflows.testing.facts import made_up
from airflows.trial import State

LIBRARY = "window.Plotly = {};"
EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">\u2028&amp;\'"'


class Page(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.stack, self.texts, self.ids = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in {"meta", "link", "img", "input", "br"}:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.stack[-1] if self.stack else "", data))

    @property
    def text(self):
        return " ".join(" ".join(data.split()) for tag, data in self.texts if tag not in {"script", "style"})

    def data(self, name):
        at = next(n for n, (_, attrs) in enumerate(self.tags) if attrs.get("id") == name)
        scripts = [n for n, (tag, _) in enumerate(self.tags) if tag == "script"]
        bodies = [data for tag, data in self.texts if tag == "script"]
        return json.loads(bodies[scripts.index(at)])


def written(facts):
    return "".join(page(facts, LIBRARY))


def evil():
    """A sweep in which everything that people write is an attack."""
    facts = made_up(30)
    trials = [
        (replace(t, message=EVIL, host=EVIL), {**o, "parameters.optimizer": EVIL}) for t, o in facts.trials
    ]
    groups = [
        replace(group, overrides={**group.overrides, "parameters.optimizer": EVIL, EVIL: EVIL}, note=EVIL)
        for group in facts.ranking.ranked
    ]
    winner = replace(facts.ranking.winner, group=groups[0])
    attempts = [replace(each, message=EVIL, host=EVIL, signature=EVIL) for each in facts.attempts]
    causes = [replace(each, signature=EVIL, condition=EVIL, example=attempts[0]) for each in facts.causes]
    unranked = [replace(each, reason=EVIL) for each in facts.ranking.unranked]
    ranking = replace(facts.ranking, ranked=tuple(groups), winner=winner, unranked=tuple(unranked))
    return replace(
        facts,
        message=EVIL,
        goals=[replace(facts.goals[0], metric=EVIL)],
        ranking=ranking,
        words=[EVIL, f"  {EVIL}"],
        trials=trials,
        attempts=attempts,
        causes=causes,
        parameters=[*facts.parameters, Parameter(EVIL, (EVIL,))],
        importance_note=EVIL,
        curves=Curves([Curve(0, [(0, 1.0), (1, 0.5)])], EVIL),
        details={EVIL: EVIL},
        code={EVIL: 3},
        source=EVIL,
    )


SIZES = {"none": made_up(1, failing=1.0), "few": made_up(10), "replicates": made_up(30, replicates=3)}
SIZES |= {"front": made_up(30, objectives=2), "evil": evil()}


@pytest.mark.parametrize("facts", SIZES.values(), ids=SIZES)
def test_every_element_is_closed_ids_are_unique_and_links_have_a_target(facts):
    made = Page(written(facts))
    assert made.stack == []
    assert len(made.ids) == len(set(made.ids))
    links = [attrs["href"] for tag, attrs in made.tags if tag == "a"]
    assert {link.removeprefix("#") for link in links} <= set(made.ids)
    titles = [attrs.get("aria-labelledby") for tag, attrs in made.tags if tag == "section"]
    assert len(titles) >= 13
    assert set(titles) <= set(made.ids)


def test_nothing_that_people_wrote_becomes_markup_or_script():
    text = written(evil())
    made = Page(text)
    names = [tag for tag, _ in made.tags]
    assert "img" not in names
    data = [attrs for tag, attrs in made.tags if tag == "script" and attrs.get("type") == "application/json"]
    assert names.count("script") == len(data) + 2
    assert not any(name.startswith("on") for _, attrs in made.tags for name in attrs)
    # Within the script elements the text is JSON, and nothing in it ends the element.
    table = made.data("table-data")
    assert any(EVIL[:20] in str(cell) for row in table["rows"] for cell in row)
    assert text.count("<script") == text.count("</script>") == names.count("script")


def test_plotly_is_given_no_markup_of_people():
    made = Page(written(evil()))
    for tag, attrs in made.tags:
        name = attrs.get("id") or ""
        if tag == "script" and name.startswith("figure-"):
            assert "<img" not in json.dumps(made.data(name))
            assert "<script" not in json.dumps(made.data(name))


def test_a_library_that_holds_an_end_tag_does_not_end_its_element():
    text = "".join(page(made_up(3), 'var a = "</script><b>";'))
    assert 'var a = "<\\/script><b>";' in text


def test_there_is_no_address_in_it_and_the_policy_forbids_to_ask_any():
    text = written(made_up(50))
    assert not re.findall(r"(?:https?:|wss?:)?//[a-z0-9.-]+\.[a-z]{2,}", text)
    assert "default-src 'none'" in text
    for tag, attrs in Page(text).tags:
        assert not ({"src", "action", "srcset"} & attrs.keys())
        assert tag not in {"iframe", "object", "embed", "base"}


def test_passwords_in_addresses_are_nowhere():
    facts = evil()
    address = "mysql://me:hunter2@db.example.org/x"
    trials = [(replace(t, message=address), {**o, "parameters.optimizer": address}) for t, o in facts.trials]
    facts = replace(
        facts,
        message=address,
        source=f"uri: {address}\n",
        details={"MLflow": address},
        trials=trials,
        words=[address],
        curves=Curves(note=address),
    )
    assert "hunter2" not in written(facts)
    assert "hunter2" not in description(facts, has_report=True)


def test_variables_that_are_secrets_by_their_names_are_not_in_the_source():
    source = 'name: s\nbase:\n  command: "true"\n  env_variables:\n    HF_TOKEN: hf_abc\n    LEVEL: info\n'
    shown = public_source(source)
    assert "hf_abc" not in shown
    assert "LEVEL: info" in shown
    assert public_source("name: s\n") == "name: s\n"


def test_secrets_are_hidden_wherever_a_sweep_file_has_them():
    source = (
        "name: s\nbase:\n  command: train --api-key=abc123 --lr=0.1\n  secrets: {HF_TOKEN: nlp/hf-token}\n"
        "space:\n  env_variables.HF_TOKEN: [hf_one, hf_two]\n  parameters.max_tokens: [128, 256]\n"
        "include:\n- parameters.api_key: sk_three\n  parameters.optimizer: adam\n"
        "tracking:\n  uri: postgresql://me:hunter2@db/x\n"
    )
    shown = public_source(source)
    for secret in ("abc123", "hf_one", "hf_two", "sk_three", "hunter2"):
        assert secret not in shown
    for kept in ("--lr=0.1", "128", "adam", "nlp/hf-token"):
        assert kept in shown


def test_overrides_called_like_secrets_are_hidden_and_sizes_are_not():
    given = {"parameters.api_key": "sk", "env_variables.DB_PASSWORD": 12345, "parameters.max_tokens": 512}
    hidden = {"parameters.api_key": "***", "env_variables.DB_PASSWORD": "***", "parameters.max_tokens": 512}
    assert public_overrides(given) == hidden
    assert public_text("run --auth-token 'a b' --steps 5 KEY=$API_KEY") == (
        "run --auth-token *** --steps 5 KEY=$API_KEY"
    )


def test_under_another_metric_no_value_of_the_sweep_s_own_is_told_nor_its_winner_offered():
    own = replace(made_up(60), ranking=made_up(60).ranking)
    unranked = {one.number for one in own.ranking.unranked}
    trials = [
        (replace(trial, value=987654.25) if trial.number in unranked else trial, overrides)
        for trial, overrides in own.trials
    ]
    own = replace(own, trials=trials)
    assert unranked
    assert "airflows best" in written(own)
    assert "987654.25" in written(own)
    other = replace(own, is_own=False, goals=[Goal("accuracy", "maximize")])
    assert "airflows best" not in written(other)
    assert "987654.25" not in written(other)


def test_integers_that_the_page_s_script_does_not_have_are_text():
    facts = made_up(3)
    trials = [(trial, {**overrides, "parameters.width": 2**63}) for trial, overrides in facts.trials]
    facts = replace(facts, trials=trials, ranking=None)
    at = [column.name for column in columns(facts)].index("width")
    assert [row[at] for row in rows(facts)] == [str(2**63)] * 3


def test_the_description_tells_the_winner_however_much_it_overrides():
    facts = made_up(20)
    many = {f"parameters.プロンプト{at}": "日本語の長いプロンプトです。" * 3 for at in range(90)}
    groups = [replace(group, overrides=many) for group in facts.ranking.ranked]
    winner = replace(facts.ranking.winner, group=groups[0])
    ranking = replace(facts.ranking, ranked=tuple(groups), winner=winner)
    text = description(replace(facts, ranking=ranking), has_report=True)
    assert text.startswith(f"**Trial {winner.number} has the lowest")
    assert re.search(r"and \d\d more", text)
    assert "report.html" in text
    assert len(text.encode()) <= MOST_BYTES


def test_secrets_are_hidden_before_a_text_is_cut():
    facts = made_up(60)
    address = "postgresql://bob:hunter2secret@db.example.com/x"
    for length in range(560, 600):
        attempt = replace(facts.causes[0].example, message="E" * length + f" {address}")
        assert "hunter2" not in written(replace(facts, causes=[replace(facts.causes[0], example=attempt)]))
    source = "#" * 199_980 + f"\nu: {address}"
    assert "hunter2" not in written(replace(facts, source=source))


# The table


def table(facts):
    names = [column.name for column in columns(facts)]
    return [dict(zip(names, row, strict=True)) for row in rows(facts)]


@pytest.mark.parametrize("facts", SIZES.values(), ids=SIZES)
def test_every_trial_is_in_the_table_once(facts):
    numbers = [number for row in table(facts) for number in row["trials"].split()]
    assert sorted(map(int, numbers)) == [trial.number for trial, _ in facts.trials]


def test_ranked_rows_come_first_with_value_and_parameters():
    facts = made_up(20)
    first = table(facts)[0]
    best = facts.groups[0]
    assert first["rank"] == 1
    assert first["val/loss"] == pytest.approx(best.value)
    assert first["lr"] == best.overrides["parameters.lr"]
    assert first["batch, accumulate"] == "{}, {}".format(
        best.overrides["parameters.batch"], best.overrides["parameters.accumulate"]
    )
    ranks = [row["rank"] for row in table(facts)]
    assert ranks == [*range(1, len(facts.groups) + 1), *[None] * (20 - len(facts.groups))]


def test_replicates_show_spread_interval_and_how_they_stand_against_the_winner():
    facts = made_up(30, replicates=3, failing=0.0)
    first, second = table(facts)[:2]
    low, high = facts.groups[0].ci95
    assert (first["n"], first["95 % low"], first["95 % high"]) == (3, pytest.approx(low), pytest.approx(high))
    assert first["vs winner"] == ""
    assert re.match(r"(worse|within noise), p=", second["vs winner"])


def test_an_unranked_trial_says_why_and_shows_a_value_that_is_none():
    facts = made_up(10, failing=0.0)
    (trial, overrides), *others = facts.trials
    odd = replace(trial, state=State.SUCCEEDED, value=None, raw_value="NaN")
    ranking = replace(facts.ranking, ranked=tuple(g for g in facts.groups if 0 not in g.trials))
    row = next(
        row
        for row in table(replace(facts, trials=[(odd, overrides), *others], ranking=ranking))
        if row["trials"] == "0"
    )
    assert (row["rank"], row["val/loss"]) == (None, "NaN")


def test_a_table_that_is_too_large_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("airflows.report.page._TABLE_BYTES", 2000)
    found = Page(written(made_up(200))).data("table-data")
    kept = len(found["rows"])
    assert 5 < kept < 60
    assert f"The first {kept} of 200 rows are in this file" in found["head"]["note"]
    assert "--format csv" in found["head"]["note"]


# What is told


def test_the_page_tells_winner_verdict_causes_code_environment_and_source():
    facts = made_up(60)
    text = Page(written(facts)).text
    best = facts.best
    for told in (
        f"Trial {facts.best_trial} has the lowest val/loss",
        f"{best.value:.6g}",
        facts.words[0],
        "ValueError: loss is not finite",
        "8 x GPU_8xH100",
        "c0ffeec0ffee",
        "parameters.lr: {min: 0.0001",
        f"airflows best {facts.sweep} --as yaml",
    ):
        assert told in text


def test_no_winner_is_said_with_why():
    assert "There is no winner: no trial can be ranked." in Page(written(made_up(5, failing=1.0))).text
    without = replace(made_up(5), goals=[], ranking=None)
    assert "no objective, so nothing is ranked" in Page(written(without)).text


def test_several_objectives_have_a_compromise_and_a_front():
    text = Page(written(made_up(40, objectives=2))).text
    assert "is the best compromise" in text
    assert "Pareto front" in text


def test_a_sweep_that_is_not_finished_says_so():
    running = replace(made_up(20), state="running", is_complete=False, ended_at=None)
    text = Page(written(running)).text
    assert "has the lowest val/loss so far" in text
    assert "running" in text


def test_the_file_without_the_library_stays_small_at_ten_thousand_trials():
    assert len(written(made_up(10_000, steps=200)).encode()) < 6_000_000


# The description in MLflow


def test_the_description_has_winner_table_causes_and_where_to_look():
    facts = made_up(60)
    text = description(facts, has_report=True)
    assert f"Trial {facts.best_trial} has the lowest" in text
    lines = text.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("| rank"))
    assert lines[head + 1].replace("|", "").split() == ["---"] * (lines[head].count("|") - 1)
    assert [line.split("|")[1].strip() for line in lines[head + 2 : head + 12]] == [*map(str, range(1, 11))]
    assert f"and {len(facts.groups) - 10} more points" in text
    assert "ValueError: loss is not finite" in text
    assert "report.html" in text
    assert "report.html" not in description(facts, has_report=False)
    assert f"'{facts.sweep}'" in text


def test_the_description_is_never_longer_than_mlflow_takes_and_no_markup_of_people():
    for facts in (*SIZES.values(), made_up(2000)):
        text = description(facts, has_report=True)
        assert len(text.encode()) <= MOST_BYTES
        assert "airflows results" in text
        assert not re.search(r"(?<!\\)<", text)
    long = replace(evil(), words=[EVIL * 200] * 30, message="x" * 10_000)
    assert len(description(long, has_report=True).encode()) <= MOST_BYTES
