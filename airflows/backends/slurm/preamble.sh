# Runs one attempt as a task of a job array and leaves its exit status behind. Sourced by the batch script,
# which sets the `af_` variables; what it starts gets nothing of them but what is exported below.
#
#   af_batch      directory with the array file `tasks` (line N+1 is the attempt of index N: token, launch dir)
#   af_claims     directory with one claim for each start of an attempt
#   af_tools      directory of this file
#   af_grace      seconds from the signal to the kill when the attempt is ended by us
#   af_limit      seconds after which it is asked to end, 0 for never
#   af_gpus       accelerators of one node, 0 for none
#   af_python, af_pattern, af_secrets, af_wrap, af_srun
#   af_slot       set where pack.sh runs several attempts side by side: then it has set token and launch, too
#
# Slurm signals everything in the job when somebody cancels it, when it is preempted or past its limit: then
# nothing is passed on here, because a second SIGTERM means "at once" to many programs. USR1 (the time limit
# is near) and USR2 (airflows cancels it) come to this shell alone.

INVALID=64 CODE_DAMAGED=65 DUPLICATE=76 TIMED_OUT=77
pid='' timer='' word='' is_ending='' is_over='' failed_node=0 odd=()
index=$SLURM_ARRAY_TASK_ID restart=${SLURM_RESTART_COUNT:-0} nodes=${SLURM_JOB_NUM_NODES:-1}
task=${SLURM_ARRAY_JOB_ID}_$index
# The shell's own remarks about ended jobs would stand in the log as if the command had made them.
exec {log}>&2 2>/dev/null

say() { printf 'airflows: %s\n' "$1" >&"$log"; }

now() { if [[ ${EPOCHREALTIME-} ]]; then REPLY=${EPOCHREALTIME/,/.}; else printf -v REPLY '%(%s)T' -1; fi; }

