"""The report as one HTML file that asks nothing of any network. Pure: facts in, text out.

Whatever comes from people (names, messages, values, files) is escaped here and nowhere else: `_text` for what
stands in the page, `_data` for what its script reads. Both hide secrets.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.hiding import public_text
from airflows.report.causes import Cause
from airflows.report.facts import Facts
from airflows.report.figures.curves import curves
from airflows.report.figures.drawing import Figure
from airflows.report.figures.effort import cost, failures, timeline
from airflows.report.figures.fronts import fronts
from airflows.report.figures.history import history
from airflows.report.figures.parallel import parallel
from airflows.report.figures.space import contours, importance, slices
from airflows.report.headline import commands, headline, key_figures
from airflows.report.ranked import columns, rows
from airflows.times import to_iso

_ASSETS = Path(__file__).parent / "assets"
# Nothing may be fetched, whatever a script in the file should try.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)
_TABLE_BYTES = 3_500_000
_SOURCE_CHARS = 200_000
_MOST_CAUSES = 50


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of the page: its id, its heading, and what is in it as HTML."""

    name: str
    title: str
    body: str


def page(facts: Facts, library: str) -> Iterator[str]:
    """Yield the parts of the report.

    Args:
        facts: what it tells.
        library: plotly's script.
    """
    figures = _figures(facts)
    parts = [*_sections(facts, figures)]
    yield _head(facts)
    yield _banner(facts)
    yield _contents(parts)
    yield '<main id="content" tabindex="-1">\n'
    for part in parts:
        yield f'<section id="{part.name}" aria-labelledby="{part.name}-title">\n'
        yield f'<h2 id="{part.name}-title">{part.title}</h2>\n{part.body}</section>\n'
    yield "</main>\n"
    yield _footer(facts)
    for figure in figures.values():
        if not figure.why_not:
            yield _script(f"figure-{figure.name}", _data(figure.to_dict()))
    yield _table_data(facts)
    # No browser runs text: the page's own script does when a plot is wanted, since that takes a while.
    yield '<script type="text/plain" id="library">'
    # Within a string of a script the two are the same, and only one of them ends the element.
    yield library.replace("</script", "<\\/script")
    yield f"</script>\n<script>{_asset('report.js')}</script>\n</body>\n</html>\n"


def _figures(facts: Facts) -> dict[str, Figure]:
    made = [
        history(facts),
        *fronts(facts),
        parallel(facts),
        importance(facts),
        slices(facts),
        *contours(facts),
    ]
    made += [curves(facts), timeline(facts), cost(facts), failures(facts)]
    return {figure.name: figure for figure in made}


def _sections(facts: Facts, figures: Mapping[str, Figure]) -> Iterator[_Section]:
    drawn = {name: _figure(figure) for name, figure in figures.items()}
    fronted, pairs = (
        [_figure(figures[name], heading=len(names) > 1) for name in names]
        for names in (_named(figures, "pareto-"), _named(figures, "contour-"))
    )
    yield _Section("winner", "Best compromise" if len(facts.goals) > 1 else "Winner", _winner(facts))
    yield _Section("table", "Ranked table", _table())
    yield _Section("history", "Optimisation history", drawn["history"])
    if fronted:
        yield _Section("pareto", "Pareto front", "".join(fronted))
    yield _Section("parallel", "Parallel coordinates", drawn["parallel"])
    yield _Section("importance", "Parameter importance", drawn["importance"])
    yield _Section("slices", "Slices", drawn["slices"])
    yield _Section("contours", "Contours", f'<div class="pairs">{"".join(pairs)}</div>\n')
    yield _Section("curves", "Learning curves", drawn["curves"])
    yield _Section("failures", "Failures by cause", drawn["failures"] + _causes(facts.causes))
    yield _Section("timeline", "Timeline", drawn["timeline"])
    yield _Section("cost", "Cost", drawn["cost"])
    yield _Section("environment", "Code and environment", _environment(facts))
    yield _Section("source", "sweep.yaml", _source(facts.source))


def _named(figures: Mapping[str, Figure], beginning: str) -> list[str]:
    return [name for name in figures if name.startswith(beginning)]


