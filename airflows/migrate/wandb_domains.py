"""The distributions of a W&B sweep as domains of ours. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NoReturn, TypeGuard

from airflows.errors import SpecError
from airflows.migrate.report import Report
from airflows.migrate.space import typed_values

_WIDTH = 2.0
"""A normal distribution is cut at so many standard deviations: 95 % of it lie within."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a W&B sweep.

    Attributes:
        path: its name, of a nested one those above it first.
        given: what the file says of it.
        file: name of the file.
        line: where it stands.
    """

    path: tuple[str, ...]
    given: Mapping[str, Any]
    file: str
    line: int

    @property
    def key(self) -> str:
        """Its name, of a nested one with dots."""
        return ".".join(self.path)

    def fail(self, message: str) -> NoReturn:
        """Raise SpecError: something about it cannot be carried over."""
        raise SpecError(message, file=self.file, line=self.line, field=f"parameters.{self.key}")

    def number(self, name: str) -> float | int:
        """Return a number that it must have.

        Raises:
            SpecError: it has none of that name.
        """
        value = self.given.get(name)
        if isinstance(value, str):
            # YAML 1.1 takes 1e-3 for text; whoever wrote it meant a number.
            try:
                return float(value)
            except ValueError:
                pass
        if not is_number(value):
            self.fail(f"{self.key} needs a number for {name}.")
        return value


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number with which floats can reckon."""
    try:
        return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def domain(parameter: Parameter, report: Report, *, is_grid: bool, as_text: bool) -> Any:
    """Return the domain of a parameter.

    Args:
        parameter: as the file has it.
        report: gets what is lost.
        is_grid: all values are tried, so ranges of integers are written as finite ones.
        as_text: its values go through flags, where W&B writes them as Python prints them.

    Raises:
        SpecError: W&B would refuse it too, or nothing here comes near to it.
    """
    given = parameter.given
    try:
        json.dumps([given.get("value"), given.get("values")], default=str)
    except (TypeError, ValueError, RecursionError):
        parameter.fail(f"{parameter.key} has a value that cannot be written down.")
    if "value" in given:
        return _texts([given["value"]]) if as_text else [given["value"]]
    kind = given.get("distribution") or _by_default(parameter)
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        parameter.fail(f"distribution {kind!r} of {parameter.key} is none that can be carried over.")
    made = make(parameter, report)
    if isinstance(made, list):
        if not as_text:
            return made
        texts = _texts(made)
        if len(texts) < len(made):
            message = f"Values of {parameter.key} that are the same as flags are tried once."
            report.note("twice", parameter.line, message)
        return texts
    if not is_grid:
        return made
    if kind not in _FINITE:
        parameter.fail(f"{parameter.key} has no finite set of values, which method: grid needs.")
    return {"step": 1, **made}


def _by_default(parameter: Parameter) -> str:
    """Return the distribution that W&B takes where none is named."""
    if "values" in parameter.given:
        return "categorical"
    if not {"min", "max"} <= parameter.given.keys():
        parameter.fail(f"{parameter.key} needs value, values, or min and max.")
    bounds = (parameter.number("min"), parameter.number("max"))
    return "int_uniform" if all(isinstance(bound, int) for bound in bounds) else "uniform"


def _categorical(parameter: Parameter, report: Report) -> list[Any]:
    values = parameter.given.get("values")
    if not isinstance(values, list) or not values:
        parameter.fail(f"{parameter.key} needs a list of values.")
    if "probabilities" in parameter.given:
        message = f"The probabilities of {parameter.key} are lost: all its values are as likely."
        report.warn("probabilities", parameter.line, message)
    return values


def _texts(values: list[Any]) -> list[Any]:
    """Return values as Python prints them, each once; numbers where those keep their text."""
    return typed_values(list(dict.fromkeys(str(value) for value in values)))


def _integers(parameter: Parameter, report: Report) -> dict[str, Any]:
    del report
    bounds = _bounds(parameter)
    if any(bound != int(bound) for bound in bounds):
        parameter.fail(f"The bounds of {parameter.key} are no integers.")
    return {"min": int(bounds[0]), "max": int(bounds[1])}


def _uniform(parameter: Parameter, report: Report) -> dict[str, Any]:
    del report
    return _between(*_bounds(parameter))


def _stepped(parameter: Parameter, report: Report) -> dict[str, Any]:
    del report
    return _in_steps(parameter, *_bounds(parameter))


def _in_steps(parameter: Parameter, low: float, high: float) -> dict[str, Any]:
    step = _step(parameter)
    least, most = (round(Decimal(str(bound)) / step) * step for bound in (low, high))
    if least == most:
        parameter.fail(f"{parameter.key} has only one value within its bounds: write it as value.")
    return {"min": _plain(least), "max": _plain(most), "step": _plain(step)}


