#!/usr/bin/env bash
# Tests the paper's claims at its own hyper-parameters, on loss and on tasks: scripts/results-paper.sh CKVC MODEL OUTDIR [OTHER]
#
# PARTS names what to do:
#   full       compiles with 20 x 4 cells, W = 64, C = 128, 29 weights and 21 thresholds, on all prompts of two corpora that are fitted on, some 670 each;
#              scores tables and controls on those held out; makes the report with the diagnostics of the paper's figure 1
#   ablations  finds needles under the table without each of its parts, and under alpha = 0
#   needles    finds needles of length x depth at T/8 and T/4 under that table, under one by demand, and under references
#   probes     runs the paper's loops with another compiler, from PROBED prompts, on loss and needles
#   depths     puts shares by demand of MODEL on OTHER, the embedded 4-layer model, those of OTHER on MODEL, and those of SMOLLM2, a GGUF file, on both;
#              controls are equal shares and the model's own, shuffled among its heads; finds needles on MODEL
#   transfer   puts the paper's tables of FROM, which is an OUTDIR of another model, on MODEL, beside the tables that `full` made here, on loss and needles
#   efficiency measures the full cache, the cache under that table and under SnapKV: bytes, memory and times at batch 1 to 16
# The first five are done where PARTS is not set. docs/paper.md, section 14, has the settings for a model of 8 billion weights:
#   CORPORA    names the two corpora; where OUTDIR has NAME.jsonl and NAME-leaks.json, these prompts are taken, else the recipes of data-manifests
#   BUDGET     stands for all budgets, and BINS for the cells of the probes
#   NEEDLES, LENGTHS, COUNT, RULES are tasks, their lengths, the items of each, and the references on tasks
# Finished files are not made again, and runs that have begun go on. The embedded 8-layer model takes about half an hour of two cores with
# VARIANTS=24.
set -euo pipefail
ckvc=$(realpath "${1:?usage: results-paper.sh CKVC MODEL OUTDIR [OTHER]}")
model=$(realpath "${2:?usage: results-paper.sh CKVC MODEL OUTDIR [OTHER]}")
root=$(cd "$(dirname "$0")/.." && pwd)
other=$(realpath "${4:-$root/models/ckvc-tiny-4l}")
smollm2=${SMOLLM2:+$(realpath "$SMOLLM2")} from=${FROM:+$(realpath "$FROM")}
mkdir -p "${3:?usage: results-paper.sh CKVC MODEL OUTDIR [OTHER]}"
cd "$3"
parts=" ${PARTS:-full ablations needles probes depths} "
read -r first second <<<"${CORPORA:-technical narrative}"
paper=(-t "${THREADS:-2}" --config "$root/configs/paper.conf" --model "$model" -B "${BUDGET:-0.25}")
controls=no-utility,no-threshold,mean-gate,mean-pool,head-only,gate-only,identity
needles=${NEEDLES:-niah,niah-single-2,niah-multikey-1} # what the embedded model can do of them

part() { [[ $parts == *" $1 "* ]]; }
made() { # FILE COMMAND...: unless it is there
    local file=$1
    shift
    [ -e "$file" ] || "$@"
}
resume() { [ ! -e "$1" ] || echo --resume; } # CHECKPOINT: a word or none
# shellcheck disable=SC2046
logged() { # RUN CORPUS OPTION...
    local run=$1 corpus=$2
    shift 2
    [ -e "$run.done" ] || { "$ckvc" calibrate -q "${paper[@]}" --variants "${VARIANTS:-256}" --manifest "$corpus.jsonl" --split fit --leak-check "$corpus-leaks.json" --out "$run" \
        $(resume "$run/run.json") "$@" && touch "$run.done"; }
}
# shellcheck disable=SC2046
compiled() { # RUN OPTION...
    made "$1/table.ckvt" "$ckvc" compile -q "${@:2}" --out "$1" $(resume "$1/run.json")
}
# shellcheck disable=SC2046
eval_() { # OUT LENGTHS COUNT TABLES POLICIES BUDGETS
    [ -e "$1" ] || "$ckvc" eval -t "${THREADS:-2}" --model "$model" --tasks "$needles" --lengths "${LENGTHS:-$2}" --count "${COUNT:-$3}" --table "$4" --policy "$5" \
        -B "${BUDGET:-$6}" --out "$1" $(resume "$1.checkpoint")
}
# shellcheck disable=SC2046
scored() { # OUT CORPUS TABLES OPTION...
    made "$1" "$ckvc" score -q "${paper[@]}" --manifest "$2.jsonl" --split heldout --limit "${HELDOUT:-0}" --table "$3" "${@:4}" --out "$1" \
        $(resume "$1.checkpoint")
}

