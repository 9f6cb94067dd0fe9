#!/usr/bin/env bash
# The numbers of docs/results.md on budgets per head and learned scores: scripts/results-budgets.sh CKVC MODEL OUTDIR
#
# MODEL is what `make model-smollm2` fetched, or another. PARTS names what to do: main (a table from PROMPTS technical prompts, demand and score passes,
# and one of the demand of as many narrative ones; HELDOUT prompts of both corpora under the tables and the references at equal kept entries), shares
# (references that need a table's shares), wide (budgets from a few tokens to half of the prompt), lengths (LENGTHS, the table as it is), wordings
# (retrieval as no compile saw it), norepeat (both passes without the repeat pass). Finished parts are not made again, begun runs go on. Two
# hours of one core in all. The embedded models: PARTS="main shares" PROMPTS=0 HELDOUT=0 BUDGETS=0.0625,0.125,0.25,0.5 MIN_LENGTH=320
# MAX_LENGTH=448 WINDOW=32 CONTINUATION=64 scripts/results-budgets.sh CKVC models/ckvc-tiny-8l OUTDIR
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-budgets.sh CKVC MODEL OUTDIR}")
model=$(realpath "${2:?usage: results-budgets.sh CKVC MODEL OUTDIR}")
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${3:?usage: results-budgets.sh CKVC MODEL OUTDIR}"
cd "$3"
parts=" ${PARTS:-main shares wide lengths wordings norepeat} "
n=${PROMPTS:-24} held=${HELDOUT:-20} budgets=${BUDGETS:-64,0.0625,0.125,0.25} threads=${THREADS:-1} window=${WINDOW:-64} continuation=${CONTINUATION:-96}
few=adakv,snapkv,cake,tova,kvzip,streamingllm

part() { [[ $parts == *" $1 "* ]]; }
corpora() { # OUTDIR PROMPTS SHORTEST LONGEST CORPORA
    [ -e "$1/technical-leaks.json" ] || (out=$(realpath -m "$1") && cd "$root" && DEMO_MODEL=$model DEMO_CORPORA=$5 DEMO_PROMPTS=$2 DEMO_MIN_LENGTH=$3 DEMO_MAX_LENGTH=$4 \
        DEMO_CONTINUATION=$continuation DEMO_HELDOUT=0.3 DEMO_SELECT=0 scripts/demo-corpora.sh "$ckvc" "$out")
}
pass() { # RUN SIDE CORPUS OPTION...
    local run=$1 side=$2 corpus=$3 resume=()
    shift 3
    [ ! -e "$run/run.json" ] || resume=(--resume)
    "$ckvc" calibrate -q -t "$threads" --side "$side" --floor 0.2 --model "$model" --manifest "$corpus.jsonl" --split fit --limit "$n" -W "$window" -C "$continuation" \
        --shard-prompts 4 --out "$run" "${resume[@]}" "$@"
}
fit() { # TABLE RUN...
    local table=$1
    shift
    [ -e "$table" ] || "$ckvc" fit "$@" --label "${table%.ckvt}" --out "$table"
}
score() { # OUT MANIFEST PROMPTS BUDGETS TABLES [POLICIES]
    [ -e "$1" ] || "$ckvc" score -q -t "$threads" --model "$model" --manifest "$2" --split heldout --limit "$3" -W "$window" -C "$continuation" -B "$4" \
        --table "$5" ${6:+--policy "$6"} --out "$1"
}

corpora . 100 "${MIN_LENGTH:-1024}" "${MAX_LENGTH:-1280}" "technical narrative"
pass demand-technical demand technical -B "$budgets"
pass score-technical score technical
fit window.ckvt demand-technical
fit learned.ckvt demand-technical score-technical
if part main; then
    pass demand-narrative demand narrative -B "$budgets"
    fit narrative.ckvt demand-narrative
fi
if part wide; then
    pass demand-wide demand technical -B 16,0.03125,0.5
    fit window-wide.ckvt demand-wide
    fit learned-wide.ckvt demand-wide score-technical
fi
if part norepeat; then
    pass demand-norepeat demand technical -B "$budgets" --no-repeat
    pass score-norepeat score technical --no-repeat
    fit window-norepeat.ckvt demand-norepeat
    fit learned-norepeat.ckvt demand-norepeat score-norepeat
fi
for c in technical narrative; do
    ! part main || score scores-$c.jsonl $c.jsonl "$held" "$budgets" learned.ckvt,window.ckvt,narrative.ckvt \
        identity,streamingllm,h2o,snapkv,pyramidkv,adakv,cake,expected-attention,tova,keydiff,kvzip
    ! part shares || score scores-shares-$c.jsonl $c.jsonl "$held" "$budgets" learned.ckvt headkv,duoattention,pooled
    ! part wide || score scores-wide-$c.jsonl $c.jsonl 10 16,0.03125,0.5 learned-wide.ckvt,window-wide.ckvt $few
    ! part norepeat || score scores-norepeat-$c.jsonl $c.jsonl "$held" "$budgets" learned-norepeat.ckvt,window-norepeat.ckvt
    if part wordings; then
        python3 "$root/scripts/other_wordings.py" $c.jsonl >wordings-$c.jsonl
        score scores-wordings-$c.jsonl wordings-$c.jsonl 12 0.0625,0.125,0.25 learned.ckvt,window.ckvt $few
    fi
done
if part lengths; then # held-out prompts that share no 13 words with one that the table comes from
    for c in technical narrative; do grep -F -m "$n" '"split":"fit"' $c.jsonl; done >seen.jsonl
    for lengths in ${LENGTHS:-480:544:80:narrative 3600:4000:24 7600:8000:24}; do # SHORTEST:LONGEST:PROMPTS[:narrative]
        IFS=: read -r shortest longest prompts narrative <<<"$lengths"
        corpora "length-$longest" "$prompts" "$shortest" "$longest" "technical $narrative"
        for c in technical $narrative; do
            grep -F '"split":"heldout"' "length-$longest/$c-all.jsonl" | sed 's/"split":"heldout"/"split":"long"/' >"length-$longest/$c-long.jsonl"
            "$ckvc" manifest check --force "length-$longest/$c-long.jsonl" --against seen.jsonl --clean "length-$longest/$c-clean.jsonl" >/dev/null || [ $? -eq 1 ]
            sed 's/"split":"long"/"split":"heldout"/' "length-$longest/$c-clean.jsonl" >"length-$longest/$c-heldout.jsonl"
            # a prompt twice is beyond the context of many models: without kvzip, for which all prompts would be cut
            score "scores-$longest-$c.jsonl" "length-$longest/$c-heldout.jsonl" "$held" 0.0625,0.125,0.25 learned.ckvt,window.ckvt \
                "$([ "$longest" -le 4000 ] && echo $few || echo ${few/kvzip,/})"
        done
    done
fi
for c in technical narrative; do # the references with shares beside the others
    if part main && part shares; then python3 "$root/scripts/results_budgets.py" scores-$c.jsonl,scores-shares-$c.jsonl; fi
done
python3 "$root/scripts/results_budgets.py" scores-*.jsonl
! part main || python3 "$root/scripts/results_budgets.py" --spearman demand-technical demand-narrative || echo "rho of the shares needs h5py and HDF5_PLUGIN_PATH"
