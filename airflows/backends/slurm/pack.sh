# Runs several attempts side by side as one task of a job array. Sourced by the batch script, which sets the
# `af_` variables of preamble.sh, and
#
#   af_batch      directory with the array file `packs` (line N+1 is index N: token, launch dir, token, …)
#   af_pack       so many attempts share the node, and its GPUs
#
# Each attempt has a preamble of its own, in a shell forked from this one, and leaves its own exit file. The exit
# status of this shell is 0 only if all of them ended with 0.
#
# What Slurm signals it signals in all processes of the job, so here nothing is passed on but USR1, which this shell
# alone gets. An attempt that airflows cancels has a file `cancelled` in its launch directory.

INVALID=64
failed=0 pids=() groups=() members=() is_near=''

pack() {
  local slot group line
  mapfile -t -s "$SLURM_ARRAY_TASK_ID" -n 1 line <"$af_batch/packs"
  IFS=$'\t' read -r -a members <<<"${line[0]-}"
  ((${#members[@]})) || { echo "airflows: $af_batch cannot be read here: is it on a shared disk?" >&2 && exit "$INVALID"; }
  trap : TERM
  # Until a preamble listens a signal must not end it; whatever it misses is sent again.
  trap '' USR1 USR2
  # A pipe that stays open: who starts a command or ends says so, and reading it is how this shell waits without a
  # process of its own.
  exec {af_ended}<> <(:)
  for ((slot = 0; slot < ${#members[@]} / 2; slot++)); do
    is_done "${members[slot * 2 + 1]}" || start_member "$slot" "${members[slot * 2]}" "${members[slot * 2 + 1]}"
  done
  trap 'is_near=1' USR1
  while ((${#pids[@]})); do
    if ! read -r -t 1 -u "$af_ended" slot group; then
      look
    elif [[ $group ]]; then
      groups[slot]=$group
    else
      reap "$slot"
    fi
  done
  exit "$failed"
}

# Whether it is not to be started: cancelled while the job waited, or over when Slurm started the job again.
is_done() {
  [[ ! -e $1/cancelled ]] || return 0
  [[ ${SLURM_RESTART_COUNT:-0} != 0 && -r $1/exit.json ]] || return 1
  [[ $(<"$1/exit.json") != *'"word": "signalled"'* ]]
}

start_member() {
  (
    af_slot=$1 token=$2 launch=$3
    # What a shell starts in the background is deaf to these two.
    trap - INT QUIT
    trap 'echo "$af_slot" >&"$af_ended"' EXIT
    source "$af_tools/preamble.sh"
  ) </dev/null >>"$3/logs/node_0.log" 2>&1 &
  pids[$1]=$!
}

reap() {
  local code=0 launch=${members[$1 * 2 + 1]}
  [[ ${pids[$1]-} ]] || return
  wait "${pids[$1]}" || code=$? failed=1
  unset "pids[$1]"
  ((code != 137)) || [[ -e $launch/exit.json ]] || bury "$launch" "${groups[$1]-}"
}

# Of one whose preamble was killed: nobody else would end its command, or say that it has ended.
bury() {
  [[ ! $2 ]] || kill -KILL -- "-$2" 2>/dev/null
  echo 'airflows: the shell that ran the command was killed, and so was the command' >>"$1/logs/node_0.log"
  printf '{"exit_code": 137, "word": "", "task": "%s", "restart": %d, "host": "%s", "ended": %(%s)T}\n' \
    "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" "${SLURM_RESTART_COUNT:-0}" "${SLURMD_NODENAME-}" -1 >"$1/exit.json"
}

# Once a second: pass on what was asked for, and find those that were killed before they could say so.
look() {
  local slot
  for slot in "${!pids[@]}"; do
    if ! kill -0 "${pids[slot]}" 2>/dev/null; then
      reap "$slot"
    elif [[ -e ${members[slot * 2 + 1]}/cancelled ]]; then
      kill -USR2 "${pids[slot]}"
    elif [[ $is_near ]]; then
      kill -USR1 "${pids[slot]}"
    fi
  done
}

# Called by a preamble whose command has failed. What ends the whole element ends the command, and then this shell a
# moment later: of that Slurm knows more than an exit file could say.
settle() {
  local parent
  command -p sleep 0.3 </dev/null
  read -r _ _ _ parent _ <"/proc/$BASHPID/stat"
  [[ $parent == "$$" ]] || exit 1
}

# Called by a preamble. Where the GPUs can be parted each attempt gets its part, else all of them share all.
share() {
  local gpus=() own='' gpu first=$((af_slot * af_gpus / af_pack)) count=$af_gpus
  export MASTER_PORT=$((10000 + (SLURM_JOB_ID * af_pack + af_slot) % 20000))
  ((af_gpus)) || return 0
  if ((af_gpus % af_pack == 0)); then
    count=$((af_gpus / af_pack))
  elif ((af_pack % af_gpus == 0)); then
    count=1
  else
    first=0
  fi
  IFS=, read -r -a gpus <<<"${CUDA_VISIBLE_DEVICES-}"
  # Where Slurm hands none out, they are those of the node.
  for ((gpu = ${#gpus[@]}; gpu < af_gpus; gpu++)); do gpus[gpu]=$gpu; done
  printf -v own '%s,' "${gpus[@]:first:count}"
  export CUDA_VISIBLE_DEVICES=${own%,} LOCAL_WORLD_SIZE=$count WORLD_SIZE=$count
}

pack
