# What starts parts elsewhere: Slurm's array jobs (examples/slurm) on a cluster of this one host, and mpirun. Skipped where they are not installed.
load helper

# A cluster of one node in $SLURM: what is Debian's slurm-wlm with munge, and nothing that was there before.
cluster() {
    export SLURM=$DIR/slurm SLURM_CONF=$DIR/slurm/slurm.conf
    mkdir -p "$SLURM"/{state,spool,munge}
    head -c 128 /dev/urandom >"$SLURM/key"
    chmod 700 "$SLURM/munge"
    chmod 400 "$SLURM/key"
    munged --key-file="$SLURM/key" --socket="$SLURM/munge/socket" --pid-file="$SLURM/munge/pid" --log-file="$SLURM/munge/log" \
        --seed-file="$SLURM/munge/seed" --force
    cat >"$SLURM_CONF" <<END
ClusterName=one
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
SlurmctldPort=$((20000 + $$ % 10000))
SlurmdPort=$((30000 + $$ % 10000))
AuthInfo=socket=$SLURM/munge/socket
StateSaveLocation=$SLURM/state
SlurmdSpoolDir=$SLURM/spool
SlurmctldPidFile=$SLURM/slurmctld.pid
SlurmdPidFile=$SLURM/slurmd.pid
SlurmctldLogFile=$SLURM/slurmctld.log
SlurmdLogFile=$SLURM/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
DefMemPerCPU=100
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES State=UP
END
    slurmctld && slurmd
}

teardown_file() {
    local pid
    for pid in slurmd.pid slurmctld.pid munge/pid; do
        [ -e "$BATS_FILE_TMPDIR/slurm/$pid" ] || continue
        pid=$(cat "$BATS_FILE_TMPDIR/slurm/$pid")
        kill "$pid" || continue
        tail --pid="$pid" -f /dev/null # it writes until it has ended
    done
}

# wait_for SECONDS COMMAND...
wait_for() {
    local i
    for ((i = 0; i < 5 * $1; i++)); do
        ! "${@:2}" || return 0
        sleep 0.2
    done
    echo "waited $1 s for: ${*:2}"
    squeue -r 2>&1 || :
    tail -n 3 "$DIR"/out/*.log 2>&1 || :
    return 1
}
node_is_idle() { [ "$(sinfo -h -o %T)" = idle ]; }
# What was queued again would wait for two minutes. Not in the second in which it was taken down, though: Slurm would refuse to start it,
# by a credential revoked in that second, and count it as failed.
queue_is_empty() {
    local again queue
    again=$(squeue -h -r -o '%i %r' | awk '$2 == "BeginTime" {print $1}')
    [ -z "$again" ] || { sleep 2; xargs -I{} scontrol update JobId={} StartTime=now <<<"$again" || :; }
    queue=$(squeue -h) && [ -z "$queue" ]
}

setup_file() {
    prompts 300 | check '
for i, line in enumerate(sys.stdin):
    prompt = json.loads(line)
    prompt.update(id="p%04d" % i, split="fit" if i >= 12 else ["select", "heldout"][i % 2])
    print(json.dumps(prompt))' >"$DIR/prompts.jsonl"
}

OF=(--window 16 --continuation 16 --budget 0.25 --threads 1)
demand() { "$CKVC" calibrate --side demand --split fit --model "$MODEL" --manifest "$DIR/prompts.jsonl" "${OF[@]}" -q --out "$@"; }

@test "a chain of Slurm arrays, one task told to stop and one killed, ends in the table of one machine" {
    command -v slurmctld slurmd munged >/dev/null || skip "slurm-wlm or munge is not installed"
    [ "$(id -u)" -eq 0 ] || skip "slurmd wants root"
    cluster && wait_for 30 node_is_idle || skip "Slurm does not start here: $(tail -n 1 "$SLURM"/*.log)"
    MANIFEST=$DIR/prompts.jsonl run examples/slurm/compile.sh "$DIR/out" 3 "${OF[@]}"
    echo "$output" && [ "$status" -eq 0 ]
    wait_for 30 test -s "$DIR/out/demand/pass-01-demand/shard-00000.h5"
    pkill -9 -o -f -- "calibrate --side demand .*$DIR/out"
    wait_for 60 grep -q Killed "$DIR"/out/slurm-demand-*.log
    running() { squeue -h -r --states=R -o '%i %j' | awk '/demand/ {print $1; exit}' | grep .; }
    wait_for 60 running
    scancel --signal=TERM --batch "$(running)"
    wait_for 60 grep -q "stopped with" "$DIR"/out/slurm-demand-*.log
    wait_for 240 queue_is_empty
    tail -n 2 "$DIR"/out/slurm-*.log
    [ -s "$DIR/out/report/report.html" ]
    demand "$DIR/demand"
    diff <(shard_sums "$DIR/demand") <(shard_sums "$DIR/out/demand")
    "$CKVC" fit "$DIR/demand" --choose "$DIR/out/select.jsonl" --out "$DIR/table.ckvt" -q
    [ "$(content_id "$DIR/table.ckvt")" = "$(content_id "$DIR/out/table.ckvt")" ]
    # again: what is done is left as it is
    rm -r "$DIR/out/report"
    MANIFEST=$DIR/prompts.jsonl examples/slurm/compile.sh "$DIR/out" 3 "${OF[@]}"
    wait_for 60 test -s "$DIR/out/report/report.html"
}

@test "mpirun's processes are parts" {
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    head -n 40 "$DIR/prompts.jsonl" >"$DIR/few.jsonl"
    demand "$DIR/mpi-whole" --manifest "$DIR/few.jsonl"
    mpirun --oversubscribe -n 3 "$CKVC" calibrate --side demand --split fit --model "$MODEL" --manifest "$DIR/few.jsonl" "${OF[@]}" -q --out "$DIR/mpi" --shard auto
    "$CKVC" merge "$DIR/mpi" -q
    diff -r "$DIR/mpi-whole" "$DIR/mpi"
}
