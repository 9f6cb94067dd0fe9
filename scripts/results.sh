#!/usr/bin/env bash
# The numbers of docs/results.md on an embedded model, from nothing: scripts/results.sh CKVC OUTDIR
#
# Two disjoint corpora; every probe of the loop, with its rollouts; tables under uniform and balanced logging at many weights of the
# conservative term; tables under each score; transfer both ways; all scored on prompts whose documents no table has seen. Ends with Markdown
# tables (scripts/results_tables.py, which wants python3-h5py). Finished parts are not made again; delete OUTDIR to start over. About an hour
# and a quarter on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
ckvc=${1:?usage: results.sh CKVC OUTDIR}
out=${2:?usage: results.sh CKVC OUTDIR}
big=models/ckvc-tiny-8l small=models/ckvc-tiny-4l
corpora="technical narrative"
sweeps=${SWEEPS:-$corpora} # whose prompts the settings of the fit and the scores are compared on
common=(--config configs/demo.conf --variants "${VARIANTS:-128}")
say() { printf '== %s (%d s)\n' "$1" "$SECONDS" >&2; }
once() { # FILE COMMAND...: unless FILE is there
    local file=$1
    shift
    [ -e "$file" ] || "$@"
}
logged() { # RUN VERB OPTION...: a run directory that holds what the verb ends with; begun ones go on
    local run=$1 verb=$2 end=table.ckvt resume=()
    shift 2
    [ "$verb" = compile ] && set -- --mode shared --score paper "$@" || end=.done # the paper's loop
    [ ! -e "$run/$end" ] || return 0
    [ ! -e "$run/run.json" ] || resume=(--resume)
    "$ckvc" "$verb" "${common[@]}" -q --out "$run" "${resume[@]}" "$@"
    [ "$verb" = compile ] || touch "$run/.done"
}
export DEMO_PROMPTS=${PROMPTS:-160}
mkdir -p "$out"
[ -e "$out/narrative-leaks.json" ] || scripts/demo-corpora.sh "$ckvc" "$out"

# ---- the loop and its probes; after its first pass it is what head-only makes, after its second what independent makes ----
for c in $corpora; do
    for p in joint gate-only no-utility mean-gate mean-pool grid-search epsilon-greedy alpha-0; do
        own=() # joint takes states whole while they fit, epsilon-greedy single actions up to the limit: as many rollouts under a lower one
        [ $p != epsilon-greedy ] || own=(--behaviour epsilon-greedy --variants "$(python3 scripts/results_tables.py "$ckvc" "$out" --head-rollouts "$out/$c-joint")")
        say "compile: $c, $p ${own[*]}"
        logged "$out/$c-$p" compile --model $big --manifest "$out/$c.jsonl" --split fit --leak-check "$out/$c-leaks.json" --probe $p --rounds 2 "${own[@]}"
    done
    for grid in paper wide; do # heads alone on a full budget: under the paper's 29 weights, and under 7 that lie farther apart
        actions=()
        [ $grid = paper ] || actions=(--head-grid 0.25,0.5,0.7,1,1.4,2,4)
        say "compile: $c, no-threshold, $grid weights"
        logged "$out/$c-full-$grid" compile --model $big --manifest "$out/$c.jsonl" --split fit --leak-check "$out/$c-leaks.json" --probe no-threshold "${actions[@]}"
    done
