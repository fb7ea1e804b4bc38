"""What the live view costs: a look at the ledger and a picture, for sweeps of more and more trials.

Promised: a sweep of 10,000 trials redraws within 50 ms. The trials have ended but for 16; before each redraw
that is timed, 16 end and 16 start. The first look, which reads everything, is no redraw.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from pathlib import Path

import yaml
from measuring import scratch, sweep_of_true
from rich.console import Console, Group

from airflows.cli.screen import screen
from airflows.drivers import current_owner
from airflows.engine.onlooker import Onlooker
from airflows.engine.site import open_site
from airflows.engine.start import begin
from airflows.ledger import Change, Closing, Lease, Ledger, PointRow, SweepRow, open_ledger
from airflows.spec import SweepSpec
from airflows.sweepfile import load_sweep
from airflows.trial import Event, EventKind, Handle, Reason, State, Trial, advance

PROMISED_MS = 50.0
GOING, LOOKS = 16, 20
WIDTH, HEIGHT = 200, 50
OBJECTIVE = {"objective": {"metric": "loss", "goal": "minimize"}}


class Filled:
    """A sweep in a ledger, all of whose trials were started."""

    def __init__(self, trials: int, home: Path) -> None:
        file = home / "sweep.yaml"
        tree = sweep_of_true(trials + LOOKS * GOING, {"uri": "none"}) | OBJECTIVE
        file.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        site = open_site(load_sweep(file), home)
        self.spec: SweepSpec = site.spec
        self.row: SweepRow = begin(site, now=time.time(), new=True).row
        self.ledger: Ledger = open_ledger(home)
        self.lease: Lease = self.ledger.hold(
            self.row.id,
            current_owner(),
            now=time.time(),
            ttl_s=3600,
            token="0",  # noqa: S106
        )
        self.going: list[Trial] = []
        self.count = 0
        while self.count < trials:
            self.step(min(500, trials - GOING - self.count) or GOING)

    def step(self, trials: int) -> None:
        """End what runs, and start so many others."""
        now = time.time()
        ended = [self._ended(trial, now) for trial in self.going]
        closings = [Closing(c.after.number, value=1 / (1 + c.after.number)) for c in ended]
        self.ledger.apply(self.lease, ended)
        self.ledger.apply(self.lease, [], closings)
        numbers = range(self.count, self.count + trials)
        points = [PointRow(n, {"parameters.number": n}, f"digest-{n}") for n in numbers]
        new = [Trial(self.row.id, n, n, 0, State.PENDING) for n in numbers]
        self.ledger.add_points(self.lease, points, new)
        self.count += trials
        self.going = [self._started(trial, now) for trial in new]

    def _started(self, trial: Trial, now: float) -> Trial:
        claimed = Event(EventKind.CLAIMED, now, changes={"backend": "local"})
        handle = {"handle": Handle(f"local:{trial.number}")}
        for event in (claimed, Event(EventKind.ACCEPTED, now, changes=handle), Event(EventKind.STARTED, now)):
            after = advance(trial, event)
            token = f"{self.row.id}-{trial.number}"
            self.ledger.apply(self.lease, [Change(trial, after, event, token)])
            trial = after
        return trial

    def _ended(self, trial: Trial, now: float) -> Change:
        fails = trial.number % 10 == 0
        changes = {"signature": f"error {trial.number % 5}"} if fails else {}
        kind, reason = (EventKind.FAILED, Reason.ERROR) if fails else (EventKind.SUCCEEDED, Reason.NONE)
        event = Event(kind, now, reason, "It broke." if fails else "", changes=changes)
        return Change(trial, advance(trial, event), event, f"{self.row.id}-{trial.number}")


def redraw(onlooker: Onlooker) -> None:
    """Look, lay out, and write for the terminal."""
    console = Console(file=io.StringIO(), force_terminal=True, width=WIDTH, height=HEIGHT)
    console.print(Group(*screen(onlooker.look(), WIDTH, HEIGHT)))


def timed_ms(onlooker: Onlooker) -> tuple[float, float]:
    """Return how long a redraw takes, and its processor time, which other programs disturb less."""
    began, used = time.perf_counter(), time.process_time()
    redraw(onlooker)
    return (time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=json.loads, default=[100, 1000, 10_000], metavar="[N, …]")
    options = parser.parse_args()
    print(f"a look and a redraw at {WIDTH} x {HEIGHT}, {LOOKS} times; ratio to {PROMISED_MS:.0f} ms")
    head = "".join(f"{name:>12}{'ratio':>8}" for name in ("median, ms", "worst, ms", "CPU, ms"))
    print(f"{'trials':>8}{'first, ms':>12}{head}")
    with scratch() as directory:
        for trials in options.trials:
            home = directory / str(trials)
            home.mkdir()
            filled = Filled(trials, home)
            onlooker = Onlooker(filled.ledger, filled.row, filled.spec, home)
            first, times = timed_ms(onlooker)[0], []
            for _ in range(LOOKS):
                filled.step(GOING)
                times.append(timed_ms(onlooker))
            took, used = zip(*times, strict=True)
            figures = (statistics.median(took), max(took), statistics.median(used))
            told = "".join(f"{each:12.1f}{each / PROMISED_MS:8.2f}" for each in figures)
            print(f"{trials:8,}{first:12.1f}{told}", flush=True)


if __name__ == "__main__":
    main()
