"""From a sweep.yaml and its train.yaml to a checked sweep. Pure but for reading the two files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflows import yamlio
from airflows.addresses import has_secret
from airflows.axes import Space
from airflows.basefile import read_base
from airflows.errors import SpecError
from airflows.ids import digest
from airflows.keynames import KeyNames
from airflows.place import Place
from airflows.space import Choice, Expansion
from airflows.spacefile import read_space
from airflows.spec import ADAPTIVE, DRAWN, SweepSpec, distinct
from airflows.specerrors import checked_spec
from airflows.stopping.checks import check_stop
from airflows.sweeptree import apply_sets, plain
from airflows.train import TrainConfig, TrainFile, decode, effective, normalised
from airflows.yamlio import Notice

_NAME_LENGTH = 64
_TRAIN_KEYS = {"command", "experiment_name"}
_ERROR_FIELD = re.compile(r"exclude\[(?P<rule>\d+)\]|space\.(?P<key>.+)")


@dataclass(frozen=True, slots=True)
class LoadedSweep:
    """A sweep that may be run.

    Attributes:
        spec: the sweep file.
        base: the train.yaml, overrides applied; without an idempotency token.
        path: the sweep file, None for a mapping.
        directory: what relative paths in the base count from.
        notices: what people should know before running it.
        space: axes, rows and rules.
        expansion: the points.
        definition: what makes the points what they are; limits, retries and the like are not in it.
        definition_digest: of the definition: the same points in the same order from the same base.
        source: the sweep file as it took effect, base inlined; without a `tracking.uri` that
            holds a password.
        idempotency_token: the base's own, for `airflows run`; empty for none.
    """

    spec: SweepSpec
    base: TrainFile
    path: Path | None
    directory: Path
    notices: tuple[Notice, ...]
    space: Space
    expansion: Expansion
    definition: Mapping[str, Any]
    definition_digest: str
    source: str
    idempotency_token: str = ""

    @property
    def is_single(self) -> bool:
        """Whether it is one run of the base as it is."""
        return self.space == Space(include=({},)) and self.spec.replicates is None


def load_sweep(
    path: Path, *, sets: Sequence[str] = (), overrides: Sequence[str] = (), backend: str | None = None
) -> LoadedSweep:
    """Read and check a sweep.yaml.

    Args:
        path: the file.
        sets: `KEY=VALUE` changes of the sweep file.
        overrides: `KEY=VALUE` changes of the base; they win over the file's own `overrides`.
        backend: in place of the file's.

    Raises:
        SpecError: something is wrong; the error names file, line and key.
        MissingExtraError: the sweep needs a package that is not installed.
    """
    document = yamlio.read(path, dialect="sweep")
    if document.empty:
        Place(str(path)).fail("This file is empty.", "It needs name, base and space.")
    if _is_train_yaml(document.value):
        hint = f"Run it with: airflows run -f {path}  A sweep.yaml beside it names it as its base."
        Place(str(path)).fail("This is a train.yaml, and a sweep.yaml is wanted.", hint)
    loaded = _load(document.value, Place(str(path), document=document), path.parent, sets, overrides, backend)
    return replace(loaded, path=path, notices=(*document.notices, *loaded.notices))


def sweep_from_mapping(
    tree: Mapping[str, Any],
    *,
    directory: Path,
    file: str = "<python>",
    sets: Sequence[str] = (),
    overrides: Sequence[str] = (),
    backend: str | None = None,
) -> LoadedSweep:
    """Check a sweep given as a mapping; see `load_sweep`.

    Args:
        tree: what a sweep.yaml holds.
        directory: what relative paths in it count from.
        file: what to call it in messages.
        sets: as for `load_sweep`.
        overrides: as for `load_sweep`.
        backend: as for `load_sweep`.
    """
    return _load(tree, Place(file), directory, sets, overrides, backend)


def sweep_of_run(
    base: TrainFile,
    *,
    name: str = "",
    backend: str | Mapping[str, Any] | None = None,
    directory: Path | None = None,
    **fields: Any,
) -> LoadedSweep:
    """Return the sweep of one trial that `airflows run` makes of a train.yaml.

    Args:
        base: the train.yaml, overrides applied.
        name: the sweep's name; by default the experiment's, as far as it may be one.
        backend: where it runs.
        directory: what relative paths count from; by default where the train.yaml is.
        **fields: further keys of a sweep.yaml, such as `tracking`.
    """
    experiment = base.config.experiment_name.lstrip("_-")[:_NAME_LENGTH]
    tree = {"name": name or experiment or "run", "base": base.tree, "include": [{}], **fields}
    if backend is not None:
        tree["backend"] = backend
    where = directory or (base.path.parent if base.path is not None else Path())
    loaded = _load(tree, Place(base.document.file), where, (), (), None)
    kept = replace(base, tree=loaded.base.tree, config=loaded.base.config)
    notices = [notice for notice in loaded.notices if notice.field != "base.idempotency_token"]
    return replace(loaded, base=kept, notices=(*base.notices, *notices))


def _load(
    tree: Any,
    place: Place,
    directory: Path,
    sets: Sequence[str],
    overrides: Sequence[str],
    backend: str | None,
) -> LoadedSweep:
    if not isinstance(tree, Mapping):
        place.fail("A sweep.yaml is a mapping of keys such as name, base and space.")
    read, changed = apply_sets(plain(tree, place), sets, backend)
    place = replace(place, changed=changed)
    spec = checked_spec(read, place)
    _check_parts(spec, place)
    check_stop(spec, place)
    base = read_base(spec, place, directory, overrides)
    _check_pack(spec, base.file.config, place)
    names = KeyNames(base.file.tree, strict=spec.strict)
    spec = _with_relief(_with_replicates(spec, names, place), names, base.file.tree, place)
    space = read_space(spec.space, spec.include, spec.exclude, base=base.file.tree, names=names, place=place)
    expansion = _expansion(spec, space, place)
    notices = [*base.notices, *names.notices, *_own_notices(spec, read, expansion, place)]
    definition = _definition(spec, space, base.file.tree)
    return LoadedSweep(
        spec=spec,
        base=base.file,
        path=None,
        directory=base.directory,
        notices=tuple(notices),
        space=space,
        expansion=expansion,
        definition=definition,
        definition_digest=digest(definition),
        source=_source(read, base.file.tree),
        idempotency_token=base.token,
    )


def _is_train_yaml(tree: Any) -> bool:
    """Whether a file has what makes a train.yaml, and nothing that makes a sweep.yaml."""
    if not isinstance(tree, Mapping):
        return False
    return tree.keys() >= _TRAIN_KEYS and not tree.keys() & {"base", "space", "include"}


def _check_parts(spec: SweepSpec, place: Place) -> None:
    """Check what concerns several keys at once."""
    if not spec.space and not spec.include:
        place.fail("Neither space nor include is given, so there is nothing to run.")
    if spec.objective is not None and spec.objectives:
        place.at("objectives").fail("objective and objectives cannot be given together.")
    if len(spec.objectives) == 1:
        place.at("objectives").fail("objectives takes two or more.", "For one there is objective.")
    _check_search(spec, place)
    for at, objective in enumerate(spec.all_objectives):
        runs = len(spec.replicates.values) if spec.replicates is not None else 1
        if (objective.min_replicates or 0) > runs:
            path = ("objective",) if spec.objective is not None else ("objectives", at)
            message = f"min_replicates is {objective.min_replicates}, and each point runs {runs} times."
            place.at(*path, "min_replicates").fail(message)


def _check_pack(spec: SweepSpec, config: TrainConfig, place: Place) -> None:
    """Check that the trials to be packed are no larger than the node that they share."""
    if spec.pack > 1 and config.nodes > 1:
        message = f"pack puts several trials into one node, and a trial of the base takes {config.nodes}."
        place.at("pack").fail(message, "Leave pack out, or lower compute.num_accelerators.")


def _check_search(spec: SweepSpec, place: Place) -> None:
    """Check what a method of choosing points needs, and what it cannot do."""
    method, search = spec.method, place.at("search")
    if method == "list" and not spec.include:
        search.at("method").fail("search.method list runs the rows of include, and there are none.")
    if method != "list" and not spec.space:
        search.at("method").fail(f"search.method {method} needs a space.")
    if method in DRAWN | ADAPTIVE and spec.search.trials is None:
        search.fail(f"search.method {method} needs search.trials, the number of points.")
    if method in ADAPTIVE and not spec.all_objectives:
        place.fail(f"search.method {method} needs an objective.")
    if method == "cmaes" and spec.objectives:
        search.at("method").fail("search.method cmaes knows one objective only.", "Use nsga2 or tpe.")
    if spec.search.warm_start and method not in ADAPTIVE:
        search.at("warm_start").fail(f"search.method {method} does not learn from earlier sweeps.")


def _with_replicates(spec: SweepSpec, names: KeyNames, place: Place) -> SweepSpec:
    """Return the file with the values of replicates as their key takes them."""
    if spec.replicates is None:
        return spec
    here = place.at("replicates", "key")
    key = names.single(spec.replicates.key, here)
    names.check_swept(key, here)
    names.replicate_key = key
    values = distinct([normalised(key, value) for value in spec.replicates.values])
    return spec.model_copy(update={"replicates": spec.replicates.model_copy(update={"values": values})})


def _with_relief(spec: SweepSpec, names: KeyNames, base: Mapping[str, Any], place: Place) -> SweepSpec:
    """Return the file with the values of `retry.on_out_of_memory` as their keys take them."""
    given = spec.retry.on_out_of_memory
    if given is None:
        return spec
    here = place.at("retry", "on_out_of_memory")
    if not given:
        here.fail("It names no value to change.", "Write it like {parameters.batch_size: 8}.")
    made: dict[str, Any] = {}
    for text, value in given.items():
        key = names.single(text, here.at(text))
        names.check_swept(key, here.at(text))
        made[key] = normalised(key, value)
    try:
        decode(effective(base, made))
    except SpecError as exc:
        what = f"{exc.field}: {exc.message}" if exc.field else exc.message
        raise here.error(what, exc.hint) from exc
    return spec.model_copy(update={"retry": spec.retry.model_copy(update={"on_out_of_memory": made})})


def _expansion(spec: SweepSpec, space: Space, place: Place) -> Expansion:
    if spec.search.method is None and spec.space and not space.is_finite:
        message = "A domain of the space is continuous, so a grid cannot run it: search.method is needed."
        place.at("search").fail(
            message, "Write search: {method: random, trials: 20}, or give a step or count."
        )
    search = spec.search
    try:
        return Expansion(space, Choice(spec.method, search.trials, search.seed, bool(search.warm_start)))
    except SpecError as exc:
        found = _ERROR_FIELD.fullmatch(exc.field or "")
        here = place.at(exc.field or "space")
        if found is not None:
            here = (
                place.at("exclude", int(found["rule"])) if found["rule"] else place.at("space", found["key"])
            )
        raise here.error(exc.message, exc.hint) from exc


def _own_notices(
    spec: SweepSpec, tree: Mapping[str, Any], expansion: Expansion, place: Place
) -> list[Notice]:
    notices: list[Notice] = []
    if spec.replicates is not None and len(tree["replicates"]["values"]) > len(spec.replicates.values):
        notices.append(place.at("replicates", "values").notice("A value is listed twice; it is run once."))
    dropped, trials, count = expansion.duplicates_dropped, spec.search.trials, expansion.count()
    if dropped:
        notices.append(place.notice(f"{dropped} duplicate point{'s' if dropped > 1 else ''} dropped."))
    if spec.method == "cmaes" and any(objective.constraints for objective in spec.all_objectives):
        message = "cmaes does not look at constraints: they count when points are ranked."
        notices.append(place.at("search", "method").notice(message))
    if trials is not None and count is not None and count < trials:
        notices.append(place.at("search", "trials").notice(f"There are only {count} points, not {trials}."))
    if has_secret(spec.tracking.uri or ""):
        message = (
            "It holds a password, so it is kept nowhere:"
            " set MLFLOW_TRACKING_URI to it to resume or cancel the sweep later."
        )
        notices.append(place.at("tracking", "uri").notice(message))
    return notices


def _definition(spec: SweepSpec, space: Space, base: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "base": base,
        "space": [
            [list(axis.keys), axis.domain.describe(), [[c.key, sorted(c.wanted)] for c in axis.clauses]]
            for axis in space.axes
        ],
        "include": list(space.include),
        "exclude": [dict(rule.wanted) for rule in space.exclude],
        "warm_start": spec.search.warm_start,
        "search": {"method": spec.method, "seed": spec.search.seed},
        "replicates": None if spec.replicates is None else spec.replicates.model_dump(),
    }
    if spec.method in ADAPTIVE:
        made["objectives"] = [objective.model_dump() for objective in spec.all_objectives]
        made["stop"] = spec.stop.model_dump()
    return made


def _source(tree: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """Return the sweep file as it took effect; `overrides` are in the base already."""
    shown = {name: tree[name] for name in SweepSpec.model_fields if name in tree and name != "overrides"}
    shown["base"] = dict(base)
    tracking = shown.get("tracking") or {}
    if has_secret(tracking.get("uri") or ""):
        # Half an address would win over the environment's whole one when the source is read again.
        shown["tracking"] = {name: value for name, value in tracking.items() if name != "uri"}
    return yamlio.dump(shown)
