#!/usr/bin/env bash
# The CUDA backend on a machine with one GPU, in twenty minutes, ten of them racecheck: builds, tests, checks and measures it, into one CSV (README.md).
#   tests/bench/gpu.sh OUT.csv            # needs the CUDA Toolkit, what `scripts/setup.sh` installs, 20 GB below TMPDIR
#   tests/bench/gpu.sh --dry OUT.csv      # the same steps with the emulation and a tiny shape, anywhere: whether this script is right
# Settings, from the environment: LAYERS (of LLaMA-3-8B's shape, 32), TOKENS (8192), CONTINUATION (128), BUDGET (1024), VARIANTS (256), PYTHON (with torch,
# for the rows beside), SKIP (steps by name: build test sanitize measure stream).
# A step that fails is said and counted at the end; the others run.
set -uo pipefail
cd "$(dirname "$0")/../.."
dry=
[ "${1:-}" != --dry ] || { dry=1; shift; }
[ $# -eq 1 ] || { echo "usage: tests/bench/gpu.sh [--dry] OUT.csv" >&2; exit 2; }
out=$(realpath -m "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/ckvc-gpu-XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=
python=${PYTHON:-python3} continuation=${CONTINUATION:-128} variants=${VARIANTS:-256}
if [ -n "$dry" ]; then
    b=build/release ckvc=build/release/emulated/ckvc tests=build/release/emulated/tests tokens=${TOKENS:-128} budget=${BUDGET:-32} continuation=16 variants=4 window=16
    shape=(2 6 3 32 96 128 512) large=(4 16 2 16 128 448 512) device="emulated"
else
    b=build/gpu ckvc=build/gpu/ckvc tests=build/gpu/tests tokens=${TOKENS:-8192} budget=${BUDGET:-1024} window=64
    shape=("${LAYERS:-32}" 32 8 128 4096 14336 128256) large=(8 64 8 128 8192 28672 128256)
    device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 | tr ',' ' ') || exit 69
fi
say() { echo "gpu.sh: $SECONDS s: $*" >&2; }
step() { # NAME COMMAND...
    [[ " ${SKIP:-} " != *" $1 "* ]] || { say "$1: left out"; return 0; }
    say "$1"
    "${@:2}" || { say "$1: FAILED"; failed+=" $1"; }
}
rows() { awk -v tail="$device,$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" '{ print $0 "," tail }' >>"$out"; }

programs=(lib/backend/test_backend_cuda lib/backend/test_cuda_host lib/backend/test_backend_cpu lib/backend/test_attention_error lib/model/test_model_golden lib/model/test_decoder lib/model/test_together judge/policies/test_published_sets)
build() {
    if [ -n "$dry" ]; then
        make -j"$(nproc)" all emulated $b/tools/make_model build/release/emulated/ckvc-bench >&2
    else
        arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
        [ "$arch" != 90 ] || arch=90a
        make -j"$(nproc)" CUDA=1 CUDA_ARCHS="$arch" B=$b all $b/tools/make_model $b/ckvc-bench $(printf "$tests/%s " "${programs[@]}") >&2 &&
            PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin nvcc -std=c++17 -arch="sm_$arch" -I. -o $tests/test_emulation tests/emulation/test_emulation.cu -lcmocka
    fi
}
try() {
    local bad=0
    for t in test_emulation "${programs[@]}"; do
        CKVC_TEST_BACKEND=cuda "$tests/$t" >"$work/test.txt" 2>&1 || { cat "$work/test.txt" >&2; bad=1; }
        grep -E ' of .* bf16 ' "$work/test.txt" >&2 # the errors seen, beside their bounds
    done
    "$python" tests/emulation/beside_cpu.py "$ckvc" >&2 || bad=1
    return $bad
}
sanitize() {
    local tool bad=0 under=()
    printf '{"id":"a","tokens":[%s]}\n' "$(seq -s, 5 90)" >"$work/short.jsonl"
    for tool in memcheck initcheck racecheck; do
        if [ -z "$dry" ]; then
            command -v compute-sanitizer >/dev/null || { say "compute-sanitizer is not on the path"; return 1; }
            under=(compute-sanitizer --tool "$tool" --error-exitcode 9 --log-file "$work/$tool.txt")
        fi
        for compute in f32 bf16; do
            say "$tool $compute"
            "${under[@]}" "$ckvc" score --model models/ckvc-tiny-4l --manifest "$work/short.jsonl" --window 16 --continuation 8 --policy full,snapkv,kvzip \
                --budget 24 --backend cuda --compute $compute -q >/dev/null || { bad=1; tail -n 20 "$work/$tool.txt" >&2; }
            "${under[@]}" "$ckvc" generate --model models/ckvc-tiny-4l --manifest "$work/short.jsonl" --policy snapkv --budget 24 --window 16 --max-new 4 \
                --backend cuda --compute $compute -q >/dev/null || { bad=1; tail -n 20 "$work/$tool.txt" >&2; }
        done
        [ -z "$dry" ] || break
    done
    return $bad
}
prompts() { # N VOCAB: random ids, the longest that fit
    awk -v prompts="$1" -v n="$((tokens - 64))" -v vocab="$2" 'BEGIN { s = 7; for (p = 0; p < prompts; p++) { line = "{\"id\":\"p" p "\",\"tokens\":["
        for (t = 0; t < n; t++) { s = (s * 1103515245 + 12345) % 2147483648; line = line (t ? "," : "") s % vocab }; print line "]}" } }'
}
measure() {
    local bad=0
    $b/tools/make_model "$work/model" "${shape[@]}" || return 1
    say "weights written"
    "$ckvc-bench" --model "$work/model" --backend cuda --compute bf16 --max-tokens $((tokens - continuation)) --continuation "$continuation" --budget "$budget" --window $window \
        --variants "$variants" --repeats 3 --stage matmul,attention,prefill,demand,sweep,rewards-sweep >"$work/bench.csv" || bad=1
    # each stage with its operations a second and their share of the matmul stage's; the demand pass in prefills, token for token
    sed '1,2d; s/^/ckvc,/' "$work/bench.csv" | awk -F, '{ print $1 "," $2 "," $3 "," $5 "," $7 "," $9 "," ($10 ? sprintf("%.4g TFLOP/s; share %s; ", $10 / $7 / 1000, $11) : "") $12
        rate[$2] = $9 } END { if (rate["demand"]) { printf "ckvc,demand-in-prefills,,prefills,,%.3g,of at most 4\n", rate["prefill"] / rate["demand"] } }' | rows
    prompts 16 "${shape[6]}" >"$work/prompts.jsonl"
    for batch in 1 16; do
        "$ckvc" generate --model "$work/model" --manifest "$work/prompts.jsonl" --limit "$batch" --batch "$batch" --max-new 32 --policy snapkv --budget "$budget" \
            --window $window --compare --backend cuda --compute bf16 --json -q >"$work/texts.jsonl" || bad=1
        "$python" - "$work/texts.jsonl" "$batch" "$tokens" <<'PY' | rows
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for policy in ("full", "snapkv"):
    one = [r for r in rows if r["policy"] == policy]
    bytes_held = sum(r["cache_bytes"] for r in one)
    print(f"ckvc,generate,batch={sys.argv[2]} T={sys.argv[3]} {policy},tokens,{one[0]['decode_s']:.6g},{one[0]['tokens_per_s']:.6g},{1000 / one[0]['tokens_per_s']:.4g} ms a token of each; {bytes_held} bytes held")
