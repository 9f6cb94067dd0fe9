#!/usr/bin/env bash
# The numbers of docs/results.md on SmolLM2-135M-Instruct: scripts/results-smollm2.sh CKVC MODEL OUTDIR
#
# MODEL is what `make model-smollm2` fetched, or any other model. Two disjoint corpora of prompts of 1,024 to 1,280 tokens; identity under every
# score; tables of the heads under the paper's actions and under few wide ones; thresholds under the heads, heads again under the thresholds;
# everything scored on prompts whose documents no table has seen. Finished parts are not made again, begun runs go on; PARTS names what to do
# (corpora kinds heads wide visible gate rounds scores). Some four hours on two cores.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-smollm2.sh CKVC MODEL OUTDIR}")
model=$(realpath "${2:?usage: results-smollm2.sh CKVC MODEL OUTDIR}")
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${3:?usage: results-smollm2.sh CKVC MODEL OUTDIR}"
cd "$3"
parts=" ${PARTS:-corpora kinds heads wide visible gate rounds scores} "
corpora=${CORPORA:-technical narrative} # CORPORA, KINDS: less
budgets=64,0.25
wide=0.25,0.5,0.7,1,1.4,2,4
say() { printf '== %s (%d s)\n' "$1" "$SECONDS" >&2; }
part() { [[ $parts == *" $1 "* ]]; }

calibrate() { # RUN CORPUS OPTION...: begun runs go on
    local run=$1 corpus=$2 resume=()
    shift 2
    [ ! -e "$run/run.json" ] || resume=(--resume)
    say "calibrate: $run"
    "$ckvc" calibrate -q --model "$model" --manifest "$corpus.jsonl" --split fit -W 64 -C 32 --shard-prompts 8 --out "$run" "${resume[@]}" "$@"
}
fit() { # TABLE RUN OPTION...
    local table=$1 run=$2
    shift 2
    "$ckvc" fit "$run" -q --label "${table%.ckvt}" --bootstrap 1000 --out "$table" "$@"
}
score() { # OUT CORPUS OPTION...
    local out=$1 corpus=$2
    shift 2
    [ ! -e "$out" ] || return 0
    say "score: $out"
    "$ckvc" score -q --model "$model" --manifest "$corpus.jsonl" --split heldout -W 64 -C 64 --out "$out" "$@"
}

if part corpora && [ ! -e narrative.jsonl ]; then
    (cd "$root" && DEMO_MODEL=$model DEMO_PROMPTS=140 DEMO_MIN_LENGTH=1024 DEMO_MAX_LENGTH=1280 DEMO_HELDOUT=0.25 scripts/demo-corpora.sh "$ckvc" "$OLDPWD")
fi

# ---- which score: identity, and its highest B, under each ----
if part kinds; then
    for c in $corpora; do
        for kind in ${KINDS:-paper visible keep-16 keep-32 keep-64}; do
            policies=identity,top-k
            case $kind in
            paper) how=() policies+=,sink-recent,window-pooled ;;
            visible) how=(--alpha visible) ;;
            *) how=(--keep-window "${kind#keep-}") ;;
            esac
            score "kind-$kind-$c.jsonl" "$c" -B 64,128,0.25 "${how[@]}" --policy $policies
        done
    done
fi

# ---- heads under the paper's 29 actions, from identity ----
if part heads; then
    for c in $corpora; do
        [ -e "head-$c.ckvt" ] && continue
        variants=160
        [ "$c" = technical ] || variants=96
        calibrate "head-$c" "$c" -B $budgets --bins 3,2 --side head --variants $variants
        fit "head-$c.ckvt" "head-$c"
    done
fi

# ---- heads under what docs/results.md recommends: half of the window kept, 7 wide actions, a full budget: more prompts a state, larger effects, and
#      no thresholds that turn weights into tokens ----
if part wide; then
    for c in $corpora; do
        [ -e "wide-$c.ckvt" ] && continue
        calibrate "wide-$c" "$c" -B $budgets --bins 3,2 --side head --variants 96 --keep-window 32 --operator no-threshold --head-grid $wide
        fit "wide-$c.ckvt" "wide-$c"
    done
fi

# ---- the same under the visible score; such a table keeps no part of the window ----
if part visible; then
    for c in $corpora; do
        [ -e "visible-$c.ckvt" ] && continue
        calibrate "visible-$c" "$c" -B $budgets --bins 3,2 --side head --variants 96 --alpha visible --operator no-threshold --head-grid $wide
        fit "visible-$c.ckvt" "visible-$c"
    done
fi

# ---- thresholds: under the heads (the loop's first round, and the probe independent), and from identity (gate-only) ----
if part gate; then
    for c in $corpora; do
        [ -e "independent-$c.ckvt" ] && continue
        calibrate "gate-$c" "$c" --tables "head-$c.ckvt" --side gate --variants 64
        fit "independent-$c.ckvt" "gate-$c" --tables "head-$c.ckvt"
    done
fi

# ---- the second round's heads, under those thresholds ----
if part rounds; then
    for c in $corpora; do
        [ -e "second-$c.ckvt" ] && continue
        calibrate "second-head-$c" "$c" --tables "independent-$c.ckvt" --side head --variants 56
        fit "second-$c.ckvt" "second-head-$c" --tables "independent-$c.ckvt"
    done
fi

if part scores; then
    for c in $corpora; do
        score "tables-$c.jsonl" "$c" --table head-technical.ckvt,head-narrative.ckvt --attention-error \
            --policy identity,matched,recent,sink-recent,top-k,window,window-pooled,no-threshold,mean-pool,no-utility
        for kind in independent second; do
            tables=$(ls $kind-*.ckvt 2>/dev/null | paste -sd, || true)
            [ -z "$tables" ] || score "$kind-scores-$c.jsonl" "$c" -B 0.25 --nearest-budget --table "$tables" --policy identity,matched,sink-recent,top-k,head-only,gate-only,no-threshold,mean-gate
        done
        tables=$(ls wide-*.ckvt 2>/dev/null | paste -sd, || true)
        [ -z "$tables" ] || score "wide-scores-$c.jsonl" "$c" --keep-window 32 --table "$tables" --policy identity,sink-recent,top-k
        tables=$(ls visible-*.ckvt 2>/dev/null | paste -sd, || true)
        [ -z "$tables" ] || score "visible-scores-$c.jsonl" "$c" --alpha visible --table "$tables" --policy identity,top-k
        score "elastic-$c.jsonl" "$c" -B 0.1325 --policy top-k # as many tokens on average as identity's thresholds keep of T/4
    done
fi
say "done"
