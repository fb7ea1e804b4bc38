# Runs one attempt on this machine and leaves its exit status behind, whether or not a driver is alive.
#
#   bash -p preamble.sh LAUNCH_DIR TOKEN NODES GRACE_MS LIMIT_S GPU_FD PYTHON PATTERN PLAIN [GPUS_OF_NODE...]
#
# PLAIN says that LC_ALL=C is for this shell alone: loading a locale is a fifth of what it takes to start one.
# stdin is the attempt's claim, locked: whoever finds the lock free knows that this process has gone. What is
# written into it says that the command was about to start, so an empty claim without a lock never ran.
# Nothing here starts another program unless the attempt is ended from outside, times out or has checkpoints.

INVALID=64 CODE_DAMAGED=65 DUPLICATE=76 TIMED_OUT=77
launch=$1 token=$2 nodes=$3 grace_ms=$4 limit=$5 gpu_fd=$6 python=$7 pattern=$8
gpus=("${@:10}")
[[ -z $9 ]] || export -n LC_ALL
pids=() timer='' word='' failed_node=0
# Where the attempt stands, for signal handlers: all nodes started, asked to end early, command over.
is_started='' is_ending='' is_over=''
# The shell's own remarks about ended jobs would stand in the log as if the command had made them.
exec {log}>&2 2>/dev/null

say() { printf 'airflows: %s\n' "$1" >&"$log"; }

main() {
  # First of all, so that a cancel that comes early is not lost.
  trap 'on_signal killed' TERM
  trap 'on_signal timed_out' USR1
  trap 'on_signal ""' USR2
  if read -r _; then
    say "attempt $token was started a second time"
    exit "$DUPLICATE"
  fi
  echo "$$ $launch" >&0 || exit 1
  check
  resume
  start
  await
  finish "$code" "$word"
}

check() {
  if [[ ! -r $launch/command.sh ]]; then
    say "$launch/command.sh is missing"
    finish "$INVALID" invalid
  fi
  if [[ -n ${CODE_SOURCE_PATH-} && ! -d $CODE_SOURCE_PATH ]]; then
    say "the code snapshot $CODE_SOURCE_PATH is missing"
    finish "$CODE_DAMAGED" code_damaged
  fi
}

