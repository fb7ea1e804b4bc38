"""Which rows no other row beats, by divide and conquer (Kung, Luccio and Preparata, 1975). Pure.

Of n rows of d values it takes about n log(n)^(d-2) steps, also where all of them are in front; comparing each
with each takes n².
"""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[float, ...]

# So few pairs are compared one by one sooner than they are divided.
_FEW = 64


def unbeaten(rows: Sequence[Row]) -> list[Row]:
    """Return those of some rows that no other is less than or equal to in all values.

    Args:
        rows: each once, in ascending order.
    """
    if len(rows) <= 1:
        return list(rows)
    middle = len(rows) // 2
    # In this order nothing is beaten by a row behind it.
    first = unbeaten(rows[:middle])
    return first + _kept(unbeaten(rows[middle:]), first, 1)


def _kept(rows: Sequence[Row], rivals: Sequence[Row], column: int) -> list[Row]:
    """Return the rows to which no rival is less than or equal from a column on."""
    if not rows or not rivals:
        return list(rows)
    left = len(rows[0]) - column
    if left == 1:
        least = min(rival[column] for rival in rivals)
        return [row for row in rows if row[column] < least]
    if left < 1 or len(rows) * len(rivals) <= _FEW:
        return [row for row in rows if not any(_beats(rival, row, column) for rival in rivals)]
    if left == 2:  # noqa: PLR2004 - columns
        return _swept(rows, rivals, column)
    bar = _bar([row[column] for row in (*rows, *rivals)])
    if bar is None:
        return _kept(rows, rivals, column + 1)
    low = [rival for rival in rivals if rival[column] <= bar]
    high = [rival for rival in rivals if rival[column] > bar]
    kept = _kept([row for row in rows if row[column] <= bar], low, column)
    above = _kept([row for row in rows if row[column] > bar], low, column + 1)
    return kept + _kept(above, high, column)


def _bar(values: list[float]) -> float | None:
    """Return a value with about as many above it as not; None where all are equal."""
    values.sort()
    middle, largest = values[(len(values) - 1) // 2], values[-1]
    if middle < largest:
        return middle
    return next((value for value in reversed(values) if value < largest), None)


def _swept(rows: Sequence[Row], rivals: Sequence[Row], column: int) -> list[Row]:
    """Do so for two columns: the least of the second so far says it, in the order of the first."""
    waiting = sorted(rivals, key=lambda row: row[column], reverse=True)
    least, kept = float("inf"), []
    for row in sorted(rows, key=lambda row: row[column]):
        while waiting and waiting[-1][column] <= row[column]:
            least = min(least, waiting.pop()[column + 1])
        if least > row[column + 1]:
            kept.append(row)
    return kept


def _beats(rival: Row, row: Row, column: int) -> bool:
    return all(rival[at] <= row[at] for at in range(column, len(row)))
