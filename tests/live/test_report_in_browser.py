"""The HTML report in a real browser: drawn, quiet, usable with a keyboard, in dark and in light, at any size."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from playwright.sync_api import sync_playwright

from airflows.engine.reporting import plotly_script
from airflows.report.page import page
from airflows.testing.facts import made_up
from airflows.testing.waiting import until

pytestmark = pytest.mark.live

PATIENCE_MS = 120_000
MOST_BYTES = 6_000_000
FACTS = made_up(120)
SECTIONS = [
    *("winner", "table", "history", "parallel", "importance", "slices", "contours", "curves"),
    *("failures", "timeline", "cost", "environment", "source"),
]


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


class Shown:
    """A report in a tab: what it says on the console, and what it asks of a network."""

    def __init__(self, browser, path, *, scheme="light", scripts=True):
        self.context = browser.new_context(
            color_scheme=scheme, viewport={"width": 1280, "height": 900}, java_script_enabled=scripts
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.tab = self.context.new_page()
        self.said, self.asked = [], []
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.context.route("**/*", self._meet)
        began = time.monotonic()
        self.tab.goto(path.as_uri(), wait_until="commit")
        if scripts:
            self.tab.wait_for_selector("html[data-ready]", state="attached")
            self.table_s = time.monotonic() - began
            self.tab.wait_for_selector("html[data-ready=plots]", state="attached")
            self.plots_s = time.monotonic() - began

    def _meet(self, route):
        if route.request.url.startswith("file:") and route.request.is_navigation_request():
            route.continue_()
            return
        self.asked.append(route.request.url)
        route.abort()

    def draw_all(self):
        """Scroll to each plot, and wait until it is drawn."""
        for plot in self.tab.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            plot.locator(".main-svg").first.wait_for(state="attached")

    def rows(self):
        """The table's rows as texts."""
        return self.tab.eval_on_selector_all(
            "#ranked tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )

    def status(self):
        return self.tab.inner_text("#table-status")


@pytest.fixture
def show(browser, tmp_path):
    shown = []

    def one(facts, **settings):
        path = tmp_path / f"report-{len(shown)}.html"
        path.write_text("".join(page(facts, plotly_script())), encoding="utf-8")
        shown.append(Shown(browser, path, **settings))
        return shown[-1]

    yield one
    for each in shown:
        # Whatever a test did: nothing was wrong, and nothing was asked of any network.
        assert each.said == []
        assert each.asked == []
        each.context.close()


@pytest.fixture(scope="module")
def usual(browser, tmp_path_factory):
    """One report for all tests that only use its table or look at it."""
    path = tmp_path_factory.mktemp("usual") / "report.html"
    path.write_text("".join(page(FACTS, plotly_script())), encoding="utf-8")
    shown = Shown(browser, path)
    yield shown
    assert (shown.said, shown.asked) == ([], [])
    shown.context.close()


@pytest.fixture
def report(usual):
    """The same, with the table as it was at first."""
    usual.tab.fill("#filter", "")
    usual.tab.click("#ranked thead button >> nth=1")
    usual.tab.click("#ranked thead button >> nth=0")
    return usual


def test_every_section_is_drawn(report):
    report.draw_all()
    for name in SECTIONS:
        assert report.tab.locator(f"section#{name} h2").is_visible()
    for plot in report.tab.locator(".plot").all():
        box = plot.locator(".main-svg").first.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 60
    assert report.tab.locator(".plot .scatterlayer path, .plot .barlayer path").count() > 100


@pytest.mark.parametrize(
    "facts",
    [made_up(5, failing=1.0), replace(made_up(4), ranking=None, goals=[])],
    ids=["all failed", "no objective"],
)
def test_sweeps_without_a_winner_are_drawn_too(show, facts):
    report = show(facts)
    report.draw_all()
    assert report.rows()


def test_the_table_is_sorted_with_the_keyboard_and_says_so(report):
    report.tab.locator("#filter").focus()
    names = report.tab.locator("#ranked thead th").all_inner_texts()
    lr = next(at for at, name in enumerate(names) if name.startswith("lr"))
    for _ in range(60):
        report.tab.keyboard.press("Tab")
        if report.tab.evaluate("document.activeElement.textContent") == "lr":
            break
    report.tab.keyboard.press("Enter")
    head = report.tab.locator("#ranked thead th").nth(lr)
    assert head.get_attribute("aria-sort") == "ascending"
    values = [float(row[lr]) for row in report.rows()]
    assert values == sorted(values)
    assert "by lr, ascending" in report.status()
    report.tab.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(row[lr]) for row in report.rows()]
    assert values == sorted(values, reverse=True)
    others = report.tab.locator('#ranked thead th[aria-sort="none"]').count()
    assert others == len(names) - 1


