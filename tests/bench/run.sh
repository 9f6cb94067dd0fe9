#!/bin/sh
# Everything that tests/bench measures, on one prompt, into one CSV (README.md says what the columns mean).
#   tests/bench/run.sh MODEL MANIFEST OUT.csv
# Settings, from the environment: CKVC, CKVC_MODEL (the same weights as a GGUF file), PYTHON, THREADS, TOKENS, BUDGET, CONTINUATION, WINDOW,
# REPEATS, SAMPLE, STAGES (of ckvc-bench; empty: all).
set -eu
if [ $# -ne 3 ]; then
    echo "usage: tests/bench/run.sh MODEL MANIFEST OUT.csv" >&2
    exit 2
fi
model=$1 manifest=$2 out=$3
here=$(dirname "$0")
ckvc=${CKVC:-build/release/ckvc}
ours=${CKVC_MODEL:-$model}
python=${PYTHON:-python3}
threads=${THREADS:-$(nproc)}
tokens=${TOKENS:-2048} budget=${BUDGET:-256} continuation=${CONTINUATION:-128} window=${WINDOW:-64}
repeats=${REPEATS:-5} sample=${SAMPLE:-20}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

"$ckvc-bench" --model "$ours" --manifest "$manifest" --max-tokens "$tokens" --budget "$budget" --continuation "$continuation" \
    --window "$window" --threads "$threads" --repeats "$repeats" --sample "$sample" ${STAGES:+--stage "$STAGES"} >"$parts/ckvc.txt"
kernel=$(sed -n '1s/^# kernel \(.*\), [0-9]* threads$/\1/p' "$parts/ckvc.txt")
"$python" "$here/rollouts_pytorch.py" --ckvc "$ckvc" --model "$model" --ckvc-model "$ours" --manifest "$manifest" --max-tokens "$tokens" \
    --budget "$budget" --continuation "$continuation" --window "$window" --threads "$threads" --sample "$sample" >"$parts/rollouts.csv"

machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)
if ! git -C "$here" diff --quiet HEAD 2>/dev/null; then
    commit=$commit-changed
fi
command="TOKENS=$tokens BUDGET=$budget CONTINUATION=$continuation WINDOW=$window REPEATS=$repeats SAMPLE=$sample THREADS=$threads run.sh $(basename "$ours") $(basename "$manifest")"
{
    sed '1d; 2s/^/program,/; 3,$s/^/ckvc,/' "$parts/ckvc.txt"
    sed 1d "$parts/rollouts.csv"
} | awk -v tail="$(printf '%s' "$machine" | tr ',' ' '),$(nproc),$kernel,$threads,$commit,$command" \
    'NR == 1 { print $0 ",machine,cores,kernel,threads,commit,command" } NR > 1 { print $0 "," tail }' >"$out"
echo "wrote $out" >&2