made "$first-leaks.json" "$root/scripts/corpora.py" --newer --cut ckvc-tiny-8l "$ckvc" . "$first" "$second" prompts=900 continuation=128 split-share=heldout=0.2
corpora=
! part ablations && ! part needles && ! part efficiency || corpora=$first
! part full && ! part transfer || corpora="$first $second"
for c in $corpora; do
    logged "run-$c" "$c"
    made "$c.ckvt" "$ckvc" fit "run-$c" -q --config "$root/configs/paper.conf" --label "$c" --out "$c.ckvt"
    made "$c-a0.ckvt" "$ckvc" fit "run-$c" -q --config "$root/configs/paper.conf" --cql-alpha 0 --label "$c, alpha 0" --out "$c-a0.ckvt"
done
if part full; then
    for c in $corpora; do
        scored "scores-$c.jsonl" "$c" "$first.ckvt,$second.ckvt" --policy $controls,matched,window --utilities
        scored "others-$c.jsonl" "$c" "$c-a0.ckvt" --equal-tokens --policy identity,matched,sink-recent,window-pooled,snapkv,random
    done
    made report/report.html "$ckvc" report "$first.ckvt" "$second.ckvt" "$first-a0.ckvt" "$second-a0.ckvt" "run-$first" "run-$second" --bootstrap 200 \
        --scores "scores-$first.jsonl,scores-$second.jsonl,others-$first.jsonl,others-$second.jsonl" --out report
fi
! part ablations || eval_ ablations.jsonl 400 12 "$first.ckvt,$first-a0.ckvt" $controls,snapkv,adakv 0.25,0.5,0.9
if part needles; then
    compiled demand -t "${THREADS:-2}" --model "$model" --manifest "$first.jsonl" --limit 120 -B "${BUDGET:-0.125,0.25}" --label demand
    eval_ needles.jsonl 256,512,1024 4 "demand/table.ckvt,$first.ckvt" "${RULES:-streamingllm,snapkv,pyramidkv,dynamickv,adakv,cake,chunkkv}" 0.125,0.25,0.5
fi
if part probes; then
    tables=
    for p in joint independent grid-search epsilon-greedy; do
        compiled probe-$p "${paper[@]}" --bins "${BINS:-3,2}" --variants "${VARIANTS:-256}" --manifest "$first.jsonl" --limit "${PROBED:-100}" \
            --leak-check "$first-leaks.json" --probe $p --label $p
        tables+=,probe-$p/table.ckvt
    done
    scored probes.jsonl "$first" "${tables#,}" --policy identity,matched
    eval_ probes-needles.jsonl 400 12 "${tables#,}" snapkv 0.25,0.5
fi
if part transfer; then
    for c in $corpora; do
        tables=$c.ckvt
        for h in index rank signature; do
            made "from-$c-$h.ckvt" "$ckvc" transfer "${from:?FROM is missing: an OUTDIR of another model}/$c.ckvt" --scan "run-$c" --heads $h --out "from-$c-$h.ckvt"
            tables+=,from-$c-$h.ckvt
        done
        scored "transfer-$c.jsonl" "$c" "$tables" --policy identity,matched
        eval_ "transfer-needles-$c.jsonl" 400 12 "$tables" snapkv 0.25
        # shellcheck disable=SC2086 # words
        made "report-transfer-$c/report.html" "$ckvc" report ${tables//,/ } --scores "transfer-$c.jsonl" --answers "transfer-needles-$c.jsonl" --out "report-transfer-$c"
    done
fi
! part efficiency || made costs.csv "$ckvc" eval -t "${THREADS:-2}" --model "$model" --tasks niah-single-2 --lengths "${LENGTHS:-1024}" --count 1 --table "$first.ckvt" \
    --policy snapkv -B "${BUDGET:-0.25}" --out costs.jsonl --force --cost costs.csv
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
        [ -e "$1.ckvt" ] || { "$ckvc" calibrate "${setting[@]}" --side demand --demand-floor "$3" --model "$2" --manifest "$first.jsonl" --split fit --limit "$4" --leak-check "$first-leaks.json" \
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
        for c in "$first" "$second"; do
            made "depths/$m-$c.jsonl" "$ckvc" score "${setting[@]}" --model "${models[$m]}" --manifest "$c.jsonl" --split heldout --limit 100 -C 64 -B 0.125,0.25,0.5 --table "$tables" \
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
