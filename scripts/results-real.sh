#!/usr/bin/env bash
# The first tables of a real model (docs/results.md, "Qwen2.5-Coder-0.5B"): scripts/results-real.sh CKVC MODEL OUTDIR CORPUS...
#
# Of each corpus (recipes of data-manifests, cut CUT): `ckvc compile` on its first FIT prompts to fit and SELECT to choose, then the table and every rule that reads
# the prompt once or twice on the first HELDOUT prompts that judge, and every corpus's table on the others' prompts; at T/16, T/8, T/4. report/ compares them.
# Finished parts are not made again, begun ones go on.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}")
model=$(realpath "${2:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}")
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${3:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}"
cd "$3"
shift 3
cut=${CUT:-qwen2.5-coder-1k} window=${WINDOW:-64} continuation=${CONTINUATION:-96}
rules=snapkv,pyramidkv,adakv,cake,expected-attention,tova,keydiff,h2o,streamingllm,dynamickv,chunkkv,fastkv,kvzip,headkv,duoattention,random

[ -e "$1.jsonl" ] || "$root/scripts/corpora.py" --cut "$cut" "$ckvc" . "$@"
for corpus; do
    run=compiled-$corpus resume=()
    for split in "fit ${FIT:-10}" "select ${SELECT:-5}"; do
        grep -m "${split#* }" "\"split\":\"${split% *}\"" "$corpus.jsonl"
    done >"few-$corpus.jsonl"
    [ ! -e "$run/run.json" ] || resume=(--resume)
    [ -e "$run/table.ckvt" ] || "$ckvc" compile --model "$model" --manifest "few-$corpus.jsonl" -W "$window" -C "$continuation" -B 0.0625,0.125,0.25 --out "$run" "${resume[@]}"
    resume=()
    [ ! -e "scores-$corpus.jsonl" ] || resume=(--resume)
    "$ckvc" score --model "$model" --manifest "$corpus.jsonl" --split heldout --limit "${HELDOUT:-12}" -C "$continuation" --table "$run/table.ckvt" --policy "$rules" \
        --out "scores-$corpus.jsonl" "${resume[@]}"
done
