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

@test "report: the bound by layer, damage by risk and score distributions from measured scores" {
    "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --budget 16 --policy identity \
        --attention-error --utilities -q --out "$DIR/s1.jsonl"
    prompts 14 | sed 's/"p/"q/; s/,300,/,301,/g' >"$DIR/more.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/more.jsonl" --window 16 --continuation 8 --budget 16 --policy identity \
        --attention-error --utilities -q --out "$DIR/s2.jsonl"
    "$CKVC" report --scores "$DIR/s1.jsonl,$DIR/s2.jsonl" --bootstrap 50 --out "$DIR/report" -q
    python3 - "$DIR/report/report.json" <<'PY'
import json, sys
j = json.load(open(sys.argv[1]))
(a,) = j["attention"]
assert a["n"] == 22 and len(a["layers"]) == 4
assert all(0 < l["error"] <= l["bound"] and l["most_error_of_bound"] <= 1 for l in a["layers"])
u, d = j["diagnostics"]["utilities"][0], j["diagnostics"]["damage"][0]
assert u["n"] == 22 and abs(u["between_heads"] + u["between_prompts"] + u["neither"] - 1) < 1e-12
assert d["policy"] == "identity" and d["n"] == 22 and d["worst_tenth"]["n_worst"] == 3
assert sum(c["n"] for row in d["cells"] for c in row) == 22
for c in d["correlations"]:
    assert c["lo"] <= c["r"] <= c["hi"]
PY
    for figure in attention-1 scores-heads-1 damage-1; do
        [ -s "$DIR/report/$figure.svg" ]
        [ -s "$DIR/report/$figure.csv" ]
    done
    # the same inputs, the same bytes
    "$CKVC" report --scores "$DIR/s1.jsonl,$DIR/s2.jsonl" --bootstrap 50 --out "$DIR/again" -q
    diff -r "$DIR/report" "$DIR/again"
}