def test_the_table_is_filtered_by_words_and_conditions_and_turned_page_by_page(report):
    facts = FACTS
    assert report.status().startswith("Rows 1 to 50 of 120")
    report.tab.click("#next")
    assert report.status().startswith("Rows 51 to 100 of 120")
    assert report.rows()[0][0] == "51"
    box = report.tab.get_by_label("Filter", exact=True)
    box.fill("state=failed")
    failed = sum(trial.state == "failed" for trial, _ in facts.trials)
    assert f"of {failed}, out of 120" in report.status()
    box.fill("lr>0.01 optimizer=sgd")
    wanted = sum(o["parameters.lr"] > 0.01 and o["parameters.optimizer"] == "sgd" for _, o in facts.trials)
    assert f"of {wanted}, out of 120" in report.status()
    box.fill('"lr">0.01 "optimizer"="sgd"')
    assert f"of {wanted}, out of 120" in report.status()
    box.fill("optimizer>0.5")
    assert report.status().startswith("0, out of 120")
    box.fill("rank<=3")
    assert [row[0] for row in report.rows()] == ["1", "2", "3"]
    box.fill("no such thing")
    assert report.status().startswith("0, out of 120")
    assert report.rows() == []


def test_a_screen_reader_finds_its_way(report):
    tab = report.tab
    assert tab.get_attribute("html", "lang") == "en"
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert tab.get_by_role(role).count() == 1
    assert tab.get_by_role("heading", level=1).count() == 1
    assert tab.get_by_role("searchbox", name="Filter").count() == 1
    assert tab.locator("#table-status[aria-live=polite]").count() == 1
    for table in tab.locator("table").all():
        assert table.locator("caption").inner_text()
        assert table.locator("thead th").count() == table.locator("thead th[scope=col]").count()
        assert table.locator("tbody tr").count() == table.locator("tbody th[scope=row]").count()
    for plot in tab.locator(".plot").all():
        assert plot.get_attribute("role") == "img"
        assert len(plot.get_attribute("aria-label")) > 30
    tab.locator(".skip").focus()
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the results"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "content"


def contrast(tab, selector):
    """How well the text of an element stands out from its background, as WCAG counts it."""
    return tab.eval_on_selector(
        selector,
        """element => {
          const parts = text => text.match(/[\\d.]+/g).map(Number);
          const light = colour => {
            const [r, g, b] = colour.slice(0, 3).map(c => c / 255)
              .map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
            return .2126 * r + .7152 * g + .0722 * b;
          };
          let behind = element;
          while (/, 0\\)$/.test(getComputedStyle(behind).backgroundColor) && behind.parentElement) behind = behind.parentElement;
          const [one, two] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
            .map(parts).map(light).sort((a, b) => b - a);
          return (one + .05) / (two + .05);
        }""",
    )