# Parts


def _head(facts: Facts) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{_text(facts.sweep)}: sweep report</title>\n"
        f"<style>{_asset('report.css')}</style>\n</head>\n"
        '<body>\n<a class="skip" href="#content">Skip to the results</a>\n'
        '<noscript><p class="notice">The table and the plots of this page need JavaScript.</p></noscript>\n'
    )


def _banner(facts: Facts) -> str:
    state = _text(facts.state)
    message = f'<p class="message">{_text(facts.message)}</p>\n' if facts.message else ""
    tiles = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}"
        + (f"<small>{_text(more)}</small>" if more else "")
        + "</dd></div>\n"
        for name, value, more in key_figures(facts)
    )
    return (
        '<header>\n<div class="title"><p class="kicker">Sweep report</p>\n'
        f'<h1>{_text(facts.sweep)} <span class="state" data-state="{state}">{state}</span></h1>\n'
        '<button type="button" id="theme" aria-pressed="false">Dark colours</button></div>\n'
        f'{message}<dl class="tiles">\n{tiles}</dl>\n</header>\n'
    )


def _contents(parts: Sequence[_Section]) -> str:
    links = "".join(f'<li><a href="#{part.name}">{part.title}</a></li>' for part in parts)
    return f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n'


def _footer(facts: Facts) -> str:
    return f"<footer><p>Made by airflows at {_time(facts.made_at)}.</p></footer>\n"


def _winner(facts: Facts) -> str:
    lead, best = headline(facts), facts.best
    made = f'<p class="lead">{_text(lead)}</p>\n'
    if best is not None:
        pairs = [(_text(key), _text(_shown(value))) for key, value in best.overrides.items()]
        made += _pairs_table("The overrides of the winner", "override", pairs)
    if facts.words:
        # A command is indented by two in these sentences.
        items = "".join(
            f"<li><code>{_text(w.strip())}</code></li>" if w.startswith("  ") else f"<li>{_text(w)}</li>"
            for w in facts.words
        )
        made += f'<ul class="verdict" aria-label="How far it can be trusted">{items}</ul>\n'
    told = "".join(
        f"<dt>{_text(what)}</dt><dd><code>{_text(words)}</code></dd>" for what, words in commands(facts)
    )
    return f'{made}<dl class="commands">{told}</dl>\n'


def _table() -> str:
    return """<form class="controls" id="controls" role="search" aria-label="Filter the table">
<label for="filter">Filter</label>
<input id="filter" type="search" autocomplete="off" spellcheck="false" aria-describedby="filter-help">
<button type="button" id="previous">Previous</button>
<button type="button" id="next">Next</button>
<p id="filter-help">Words that a row must have, or conditions such as <code>lr&gt;0.01</code>,
 <code>state=failed</code> or <code>rank&lt;=10</code>. Press a column's name to sort by it.</p>
</form>
<p id="table-status" role="status" aria-live="polite"></p>
<div class="scroll" tabindex="0" role="region" aria-label="Ranked table">
<table id="ranked"><caption>Every point with its rank, values and overrides</caption>
<thead></thead><tbody></tbody></table></div>
<p class="note" id="table-note"></p>
"""


def _table_data(facts: Facts) -> str:
    kept: list[str] = []
    size = total = 0
    for row in rows(facts):
        total += 1
        text = _data(row)
        size += len(text)
        if size <= _TABLE_BYTES:
            kept.append(text)
    note = ""
    if len(kept) < total:
        all_of_them = f"airflows results {facts.sweep} --format csv"
        note = f"The first {len(kept):,} of {total:,} rows are in this file; all of them: {all_of_them}"
    named = _data({"columns": [column.to_dict() for column in columns(facts)], "note": note})
    return _script("table-data", f'{{"head":{named},"rows":[{",".join(kept)}]}}')


