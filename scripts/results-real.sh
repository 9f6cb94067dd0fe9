#!/usr/bin/env bash
# Makes a real model's tables and says what they are worth (docs/results.md, "Qwen2.5-Coder-0.5B"): scripts/results-real.sh CKVC MODEL
# OUTDIR CORPUS...
#
# For each corpus (recipes of data-manifests, with the cut CUT) `ckvc compile` fits a table on FIT of its prompts and chooses on SELECT of
# them, or it takes the prompts of FROM for all corpora. Then the table and every rule (RULES) are scored on FRESH prompts of the corpus's
# fresh recipe, which chose nothing, at T/16, T/8 and T/4. OUTDIR/report compares them, and the shares of the tables. TABLES, with commas
# between them, stand for a compiled table: this is for prompts of lengths from which it was not made. Finished parts are not made again,
# and parts that have begun go on. BUDGETS replaces these budgets of the table, 0.0625,0.125,0.25, or BYTES has shares of the bytes instead,
# and COMPILE has further options for compile, such as "--features 2 --mode lengths --classes 2". A rule with +fit needs a table with a
# bank. HF, the model's directory for transformers, adds Attention Matching with the head budgets of the (first) table, by the Python that
# PYTHON names: half a minute for each prompt and budget of a 135M model.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}")
model=$(realpath "${2:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}")
root=$(cd "$(dirname "$0")/.." && pwd)
hf=${HF:+$(realpath "$HF")} python=
if [ "$hf" ]; then
    python=$(command -v "${PYTHON:-python3}") || { echo "results-real.sh: no such program: ${PYTHON:-python3}; PYTHON names it" >&2; exit 69; }
    python=$(realpath -s "$python")
fi
given=
[ -z "${TABLES:-}" ] || { IFS=, read -ra paths <<<"$TABLES" && given=$(realpath -e "${paths[@]}" | paste -sd,); }
mkdir -p "${3:?usage: results-real.sh CKVC MODEL OUTDIR CORPUS...}"
cd "$3"
shift 3
continuation=${CONTINUATION:-96}
asked=(-B "${BUDGETS:-0.0625,0.125,0.25}")
[ -z "${BYTES:-}" ] || asked=(--bytes "$BYTES")
rules=${RULES:-identity,matched,snapkv,snapkv+fit,pyramidkv,adakv,cake,cake+fit,expected-attention,tova,keydiff,h2o,vatp,streamingllm,dynamickv,chunkkv,fastkv,rocketkv,zigzagkv,kvzip,kvzip+fit,headkv,evolkv,duoattention,random}

# shellcheck source=scripts/results-common.sh
. "$root/scripts/results-common.sh"
tables=() scores=
for corpus; do
    from=${FROM:-$corpus} run=compiled-$from of=${given:-compiled-$from/table.ckvt}
    # shellcheck disable=SC2046 # a word or none
    [ -e "fresh-$corpus.jsonl" ] || "$root/scripts/corpora.py" --cut "${CUT:-qwen2.5-coder-1k}" "$ckvc" . $([ "$given" ] || echo "$from") "fresh-$corpus"
    if [ ! -e "${of%%,*}" ]; then
        { few fit "${FIT:-10}" "$from.jsonl" && few select "${SELECT:-5}" "$from.jsonl"; } >"few-$from.jsonl"
        # shellcheck disable=SC2046,SC2086 # words or none
        "$ckvc" compile --model "$model" --manifest "few-$from.jsonl" -C "$continuation" --label "$from" --out "$run" \
            "${asked[@]}" $(resume "$run/run.json") ${COMPILE:-}
    fi
    few fresh "${FRESH:-12}" "fresh-$corpus.jsonl" >"few-fresh-$corpus.jsonl"
    # shellcheck disable=SC2046
    [ -e "scores-$corpus.jsonl" ] || "$ckvc" score --model "$model" --manifest "few-fresh-$corpus.jsonl" -C "$continuation" \
        --table "$of" --policy "$rules" --out "scores-$corpus.jsonl" $(resume "scores-$corpus.jsonl.checkpoint")
    IFS=, read -ra more <<<"$of"
    [[ " ${tables[*]} " == *" ${more[*]} "* ]] || tables+=("${more[@]}")
    scores+=${scores:+,}scores-$corpus.jsonl
    [ "$hf" ] || continue
    # shellcheck disable=SC2046
    [ -e "matching-$corpus.jsonl" ] || "$python" "$root/scripts/attention_matching.py" "$hf" --manifest "few-fresh-$corpus.jsonl" --continuation "$continuation" \
        -B "${BUDGETS:-0.0625,0.125,0.25}" --shares "${of%%,*}" --beside "scores-$corpus.jsonl" --dtype float32 --out "matching-$corpus.jsonl" $(resume "matching-$corpus.jsonl.checkpoint")
    scores+=,matching-$corpus.jsonl
done
"$ckvc" report "${tables[@]}" --scores "$scores" --force --out report