PY
    done
    if "$python" -c 'import torch' 2>/dev/null; then
        "$python" tests/bench/gpu_pytorch.py "${shape[@]}" $((tokens - continuation)) ${dry:+cpu} | rows || bad=1
    else
        say "no torch: no rows beside (PYTHON=...)"
    fi
    return $bad
}

# Eight layers of LLaMA-3-70B's shape, of which --memory leaves room for half at most, so that they are copied as a larger model's are: prompts per second
# of a pass of demand without a repetition (a prompt goes twice through the layers), from two runs that differ in prompts alone; and the plan's roofline.
stream() {
    local n plan memory seconds=() few=8 many=40 layers=${large[0]}
    [ -z "$dry" ] || { few=2 many=6; }
    rm -rf "$work/model"
    $b/tools/make_model "$work/large" "${large[@]}" || return 1
    prompts "$many" "${large[6]}" >"$work/prompts.jsonl"
    local pass=("$ckvc" calibrate --model "$work/large" --manifest "$work/prompts.jsonl" --side demand --no-repeat --max-tokens "$tokens" --window "$window"
        --continuation "$continuation" --budget 0.25 --backend cuda --compute bf16)
    memory=$("${pass[@]}" --memory 1M --out "$work/none" --dry-run 2>&1 | sed -n 's/.*needs \([0-9.]*\) MB at least.*/\1/p')
    memory=$(awk -v m="$memory" -v file="$(stat -c %s "$work/large/model.safetensors")" 'BEGIN { printf "%dK", (m * 1e6 + file / 4) / 1024 }')
    plan=$("${pass[@]}" --memory "$memory" --out "$work/none" --dry-run 2>/dev/null | sed -n '/do not stay/,$p' | tr -s ' \n,' '  ;')
    [ -n "$plan" ] || { say "stream: with --memory $memory all copies stay"; return 1; }
    for n in "$few" "$many"; do
        local start=$EPOCHREALTIME
        "${pass[@]}" --memory "$memory" --limit "$n" --out "$work/stream-$n" -q >/dev/null || return 1
        seconds+=("$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')")
    done
    awk -v n=$((many - few)) -v s="${seconds[1]}" -v few="${seconds[0]}" -v shape="L=$layers of 80 T=$tokens C=$continuation" -v layers="$layers" -v plan="$plan" 'BEGIN {
        s -= few; printf "ckvc,stream,%s,prompts,%.6g,%.6g,80 layers by proportion %.6g a second; %s\n", shape, s, n / s, n / s * layers / 80, plan }' | rows
}

echo "program,stage,shape,unit,seconds,rate,note,device,commit" >"$out"
step build build
step test try
step sanitize sanitize
step measure measure
step stream stream
say "wrote $out${failed:+; FAILED:$failed}"
[ -z "$failed" ]
