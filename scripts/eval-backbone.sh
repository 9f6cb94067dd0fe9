#!/usr/bin/env bash
# Makes tables for a backbone of the paper, or another, and a page of its scores: scripts/eval-backbone.sh NAME MODEL PROMPTS.jsonl OUTDIR [STEP...]
#
# NAME is llama-3-8b, mistral-7b-v0.2, qwen2-7b or internlm2.5-7b (the paper's), llama-3.1-8b, llama-3.2-3b, qwen2.5-7b, or tiny (an embedded model, in seconds).
# MODEL is its directory or GGUF file, which you fetch (the names below are the Hub's). PROMPTS.jsonl has prompts of the splits fit and heldout (docs/cli.md).
# Without a STEP, plan is done. The steps have to be done in this order:
#   plan       says how many hours and GB compile and eval take, by dry runs, which prefill the longest prompt once
#   compile    makes a table of budgets by demand, and one of the paper's, on PROMPTS
#   eval       lets the model find needles and answer RULER's tasks under the tables and the references, with the question seen and unseen, and measures costs
#   report     makes the page of all answers
#   kvpress    lets kvpress's own evaluation ask the same RULER items, question unseen, under the table and under its presses. KVPRESS names a checkout of
#              github.com/NVIDIA/kvpress, and PYTHON a Python with it and its extra `eval`
# BUDGETS (built in: 512 tokens and two shares), LENGTHS, COUNT, POLICIES, COMPUTE (f32 or bf16), BACKEND and THREADS change what is done. The policies headkv,
# evolkv and duoattention need the shares of a table, which the paper's table does not have. Finished files are not made again, and runs that have begun go on.
#
# Nothing of this was run on models of 7 to 8 billion weights, which no machine at hand holds. tests/cli/eval.bats runs it on an embedded model. The step kvpress
# was run by hand on that model with kvpress 0.5.5: one item each under the presses ckvc and snapkv, with bert_score stubbed and OMP_NUM_THREADS=1.
set -euo pipefail
usage() { sed -n '4,5s/^# *//p; 2s/^# .*: /usage: /p' "$0" >&2; exit 64; }
[ $# -ge 4 ] || usage
root=$(cd "$(dirname "$0")/.." && pwd)
ckvc=$(command -v "${CKVC:-ckvc}") || { echo "eval-backbone: no such program: ${CKVC:-ckvc}" >&2; exit 69; }
name=$1 model=$2 prompts=$3 out=$4
shift 4
[ $# -gt 0 ] || set -- plan
chat=(--chat) window=64 continuation=128 count=${COUNT:-20}
case $name in # length of the longest prompts: what the context leaves to question and answer, 16k at most as in the paper's RULER
llama-3-8b) hub=meta-llama/Meta-Llama-3-8B-Instruct lengths=4096,7600 ;;
mistral-7b-v0.2) hub=mistralai/Mistral-7B-Instruct-v0.2 lengths=4096,8192,16384 ;;
qwen2-7b) hub=Qwen/Qwen2-7B-Instruct lengths=4096,8192,16384 ;;
internlm2.5-7b) hub=internlm/internlm2_5-7b-chat lengths=4096,8192,16384 ;;
llama-3.1-8b) hub=meta-llama/Llama-3.1-8B-Instruct lengths=4096,8192,16384 ;;
llama-3.2-3b) hub=meta-llama/Llama-3.2-3B-Instruct lengths=4096,8192,16384 ;;
qwen2.5-7b) hub=Qwen/Qwen2.5-7B-Instruct lengths=4096,8192,16384 ;;
tiny) hub="models/ckvc-tiny-8l of this repository" lengths=400 window=16 continuation=16 count=${COUNT:-1} chat=() ;;
*) usage ;;
esac
[ -e "$model" ] || { echo "eval-backbone: $model is not there; fetch $hub" >&2; exit 66; }
mkdir -p "$out"
lengths=${LENGTHS:-$lengths} budgets=${BUDGETS:-512,0.125,0.25}
policies=${POLICIES:-streamingllm,h2o,snapkv,pyramidkv,dynamickv,adakv,cake,chunkkv,fastkv,expected-attention,tova,keydiff,random}
machine=(--model "$model" --compute "${COMPUTE:-f32}" --backend "${BACKEND:-auto}" -W "$window" ${THREADS:+-t "$THREADS"})
say() { printf '\n== %s\n' "$*"; }

compile() { # OUT OPTION...
    local run=$1 resume=()
    shift
    [ ! -e "$run/run.json" ] || resume=(--resume)
    [ -e "$run/table.ckvt" ] || "$ckvc" compile "${machine[@]}" -C "$continuation" --manifest "$prompts" --budget "$budgets" --out "$run" "${resume[@]}" "$@"
}
tables() { # those that there are: a plan is made before any
    local list
    list=$(ls "$out"/{demand,paper}/table.ckvt 2>/dev/null | paste -sd,) || true
    [ -z "$list" ] || printf '%s\n' --table "$list"
}
answers() { # OUT SEEN|UNSEEN TASKS OPTION...
    local lines=$out/$1.jsonl of_tables query=$2 tasks=$3 resume=()
    shift 3
    mapfile -t of_tables < <(tables)
    [ ! -e "$lines.checkpoint" ] || resume=(--resume)
    [ -e "$lines" ] || "$ckvc" eval "${machine[@]}" "${chat[@]}" "${of_tables[@]}" --policy "$policies" --budget "$budgets" --query "$query" --tasks "$tasks" \
        --count "$count" --out "$lines" "${resume[@]}" "$@"
}
each_task() { # OPTION...: of every set of answers
    local query
    for query in seen unseen; do
        answers "needles-$query" "$query" needle --lengths "$lengths" "$@"
        answers "ruler-$query" "$query" ruler --lengths "$lengths" "$@"
    done
}

for step; do
    case $step in
    plan)
        say "$name ($hub): compile, by demand"
        compile "$out/demand" --dry-run
        say "and by the paper's rewards"
        compile "$out/paper" --config paper --dry-run
        say "eval, set by set (without tables that are not there yet)"
        each_task --dry-run
        ;;
    compile)
        compile "$out/demand" --label "$name, by demand"
        compile "$out/paper" --config paper --label "$name, as the paper"
        ;;
    eval)
        each_task
        answers costs seen niah-single-2 --lengths "$lengths" --count 1 --cost "$out/costs.csv"
        ;;
    report)
        scores=()
        for t in demand paper; do scores+=("$(ls "$out/$t"/heldout/*.jsonl | tail -n 1)"); done
        "$ckvc" report "$out"/{demand,paper}/table.ckvt --scores "$(IFS=, && echo "${scores[*]}")" --answers "$(ls "$out"/{needles,ruler}-{seen,unseen}.jsonl 2>/dev/null | paste -sd,)" --out "$out/report"
        ;;
    kvpress)
        : "${KVPRESS:?a checkout of github.com/NVIDIA/kvpress}"
        "$ckvc" eval "${machine[@]}" "${chat[@]}" --tasks ruler --lengths "$lengths" --count "$count" --items "$out/ruler-items.jsonl" --force --dry-run >/dev/null
        for press in no_press ckvc snapkv pyramidkv adakv_snapkv expected_attention; do
            "${PYTHON:-python3}" "$root/python/examples/harness_kvpress.py" "$KVPRESS" "$out/demand/table.ckvt" "$out/ruler-items.jsonl" --dataset ckvc \
                --model "$model" --press_name "$press" --compression_ratio 0.75 --output_dir "$out/kvpress"
        done
        ;;
    *) usage ;;
    esac
done