resume() {
  export AIRFLOWS_RESUME_FROM=''
  local found=("${AIRFLOWS_CHECKPOINT_DIR:-/nowhere}"/*)
  [[ -e ${found[0]} ]] || return
  AIRFLOWS_RESUME_FROM=$("$python" -I -S "${BASH_SOURCE[0]%/*}/checkpoints.py" \
    "$AIRFLOWS_CHECKPOINT_DIR" "$pattern" </dev/null 2>&"$log") || say 'the checkpoints could not be looked through'
}

start() {
  # Job control gives every node a process group of its own and leaves SIGINT and SIGQUIT as they are.
  set -m
  if [[ $limit != 0 ]]; then
    watch_limit >/dev/null &
    timer=$!
  fi
  local node
  for ((node = 0; node < nodes; node++)); do
    [[ -z $is_ending ]] || break
    if ((node == 0)); then
      run_node 0 2>&"$log" &
    else
      run_node "$node" >>"$launch/logs/node_$node.log" 2>&1 &
    fi
    pids+=($!)
  done
  is_started=1
  # A signal that came while nodes were being started has only been noted.
  [[ -z $is_ending ]] || end_early
}

# In a process of its own, which becomes the command.
run_node() {
  close_inherited
  # The launch directory is the mark by which every process of the attempt is found, also in a session of
  # its own: a token may also be used below another root. The preamble's own environment must not have it.
  export AIRFLOWS_LAUNCH_DIR=$launch AIRFLOWS_TOKEN=$token NODE_RANK=$1
  [[ -z ${gpus[$1]+set} ]] || export CUDA_VISIBLE_DEVICES=${gpus[$1]}
  ((nodes > 1)) || exec "$BASH" -euo pipefail "$launch/command.sh"
  "$BASH" -euo pipefail "$launch/command.sh" && exit
  local status=$?
  # Whoever makes the file first failed first; the others failed because of it.
  set -C
  if { echo "$status $1" >"$launch/failed"; } 2>/dev/null; then tell_preamble USR2; fi
  exit "$status"
}

# For what may be there a moment longer than the preamble: nobody must take it for the preamble.
close_inherited() {
  exec {log}>&- </dev/null
  [[ -z $gpu_fd ]] || exec {gpu_fd}>&-
}

watch_limit() {
  close_inherited
  # Marked, so that it does not outlive a preamble that was killed.
  AIRFLOWS_LAUNCH_DIR=$launch command -p sleep "$limit"
  tell_preamble USR1
}

# From a child: by then the preamble may be gone, and its pid somebody else's.
tell_preamble() {
  local parent
  read -r _ _ _ parent _ <"/proc/$BASHPID/stat" && [[ $parent == "$$" ]] && kill "-$1" "$$"
}

# Usage: await_node PID; sets `status`. No loop, here and where there is one node: at the end of each turn of
# one bash makes a table of ended jobs, half a megabyte of it, a tenth of what an attempt costs.
await_node() {
  is_interrupted=''
  wait "$1"
  status=$?
  # A trapped signal ends `wait` with a status of its own; asked again it tells the command's.
  [[ -z $is_interrupted ]] || await_node "$1"
}

await() {
  local pid status=0
  if ((nodes == 1 && ${#pids[@]})); then
    await_node "${pids[0]}"
    code=$status
  else
    # Asked to end before all nodes were started, it has not done its work.
    code=$((${#pids[@]} < nodes ? 143 : 0))
    for pid in "${pids[@]}"; do
      await_node "$pid"
      ((code)) || code=$status
    done
  fi
  is_over=1
  if ((nodes > 1)) && [[ -r $launch/failed ]]; then read -r code failed_node <"$launch/failed"; fi
}

# With an empty word a node failed.
on_signal() {
  is_interrupted=1
  [[ -z $is_over$is_ending ]] || return
  is_ending=1
  word=$1
  [[ -z $is_started ]] || end_early
}

# TERM, grace, KILL for everything that belongs to the attempt.
end_early() {
  local waited_ms=0 pause_ms=20 pause_s left_ms grace="$((grace_ms / 1000)) s to save its work"
  case $word in
    killed) say "asked to end; the command has $grace" ;;
    timed_out) say "the limit of $limit s is reached; the command has $grace" ;;
  esac
  stop_timer
  send TERM
  send CONT
  while members; do
    if ((waited_ms >= grace_ms)); then
      send KILL
      # What does not go after that is a zombie that nobody reaps, or hangs in the kernel.
      ((waited_ms < grace_ms + 5000)) || break
    fi
    left_ms=$((grace_ms - waited_ms))
    if ((left_ms > 0 && pause_ms > left_ms)); then pause_ms=$left_ms; fi
    printf -v pause_s '0.%03d' "$pause_ms"
    command -p sleep "$pause_s" </dev/null
    ((waited_ms += pause_ms, pause_ms = pause_ms < 400 ? pause_ms * 3 / 2 : 500))
  done
}

# Find the living processes of the attempt; false when there are none.
members() {
  local groups pid
  printf -v groups '%s|' "${pids[@]}"
  # Those of the nodes' own process groups, and those that left for another one.
  grouped=() outside=()
  while IFS=/ read -r _ _ pid _; do grouped[pid]=1; done < <(
    close_inherited
    command -p grep -lE "^[0-9]+ \(.*\) [^ZX] [0-9]+ (${groups%|}) " /proc/[0-9]*/stat
  )
  while IFS=/ read -r _ _ pid _; do [[ ${grouped[pid]-} ]] || outside+=("$pid"); done < <(
    close_inherited
    command -p grep -lzxF "AIRFLOWS_LAUNCH_DIR=$launch" /proc/[0-9]*/environ
  )
  ((${#grouped[@]} + ${#outside[@]}))
}

# Each process gets the signal once: a second SIGTERM means "at once" to many programs.
send() {
  local pid
  members
  for pid in "${pids[@]}"; do kill "-$1" -- "-$pid"; done
  for pid in "${outside[@]}"; do kill "-$1" "$pid"; done
  return 0
}

stop_timer() {
  [[ -z $timer ]] || kill -KILL -- "-$timer"
  timer=''
}

# Kill what the command left behind, and see it gone.
clear_away() {
  local left='' tries
  # It succeeds when one of them was there.
  kill -KILL -- "${pids[@]/#/-}" && left=1
  # Looking through all processes costs more than a short command itself, and one that succeeds within a
  # second having put something into another session is rare.
  [[ $left ]] || (($1 != 0 || SECONDS > 1)) || return
  for ((tries = 0; tries < 100; tries++)); do
    members || return
    send KILL
    command -p sleep 0.01
  done
}

# Usage: finish CODE WORD
finish() {
  is_over=1
  stop_timer
  if ((${#pids[@]})); then clear_away "$1"; fi
  local from=${AIRFLOWS_RESUME_FROM-}
  from=${from//\\/\\\\}
  from=${from//\"/\\\"}
  # One write, not a rename: the shell has none, and `mv` would cost every trial more than a millisecond.
  # It is as safe, because readers wait for the lock, by when this is whole or never will be; a part of it is
  # no JSON and counts as no exit file, and the exit status of this process says the same.
  printf '{"exit_code": %d, "word": "%s", "node": %d, "resumed_from": "%s"}\n' \
    "$1" "$2" "$failed_node" "$from" >"$launch/exit.json" && exit "$1"
  # Now this status alone tells how it ended, and a command that was ended early may well exit with 0.
  [[ $2 != timed_out ]] || exit "$TIMED_OUT"
  [[ -z $2 || $1 != 0 ]] || exit 143
  exit "$1"
}

main
