# Started by srun on each node: runs the command there, and says which node failed first.
#
#   bash -p node.sh COMMAND...

export NODE_RANK=$SLURM_NODEID
unset AIRFLOWS_TOOLS
# A signal to the step reaches the command as well; this shell must outlive it to tell how it ended.
trap : TERM USR1 USR2
"$@" && exit
status=$?
# Whoever makes the file first failed first; the others are ended because of it.
set -C
{ echo "$status $NODE_RANK" >"$AIRFLOWS_LAUNCH_DIR/failed"; } 2>/dev/null
exit "$status"
