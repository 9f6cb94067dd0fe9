#!/usr/bin/env bash
# Tests the paper's claims at its own hyper-parameters, on loss and on tasks: scripts/results-paper.sh CKVC MODEL OUTDIR [OTHER]
#
# PARTS names what to do:
#   full       compiles with 20 x 4 cells, W = 64, C = 128, 29 weights and 21 thresholds, on all technical and narrative prompts that are fitted on, some
#              670 each; scores tables and controls on those held out; makes the report with the diagnostics of the paper's figure 1
#   ablations  finds needles under the table without each of its parts, and under alpha = 0
#   needles    finds needles of length x depth at T/8 and T/4 under that table, under one by demand, and under references
#   probes     runs the paper's loops with another compiler, from PROBED prompts, on loss and needles
#   depths     puts shares by demand of MODEL on OTHER, the embedded 4-layer model, those of OTHER on MODEL, and those of SMOLLM2, a GGUF file, on both;
#              controls are equal shares and the model's own, shuffled among its heads; finds needles on MODEL
# Finished files are not made again, and runs that have begun go on. The embedded 8-layer model takes about half an hour of two cores with
# VARIANTS=24.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-paper.sh CKVC MODEL OUTDIR [OTHER]}")
model=$(realpath "${2:?usage: results-paper.sh CKVC MODEL OUTDIR [OTHER]}")
root=$(cd "$(dirname "$0")/.." && pwd)
other=$(realpath "${4:-$root/models/ckvc-tiny-4l}")
smollm2=${SMOLLM2:+$(realpath "$SMOLLM2")}
mkdir -p "${3:?usage: results-paper.sh CKVC MODEL OUTDIR [OTHER]}"
cd "$3"
parts=" ${PARTS:-full ablations needles probes depths} "
paper=(-t "${THREADS:-2}" --config "$root/configs/paper.conf" --model "$model" -B 0.25)
controls=no-utility,no-threshold,mean-gate,mean-pool,head-only,gate-only,identity
needles=${NEEDLES:-niah,niah-single-2,niah-multikey-1} # what the embedded model can do of them

part() { [[ $parts == *" $1 "* ]]; }
made() { # FILE COMMAND...: unless it is there
    local file=$1
    shift
    [ -e "$file" ] || "$@"
}
logged() { # RUN CORPUS OPTION...
    local run=$1 corpus=$2 resume=()
    shift 2
    [ ! -e "$run/run.json" ] || resume=(--resume)
    [ -e "$run.done" ] || { "$ckvc" calibrate -q "${paper[@]}" --variants "${VARIANTS:-256}" --manifest "$corpus.jsonl" --split fit --leak-check "$corpus-leaks.json" --out "$run" \
        "${resume[@]}" "$@" && touch "$run.done"; }
}
eval_() { # OUT LENGTHS TABLES POLICIES BUDGETS [OPTION...]
    [ -e "$1" ] || "$ckvc" eval -t "${THREADS:-2}" --model "$model" --tasks "$needles" --lengths "$2" --count 4 --table "$3" --policy "$4" -B "$5" --out "$1" "${@:6}"
}

made technical-leaks.json "$root/scripts/corpora.py" --newer --cut ckvc-tiny-8l "$ckvc" . technical narrative prompts=900 continuation=128 split-share=heldout=0.2
corpora=
! part ablations && ! part needles || corpora=technical
! part full || corpora="technical narrative"
for c in $corpora; do
    logged "run-$c" "$c"
    made "$c.ckvt" "$ckvc" fit "run-$c" -q --config "$root/configs/paper.conf" --label "$c" --out "$c.ckvt"
    made "$c-a0.ckvt" "$ckvc" fit "run-$c" -q --config "$root/configs/paper.conf" --cql-alpha 0 --label "$c, alpha 0" --out "$c-a0.ckvt"
done
if part full; then
    for c in technical narrative; do
        made scores-$c.jsonl "$ckvc" score -q "${paper[@]}" --manifest $c.jsonl --split heldout --limit "${HELDOUT:-0}" --table technical.ckvt,narrative.ckvt \
            --policy $controls,matched,window --utilities --out scores-$c.jsonl
        made others-$c.jsonl "$ckvc" score -q "${paper[@]}" --manifest $c.jsonl --split heldout --limit "${HELDOUT:-0}" --table $c-a0.ckvt --equal-tokens \
            --policy identity,matched,sink-recent,window-pooled,snapkv,random --out others-$c.jsonl
    done
    made report/report.html "$ckvc" report technical.ckvt narrative.ckvt technical-a0.ckvt narrative-a0.ckvt run-technical run-narrative --bootstrap 200 \
        --scores scores-technical.jsonl,scores-narrative.jsonl,others-technical.jsonl,others-narrative.jsonl --out report
fi
! part ablations || eval_ ablations.jsonl 400 technical.ckvt,technical-a0.ckvt $controls,snapkv,adakv 0.25,0.5,0.9 --count 12
if part needles; then
    made demand/table.ckvt "$ckvc" compile -q -t "${THREADS:-2}" --model "$model" --manifest technical.jsonl --limit 120 -B 0.125,0.25 --label demand --out demand
    eval_ needles.jsonl 256,512,1024 demand/table.ckvt,technical.ckvt streamingllm,snapkv,pyramidkv,dynamickv,adakv,cake,chunkkv 0.125,0.25,0.5
