#!/usr/bin/env bash
# A model of the given shape with random weights, end to end: inspect, perplexity with and without room for float32 copies (the same
# bytes), a small calibration.
#   large.sh CKVC MAKE_MODEL TOKENS LAYERS HEADS KV_HEADS HEAD_DIM WIDTH MLP VOCAB
set -euo pipefail
ckvc=$1 make_model=$2 tokens=$3
shift 3
dir=$(mktemp -d "${TMPDIR:-/tmp}/ckvc-large-XXXXXX")
trap 'rm -rf "$dir"' EXIT
say() { echo "$SECONDS s: $*"; }

"$make_model" "$dir/model" "$@"
say "written: $(stat -c %s "$dir/model/model.safetensors") bytes"
awk -v n="$tokens" -v vocab="${7}" 'BEGIN {
    s = 99
    for (p = 0; p < 2; p++) {
        line = "{\"id\":\"p" p "\",\"tokens\":["
        for (t = 0; t < n; t++) {
            s = (s * 1103515245 + 12345) % 2147483648
            line = line (t ? "," : "") s % vocab
        }
        print line "]}"
    }
}' >"$dir/prompts.jsonl"

facts=$("$ckvc" inspect "$dir/model" --json --max-tokens "$tokens" --continuation 8)
number() { sed -E "s/.*\"$1\":([0-9]+).*/\1/" <<<"$facts"; }
least=$(number least) all=$(number all)
say "parameters $(number parameters), memory at least $least, all $all bytes"
[ "$least" -lt "$all" ]

score() { "$ckvc" perplexity -q --model "$dir/model" --manifest "$dir/prompts.jsonl" --limit 1 --json --tokens "$@" | head -1; }
score >"$dir/all.json"
say "perplexity $(sed -E 's/.*"ppl":([0-9.e+]+).*/\1/' "$dir/all.json") with all copies kept"
score --memory 1M >"$dir/least.json"
say "the same with none kept"
cmp "$dir/all.json" "$dir/least.json"

"$ckvc" calibrate -q --model "$dir/model" --manifest "$dir/prompts.jsonl" --window 16 --continuation 8 --budget 32 --bins 1,1 \
    --min-cell 1 --variants 4 --memory $((least + 150000000)) --out "$dir/run"
"$ckvc" verify "$dir/run" >"$dir/verified"
say "calibrated: $(find "$dir/run" -name '*.h5' | wc -l) shards"
"$ckvc" fit -q "$dir/run" --out "$dir/t.ckvt"
"$ckvc" verify "$dir/t.ckvt" >>"$dir/verified"
say "end to end"
