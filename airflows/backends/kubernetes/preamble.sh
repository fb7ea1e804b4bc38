# Runs one attempt on one node of an Indexed Job: the main container's command.
#
#   bash preamble.sh NAME TEXT [NAME TEXT]...
#
# Each NAME is a launch file with its TEXT. Besides the variables of every trial it gets
#
#   AF_TOOLS      directory of this file and of checkpoints.py
#   AF_MESSAGES   the container's termination message, which the cluster shows in the pod's status
#   AF_GRACE      seconds that the cluster leaves between SIGTERM and SIGKILL
#   AF_PATTERN    glob of what counts as a checkpoint
#   AF_CODE, AF_CODE_SHA256, AF_CODE_NAME   directory with the parts of the code archive, its digest, its root
#
# and nothing of them is handed to the command. The cluster signals this shell alone: it passes SIGTERM on.

INVALID=64 CODE_DAMAGED=65 NO_RENDEZVOUS=75
pid='' is_ending='' code=0
# The shell's own remarks about ended jobs would stand in the log as if the command had made them.
exec {log}>&2 2>/dev/null

say() { printf 'airflows: %s\n' "$1" >&"$log"; }

tell() { printf 'airflows-%s: %s\n' "$1" "$2" >>"$messages"; }

# Usage: fail CODE WORD SENTENCE
fail() {
  say "$3"
  tell word "$2"
  exit "$1"
}

main() {
  messages=${AF_MESSAGES-/dev/null}
  trap on_term TERM
  write_files "$@"
  unpack
  resume
  rendezvous
  start
  await
  exit "$code"
}

write_files() {
  launch=$(mktemp -d) || fail "$INVALID" invalid 'no directory can be made in /tmp of the container'
  while (($# > 1)); do
    printf '%s' "$2" >"$launch/$1" || fail "$INVALID" invalid "$launch/$1 cannot be written"
    shift 2
  done
  export AIRFLOWS_LAUNCH_DIR=$launch
  [[ ! -e $launch/hyperparameters.yaml ]] || export HYPERPARAMETERS_PATH=$launch/hyperparameters.yaml
}

unpack() {
  if [[ ${AF_CODE_SHA256-} ]]; then
    local sum packed=$launch/code.tar.gz
    cat "$AF_CODE"/*/part >"$packed" || fail "$CODE_DAMAGED" code_damaged 'the code archive cannot be read'
    read -r sum _ < <(digest "$packed")
    [[ $sum == "$AF_CODE_SHA256" ]] || fail "$CODE_DAMAGED" code_damaged 'the code archive is damaged'
    mkdir "$launch/code"
    extract "$packed" "$launch/code" || fail "$CODE_DAMAGED" code_damaged 'the code archive cannot be unpacked'
    rm -f "$packed"
    export CODE_SOURCE_PATH=$launch/code/$AF_CODE_NAME
  fi
  [[ ${CODE_SOURCE_PATH-} ]] || return 0
  [[ -d $CODE_SOURCE_PATH ]] || fail "$CODE_DAMAGED" code_damaged "the code $CODE_SOURCE_PATH is missing"
  cd "$launch" || fail "$INVALID" invalid "$launch cannot be entered"
}

python() { command "$(command -v python3 || command -v python)" -I -S "$@"; }

digest() {
  command -v sha256sum >/dev/null && { sha256sum "$1"; return; }
  python -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest(), "-")' "$1"
}

extract() {
  command -v tar >/dev/null && { tar -xzf "$1" -C "$2"; return; }
  python -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"
}

resume() {
  export AIRFLOWS_RESUME_FROM=''
  [[ ${AIRFLOWS_CHECKPOINT_DIR-} ]] || return 0
  mkdir -p "$AIRFLOWS_CHECKPOINT_DIR" || say "$AIRFLOWS_CHECKPOINT_DIR cannot be made"
  local found=("$AIRFLOWS_CHECKPOINT_DIR"/*)
  [[ -e ${found[0]} ]] || return 0
  AIRFLOWS_RESUME_FROM=$(python "$AF_TOOLS/checkpoints.py" "$AIRFLOWS_CHECKPOINT_DIR" "${AF_PATTERN-}" \
    </dev/null 2>&"$log") || say 'the checkpoints could not be looked through'
  [[ ! $AIRFLOWS_RESUME_FROM ]] || tell resumed-from "$AIRFLOWS_RESUME_FROM"
}

# The name of the first node may become known a moment after the pods have started.
rendezvous() {
  ((NODE_RANK > 0)) || return 0
  local left=600
  until resolves "$MASTER_ADDR"; do
    ((left-- > 0)) || fail "$NO_RENDEZVOUS" no_rendezvous "the first node, $MASTER_ADDR, cannot be found"
    [[ ! $is_ending ]] || exit 143
    sleep 1
  done
}

resolves() {
  command -v getent >/dev/null && { getent hosts "$1" >/dev/null; return; }
  [[ $(command -v python3 || command -v python) ]] || return 0
  python -c 'import socket, sys; socket.gethostbyname(sys.argv[1])' "$1"
}

start() {
  [[ ! $is_ending ]] || exit 143
  # Job control gives the command a process group of its own.
  set -m
  run </dev/null 2>&"$log" &
  pid=$!
  set +m
  [[ ! $is_ending ]] || pass_on
}

run() {
  exec {log}>&-
  unset AF_TOOLS AF_MESSAGES AF_GRACE AF_PATTERN AF_CODE AF_CODE_SHA256 AF_CODE_NAME
  exec "$BASH" -euo pipefail "$launch/command.sh"
}

await() {
  # A trapped signal ends `wait` with a status of its own; asked again it tells the command's.
  while
    is_interrupted=''
    wait "$pid"
    code=$?
    [[ $is_interrupted ]]
  do :; done
  # Work that was saved and left off is not done: without a code the attempt would count as a success.
  [[ ! $is_ending ]] || ((code)) || code=143
}

on_term() {
  is_interrupted=1
  [[ ! $is_ending ]] || return
  is_ending=1
  [[ ! $pid ]] || pass_on
}

pass_on() {
  say "asked to end; the command has ${AF_GRACE-some} s to save its work"
  kill -TERM -- "-$pid"
}

main "$@"
