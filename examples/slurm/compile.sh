#!/usr/bin/env bash
# What `ckvc compile` does by demand, but that nothing is dropped on the way, as a chain of Slurm array jobs on a file system that all nodes see:
#
#   MODEL=DIR MANIFEST=p.jsonl examples/slurm/compile.sh OUT PARTS [--budget ..., --holdout ..., and whatever else calibrate and score share]
#
# demand (PARTS tasks) -> merge, fit -> scores of split select (PARTS) -> choose -> held-out scores (PARTS) -> merge, report.
# sbatch's own options come from its environment (SBATCH_PARTITION, SBATCH_TIMELIMIT, ...), CKVC names the program. A task that gets the signal
# before its time limit, or is preempted, stops between two prompts (exit 75) and is queued again; one whose node fails or whose program is killed
# is, too (that three times), and goes on where it was. Run again after a failure, the script goes on where the chain broke.
set -euo pipefail
usage() { sed -n '4s/^# *//p' "$0" >&2; exit 64; }
: "${CKVC:=ckvc}"

# part MERGED COMMAND...: a part of it, unless the parts are one already; the shell hands on the signals that Slurm sends it alone.
part() {
    [ ! -e "$1" ] || return 0
    "$CKVC" "${@:2}" --resume --shard auto -q &
    trap 'kill -TERM $!' TERM
    local status=0
    wait $! || status=$?
    [ $status -le 128 ] || { status=0; wait $! || status=$?; } # the first wait ended with the trap
    trap - TERM
    if [ $status -eq 75 ] || { [ $status -gt 128 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]; }; then
        scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
        sleep 60 # until it takes this job down
    fi
    return $status
}
# merged OUT [FILE]: unless it is one already: then OUT, or the file in it, is there.
merged() { [ -e "$1${2:+/$2}" ] || "$CKVC" merge "$1" -q; }
# made FILE COMMAND...: unless the file is there.
made() { [ -e "$1" ] || "$CKVC" "${@:2}" --out "$1" -q; }
# each FUNCTION ...: that, with a mix, a score and a floor in front, for all that is tried (method.md, section 6).
each() {
    local of
    for of in "0 window 0.2" "0 learned "{0.05,0.1,0.2} "0 paper 0.2" {0.25,0.5,0.75,1}" learned "{0.05,0.2}; do
        read -ra of <<<"$of"
        "$1" "${of[@]}" "${@:2}"
    done
}
fitted() { made "$out/fitted-$1.ckvt" fit "$out/demand" --mix "$1"; }
scored() {
    local lines=$out/select-$1-$2-$3.jsonl
    part "$lines" score --split select --table "$out/fitted-$1.ckvt" --ranking "$2" --kept-floor "$3" --out "$lines" "${@:4}"
}
joined() { merged "$out/select-$1-$2-$3.jsonl" && cat "$out/select-$1-$2-$3.jsonl"; }

if [ "${1:-}" = --stage ]; then # a job of the chain, as submitted below
    stage=$2 out=$3
    shift 3
    case $stage in
    demand) part "$out/demand/journal.jsonl" calibrate --side demand --split fit --out "$out/demand" "$@" ;;
    fit)
        merged "$out/demand" journal.jsonl
        each fitted
        ;;
    select) each scored "$@" ;;
    choose)
        each joined >"$out/select.jsonl"
        made "$out/table.ckvt" fit "$out/demand" --choose "$out/select.jsonl"
        ;;
    heldout) part "$out/heldout.jsonl" score --split heldout --table "$out/table.ckvt" --policy top-k,snapkv,adakv --out "$out/heldout.jsonl" "$@" ;;
    report)
        merged "$out/heldout.jsonl"
        made "$out/report" report "$out/table.ckvt" "$out/demand" --scores "$out/heldout.jsonl"
        ;;
    esac
    exit
fi

[ $# -ge 2 ] && [[ $2 =~ ^[1-9][0-9]*$ ]] && [ -n "${MODEL:-}" ] && [ -n "${MANIFEST:-}" ] || usage
mkdir -p "$1"
out=$(realpath "$1") last=$(($2 - 1)) self=$(realpath "$0") model=$(realpath "$MODEL") manifest=$(realpath "$MANIFEST")
shift 2
export CKVC
# submit STAGE DEPENDS [option ...]: prints the job's number.
submit() {
    sbatch --parsable --job-name="ckvc-$1" --output="$out/slurm-$1-%a.log" --open-mode=append ${2:+--dependency=afterok:$2} --kill-on-invalid-dep=yes \
        --requeue --signal=B:TERM@90 --array="$3" "$self" --stage "$1" "$out" "${@:4}"
}
of=(--model "$model" --manifest "$manifest" "$@")
demand=$(submit demand "" "0-$last" "${of[@]}")
fit=$(submit fit "$demand" 0)
select=$(submit select "$fit" "0-$last" "${of[@]}")
choose=$(submit choose "$select" 0)
heldout=$(submit heldout "$choose" "0-$last" "${of[@]}")
report=$(submit report "$heldout" 0)
echo "submitted $demand to $report; $CKVC status $out/demand --watch 60 shows how far it is; the table will be $out/table.ckvt"