fi
if part probes; then
    tables=
    for p in joint independent grid-search epsilon-greedy; do
        made probe-$p/table.ckvt "$ckvc" compile -q "${paper[@]}" --bins 3,2 --variants "${VARIANTS:-256}" --manifest technical.jsonl --limit "${PROBED:-100}" \
            --leak-check technical-leaks.json --probe $p --label $p --out probe-$p
        tables+=,probe-$p/table.ckvt
    done
    made probes.jsonl "$ckvc" score -q "${paper[@]}" --manifest technical.jsonl --split heldout --limit "${HELDOUT:-0}" --table "${tables#,}" --policy identity,matched --out probes.jsonl
    eval_ probes-needles.jsonl 400 "${tables#,}" snapkv 0.25,0.5 --count 12
fi
shuffled() { # TABLE OUT SEED: the shares of its heads, dealt out anew
    [ -e "$2" ] || { "$ckvc" export "$1" --force --format npz --out "$2.npz" && python3 - "$2.npz" "$3" <<'EOF' && "$ckvc" import "$2.npz" --format npz --out "$2"; }
import random, sys
import numpy
arrays = dict(numpy.load(sys.argv[1]))
rows = arrays["SHARE"].reshape(-1, arrays["SHARE"].shape[-1])  # heads of all layers; a column a budget
order = list(range(len(rows)))
random.Random(int(sys.argv[2])).shuffle(order)
arrays["SHARE"] = rows[order].reshape(arrays["SHARE"].shape)
numpy.savez(sys.argv[1], **arrays)
EOF
}
if part depths; then
    mkdir -p depths
    declare -A models=(["${model##*/}"]=$model ["${other##*/}"]=$other)
    [ -z "$smollm2" ] || models[smollm2]=$smollm2
    setting=(-q -t "${THREADS:-2}" -W 32)
    demand() { # OUT MODEL FLOOR PROMPTS
        local resume=()
        [ ! -e "$1/run.json" ] || resume=(--resume)
        [ -e "$1.ckvt" ] || { "$ckvc" calibrate "${setting[@]}" --side demand --demand-floor "$3" --model "$2" --manifest technical.jsonl --split fit --limit "$4" --leak-check technical-leaks.json \
            -C 64 -B 0.125,0.25,0.5 --out "$1" "${resume[@]}" && "$ckvc" fit -q "$1" --label "${1#depths/}" --out "$1.ckvt"; }
    }
    for m in "${!models[@]}"; do demand "depths/$m" "${models[$m]}" 0.2 64; done
    for m in "${model##*/}" "${other##*/}"; do
        demand "depths/equal-$m" "${models[$m]}" 1 1
        made "depths/own-$m.ckvt" "$ckvc" transfer "depths/$m.ckvt" --scan "depths/$m" --out "depths/own-$m.ckvt" # without its evidence, which would not fit
        tables=depths/$m.ckvt,depths/equal-$m.ckvt names=compiled,equal
        for k in 1 2 3; do
            shuffled "depths/own-$m.ckvt" "depths/shuffled-$m-$k.ckvt" $k
            tables+=,depths/shuffled-$m-$k.ckvt names+=,shuffled-$k
        done
        for from in "${!models[@]}"; do
            [ "$from" != "$m" ] || continue
            for h in index rank signature; do
                made "depths/$from-$m-$h.ckvt" "$ckvc" transfer "depths/$from.ckvt" --scan "depths/$m" --heads $h --out "depths/$from-$m-$h.ckvt"
                tables+=,depths/$from-$m-$h.ckvt names+=,$from-$h
            done
        done
        for c in technical narrative; do
            made "depths/$m-$c.jsonl" "$ckvc" score "${setting[@]}" --model "${models[$m]}" --manifest $c.jsonl --split heldout --limit 100 -C 64 -B 0.125,0.25,0.5 --table "$tables" \
                --policy adakv,snapkv,streamingllm --out "depths/$m-$c.jsonl"
            python3 "$root/scripts/results_budgets.py" --names "$names" "depths/$m-$c.jsonl"
        done
        [ "$m" = "${model##*/}" ] || continue # 4 layers find next to nothing in their full cache
        made depths/needles.jsonl "$ckvc" eval "${setting[@]}" --model "${models[$m]}" --tasks "$needles" --lengths 400 --count 12 --seed 20261122 -B 0.125,0.25,0.5 \
            --table "$tables" --policy adakv,snapkv --out depths/needles.jsonl
        # shellcheck disable=SC2086 # words
        "$ckvc" report -q ${tables//,/ } --answers depths/needles.jsonl --force --out tasks-depths
    done
fi
for answers in ablations needles probes-needles; do
    [ ! -e $answers.jsonl ] || "$ckvc" report --answers $answers.jsonl --force --out tasks-$answers
done
