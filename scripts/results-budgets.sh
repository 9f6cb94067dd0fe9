#!/usr/bin/env bash
# Makes the numbers of docs/results.md and docs/findings.md on budgets per head and learned rankings: scripts/results-budgets.sh CKVC MODEL
# OUTDIR
#
# MODEL is what `make model-smollm2` fetched, or another model. PARTS names what to do:
#   main      makes a table from PROMPTS technical prompts by a demand pass, and one of the demand of as many narrative prompts; scores HELDOUT prompts
#             of both corpora under the tables and the references at equal kept entries
#   shares    scores references that need a table's shares
#   wide      takes budgets from a few tokens to half of the prompt
#   lengths   scores the table as it is on prompts of other lengths (LENGTHS)
#   norepeat  makes the pass without its repetition
#   probes    (of a small model) puts the paper's weights on top of budgets by demand
#   fresh     compiles what is recommended on the demo's corpora, and scores it on prompts of other packages and wordings that chose nothing;
#             this is to be run once
# CUT is the cut of the recipes in data-manifests, and CHANGES says what is changed in it. Finished parts are not made again, and runs that
# have begun go on. All of it takes two hours of one core.
#
# For the embedded models: PARTS="main shares" CUT=ckvc-tiny-8l CHANGES="prompts=100 split-share=heldout=0.3" PROMPTS=0 HELDOUT=0
# BUDGETS=0.0625,0.125,0.25,0.5 WINDOW=32 CONTINUATION=64 scripts/results-budgets.sh CKVC models/ckvc-tiny-8l OUTDIR, and PARTS=fresh CUT=ckvc-tiny-8l
# WINDOW=32 CONTINUATION=64 with an OUTDIR of its own.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-budgets.sh CKVC MODEL OUTDIR}")
model=$(realpath "${2:?usage: results-budgets.sh CKVC MODEL OUTDIR}")
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${3:?usage: results-budgets.sh CKVC MODEL OUTDIR}"
cd "$3"
parts=" ${PARTS:-main shares wide lengths norepeat} "
n=${PROMPTS:-24} held=${HELDOUT:-20} budgets=${BUDGETS:-64,0.0625,0.125,0.25} threads=${THREADS:-1} window=${WINDOW:-64} continuation=${CONTINUATION:-96}
cut=${CUT:-smollm2-135m}
few=adakv,snapkv,cake,tova,kvzip,streamingllm

