"""On which hosts attempts of different trials keep failing while others do well elsewhere. Pure.

A failure is held against its host where nothing but the host explains it:

- the trial did well on another host afterwards; or
- it failed on no other host, and either the place is known to be at fault, or nobody met the same error on a
  host where trials do well.

A host is avoided when this holds for three trials or more, and when chance would hardly give one of the hosts
so many of all the failures that are held against any (the upper tail of the hypergeometric distribution,
times the number of hosts). So nothing is held against the only host, and what goes wrong everywhere blames
nobody. What later attempts show may clear a host again.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.trial import Event, Reason, State, Trial, attempt_after

_FEWEST = 3
_CHANCE = 0.05
_OF_THE_PLACE = frozenset({Reason.NODE_FAILED, Reason.LOST, Reason.NO_RENDEZVOUS, Reason.CODE_DAMAGED})
# Memory and time depend on a trial's values, and a preemption is the scheduler's.
_TELLING = _OF_THE_PLACE | {Reason.ERROR}
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """What an attempt that has ended says of its host.

    Attributes:
        number: of its trial.
        host: where it ran, empty when that is not known.
        state: of the attempt, as in the ledger.
        reason: why it ended.
        signature: its error with numbers, addresses and paths levelled.
        backend: where that host is.
    """

    number: int
    host: str
    state: str
    reason: str
    signature: str
    backend: str = ""

    @classmethod
    def of(cls, trial: Trial, event: Event) -> EndedAttempt:
        """Return the attempt that a trial was at, which ends with the event."""
        known = attempt_after(trial, event)
        return cls(
            number=trial.number,
            host=known["host"],
            state=known["state"],
            reason=known["reason"],
            signature=known["signature"],
            backend=trial.backend,
        )


@dataclass(frozen=True, slots=True)
class AvoidedHost:
    """A host that further attempts should not run on.

    Attributes:
        host: its name.
        failed: trials whose failure there is held against it.
        well: trials that did well there.
        elsewhere: trials that did well on other hosts.
    """

    host: str
    failed: int
    well: int
    elsewhere: int

    @property
    def sentence(self) -> str:
        """One line for people."""
        here = f"{self.well} did well" if self.well else "none did well"
        return f"{self.failed} trials failed there and {here}, while {self.elsewhere} did well elsewhere"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "host": self.host,
            "failed": self.failed,
            "succeeded": self.well,
            "succeeded_elsewhere": self.elsewhere,
            "message": self.sentence,
        }


def avoided_hosts(attempts: Iterable[EndedAttempt]) -> tuple[AvoidedHost, ...]:
    """Return the hosts to avoid after these attempts, which are in the order of each trial's attempts."""
    record = HostRecord()
    for attempt in attempts:
        record.add(attempt)
    return record.avoided


def avoiding_words(hosts: Sequence[str]) -> str:
    """Return what the event says with which an attempt begins that is kept from hosts; empty for none."""
    if not hosts:
        return ""
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return f"not on {', '.join(hosts[:_SHOWN])}{more}, where trials keep failing"


class HostRecord:
    """What became of attempts on each host. A trial that did well is counted and then forgotten."""

    def __init__(self) -> None:
        self._well: Counter[str] = Counter()
        self._failed: dict[int, dict[str, EndedAttempt]] = {}
        self._rescued_on: dict[int, str] = {}
        self._backend_of: dict[str, str] = {}
        self._found: tuple[AvoidedHost, ...] | None = ()

    def add(self, attempt: EndedAttempt) -> None:
        """Take account of an attempt that has ended; one that tells nothing of its host is left out."""
        if not attempt.host:
            return
        self._backend_of[attempt.host] = attempt.backend
        if attempt.state == State.SUCCEEDED or attempt.reason == Reason.RULE:
            self._well[attempt.host] += 1
            if attempt.number in self._failed:
                self._rescued_on[attempt.number] = attempt.host
        elif attempt.state == State.FAILED and attempt.reason in _TELLING:
            self._failed.setdefault(attempt.number, {})[attempt.host] = attempt
        else:
            return
        self._found = None

    @property
    def avoided(self) -> tuple[AvoidedHost, ...]:
        """The hosts to avoid, by name."""
        if self._found is None:
            self._found = tuple(self._judged())
        return self._found

    def is_of(self, host: str, backend: str) -> bool:
        """Whether an attempt ran on that host of a backend."""
        return self._backend_of.get(host) == backend

    def is_suspect(self, host: str) -> bool:
        """Whether no trial has done well on a host yet, though some did elsewhere."""
        return bool(host) and not self._well[host] and bool(self._well)

    def _judged(self) -> Iterable[AvoidedHost]:
        hosts = self._well.keys() | {host for by_host in self._failed.values() for host in by_host}
        if len(hosts) < 2 or not self._well:  # noqa: PLR2004 - nowhere else to go
            return
        held = Counter(self._held())
        well = self._well.total()
        for host in sorted(held):
            elsewhere = well - self._well[host]
            if held[host] < _FEWEST or not elsewhere:
                continue
            chance = _tail(held[host], held[host] + self._well[host], held.total(), held.total() + well)
            if chance * len(hosts) <= _CHANCE:
                yield AvoidedHost(host, held[host], self._well[host], elsewhere)

    def _held(self) -> Iterable[str]:
        """Yield a host for each trial whose failure is held against it."""
        met_on = self._met_on()
        for number, by_host in self._failed.items():
            rescued_on = self._rescued_on.get(number)
            if rescued_on is not None:
                yield from by_host.keys() - {rescued_on}
            elif len(by_host) == 1:
                ((host, failure),) = by_host.items()
                others = met_on[failure.signature] - {host}
                if failure.reason in _OF_THE_PLACE or not any(self._well[other] for other in others):
                    yield host

    def _met_on(self) -> Mapping[str, set[str]]:
        """Return signature -> hosts where it was met."""
        met_on: defaultdict[str, set[str]] = defaultdict(set)
        for by_host in self._failed.values():
            for host, failure in by_host.items():
                met_on[failure.signature].add(host)
        return met_on


def _tail(here: int, ran: int, failed: int, total: int) -> float:
    """Return the probability that of `ran` trials, drawn from all, at least `here` are among the failed."""
    most = min(ran, failed)
    whole = _log_choose(total, ran)
    return sum(
        math.exp(_log_choose(failed, k) + _log_choose(total - failed, ran - k) - whole)
        for k in range(here, most + 1)
        if ran - k <= total - failed
    )


def _log_choose(of: int, some: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)
