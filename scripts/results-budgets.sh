#!/usr/bin/env bash
# Budgets per head and the learned score beside their references: scripts/results-budgets.sh CKVC MODEL OUTDIR
#
# MODEL is what `make model-smollm2` fetched, or another. A table from N technical prompts (demand and score passes), and one of the demand of as
# many narrative ones for Spearman's rho; held-out prompts of both corpora under the tables and the references at equal kept entries. Finished parts
# are not made again, begun runs go on. About an hour on two cores.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-budgets.sh CKVC MODEL OUTDIR}")
model=$(realpath "${2:?usage: results-budgets.sh CKVC MODEL OUTDIR}")
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${3:?usage: results-budgets.sh CKVC MODEL OUTDIR}"
cd "$3"
n=${PROMPTS:-24} held=${HELDOUT:-20} budgets=${BUDGETS:-64,0.0625,0.125,0.25}
[ -e narrative.jsonl ] || (cd "$root" && DEMO_MODEL=$model DEMO_PROMPTS=100 DEMO_MIN_LENGTH=${MIN_LENGTH:-1024} DEMO_MAX_LENGTH=${MAX_LENGTH:-1280} \
    DEMO_CONTINUATION=96 scripts/demo-corpora.sh "$ckvc" "$OLDPWD")

pass() { # SIDE CORPUS OPTION...
    local run=$1-$2 resume=() side=$1 corpus=$2
    shift 2
    [ ! -e "$run/run.json" ] || resume=(--resume)
    "$ckvc" calibrate -q --side "$side" --model "$model" --manifest "$corpus.jsonl" --split fit --limit "$n" -W 64 -C 96 --shard-prompts 4 \
        --out "$run" "${resume[@]}" "$@"
}
pass demand technical -B "$budgets"
pass demand narrative -B "$budgets"
pass score technical
[ -e window.ckvt ] || "$ckvc" fit demand-technical --label window --out window.ckvt
[ -e narrative.ckvt ] || "$ckvc" fit demand-narrative --label narrative --out narrative.ckvt
[ -e learned.ckvt ] || "$ckvc" fit demand-technical score-technical --label learned --out learned.ckvt
for c in technical narrative; do
    [ -e "scores-$c.jsonl" ] || "$ckvc" score -q --model "$model" --manifest $c.jsonl --split heldout --limit "$held" -W 64 -C 96 -B "$budgets" \
        --table learned.ckvt,window.ckvt,narrative.ckvt \
        --policy identity,streamingllm,h2o,snapkv,pyramidkv,adakv,cake,expected-attention,tova,keydiff,kvzip --out "scores-$c.jsonl"
done
python3 "$root/scripts/results_budgets.py" scores-technical.jsonl scores-narrative.jsonl
python3 "$root/scripts/results_budgets.py" --spearman "$ckvc" window.ckvt narrative.ckvt
