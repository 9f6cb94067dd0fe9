#!/usr/bin/env bash
# A real model's tables and what they are worth (docs/results.md, "Qwen2.5-Coder-0.5B"): scripts/results-real.sh CKVC MODEL OUTDIR CORPUS...
#
# Of each corpus (recipes of data-manifests, cut CUT): `ckvc compile` on its first FIT prompts to fit and SELECT to choose, or those of FROM for all of them; then
# the table and every rule on the first HELDOUT prompts of its fresh recipe, which chose nothing, at T/16, T/8, T/4. OUTDIR/report compares them, and the shares
# of the tables. Finished parts are not made again, begun ones go on.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}")
model=$(realpath "${2:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}")
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${3:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}"
cd "$3"
shift 3
continuation=${CONTINUATION:-96}
rules=snapkv,pyramidkv,adakv,cake,expected-attention,tova,keydiff,h2o,vatp,streamingllm,dynamickv,chunkkv,fastkv,rocketkv,kvzip,headkv,duoattention,random

resume() { [ ! -e "$1" ] || echo --resume; }
tables=() scores=
for corpus; do
    from=${FROM:-$corpus} run=compiled-$from
    [ -e "fresh-$corpus.jsonl" ] || "$root/scripts/corpora.py" --cut "${CUT:-qwen2.5-coder-1k}" "$ckvc" . "$from" "fresh-$corpus"
    if [ ! -e "$run/table.ckvt" ]; then
        for split in "fit ${FIT:-10}" "select ${SELECT:-5}"; do
            grep -m "${split#* }" "\"split\":\"${split% *}\"" "$from.jsonl"
        done >"few-$from.jsonl"
        # shellcheck disable=SC2046 # a word or none
        "$ckvc" compile --model "$model" --manifest "few-$from.jsonl" -C "$continuation" -B 0.0625,0.125,0.25 --label "$from" --out "$run" $(resume "$run/run.json")
    fi
    # shellcheck disable=SC2046
    [ -e "scores-$corpus.jsonl" ] || "$ckvc" score --model "$model" --manifest "fresh-$corpus.jsonl" --limit "${HELDOUT:-12}" -C "$continuation" \
        --table "$run/table.ckvt" --policy "$rules" --out "scores-$corpus.jsonl" $(resume "scores-$corpus.jsonl.checkpoint")
    [[ " ${tables[*]} " == *" $run/table.ckvt "* ]] || tables+=("$run/table.ckvt")
    scores+=${scores:+,}scores-$corpus.jsonl
done
"$ckvc" report "${tables[@]}" --scores "$scores" --force --out report
