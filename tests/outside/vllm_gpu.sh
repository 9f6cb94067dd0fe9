#!/usr/bin/env bash
# ckvc in vLLM on a GPU: FLASH_ATTN, with and without CUDA graphs, under the model runners V1 and V2, and on two GPUs where there are two. It has not been run yet.
# Usage: vllm_gpu.sh MODEL TABLE [PROMPTS.jsonl], in an environment with `pip install './python[vllm,hf]'`. TABLE is made for MODEL with --features 2.
# In bfloat16 two programs' keys differ by a rounding, so scores, sets and log probabilities do too. The bounds below were chosen before any run.
set -uo pipefail
cd "$(dirname "$0")/../.."
options=(--model "${1:?a model}" --table "${2:?its table}" --dtype bfloat16 --device cuda --close 0.1 --tie 0.5 --apart 0.02 ${3:+--prompts "$3"})
failed=0
gpus=$(nvidia-smi -L | wc -l)
for runner in 0 1; do
    for eager in 1 0; do
        for n in 1 2; do
            [ "$n" -le "$gpus" ] || continue
            echo "== model runner V$((runner + 1)), CUDA graphs: $((1 - eager)), GPUs: $n"
            VLLM_USE_V2_MODEL_RUNNER=$runner python3 tests/outside/vllm_engine.py "${options[@]}" --eager "$eager" --gpus "$n" || failed=1
        done
    done
done
exit "$failed"
