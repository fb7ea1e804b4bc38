"""Points drawn from a space: `random`, and `sobol`, which spreads them evenly.

Draw n depends on the space, the seed and n alone, so a sweep goes on after a restart as if it had not
stopped. No point comes twice: a space that can be counted is shuffled, or filled up to its last point.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from airflows.axes import Overrides, Space
from airflows.domains import Interval, Steps, likeness
from airflows.errors import MissingExtraError
from airflows.search.enumerate import Grid

# So many candidates in a row that a rule removes, or that came before, and the draws are at their end.
PATIENCE = 1000
_ROUNDS = 6
_SOBOL_BLOCK = 64


class Shuffle:
    """A permutation of `range(count)` that is computed one element at a time, by a Feistel network."""

    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        bits = max(0, count - 1).bit_length()
        self._widths = (bits // 2, bits - bits // 2)
        self._key = _key(seed)

    def __getitem__(self, number: int) -> int:
        if not 0 <= number < self._count:
            raise IndexError(number)
        place = self._permute(number)
        while place >= self._count:
            place = self._permute(place)
        return place

    def _permute(self, number: int) -> int:
        low, high = self._widths
        left, right = number >> high, number & ((1 << high) - 1)
        for turn in range(_ROUNDS):
            left, right = right, left ^ (_hashed(self._key, turn, right) & ((1 << low) - 1))
            low, high = high, low
        return left << high | right


def _key(seed: int) -> bytes:
    return hashlib.blake2b(str(seed).encode(), digest_size=32).digest()


def _hashed(key: bytes, turn: int, value: int) -> int:
    text = b"%d:%d" % (turn, value)
    return int.from_bytes(hashlib.blake2b(text, key=key, digest_size=64).digest(), "little")


Shares = Callable[[int], Sequence[float]]


def random_shares(space: Space, seed: int) -> Shares:
    """Return a function from a candidate's number to a share between 0 and 1 for each axis.

    An axis's shares depend on its keys, not on what else is in the space.
    """
    names = [",".join(axis.keys).encode() for axis in space.axes]
    key = _key(seed)

    def shares(number: int) -> Sequence[float]:
        each = (hashlib.blake2b(b"%d:%s" % (number, name), key=key, digest_size=8).digest() for name in names)
        return [(int.from_bytes(digest, "little") >> 11) * 2.0**-53 for digest in each]

    return shares


def sobol_shares(space: Space, seed: int) -> Shares:
    """Return the same for a scrambled Sobol sequence; quick when asked in order."""
    # An extra, and slow to import.
    qmc, random = import_module("scipy.stats.qmc"), import_module("numpy.random")
    engine: Any = None
    block: list[list[float]] = []
    first = 0

    def shares(number: int) -> Sequence[float]:
        nonlocal engine, block, first
        if engine is None or number < first:
            engine = qmc.Sobol(len(space.axes), scramble=True, seed=random.default_rng(seed))
            first, block = 0, []
        while number >= first + len(block):
            first += len(block)
            block = engine.random(_SOBOL_BLOCK).tolist()
        return block[number - first]

    return shares


@dataclass(frozen=True, slots=True)
class Draws:
    """The points drawn from one space.

    Attributes:
        space: what is drawn from.
        method: how.
        seed: makes the draws what they are.
        grid: the same space counted off, None where a domain is continuous.
    """

    space: Space
    method: Literal["random", "sobol"]
    seed: int
    grid: Grid | None

    @classmethod
    def of(cls, space: Space, method: Literal["random", "sobol"], seed: int) -> Draws:
        """Return the draws; whole numbers between two bounds can be counted off.

        Raises:
            MissingExtraError: the method needs scipy, which is not installed.
        """
        if method == "sobol" and find_spec("scipy") is None:
            message = "search.method sobol needs scipy, which is not installed."
            raise MissingExtraError(message, hint="Run: pip install 'airflows[stats]'")
        counted = [counted_off(axis.domain) for axis in space.axes]
        if any(isinstance(domain, Interval) for domain in counted):
            return cls(space, method, seed, None)
        axes = tuple(replace(axis, domain=domain) for axis, domain in zip(space.axes, counted, strict=True))
        return cls(space, method, seed, Grid(replace(space, axes=axes)))

    @property
    def count(self) -> int | None:
        """How many distinct points there are, None for endlessly many."""
        return None if self.grid is None else self.grid.count

    def points(self, seen: Sequence[Overrides] = ()) -> Iterator[Overrides]:
        """Yield the draws in order, without those in `seen`."""
        past = {likeness(overrides) for overrides in seen}
        if self.grid is not None and self._is_even:
            shuffled = self._shuffled(self.grid)
            if past:
                yield from (made for made in shuffled if likeness(made) not in past)
            else:
                yield from shuffled
            return
        yield from self._candidates(past)
        if self.grid is not None:
            for made in self._shuffled(self.grid):
                if _is_new(made, past):
                    yield made

    @property
    def _is_even(self) -> bool:
        """Whether every point is as likely as every other."""
        domains = (axis.domain for axis in self.space.axes)
        return self.method == "random" and not any(isinstance(d, Interval) and d.is_log for d in domains)

    def _shuffled(self, grid: Grid) -> Iterator[Overrides]:
        order = Shuffle(grid.count, self.seed)
        return (grid.point(order[number]) for number in range(grid.count))

    def _candidates(self, past: set[str]) -> Iterator[Overrides]:
        """Yield candidates that no rule removes and that are new; end when there seem to be none left."""
        make = sobol_shares if self.method == "sobol" else random_shares
        shares = make(self.space, self.seed)
        misses = 0
        for number in itertools.count():
            made = self.drawn(shares(number))
            if not self.space.is_excluded(made) and _is_new(made, past):
                misses = 0
                yield made
            else:
                misses += 1
                if misses >= PATIENCE:
                    return

    def drawn(self, shares: Sequence[float]) -> Overrides:
        """Return the point at the shares of its axes; axes that are not active are left out."""
        chosen: dict[int, Overrides] = {}
        made: Overrides = {}
        for at in self.space.order:
            axis = self.space.axes[at]
            if self.space.is_active(axis, made):
                domain = axis.domain
                if isinstance(domain, Interval):
                    value = domain.draw(shares[at])
                else:
                    value = domain[min(int(shares[at] * len(domain)), len(domain) - 1)]
                chosen[at] = axis.overrides(value)
                made |= chosen[at]
        return {key: value for at in sorted(chosen) for key, value in chosen[at].items()}


def counted_off(domain: Any) -> Any:
    """Return a domain, whole numbers between two bounds as steps of one."""
    if isinstance(domain, Interval) and domain.is_whole:
        low, high = int(domain.low), int(domain.high)
        counted = Steps.of(low, Fraction(1), high - low + 1, is_whole=True)
        return replace(counted, is_text=domain.is_text)
    return domain


def _is_new(made: Overrides, past: set[str]) -> bool:
    text = likeness(made)
    if text in past:
        return False
    past.add(text)
    return True