done
for c in $corpora; do
    say "score the probes: $c prompts"
    tables=
    for t in $corpora; do
        for p in joint joint/tables/pass-01 joint/tables/pass-02 gate-only no-utility mean-gate mean-pool grid-search epsilon-greedy alpha-0 \
            full-paper/tables/pass-01 full-paper full-wide/tables/pass-01 full-wide; do
            [[ $p == */* ]] || p+=/table
            tables+=,$out/$t-$p.ckvt
        done
    done
    once "$out/probes-$c.jsonl" "$ckvc" score "${common[@]:0:2}" -q --model $big --manifest "$out/$c.jsonl" --split heldout --table "${tables#,}" \
        --policy identity,matched,top-k --out "$out/probes-$c.jsonl"
    once "$out/controls-$c.jsonl" "$ckvc" score "${common[@]:0:2}" -q --model $big --manifest "$out/$c.jsonl" --split heldout \
        --table "$out/$c-joint/table.ckvt" --equal-tokens --out "$out/controls-$c.jsonl" \
        --policy identity,matched,recent,sink-recent,random,top-k,window,window-pooled,no-utility,no-threshold,mean-gate,mean-pool,head-only,gate-only
done

# ---- the conservative term under both ways of logging ----
for c in $sweeps; do
    for b in uniform balanced; do
        say "calibrate: $c, $b"
        logged "$out/$c-$b" calibrate --model $big --manifest "$out/$c.jsonl" --split fit --leak-check "$out/$c-leaks.json" --behaviour $b
        for a in 0 0.1 0.25 0.5 0.75 1 2 5; do
            once "$out/$c-$b-a$a.ckvt" "$ckvc" fit "$out/$c-$b" -q --cql-alpha $a --label "$c $b alpha $a" --out "$out/$c-$b-a$a.ckvt"
        done
        once "$out/$c-$b-raw.ckvt" "$ckvc" fit "$out/$c-$b" -q --reward raw --label "$c $b raw" --out "$out/$c-$b-raw.ckvt"
        once "$out/$c-$b-adamw.ckvt" "$ckvc" fit "$out/$c-$b" -q --solver adamw --label "$c $b adamw" --out "$out/$c-$b-adamw.ckvt"
        once "$out/$c-$b-shrunk.ckvt" "$ckvc" fit "$out/$c-$b" -q --bootstrap 200 --shrink --label "$c $b shrunk" --out "$out/$c-$b-shrunk.ckvt"
    done
done
for c in $corpora; do
    tables=
    for t in $sweeps; do
        for b in uniform balanced; do
            for v in a0 a0.1 a0.25 a0.5 a0.75 a1 a2 a5 raw adamw shrunk; do tables+=,$out/$t-$b-$v.ckvt; done
        done
    done
    say "score the sweeps: $c prompts"
    once "$out/sweeps-$c.jsonl" "$ckvc" score "${common[@]:0:2}" -q --model $big --manifest "$out/$c.jsonl" --split heldout --table "${tables#,}" \
        --policy identity,matched --out "$out/sweeps-$c.jsonl"
done

# ---- which score: a table under each, and identity under each ----
for c in $sweeps; do
    for s in paper visible keep-window; do # the paper's table is the loop's after its first round
        case $s in paper) how=() ;; visible) how=(--alpha visible) ;; keep-window) how=(--keep-window 32) ;; esac
        say "score kind: $c, $s"
        table=$out/$c-joint/tables/pass-02.ckvt
        if [ $s != paper ]; then
            table=$out/$c-$s/table.ckvt
            logged "$out/$c-$s" compile "${how[@]}" --model $big --manifest "$out/$c.jsonl" --split fit --leak-check "$out/$c-leaks.json" --rounds 1
        fi
        once "$out/kind-$s-$c.jsonl" "$ckvc" score "${common[@]:0:2}" "${how[@]}" -q --model $big --manifest "$out/$c.jsonl" --split heldout \
            --table "$table" --policy identity,matched,top-k,sink-recent,window-pooled --out "$out/kind-$s-$c.jsonl"
    done
done

# ---- depth transfer, both ways, heads in the three ways; from SmolLM2 too (SMOLLM2: tables of results-smollm2.sh, W = 64) ----
for c in $corpora; do
    say "transfer: $c"
    logged "$out/$c-small" compile --model $small --manifest "$out/$c.jsonl" --split fit --leak-check "$out/$c-leaks.json" --rounds 1
    for to in small big; do
        case $to in
        small) model=$small from=$out/$c-joint/tables/pass-02.ckvt own=$out/$c-small ;;
        big) model=$big from=$out/$c-small/table.ckvt own=$out/$c-joint ;;
        esac
        tables=$own/tables/pass-02.ckvt
        for heads in index rank signature; do
            once "$out/$c-to-$to-$heads.ckvt" "$ckvc" transfer "$from" --to-model $model --heads $heads --scan "$own" --out "$out/$c-to-$to-$heads.ckvt"
            tables+=,$out/$c-to-$to-$heads.ckvt
        done
        once "$out/transfer-$to-$c.jsonl" "$ckvc" score "${common[@]:0:2}" -q --model $model --manifest "$out/$c.jsonl" --split heldout \
            --table "$tables" --policy identity,matched,top-k --out "$out/transfer-$to-$c.jsonl"
    done
done
if [ -n "${SMOLLM2:-}" ]; then
    for c in $corpora; do
        own=$out/$c-w64 # signatures, risk edges and what to compare with, under their window
        logged "$own" compile --model $big --manifest "$out/$c.jsonl" --split fit --leak-check "$out/$c-leaks.json" -W 64 --rounds 1
        tables=$own/tables/pass-02.ckvt
        for t in $SMOLLM2; do
            for heads in index rank signature; do
                file=$out/smollm2-$(basename "$t" .ckvt)-$heads-$c.ckvt
                once "$file" "$ckvc" transfer "$t" --to-model $big --heads $heads --scan "$own" --out "$file"
                tables+=,$file
            done
        done
        once "$out/transfer-smollm2-$c.jsonl" "$ckvc" score "${common[@]:0:2}" -W 64 -q --model $big --manifest "$out/$c.jsonl" --split heldout \
            --table "$tables" --policy identity,matched,top-k --out "$out/transfer-smollm2-$c.jsonl"
    done
fi

say "report"
rm -rf "$out/report"
scores=$out/controls-technical.jsonl,$out/controls-narrative.jsonl
"$ckvc" report "$out/technical-joint/table.ckvt" "$out/narrative-joint/table.ckvt" "$out/technical-joint" "$out/narrative-joint" \
    --scores "$scores" --out "$out/report"
rm -rf "$out/report-transfer"
scores=
for to in small big; do for c in $corpora; do scores+=,$out/transfer-$to-$c.jsonl; done; done
"$ckvc" report "$out"/{technical,narrative}-{joint/tables/pass-02,small/tables/pass-02}.ckvt "$out"/{technical,narrative}-to-{small,big}-{index,rank,signature}.ckvt \
    --scores "${scores#,}" --out "$out/report-transfer"
python3 scripts/results_tables.py "$ckvc" "$out"
