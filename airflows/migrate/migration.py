"""One script from its text to the two files. Pure but for the function that reads files it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflows.errors import SpecError
from airflows.migrate import accelerators, facts, files, grammar, remarks, site
from airflows.migrate.accelerators import Accelerator
from airflows.migrate.command import Command, Source, command_of
from airflows.migrate.directives import Header, read_header
from airflows.migrate.foreign import foreign_command, whole_command
from airflows.migrate.grammar import Array
from airflows.migrate.prelude import Surrounding, slurm_names
from airflows.migrate.report import Finding, Report
from airflows.migrate.resources import Resources, resources
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.tree import ParseError, Script
from airflows.migrate.space import space_of
from airflows.migrate.steps import Body, read_body
from airflows.migrate.sweeping import Sweeping, by_index, sweeping
from airflows.migrate.trace import INDEX

Read = Callable[[str], str | None]
_IMAGE = re.compile(r"(?:docker://)?([\w.-]+(?::\d+)?(?:/[\w.-]+)*(?:[:@][\w.:-]+)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Migration:
    """What a script becomes.

    Attributes:
        train: what the train.yaml holds.
        sweep: what the sweep.yaml holds, None without an array.
        train_text: the train.yaml.
        sweep_text: the sweep.yaml, empty without.
        backend: the settings for Slurm, which the sweep.yaml has too.
        carried: the facts of the script.
        warnings: what could not be carried over as it is, by line.
        notes: choices that were made, and what to look at, by line.
    """

    train: dict[str, Any]
    sweep: dict[str, Any] | None
    train_text: str
    sweep_text: str
    backend: dict[str, Any]
    carried: dict[str, Any]
    warnings: tuple[Finding, ...]
    notes: tuple[Finding, ...]


def migrate(
    text: str, *, name: str, directory: str, root: str = ".", read: Read, accelerator: str | None = None
) -> Migration:
    """Return the files for a script.

    Args:
        text: the script.
        name: its file name.
        directory: where it lies, absolute.
        root: the same, relative to where the files are written.
        read: returns what a file beside the script holds, None when it cannot be read.
        accelerator: the accelerator type to use; the nearest by default.

    Raises:
        SpecError: there is no way to write files for it.
    """
    return _Migrating(text, name, directory, root, read, accelerator).made()


class _Migrating:
    def __init__(
        self, text: str, name: str, directory: str, root: str, read: Read, accelerator: str | None
    ) -> None:
        self.report = Report()
        self.text = self._plain(text)
        self.name, self.directory, self.root = name, directory, root
        self.header: Header = read_header(self.text.split("\n"), self.report)
        self.components: list[Resources] = [
            resources(part, self.report) for part in facts.shared(self.header.components)
        ]
        self.resources = self.components[0]
        self.read = self._reader(read)
        self.array = self._array()
        constraint = facts.value(self.header, "constraint") or ""
        self.accelerator: Accelerator = accelerators.choose(self.resources, constraint, accelerator)
        self.body: Body | None = None

    def _plain(self, text: str) -> str:
        if "\r\n" in text:
            line = text[: text.index("\r\n")].count("\n") + 1
            message = "sbatch refuses a script with DOS line ends. They are read as if they were none."
            self.report.warn("invalid", line, message)
        return text.removeprefix("\ufeff").replace("\r\n", "\n")

    def _reader(self, read: Read) -> Read:
        chdir = facts.value(self.header, "chdir")
        if chdir is None or chdir == ".":
            return read
        return lambda path: read(path if path.startswith("/") else f"{chdir.rstrip('/')}/{path}")

    def _array(self) -> Array | None:
        directive = self.header.last("array")
        if directive is None or not directive.value:
            return None
        found = grammar.array(directive.value)
        if found is None:
            self.report.warn(
                "invalid",
                directive.line,
                f"sbatch refuses {directive.written}, so it is not known which tasks there are: no sweep.yaml"
                " is written.",
                directive.option,
            )
        elif found.throttle is not None:
            message = f"At most {found.throttle} tasks at once is limits.concurrent of sweep.yaml."
            self.report.warn("array-throttle", directive.line, message, directive.option)
        return found

    def made(self) -> Migration:
        site.remarks(self.header, self.resources, self.report)
        is_array = self.array is not None
        settings = site.settings(self.header, self.resources, is_array=is_array, report=self.report)
        command, sweep = self._command()
        backend = self._backend(settings, command)
        train = self._train(command, sweep)
        tree = None if self.array is None or sweep is None else self._sweep(sweep, self.array, backend)
        params = None if sweep is None else sweep.params
        self._note_choices(command)
        carried = facts.carried(self.header, self.resources, self.array, self.body, params, self.components)
        return Migration(
            train=train,
            sweep=tree,
            train_text=files.train_text(train, self.name),
            sweep_text="" if tree is None else files.sweep_text(tree, self.name),
            backend=backend,
            carried=carried,
            warnings=self.report.warnings,
            notes=self.report.notes,
        )

    # The command

    def _command(self) -> tuple[Command, Sweeping | None]:
        around = self._surrounding()
        if not facts.is_shell(self.header.interpreter):
            sweep = None if self.array is None else by_index(self.array)
            return foreign_command(self, around, sweep), sweep
        try:
            script = parse(self.text)
        except ParseError as exc:
            line = self.text.count("\n", 0, exc.offset) + 1
            self.report.warn(
                "not-understood",
                line,
                f"From here the script is not understood ({exc.message}), so it is kept as it is and was not"
                " looked through: check every line that has to do with Slurm.",
            )
            sweep = None if self.array is None else by_index(self.array)
            return whole_command(self, around, sweep), sweep
        return self._shell_command(script, around)

    def _shell_command(self, script: Script, around: Surrounding) -> tuple[Command, Sweeping | None]:
        self.body = read_body(script)
        remarks.remark(
            self.body, self.header.body, self.report, is_array=self.header.last("array") is not None
        )
        mentioned = self._mentioned_in_files()
        sweep = None
        if self.array is not None:
            sweep = sweeping(
                script,
                self.array,
                self.read,
                self.report,
                needs_index=self._needs_index(mentioned),
                flags=self.flags,
            )
        source = Source(
            script,
            self.flags,
            self.name,
            self._start(),
            frozenset(facts.export_of(self.header.last("export"))[1])
            | frozenset(sweep.keys if sweep else ()),
            has_chdir=self.header.last("chdir") is not None,
            mentioned=frozenset(mentioned),
        )
        gpus = grammar.gpus(facts.value(self.header, "gpus-per-task") or "")
        per_task = gpus[0] if gpus else 0
        made = command_of(source, around, sweep, self.accelerator.per_node, per_task, self.report)
        return made, sweep

    @property
    def flags(self) -> str:
        """The letters of the interpreter's options."""
        words = (self.header.interpreter or "").split()[1:]
        return "".join(word[1:] for word in words if re.fullmatch(r"-[a-zA-Z]+", word))

    def _needs_index(self, mentioned: set[str]) -> bool:
        """Whether a program finds out by itself which task it is."""
        if INDEX in mentioned:
            return True
        return self.body is not None and not re.search(rf"\b{INDEX}\b", self.body.script.text)

    def _mentioned_in_files(self) -> set[str]:
        """Return the variables of Slurm in programs beside the script that it starts."""
        found: set[str] = set()
        for step in self.body.steps if self.body else ():
            for word in step.command.words:
                path = word.text.strip("'\"").removeprefix("./")
                if re.fullmatch(r"[\w./-]+\.(?:py|sh|bash|R|jl|m|pl)", path):
                    found |= set(slurm_names(self.read(path) or ""))
        return found

    def _surrounding(self) -> Surrounding:
        constants = {}
        if self.array is not None:
            first, last = self.array.runs[0][0], self.array.runs[-1][-1]
            constants = {
                "SLURM_ARRAY_TASK_COUNT": str(self.array.count),
                "SLURM_ARRAY_TASK_MIN": str(first),
                "SLURM_ARRAY_TASK_MAX": str(last),
                "SLURM_ARRAY_TASK_STEP": "1",
            }
        for variable, option in (("PARTITION", "partition"), ("ACCOUNT", "account"), ("QOS", "qos")):
            given = facts.value(self.header, option)
            if given is not None:
                constants[f"SLURM_JOB_{variable}"] = given
        job_name = facts.value(self.header, "job-name") or self.name
        return Surrounding(self.resources, job_name, self.array is not None, constants)

    # The files

    def _train(self, command: Command, sweep: Sweeping | None) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "experiment_name": self.job_name[:100],
            "compute": {
                "accelerator_type": self.accelerator.kind,
                "num_accelerators": self.accelerator.count,
            },
        }
        image = self._image()
        if image is not None:
            tree["environment"] = {"docker_image": {"url": image}}
        if command.has_code:
            tree["code_source"] = {"type": "snapshot", "snapshot": {"root_path": self._root()}}
        tree["command"] = command.text
        env = {**facts.export_of(self.header.last("export"))[1], **command.env}
        env |= {name: values[0] for name, values in (sweep.keys if sweep else {}).items()}
        if env:
            tree["env_variables"] = env
        if self.resources.time_minutes:
            tree["timeout_minutes"] = self.resources.time_minutes
        tree["max_retries"] = self._retries()
        return tree

    @property
    def job_name(self) -> str:
        """A name that experiments and sweeps may have: the job's, else the file's."""
        given = facts.value(self.header, "job-name") or self.name.rpartition("/")[2].partition(".")[0]
        return re.sub(r"[^A-Za-z0-9_-]+", "-", given).strip("-_") or "job"

    def _root(self) -> str:
        chdir = facts.value(self.header, "chdir")
        if chdir is None:
            return self.root
        if chdir.startswith(("/", "~", "$")):
            return chdir
        return chdir if self.root == "." else f"{self.root}/{chdir}"

    def _start(self) -> str:
        """Return the directory that the script starts in."""
        chdir = facts.value(self.header, "chdir") or "."
        if chdir == ".":
            return self.directory
        return chdir.rstrip("/") if chdir.startswith(("/", "~", "$")) else f"{self.directory}/{chdir}"

    def _retries(self) -> int:
        """Slurm starts a job again that lost its node, unless told otherwise; a script may do so itself."""
        if self.report.kinds & {"self-requeue", "self-resubmit"}:
            return 3
        requeue = self.header.last("requeue", "no-requeue")
        return 0 if requeue is not None and requeue.name == "no-requeue" else 1

    def _image(self) -> str | None:
        """Return the image of a container that pyxis starts, which is the environment of the job."""
        image = facts.value(self.header, "container-image")
        container = self.body.container if self.body else None
        if image is None and container is not None and container.runtime == "pyxis":
            image = container.image
        if image is None or image.endswith((".sqsh", ".sif")) or image.startswith(("/", ".")):
            return None
        found = _IMAGE.fullmatch(image.replace("#", "/"))
        return found[1] if found else None

    def _sweep(self, sweep: Sweeping, array: Array, backend: Mapping[str, Any]) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "name": self.job_name[:64],
            "base": "train.yaml",
            "space": space_of({f"env_variables.{name}": values for name, values in sweep.keys.items()}),
        }
        if array.throttle is not None:
            tree["limits"] = {"concurrent": array.throttle}
        return {**tree, "backend": backend}

    def _backend(self, settings: Mapping[str, Any], command: Command) -> dict[str, Any]:
        """Return the settings for Slurm, with those that the command brings about."""
        made = dict(settings)
        equivalent = self._equivalent()
        if equivalent:
            made["accelerators"] = {self.accelerator.kind: equivalent}
        if command.inherited:
            made["inherit"] = command.inherited
        if self._image() is not None:
            made["container"] = "pyxis"
            if mounts := self._mounts():
                made["container_mounts"] = mounts
        return made

    def _mounts(self) -> list[str]:
        """Return what pyxis shows of the nodes, as far as it is written out."""
        given = facts.value(self.header, "container-mounts")
        container = self.body.container if self.body else None
        mounts = given.split(",") if given is not None else container.binds if container else ()
        return [mount for mount in mounts if mount and "$" not in mount]

    def _equivalent(self) -> dict[str, Any]:
        """Return what stands on Slurm for the accelerator type, where that is not what the type says."""
        gpus = self.resources.gpus_per_node
        if gpus is None:
            return {"cpu": True}
        return {"gpus": gpus} if gpus != self.accelerator.per_node else {}

    def _note_choices(self, command: Command) -> None:
        if self.accelerator.note:
            directive = self.header.last("gres", "gpus-per-node", "gpus-per-task", "gpus")
            self.report.note("accelerator", directive.line if directive else 1, self.accelerator.note)
        if self.body is not None and self.body.conda_env is not None:
            where = re.search(r"\bactivate\b|\bconda run\b|\bmamba run\b", self.text)
            line = self.text.count("\n", 0, where.start()) + 1 if where else 1
            self.report.note(
                "conda",
                line,
                f"The environment {self.body.conda_env} is activated on Slurm. Elsewhere the command"
                " runs with"
                " the Python that is there; on AI Runtime list the packages in environment.dependencies.",
            )
        if command.has_code:
            self.report.note(
                "relative-paths",
                1,
                "The command runs in a copy of the script's directory, made when the sweep starts: what it"
                " writes to a relative path is there. Results that should stay go to"
                " $AIRFLOWS_CHECKPOINT_DIR or"
                " to an absolute path.",
            )


__all__ = ["Migration", "SpecError", "migrate"]
