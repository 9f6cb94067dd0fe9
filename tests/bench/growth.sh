#!/usr/bin/env bash
# How the cost of a prompt's rewards grows: `ckvc-bench` on random ids while one size moves and the others stay, on models of one width that
# tests/tools/make_model.c makes, so that anyone gets the same.
#   tests/bench/growth.sh >growth.csv        # settings, from the environment: CKVC, THREADS, REPEATS, SIZES (T B C L actions)
set -euo pipefail
ckvc=${CKVC:-build/release/ckvc}
models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
declare -A moves=([T]="256 512 1024 2048 4096" [B]="32 64 128 256 512" [C]="16 32 64 128 256" [L]="2 4 8 16 32" [actions]="16 32 64 128 256 512")

echo size,value,stage,work,unit,seconds_min,gflop,note
for size in ${SIZES:-T B C L actions}; do
    for value in ${moves[$size]}; do
        T=1024 B=128 C=64 L=8 actions=128
        declare "$size=$value"
        [ -d "$models/$L" ] || "${ckvc%/*}/tools/make_model" "$models/$L" "$L" 8 4 32 256 704 2048 >/dev/null
        "$ckvc-bench" --model "$models/$L" --stage prefill,variants,sweep,rewards-sweep --repeats "${REPEATS:-3}" --threads "${THREADS:-$(nproc)}" \
            --max-tokens $T --budget $B --continuation $C --variants $actions | awk -F, -v OFS=, -v at="$size,$value" 'NR > 2 { print at, $1, $3, $4, $7, $9, $11 }'
        echo "$size=$value" >&2
    done
done
