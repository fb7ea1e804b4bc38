"""A sweep file of Weights & Biases as a train.yaml and a sweep.yaml. Pure.

After the configuration that W&B documents: parameters with `value`, `values` or a `distribution`, `method`,
`metric`, `early_terminate`, `run_cap`, and `command` with its macros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import yaml

from airflows.errors import SpecError
from airflows.keys import join_key
from airflows.migrate.migration import Migration
from airflows.migrate.passing import Imported, ask_for_mlflow, variables
from airflows.migrate.report import Report
from airflows.migrate.wandb_command import Command, command_of
from airflows.migrate.wandb_domains import Parameter, domain, is_number

Read = Callable[[str], str | None]

_SIGNS = frozenset({"method", "parameters"})
_KNOWN = _SIGNS | {
    "metric",
    "early_terminate",
    "run_cap",
    "command",
    "program",
    "name",
    "description",
    "project",
    "entity",
}
_METHODS = ("grid", "random", "bayes")
_TRIALS = 50
_FEW = 100
_DEEPEST = 20
"""An anchor that holds itself would have no end."""


def is_wandb(text: str) -> bool:
    """Whether a text is a sweep file of W&B rather than a script or a file of ours."""
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and tree.keys() >= _SIGNS


def from_wandb(
    text: str, *, name: str, root: str = ".", read: Read, accelerator: str | None = None
) -> Migration:
    """Return the files for a sweep file of W&B.

    Args:
        text: of the file, which W&B reads as YAML 1.1.
        name: of the file.
        root: its directory, relative to where the files are written.
        read: returns what a file beside it holds, None when it cannot be read.
        accelerator: the accelerator type to use; the smallest by default.

    Raises:
        SpecError: there is no way to write files for it.
    """
    return _Importing(text, name, root, read).made(accelerator)


class _Importing:
    def __init__(self, text: str, name: str, root: str, read: Read) -> None:
        self.name, self.root, self.report = name, root, Report()
        self.tree: dict[str, Any] = yaml.safe_load(text)
        self.lines = _lines(text)
        self.program = str(self.tree.get("program") or "")
        path = self.program or _script(self.tree.get("command"))
        self.text = read(path) if path else None

    def made(self, accelerator: str | None) -> Migration:
        parameters = list(self._parameters(self.tree["parameters"], ()))
        if not parameters:
            self._fail("parameters", "It names nothing to vary.")
        method, metric = self._method(), self._metric()
        command = self._command(parameters)
        names = variables(each.key for each in parameters) if command.takes_flags else {}
        space = {}
        for each in parameters:
            parts = ("env_variables", names[each.key]) if names else ("parameters", *each.path)
            made = domain(each, self.report, is_grid=method == "grid", as_text=bool(names))
            space[join_key(parts)] = made
        named = str(self.tree.get("name") or self.name.partition(".")[0])
        imported = Imported(
            source=self.name,
            name=named,
            experiment=str(self.tree.get("project") or named),
            command=command.text(names),
            space=space,
            report=self.report,
            root=self.root,
            sweep={**self._search(method), **self._objective(method, metric), **self._stop()},
            carried={"from": "wandb", "method": method, "parameters": [each.key for each in parameters]},
        )
        for key in sorted(self.tree.keys() - _KNOWN, key=str):
            message = f"{key} has no counterpart here and was left out."
            self.report.warn("unknown", self._line(str(key)), message)
        ask_for_mlflow(self.report, self.text, metric)
        return imported.made(accelerator)

    # Reading

    def _line(self, *path: str) -> int:
        return self.lines.get(path) or (self._line(*path[:-1]) if path else 1)

    def _fail(self, field: str, message: str, hint: str | None = None) -> NoReturn:
        raise self._error(field, message, hint)

    def _error(self, field: str, message: str, hint: str | None) -> SpecError:
        return SpecError(message, file=self.name, line=self._line(*field.split(".")), field=field, hint=hint)

    def _parameters(self, tree: Any, above: tuple[str, ...]) -> Iterator[Parameter]:
        """Yield the parameters, nested ones by dotted keys."""
        where = ".".join(("parameters", *above))
        if not isinstance(tree, dict):
            self._fail(where, "It is no mapping of parameters.")
        if len(above) > _DEEPEST:
            self._fail("parameters", "Its parameters are nested too deeply, or hold themselves.")
        for key, given in tree.items():
            path = (*above, str(key))
            if isinstance(given, dict) and "parameters" in given:
                yield from self._parameters(given["parameters"], path)
            elif isinstance(given, dict):
                line = self._line("parameters", *path)
                yield Parameter(path, given, self.name, line)
            else:
                message = f"{'.'.join(path)} is no parameter: it needs value, values, or min and max."
                self._fail(f"{where}.{key}", message)

    def _method(self) -> str:
        given = self.tree["method"]
        if given not in _METHODS:
            message = f"method {given!r} is none that can be carried over."
            self._fail("method", message, f"There are: {', '.join(_METHODS)}.")
        return str(given)

    def _metric(self) -> str | None:
        given = self.tree.get("metric")
        if given is None:
            return None
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            self._fail("metric", "metric has no name.")
        if "target" in given:
            message = "Reaching metric.target ends nothing here: the sweep tries all its points."
            self.report.warn("target", self._line("metric", "target"), message)
        return str(given["name"])

    # The parts

    def _command(self, parameters: list[Parameter]) -> Command:
        try:
            made = command_of(self.tree.get("command"), self.program, self.text, parameters)
        except SpecError as exc:
            raise self._error(exc.field or "command", exc.message, exc.hint) from exc
        if self.program and self.text is None:
            message = (
                f"{self.program} is not beside {self.name}: code_source.snapshot.root_path must hold it."
            )
            self.report.warn("program", self._line("program"), message)
        if made.why_not_by_flags:
            message = (
                f"{made.why_not_by_flags} Its values are keys of `parameters` now: in place of wandb.config"
                " it must read them, with yaml.safe_load(open(os.environ['HYPERPARAMETERS_PATH']))."
            )
            self.report.warn("config", self._line("command"), message)
        return made

    def _search(self, method: str) -> dict[str, Any]:
        cap = self.tree.get("run_cap")
        if cap is None and method == "grid":
            return {}
        if cap is None:
            cap = _TRIALS
            message = (
                f"W&B goes on until it is stopped; here search.trials says how many, and {cap} is a guess."
            )
            self.report.warn("run-cap", self._line("method"), message)
        if isinstance(cap, bool) or not isinstance(cap, int) or cap < 1:
            self._fail("run_cap", "run_cap is no number of runs.")
        if method == "bayes":
            method = "gp" if cap <= _FEW else "tpe"
            why = "a Gaussian process like W&B's" if method == "gp" else "which is quick with so many trials"
            self.report.note("bayes", self._line("method"), f"bayes is search.method {method} here, {why}.")
        return {"search": {"method": method, "trials": cap, **({} if method == "grid" else {"seed": 0})}}

    def _objective(self, method: str, metric: str | None) -> dict[str, Any]:
        if metric is None:
            if method == "bayes":
                self._fail("method", "method: bayes needs a metric.")
            return {}
        # W&B's default, which is none here.
        goal = self.tree["metric"].get("goal", "minimize")
        return {"objective": {"metric": metric, "goal": goal}}

    def _stop(self) -> dict[str, Any]:
        given = self.tree.get("early_terminate")
        if given is None:
            return {}
        line = self._line("early_terminate")
        if not isinstance(given, dict) or given.get("type") != "hyperband":
            message = "This rule of early_terminate is not known, so no run is stopped early."
            self.report.warn("early-terminate", line, message)
            return {}
        full = {"eta": 3, "s": 1, **given}
        for name in ("eta", "s", "min_iter", "max_iter"):
            if name in full and not (is_number(full[name]) and full[name] > 0):
                self._fail(f"early_terminate.{name}", f"{name} of hyperband is no number above 0.")
        reduction, least, most = full["eta"], given.get("min_iter"), given.get("max_iter")
        if least is None:
            if most is None:
                self._fail("early_terminate", "hyperband needs min_iter or max_iter.")
            least = _first_bracket(most, reduction, full["s"])
        if given.get("strict"):
            message = "strict is lost: a rung lets the best part of the trials go on, as without it."
            self.report.warn("early-terminate", self._line("early_terminate", "strict"), message)
        message = "W&B counts iterations by calls of wandb.log; min_steps and max_steps count MLflow's steps."
        self.report.note("early-terminate", line, message)
        made = {"method": "asha", "min_steps": least, "reduction": reduction}
        return {"stop": made if most is None else {**made, "max_steps": most}}


def _script(command: Any) -> str:
    """Return the Python file that a command names itself, empty for none."""
    words = command.split() if isinstance(command, str) else command if isinstance(command, list) else []
    return next((word for word in map(str, words) if word.endswith(".py")), "")


def _first_bracket(most: float, reduction: float, count: float) -> int:
    try:
        return max(1, int(most / reduction**count))
    except OverflowError:
        return 1


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key of a YAML text, by its path."""
    found: dict[tuple[str, ...], int] = {}

    def walk(node: yaml.Node | None, path: tuple[str, ...]) -> None:
        for key, value in node.value if isinstance(node, yaml.MappingNode) and len(path) < _DEEPEST else ():
            below = (*path, str(key.value))
            found[below] = key.start_mark.line + 1
            walk(value, below)

    walk(yaml.compose(text, Loader=yaml.SafeLoader), ())
    return found