part() { [[ $parts == *" $1 "* ]]; }
corpora() { # OUTDIR CORPORA [KEY=VALUE...]
    local out=$1 names=$2
    shift 2
    [ -e "$out/${names%% *}-leaks.json" ] || "$root/scripts/corpora.py" --cut "$cut" "$ckvc" "$out" $names "$@"
}
pass() { # RUN SIDE CORPUS OPTION...
    local run=$1 side=$2 corpus=$3 resume=()
    shift 3
    [ ! -e "$run/run.json" ] || resume=(--resume)
    "$ckvc" calibrate -q -t "$threads" --side "$side" --demand-floor 0.2 --model "$model" --manifest "$corpus.jsonl" --split fit --limit "$n" -W "$window" -C "$continuation" \
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

# shellcheck disable=SC2086 # words
corpora . "technical narrative" ${CHANGES:-}
others=${parts/ probes / } # which makes its own tables
if [ ! -e learned.ckvt ] && [ "$others" != " " ] && [ "$others $cut" != " fresh  ckvc-tiny-8l" ]; then
    pass demand-technical demand technical -B "$budgets"
    pass score-technical score technical
    fit window.ckvt demand-technical
    fit learned.ckvt demand-technical score-technical
fi
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
done
if part lengths; then # held-out prompts that share no 13 words with one that the table comes from
    for c in technical narrative; do grep -F -m "$n" '"split":"fit"' $c.jsonl; done >seen.jsonl
    for lengths in ${LENGTHS:-480:544:80:narrative 3600:4000:24 7600:8000:24}; do # SHORTEST:LONGEST:PROMPTS[:narrative]
        IFS=: read -r shortest longest prompts narrative <<<"$lengths"
        corpora "length-$longest" "technical $narrative" prompts="$prompts" min-length="$shortest" max-length="$longest" against="technical${narrative:+,$narrative}"
        for c in technical $narrative; do
            grep -F '"split":"heldout"' "length-$longest/$c-all.jsonl" | sed 's/"split":"heldout"/"split":"long"/' >"length-$longest/$c-long.jsonl"
            "$ckvc" manifest check --force "length-$longest/$c-long.jsonl" --against seen.jsonl --clean "length-$longest/$c-clean.jsonl" >/dev/null || [ $? -eq 1 ]
            sed 's/"split":"long"/"split":"heldout"/' "length-$longest/$c-clean.jsonl" >"length-$longest/$c-heldout.jsonl"
            # SmolLM2's 8,192 positions hold a prompt and the 2,048 of it that kvzip repeats at a time up to some 6,100: beyond, without kvzip, for which all prompts would be cut
            score "scores-$longest-$c.jsonl" "length-$longest/$c-heldout.jsonl" "$held" 0.0625,0.125,0.25 learned.ckvt,window.ckvt \
                "$([ "$longest" -le 6000 ] && echo $few || echo ${few/kvzip,/})"
        done
    done
fi
compiled() { # RUN MANIFEST OPTION...: made as one would for a model of one's own
    local run=$1 manifest=$2 resume=()
    shift 2
    [ ! -e "$run/run.json" ] || resume=(--resume)
    [ -e "$run/table.ckvt" ] || "$ckvc" compile -q -t "$threads" --model "$model" --manifest "$manifest" -W "$window" -C "$continuation" -B 0.0625,0.125,0.25 --label "$run" \
        --out "$run" "${resume[@]}" "$@"
}
fresh() { # OUT CORPUS TABLES OPTION...
    local out=$1 c=$2 tables=$3
    shift 3
    [ -e "$out-$c.jsonl" ] || "$ckvc" score -q -t "$threads" --model "$model" --manifest "fresh/fresh-$c.jsonl" -W "$window" -C "$continuation" -B 0.0625,0.125,0.25 \
        --table "$tables" "$@" --out "$out-$c.jsonl"
}
if part fresh; then
    corpora fresh "fresh-technical fresh-narrative"
    rules=adakv,snapkv,cake,expected-attention,tova,streamingllm,kvzip,window-pooled,random,identity
    if [ "$cut" = smollm2-135m ]; then
        tables=learned.ckvt,window.ckvt
    else # by demand; the paper's tables, by its values and by ours; as make demo-full, with T/16
        for c in technical narrative; do
            compiled "compiled-$c" $c.jsonl
            compiled "paper-$c" $c.jsonl --config "$root/configs/paper.conf" --bins 3,2
            compiled "shared-$c" $c.jsonl --config "$root/configs/shared.conf" --keep-window 16
            compiled "demo-$c" $c.jsonl --config "$root/configs/demo.conf"
        done
        tables=compiled-technical/table.ckvt,compiled-narrative/table.ckvt
    fi
    for c in technical narrative; do
        fresh scores-fresh $c "$tables" --policy $rules
        fresh scores-fresh-alike $c "${tables%%,*}" --policy pooled,top-k,matched # the table's own capacities, or its entries
        [ "$cut" = smollm2-135m ] || fresh scores-fresh-demo $c demo-technical/table.ckvt,demo-narrative/table.ckvt --policy adakv
        [ "$cut" = smollm2-135m ] || for k in paper shared; do
            options=(--config "$root/configs/$k.conf")
            [ $k = paper ] || options+=(--keep-window 16)
            fresh "scores-fresh-$k" $c $k-technical/table.ckvt,$k-narrative/table.ckvt "${options[@]}" --policy identity,matched
            fresh "scores-fresh-$k-alike" $c $k-technical/table.ckvt "${options[@]}" --equal-tokens --policy top-k,window-pooled,random
        done
    done
    show() { # NAMES KIND...: each corpus, both, both by retrieval and text, the files of these kinds together
        local names=$1 t="" a=""
        shift
        for k in "$@"; do t+=,scores-fresh$k-technical.jsonl a+=,scores-fresh$k-narrative.jsonl; done
        python3 "$root/scripts/results_budgets.py" --names "$names" "${t#,}" "${a#,}" "${t#,}$a"
        for only in retrieval '!retrieval'; do python3 "$root/scripts/results_budgets.py" --names "$names" --only "$only" "${t#,}" "${a#,}"; done
    }
    if [ "$cut" = smollm2-135m ]; then
        show "$tables" "" -alike
    else
        show "${tables//\/table.ckvt/},demo-technical,demo-narrative" "" -alike -demo
        for k in paper shared; do show "$k-technical,$k-narrative" "-$k" "-$k-alike"; done
    fi
fi
probe() { # OUT TABLES OPTION...
    local out=$1 tables=$2
    shift 2
    for c in technical narrative; do
        [ -e "scores-$out-$c.jsonl" ] || "$ckvc" score -q -t "$threads" --model "$model" --manifest $c.jsonl --split heldout -W "$window" -C "$continuation" \
            --table "$tables" "$@" --out "scores-$out-$c.jsonl"
    done
}
if part probes; then
    compiled probe technical.jsonl
    cp probe/table.ckvt demand.ckvt
    [ -e weights.ckvt ] || { "$ckvc" calibrate -q -t "$threads" --side head --model "$model" --manifest technical.jsonl --split fit -W "$window" -C "$continuation" \
        -B 0.0625,0.125,0.25 --bins 1,1 --out run-weights && "$ckvc" fit -q probe run-weights --pass 1 --out weights.ckvt; }
    for mode in layers shared; do probe "weights-$mode" demand.ckvt,weights.ckvt --mode $mode --ranking paper; done
fi
for c in technical narrative; do # the references with shares beside the others
    if part main && part shares; then python3 "$root/scripts/results_budgets.py" scores-$c.jsonl,scores-shares-$c.jsonl; fi
done
[[ $parts == " fresh " ]] || python3 "$root/scripts/results_budgets.py" scores-[!f]*.jsonl
! part main || CKVC=$ckvc python3 "$root/scripts/results_budgets.py" --spearman demand-technical demand-narrative