def _step(parameter: Parameter) -> Decimal:
    """Return what the values of a quantised distribution are multiples of."""
    step = Decimal(str(replace(parameter, given={"q": 1, **parameter.given}).number("q")))
    if step <= 0:
        parameter.fail(f"q of {parameter.key} is not above 0.")
    return step


def _exp(parameter: Parameter, exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        parameter.fail(
            f"e to the power of {exponent:g} is too large for {parameter.key}: bounds are exponents."
        )


def _log_by_exponent(parameter: Parameter, report: Report) -> dict[str, Any]:
    least, most = (_exp(parameter, bound) for bound in _bounds(parameter))
    return _log(parameter, report, least, most)


def _inverse_log_by_exponent(parameter: Parameter, report: Report) -> dict[str, Any]:
    least, most = (_exp(parameter, -bound) for bound in reversed(_bounds(parameter)))
    return _log(parameter, report, least, most)


def _log_by_value(parameter: Parameter, report: Report) -> dict[str, Any]:
    return _log(parameter, report, *_bounds(parameter))


def _log(parameter: Parameter, report: Report, least: float, most: float) -> dict[str, Any]:
    if least <= 0:
        parameter.fail(f"min of {parameter.key} is not above 0, which a log scale needs.")
    if not _is_quantised(parameter):
        return {**_between(least, most), "log": True}
    step, whole = _step(parameter), (round(least), round(most))
    if step == 1 and 1 <= whole[0] < whole[1]:
        return {"min": whole[0], "max": whole[1], "log": True}
    message = f"{parameter.key} is no longer rounded to multiples of {step}: the program must do that."
    report.warn("rounding", parameter.line, message)
    return {**_between(least, most), "log": True}


def _is_quantised(parameter: Parameter) -> bool:
    return str(parameter.given.get("distribution")).startswith("q_")


def _normal(parameter: Parameter, report: Report) -> dict[str, Any]:
    least, most = _within(parameter, report)
    return _in_steps(parameter, least, most) if _is_quantised(parameter) else _between(least, most)


def _log_normal(parameter: Parameter, report: Report) -> dict[str, Any]:
    least, most = _within(parameter, report)
    return _log(parameter, report, _exp(parameter, least), _exp(parameter, most))


def _within(parameter: Parameter, report: Report) -> tuple[float, float]:
    full = replace(parameter, given={"mu": 0, "sigma": 1, **parameter.given})
    mu, sigma = full.number("mu"), full.number("sigma")
    if sigma <= 0:
        parameter.fail(f"sigma of {parameter.key} is not above 0.")
    _flattened(parameter, report, "within two standard deviations")
    return mu - _WIDTH * sigma, mu + _WIDTH * sigma


def _beta(parameter: Parameter, report: Report) -> dict[str, Any]:
    _flattened(parameter, report, "between 0 and 1")
    return _in_steps(parameter, 0, 1) if _is_quantised(parameter) else _between(0, 1)


def _flattened(parameter: Parameter, report: Report, where: str) -> None:
    kind = parameter.given["distribution"]
    message = f"The shape of {kind} is lost: {parameter.key} is drawn evenly {where}."
    report.warn("distribution", parameter.line, message)


def _bounds(parameter: Parameter) -> tuple[float, float]:
    least, most = parameter.number("min"), parameter.number("max")
    if least >= most:
        parameter.fail(f"min of {parameter.key} is not below its max.")
    return least, most


def _between(least: float, most: float) -> dict[str, Any]:
    # Of two integers a domain would be one of integers.
    return {"min": float(least), "max": float(most)}


def _plain(number: Decimal) -> int | float:
    return int(number) if number == int(number) else float(number)


_FINITE = frozenset({"int_uniform", "q_uniform"})
_KINDS: Mapping[str, Callable[[Parameter, Report], Any]] = {
    "constant": _categorical,
    "categorical": _categorical,
    "categorical_w_probabilities": _categorical,
    "int_uniform": _integers,
    "uniform": _uniform,
    "q_uniform": _stepped,
    "log_uniform": _log_by_exponent,
    "q_log_uniform": _log_by_exponent,
    "inv_log_uniform": _inverse_log_by_exponent,
    "log_uniform_values": _log_by_value,
    "q_log_uniform_values": _log_by_value,
    "inv_log_uniform_values": _log_by_value,
    "normal": _normal,
    "q_normal": _normal,
    "log_normal": _log_normal,
    "q_log_normal": _log_normal,
    "beta": _beta,
    "q_beta": _beta,
}