main() {
  trap 'on_signal signalled' TERM
  trap 'on_signal timed_out' USR1
  trap 'on_signal killed' USR2
  self=$BASHPID
  if [[ ! ${af_slot-} ]]; then
    mapfile -t -s "$index" -n 1 line <"$af_batch/tasks"
    token=${line[0]%%$'\t'*} launch=${line[0]#*$'\t'}
  fi
  [[ $launch && -d $launch ]] || { say "$af_batch cannot be read here: is it on a shared disk?" && exit "$INVALID"; }
  claim
  check
  resume
  prepare
  start
  await
  finish "$code" "$word"
}

# One start of an attempt has one claim, whoever started it: a second copy leaves without touching anything.
claim() {
  now
  set -C
  { printf '%s %s %s\n' "$task" "${SLURMD_NODENAME-}" "$REPLY" >"$af_claims/$token.$restart"; } 2>/dev/null ||
    { say "attempt $token was started a second time" && exit "$DUPLICATE"; }
  set +C
  began=$REPLY
  ((!restart)) || command -p rm -f "$launch/exit.json" "$launch/failed"
}

check() {
  [[ -r $launch/command.sh ]] || { say "$launch/command.sh is missing" && finish "$INVALID" invalid; }
  source "$launch/environment.sh" || { say "$launch/environment.sh cannot be read" && finish "$INVALID" invalid; }
  [[ -z ${CODE_SOURCE_PATH-} || -d $CODE_SOURCE_PATH ]] ||
    { say "the code snapshot $CODE_SOURCE_PATH is missing" && finish "$CODE_DAMAGED" code_damaged; }
  cd "$work_dir" || { say "$work_dir is missing on this node" && finish "$INVALID" invalid; }
}

# Usage: secret NAME VARIABLE; read on the node, so that no value goes through Slurm.
secret() {
  local line value
  while IFS= read -r line || [[ $line ]]; do
    line=${line#"${line%%[![:space:]]*}"}
    line=${line#export }
    [[ $line == "$2"=* || $line == "$2"[[:space:]]*=* ]] || continue
    value=${line#*=}
    value=${value#"${value%%[![:space:]]*}"}
    value=${value%"${value##*[![:space:]]}"}
    if [[ ${#value} -gt 1 && ( $value == \"*\" || $value == \'*\' ) ]]; then value=${value:1:-1}; fi
    export "$1=$value"
    return
  done 2>/dev/null <"$af_secrets"
  say "secret $2 is not in $af_secrets on this node"
  finish "$INVALID" invalid
}

resume() {
  export AIRFLOWS_RESUME_FROM=''
  local found=("${AIRFLOWS_CHECKPOINT_DIR-/nowhere}"/*)
  [[ -e ${found[0]} ]] || return
  [[ -x $af_python ]] || af_python=python3
  AIRFLOWS_RESUME_FROM=$("$af_python" -I -S "$af_tools/checkpoints.py" "$AIRFLOWS_CHECKPOINT_DIR" "$af_pattern" \
    </dev/null 2>&"$log") || say 'the checkpoints could not be looked through'
  printf '%s\n' "$AIRFLOWS_RESUME_FROM" >>"$af_claims/$token.$restart"
}

prepare() {
  export NUM_NODES=$nodes NODE_RANK=0 MASTER_ADDR=127.0.0.1 AIRFLOWS_TOKEN=$token AIRFLOWS_LAUNCH_DIR=$launch
  # Tasks of arrays share nodes, and job ids differ where indices do not.
  export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
  export LOCAL_WORLD_SIZE=$((af_gpus ? af_gpus : 1))
  export WORLD_SIZE=$((LOCAL_WORLD_SIZE * nodes))
  if ((nodes > 1)); then master; fi
  if [[ ${af_slot-} ]]; then share; fi
}

# The first node by a name that the others can reach.
master() {
  local names shown
  mapfile -t names < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  MASTER_ADDR=${names[0]}
  if ! command -p getent hosts "$MASTER_ADDR" >/dev/null; then
    shown=$(scontrol show node -o "$MASTER_ADDR")
    [[ $shown != *' NodeAddr='* ]] || { shown=${shown#* NodeAddr=} && MASTER_ADDR=${shown%% *}; }
  fi
}

start() {
  # Job control gives the command a process group of its own.
  set -m
  if [[ $af_limit != 0 ]]; then
    watch_limit </dev/null >/dev/null &
    timer=$!
  fi
  if ((nodes > 1)) || [[ ${af_srun+set} ]]; then
    run_nodes </dev/null 2>&"$log" &
  else
    run_node </dev/null 2>&"$log" &
  fi
  pid=$!
  set +m
  [[ ! ${af_slot-} ]] || echo "$af_slot $pid" >&"$af_ended"
  [[ -z $is_ending ]] || end_early
}

run_node() {
  exec {log}>&-
  [[ ! ${af_slot-} ]] || exec {af_ended}>&-
  ((!${#odd[@]})) || exec env "${odd[@]}" "${af_wrap[@]}" bash -euo pipefail "$launch/command.sh"
  [[ ${af_wrap+set} ]] || exec "$BASH" -euo pipefail "$launch/command.sh"
  exec "${af_wrap[@]}" bash -euo pipefail "$launch/command.sh"
}

# One launcher a node. The environment is named because an inherited SLURM_EXPORT_ENV may say NONE.
run_nodes() {
  exec {log}>&-
  export AIRFLOWS_TOOLS=$af_tools
  local escaped=${launch//%/%%} options=(--export=ALL --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1)
  [[ -z ${SLURM_CPUS_PER_TASK-} ]] || options+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
  options+=(--kill-on-bad-exit=1 --input=none --open-mode=append --output="$escaped/logs/node_%n.log")
  exec env "${odd[@]}" srun "${options[@]}" "${af_srun[@]}" \
    bash -p "$af_tools/node.sh" "${af_wrap[@]}" bash -euo pipefail "$launch/command.sh"
}

watch_limit() {
  exec {log}>&-
  command -p sleep "$af_limit"
  kill -USR1 "$self"
}

# No loop: at the end of each turn of one bash makes a table of ended jobs, half a megabyte of it.
await_command() {
  is_interrupted=''
  wait "$pid"
  code=$?
  # A trapped signal ends `wait` with a status of its own; asked again it tells the command's.
  [[ ! $is_interrupted ]] || await_command
}

await() {
  await_command
  if [[ ${af_slot-} ]] && ((code)); then settle; fi
  is_over=1
  if [[ -r $launch/failed ]]; then read -r code failed_node <"$launch/failed"; fi
}

on_signal() {
  is_interrupted=1
  [[ -z $is_over$is_ending ]] || return
  is_ending=1
  word=$1
  [[ -z $pid ]] || end_early
}

# TERM, grace, KILL; what Slurm has signalled it also kills by itself.
end_early() {
  [[ $word != signalled ]] || return
  case $word in
    killed) say "asked to end; the command has $af_grace s to save its work" ;;
    timed_out) say "the time limit is near; the command has $af_grace s to save its work" ;;
  esac
  stop_timer
  send TERM
  set -m
  { command -p sleep "$af_grace"; send KILL; } </dev/null >/dev/null &
  timer=$!
  set +m
}

send() {
  # By the array's name: the last task's own id is that of the whole array.
  if ((nodes > 1)) || [[ ${af_srun+set} ]]; then scancel --signal="$1" "$task.0"; else kill "-$1" -- "-$pid"; fi
}

stop_timer() {
  [[ -z $timer ]] || kill -KILL -- "-$timer"
  timer=''
}

# Usage: finish CODE WORD
finish() {
  is_over=1
  stop_timer
  # Alone it is Slurm that ends what the command left behind.
  if [[ ${af_slot-} && $pid ]]; then kill -KILL -- "-$pid"; fi
  local from=${AIRFLOWS_RESUME_FROM-}
  from=${from//\\/\\\\}
  from=${from//\"/\\\"}
  now
  printf '{"exit_code": %d, "word": "%s", "node": %d, "task": "%s", "restart": %d, "host": "%s", "began": %s, "ended": %s, "resumed_from": "%s"}\n' \
    "$1" "$2" "$failed_node" "$task" "$restart" "${SLURMD_NODENAME-}" "$began" "$REPLY" "$from" >"$launch/exit.json" && exit "$1"
  # Now this status alone tells how it ended, and a command that was ended early may well exit with 0.
  [[ $2 != timed_out ]] || exit "$TIMED_OUT"
  [[ -z $2 || $1 != 0 ]] || exit 143
  exit "$1"
}

main
