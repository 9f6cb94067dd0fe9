#!/usr/bin/env bash
# Makes a table with torch, for a model that the C program does not compress, and says what it is worth on fresh prompts: scripts/results-torch.sh CKVC
# MODEL.gguf OUTDIR CORPUS...
#
# The model becomes a Hugging Face directory in float32 (convert-gguf.py). `python3 -m ckvc compile` makes OUTDIR/compiled-default/table.ckvt from the texts
# that come with ckvc, at BUDGETS. FRESH prompts of each corpus's fresh recipe judge it; they chose nothing. CUT names the cut of the recipe; its model must be
# there (make model-...), and counts the lengths. The table and the rules RULES are scored on these prompts, on CONTINUATION tokens each.
# OUTDIR/report compares them. PYTHON names a Python with torch, transformers and what convert-gguf.py needs. Finished parts are not made again, and parts that
# have begun go on.
set -euo pipefail
usage="usage: results-torch.sh CKVC MODEL.gguf OUTDIR CORPUS..."
ckvc=$(realpath "${1:?$usage}")
model=$(realpath "${2:?$usage}")
: "${4:?$usage}"
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(realpath -s "$(command -v "${PYTHON:-python3}")")
mkdir -p "$3"
cd "$3"
shift 3
export PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH}
budgets=${BUDGETS:-0.0625,0.125,0.25} hf=$(basename "$model" .gguf)
# shellcheck source=scripts/results-common.sh
. "$root/scripts/results-common.sh"
if [ ! -e "$hf" ]; then
    rm -rf "$hf.part"
    "$python" "$root/scripts/convert-gguf.py" "$model" "$hf.part" --dtype float32
    mv "$hf.part" "$hf"
fi
# shellcheck disable=SC2046 # a word or none
[ -e compiled-default/report/report.html ] || "$python" -m ckvc compile "$hf" --budget "$budgets" --dtype float32 --ckvc "$ckvc" --out compiled-default $(resume compiled-default)
scores=
for corpus; do
    [ -e "fresh-$corpus.jsonl" ] || "$root/scripts/corpora.py" --cut "${CUT:-qwen2.5-coder-1k}" "$ckvc" . "fresh-$corpus"
    few fresh "${FRESH:-12}" "fresh-$corpus.jsonl" >"few-fresh-$corpus.jsonl"
    # shellcheck disable=SC2046
    [ -e "scores-$corpus.jsonl" ] || "$python" -m ckvc score "$hf" --manifest "few-fresh-$corpus.jsonl" --continuation "${CONTINUATION:-96}" --dtype float32 \
        --table compiled-default/table.ckvt --policy "${RULES:-top-k,snapkv,adakv}" --budget "$budgets" --out "scores-$corpus.jsonl" $(resume "scores-$corpus.jsonl.checkpoint")
    scores+=${scores:+,}scores-$corpus.jsonl
done
"$ckvc" report compiled-default/table.ckvt --scores "$scores" --force --out report