def _figure(figure: Figure, *, heading: bool = False) -> str:
    title = f"<h3>{_text(figure.title)}</h3>\n" if heading else ""
    if figure.why_not:
        return f'{title}<p class="none">{_text(figure.why_not)}</p>\n'
    height = int(figure.layout["height"])
    note = f' <span class="note">{_text(figure.note)}</span>' if figure.note else ""
    told = _text(f"{figure.title}. {figure.summary}")
    return (
        f'<figure>{title}<div class="plot" id="plot-{figure.name}" data-figure="figure-{figure.name}"'
        f' role="img" aria-label="{told}" style="height:{height}px"></div>\n'
        f"<figcaption>{_text(figure.summary)}{note}</figcaption></figure>\n"
    )


def _causes(causes: Sequence[Cause]) -> str:
    if not causes:
        return ""
    heads = ("", "cause", "trials", "attempts", "where", "message", "look there")
    lines = "".join(_cause(at, cause) for at, cause in enumerate(causes[:_MOST_CAUSES], 1))
    more = len(causes) - _MOST_CAUSES
    note = f'<p class="note">and {more} further causes</p>\n' if more > 0 else ""
    return _table_of("Why attempts failed, what most trials failed of first", heads, lines) + note


def _cause(at: int, cause: Cause) -> str:
    kind = (cause.reason or "unknown").replace("_", " ")
    cells = (kind, len(cause.numbers), cause.attempts, cause.condition, cause.said or cause.signature)
    told = "".join(f"<td>{_text(_shown(cell, 600))}</td>" for cell in cells)
    return f'<tr><th scope="row">{at}</th>{told}<td><code>{_text(cause.next)}</code></td></tr>\n'


def _environment(facts: Facts) -> str:
    pairs = [(_text(name), _text(value)) for name, value in facts.details.items()]
    versions = [
        (f"<code>{_text(code[:12]) or 'none'}</code>", f"{trials:,}") for code, trials in facts.code.items()
    ]
    mixed = '<p class="warning">Trials ran different versions of the code.</p>\n' if len(versions) > 1 else ""
    made = _pairs_table("Where it ran", "what", pairs) if pairs else ""
    code = _pairs_table("Versions of the code", "digest", versions, value="trials") if versions else ""
    return made + mixed + code


def _source(source: str) -> str:
    # Hidden first: a cut address shows no longer that there is a password in it.
    whole = public_text(source)
    cut = whole[:_SOURCE_CHARS]
    note = "" if len(cut) == len(whole) else '<p class="note">Only its beginning: it is very long.</p>\n'
    return (
        '<p class="note">As it took effect, with the train.yaml in it.</p>\n'
        f'<pre tabindex="0" aria-label="sweep.yaml"><code>{_text(cut)}</code></pre>\n{note}'
    )


# Text


def _pairs_table(caption: str, name: str, pairs: Iterable[tuple[str, str]], *, value: str = "value") -> str:
    """Return a table of two columns; the pairs are HTML."""
    lines = "".join(f'<tr><th scope="row">{one}</th><td>{two}</td></tr>\n' for one, two in pairs)
    return _table_of(caption, (name, value), lines, kind="pairs")


def _table_of(caption: str, heads: Sequence[str], lines: str, *, kind: str = "wide") -> str:
    """Return a table; its lines are HTML."""
    cells = "".join(f'<th scope="col">{head}</th>' if head else "<td></td>" for head in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table class="{kind}">'
        f"<caption>{caption}</caption><thead><tr>{cells}</tr></thead>\n<tbody>{lines}</tbody></table></div>\n"
    )


def _shown(value: Any, most: int = 2000) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = public_text(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(value: str) -> str:
    """Return a text as HTML, also within quotes."""
    return html.escape(public_text(value))


def _time(at: float) -> str:
    iso = to_iso(at) or ""
    return f'<time datetime="{iso}">{iso[:19].replace("T", " ")} UTC</time>'


def _data(value: Any) -> str:
    """Return a value as JSON that no HTML can be made of."""
    text = json.dumps(_hidden(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hidden(value: Any) -> Any:
    match value:
        case str():
            return public_text(value)
        case Mapping():
            return {key: _hidden(item) for key, item in value.items()}
        case list() | tuple():
            return [_hidden(item) for item in value]
        case _:
            return value


def _script(name: str, data: str) -> str:
    return f'<script type="application/json" id="{name}">{data}</script>\n'


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
