#!/usr/bin/env bats
# Measures of `score` for the diagnostics of a report, and what the report makes of them.

load helper

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    prompts 8 >"$DIR/prompts.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16 --budget 16,0.5 \
        --policy identity,sink-recent -q --out "$DIR/plain.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16 --budget 16,0.5 \
        --policy identity,sink-recent --attention-error --utilities -q --out "$DIR/measured.jsonl"
}

@test "score --attention-error --utilities: nothing else changes, the bound holds, threads do not matter" {
    python3 - "$DIR/plain.jsonl" "$DIR/measured.jsonl" <<'PY'
import json, math, sys
plain, measured = ([json.loads(line) for line in open(p)] for p in sys.argv[1:])
assert len(plain) == len(measured) == 8 * 2 * 2
seen = set()
for a, b in zip(plain, measured):
    assert all(b[k] == v for k, v in a.items())
    extra = set(b) - set(a)
    assert ("utility_quantiles" in extra) == (a["id"] not in seen)
    seen.add(a["id"])
    rows = zip(b["attention_epsilon"], b["attention_bound"], b["attention_error"], b["attention_drift"])
    for layer, (epsilon, bound, error, drift) in enumerate(rows):
        assert 0 < epsilon < 1 and abs(bound - 2 * math.sqrt(15) * epsilon) < 1e-12 and 0 < error <= bound
        assert layer or abs(error - drift) < 1e-6
    for quantiles in [b["alpha_quantiles"]] + [q for l in b["utility_quantiles"] for q in l] if "alpha_quantiles" in b else []:
        assert len(quantiles) == 7 and quantiles == sorted(quantiles)
PY
    "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16 --budget 16,0.5 \
        --policy identity,sink-recent --attention-error --utilities -q --threads 1 | cmp - "$DIR/measured.jsonl"
    # one continuation token: no row to measure
    run "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 1 --budget 16 --policy recent \
        --attention-error --limit 1 -q
    [ "$status" -eq 0 ]
    [[ $output == *'"attention_bound":null'* ]]
}
