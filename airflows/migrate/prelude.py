"""Lines in front of a command: what stands for Slurm's variables, and functions that it calls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflows.migrate.resources import Resources
from airflows.migrate.templates import quoted

_NAME = re.compile(r"\bSLURM[A-Z]*_[A-Z_]*[A-Z]\b")

_START_AGAIN = """\
start_again() {
  echo 'airflows starts this again itself: see max_retries in train.yaml' >&2
  exit 1
}"""
_NOT_SUBMITTED = """\
not_submitted() { echo "airflows submits no further job: sbatch $*" >&2; }"""
_FIRST_NODE = """\
first_node() { [ "$NODE_RANK" != 0 ] || "$@"; }"""
_EACH_TASK = """\
# Usage: each_task COUNT COMMAND...; starts it COUNT times on this node, as srun did, with the same variables.
each_task() {{
  local count=$1 pids=() status=0 task pid
  shift
{gpus}  for ((task = 0; task < count; task++)); do
    SLURM_LOCALID=$task SLURM_PROCID=$((NODE_RANK * count + task)) SLURM_NODEID=$NODE_RANK \\
      SLURM_NTASKS=$((NUM_NODES * count)) SLURM_NTASKS_PER_NODE=$count SLURM_NNODES=$NUM_NODES {visible}"$@" &
    pids+=($!)
  done
  for pid in "${{pids[@]}}"; do wait "$pid" || status=$?; done
  return "$status"
}}"""
_GPUS = """\
  local gpus
  IFS=, read -ra gpus <<<"${{CUDA_VISIBLE_DEVICES:-}}"
  ((${{#gpus[@]}})) || gpus=({all})
"""


@dataclass(frozen=True, slots=True)
class Surrounding:
    """What is known of the job that a script was written for.

    Attributes:
        resources: what it asked for.
        job_name: its name.
        is_array: it was an array.
        constants: further variables with fixed values.
    """

    resources: Resources
    job_name: str
    is_array: bool
    constants: Mapping[str, str]

    def line_for(self, name: str) -> str | None:
        """Return the line that sets a variable of Slurm, None for one that has no counterpart."""
        if name in self.constants:
            return f"export {name}={quoted(self.constants[name])}"
        text = self._computed().get(name)
        if text is None:
            return None
        return text if text.startswith(("if ", "unset ")) else f"export {name}={text}"

    def _computed(self) -> dict[str, str]:
        asked = self.resources
        tasks, each = asked.nodes * asked.tasks_per_node, asked.tasks_per_node
        job = "${SLURM_JOB_ID:-${AIRFLOWS_SWEEP:-job}-${AIRFLOWS_TRIAL:-0}}"
        made = {
            "SLURM_JOB_ID": f'"{job}"',
            "SLURM_JOBID": f'"{job}"',
            "SLURM_JOB_NAME": quoted(self.job_name),
            "SLURM_NNODES": '"$NUM_NODES"',
            "SLURM_JOB_NUM_NODES": '"$NUM_NODES"',
            "SLURM_NODEID": '"$NODE_RANK"',
            "SLURM_PROCID": '"$NODE_RANK"' if each == 1 else '"${SLURM_PROCID:-0}"',
            "SLURM_LOCALID": '"${SLURM_LOCALID:-0}"',
            "SLURM_NTASKS": str(tasks),
            "SLURM_NPROCS": str(tasks),
            "SLURM_NTASKS_PER_NODE": str(each),
            "SLURM_TASKS_PER_NODE": f"'{each}(x{asked.nodes})'" if asked.nodes > 1 else str(each),
            "SLURM_CPUS_ON_NODE": '"${SLURM_CPUS_ON_NODE:-$(nproc)}"',
            "SLURM_JOB_CPUS_PER_NODE": '"${SLURM_JOB_CPUS_PER_NODE:-$(nproc)}"',
            "SLURM_GPUS_ON_NODE": '"$LOCAL_WORLD_SIZE"',
            "SLURM_JOB_GPUS": '"${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-}}"',
            "SLURM_STEP_GPUS": '"${SLURM_STEP_GPUS:-${CUDA_VISIBLE_DEVICES:-}}"',
            "SLURM_SUBMIT_DIR": '"${CODE_SOURCE_PATH:-$PWD}"',
            "SLURM_SUBMIT_HOST": '"${SLURM_SUBMIT_HOST:-$(hostname)}"',
            "SLURMD_NODENAME": '"${SLURMD_NODENAME:-$(hostname)}"',
            "SLURM_TMPDIR": '"${SLURM_TMPDIR:-$(mktemp -d)}"',
            "SLURM_CLUSTER_NAME": '"${SLURM_CLUSTER_NAME:-}"',
            "SLURM_JOB_USER": '"$(id -un)"',
            "SLURM_JOB_UID": '"$(id -u)"',
            "SLURM_RESTART_COUNT": 'if [ "${AIRFLOWS_ATTEMPT:-0}" -gt 0 ]; then'
            ' export SLURM_RESTART_COUNT="$AIRFLOWS_ATTEMPT"; else unset SLURM_RESTART_COUNT; fi',
        }
        if self.is_array:
            made["SLURM_ARRAY_JOB_ID"] = '"${AIRFLOWS_SWEEP:-job}"'
        return made | self._asked()

    def _asked(self) -> dict[str, str]:
        """Return the variables that a job has only when it asked for something."""
        asked, made = self.resources, {}
        if asked.cpus_per_task is not None:
            made["SLURM_CPUS_PER_TASK"] = str(asked.cpus_per_task)
        if asked.gpus_per_node is not None:
            made["SLURM_GPUS_PER_NODE"] = '"$LOCAL_WORLD_SIZE"'
            made["SLURM_GPUS"] = str(asked.total_gpus)
        if asked.mem_per_node_mb:
            made["SLURM_MEM_PER_NODE"] = str(asked.mem_per_node_mb)
        if asked.time_minutes:
            end = f"$(($(date +%s) + {asked.time_minutes * 60}))"
            made["SLURM_JOB_END_TIME"] = f'"${{SLURM_JOB_END_TIME:-{end}}}"'
        if asked.nodes == 1:
            for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"):
                made[name] = f'"${{{name}:-$(hostname)}}"'
        return made


def slurm_names(text: str) -> list[str]:
    """Return the variables of Slurm that a text mentions."""
    return list(dict.fromkeys(_NAME.findall(text)))


def functions(uses: Iterable[str], gpus_per_task: int, gpus: int) -> list[str]:
    """Return the functions that a command calls.

    Args:
        uses: their names.
        gpus_per_task: GPUs that each task has for itself, 0 when all see all.
        gpus: GPUs of a node.
    """
    made = []
    wanted = set(uses)
    if "start_again" in wanted:
        made.append(_START_AGAIN)
    if "not_submitted" in wanted:
        made.append(_NOT_SUBMITTED)
    if "first_node" in wanted:
        made.append(_FIRST_NODE)
    if "each_task" in wanted:
        has_own = gpus_per_task > 0
        numbers = " ".join(str(number) for number in range(max(gpus, 1)))
        picked = f'$(IFS=,; echo "${{gpus[*]:task*{gpus_per_task}:{gpus_per_task}}}")'
        made.append(
            _EACH_TASK.format(
                gpus=_GPUS.format(all=numbers) if has_own else "",
                visible=f'\\\n      CUDA_VISIBLE_DEVICES="{picked}" ' if has_own else "",
            )
        )
    return made