@pytest.mark.parametrize(
    ("scheme", "facts"), [("light", made_up(30, replicates=3)), ("dark", made_up(40, objectives=2))]
)
def test_dark_and_light_are_as_wanted_and_readable(show, scheme, facts):
    report = show(facts, scheme=scheme)
    tab = report.tab
    report.draw_all()

    def brightness():
        return sum(map(int, tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")))

    def axis_colour():
        return tab.eval_on_selector("#plot-history .xtick text", "one => getComputedStyle(one).fill")

    for selector in (
        "h1",
        ".state",
        ".tiles dt",
        ".message, .lead",
        "nav a",
        "figcaption .note",
        "#ranked td",
        "caption",
    ):
        assert contrast(tab, selector) >= 4.5
    before, text_before = brightness(), axis_colour()
    assert (before > 600) == (scheme == "light")
    pressed = tab.get_by_role("button", name="Dark colours")
    assert pressed.get_attribute("aria-pressed") == str(scheme == "dark").lower()
    pressed.focus()
    tab.keyboard.press("Enter")
    assert (brightness() > 600) != (before > 600)
    assert pressed.get_attribute("aria-pressed") == str(scheme != "dark").lower()
    until(lambda: axis_colour() != text_before, "the plot has the other colours")


def test_what_people_wrote_runs_nothing_and_fits(show):
    evil = "</script><img src=x onerror=\"document.title='bad'\"><script>document.title='bad'</script>"
    facts = made_up(30)
    trials = [
        (replace(trial, message=evil), {**o, "parameters.optimizer": evil}) for trial, o in facts.trials
    ]
    groups = tuple(
        replace(group, overrides={**group.overrides, "parameters.optimizer": evil}) for group in facts.groups
    )
    report = show(
        replace(
            facts, trials=trials, ranking=replace(facts.ranking, ranked=groups), message=evil, source=evil
        )
    )
    report.draw_all()
    report.tab.hover("#plot-history .main-svg >> nth=0")
    assert report.tab.title() == f"{facts.sweep}: sweep report"
    assert report.tab.locator("img[src=x]").count() == 0
    assert any(evil[:20] in cell for cell in report.rows()[0])
    # Nor does what is long make the page wider than a small window.
    report.tab.set_viewport_size({"width": 400, "height": 800})
    fits = "document.documentElement.scrollWidth <= innerWidth"
    until(lambda: report.tab.evaluate(fits), "the page is as narrow as its window")


def test_without_scripts_the_page_says_what_is_missing(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("".join(page(made_up(5), "")), encoding="utf-8")
    shown = Shown(browser, path, scripts=False)
    assert "need JavaScript" in shown.tab.inner_text("noscript")
    assert shown.tab.get_by_text("has the lowest val/loss").is_visible()
    shown.context.close()


@pytest.mark.parametrize("trials", [10, 1_000, 10_000])
def test_any_size_is_small_and_drawn(show, tmp_path, trials, capsys):
    report = show(made_up(trials, steps=200))
    report.tab.click("#ranked thead button >> nth=1")
    began = time.monotonic()
    report.tab.fill("#filter", "optimizer=sgd lr>0.001")
    report.tab.locator("#table-status", has_text="out of").wait_for()
    filter_s = time.monotonic() - began
    report.draw_all()
    own = (tmp_path / "report-0.html").stat().st_size - len(plotly_script().encode())
    with capsys.disabled():
        print(  # noqa: T201 - the figures that the documentation names
            f"\n{trials} trials: {own / 1e6:.2f} MB plus the library; table after {report.table_s:.2f} s,"
            f" plots after {report.plots_s:.2f} s, filtered in {filter_s:.2f} s"
        )
    assert own < MOST_BYTES


def test_a_real_sweep_has_a_report_that_a_browser_shows(browser, tmp_path, clean_env):
    home = tmp_path / "home"
    clean_env.setenv("AIRFLOWS_HOME", str(home))
    sweep = {
        "name": "curve",
        "base": {
            "experiment_name": "curve",
            "command": '"$PYTHON" "$CODE"',
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"lr": 0.1, "opt": "sgd"},
            "env_variables": {"PYTHON": sys.executable, "CODE": str(tmp_path / "train.py")},
        },
        "space": {"parameters.opt": ["adam", "<b>sgd</b>"]},
        "objective": {"metric": "loss", "goal": "minimize"},
    }
    (tmp_path / "sweep.yaml").write_text(json.dumps(sweep))
    (tmp_path / "train.py").write_text(
        "import os, mlflow, yaml\n"
        "given = yaml.safe_load(open(os.environ['HYPERPARAMETERS_PATH']))\n"
        "client = mlflow.MlflowClient()\n"
        "for step in range(5):\n"
        "    client.log_metric(os.environ['MLFLOW_RUN_ID'], 'loss', given['lr'] + 1 / (step + 1), step=step)\n"
    )
    command = [sys.executable, "-m", "airflows.cli"]
    subprocess.run([*command, "sweep", tmp_path / "sweep.yaml", "--yes"], check=True, cwd=tmp_path)
    subprocess.run([*command, "results", "curve", "--html", "report.html"], check=True, cwd=tmp_path)
    (stored,) = home.glob("mlartifacts/*/*/artifacts/report.html")
    for path in (tmp_path / "report.html", stored):
        shown = Shown(browser, path)
        shown.draw_all()
        assert len(shown.rows()) == 2
        assert shown.tab.locator("#plot-curves .scatterlayer .trace").count() == 2
        assert (shown.said, shown.asked) == ([], [])
        shown.context.close()
