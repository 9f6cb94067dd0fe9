# Measures of `score` for the diagnostics of a report, and what the report makes of them.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 8 >"$DIR/prompts.jsonl"
    "$CKVC" score "${OVER[@]}" --budget 16,0.5 --policy identity,sink-recent -q --out "$DIR/plain.jsonl"
    "$CKVC" score "${OVER[@]}" --budget 16,0.5 --policy identity,sink-recent --attention-error --utilities -q --out "$DIR/measured.jsonl"
}

@test "score --attention-error --utilities: nothing else changes, the bound holds, threads do not matter" {
    check '
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
        assert len(quantiles) == 7 and quantiles == sorted(quantiles)' "$DIR/plain.jsonl" "$DIR/measured.jsonl"
    "$CKVC" score "${OVER[@]}" --budget 16,0.5 --policy identity,sink-recent --attention-error --utilities -q --threads 1 | cmp - "$DIR/measured.jsonl"
    # one continuation token: no row to measure
    run -0 "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 1 --budget 16 --policy recent \
        --attention-error --limit 1 -q
    [[ $output == *'"attention_bound":null'* ]]
}

@test "report: the bound by layer, damage by risk and score distributions from measured scores" {
    "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --budget 16 --policy identity \
        --attention-error --utilities -q --out "$DIR/s1.jsonl"
    prompts 14 | sed 's/"p/"q/; s/,300,/,301,/g' >"$DIR/more.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/more.jsonl" --window 16 --continuation 8 --budget 16 --policy identity \
        --attention-error --utilities -q --out "$DIR/s2.jsonl"
    "$CKVC" report --scores "$DIR/s1.jsonl,$DIR/s2.jsonl" --bootstrap 50 --out "$DIR/report" -q
    check '
j = json.load(open(sys.argv[1]))
(a,) = j["attention"]
assert a["n"] == 22 and len(a["layers"]) == 4
assert all(0 < l["error"] <= l["bound"] and l["most_error_of_bound"] <= 1 for l in a["layers"])
u, d = j["diagnostics"]["utilities"][0], j["diagnostics"]["damage"][0]
assert u["n"] == 22 and abs(u["between_heads"] + u["between_prompts"] + u["neither"] - 1) < 1e-12
assert d["policy"] == "identity" and d["n"] == 22 and d["worst_tenth"]["n_worst"] == 3
assert sum(c["n"] for row in d["cells"] for c in row) == 22
for c in d["correlations"]:
    assert c["lo"] <= c["r"] <= c["hi"]' "$DIR/report/report.json"
    page "$DIR/report" >"$DIR/page"
    for figure in "Attention left out by layer: identity" "Spread of utility scores by head" "Damage by risk: identity" "Damage against risk"; do
        grep -q "^$figure" "$DIR/page"
    done
    # the same inputs, the same bytes
    "$CKVC" report --scores "$DIR/s1.jsonl,$DIR/s2.jsonl" --bootstrap 50 --out "$DIR/again" -q
    diff -r "$DIR/report" "$DIR/again"
}

@test "report: answers to tasks: figures, the question seen apart from unseen, the same bytes" {
    check '
for query in "seen", "unseen":
    for task in "copy", "hop":
        for k in range(12):
            for policy, budget in ("full", None), ("snapkv", 0.25), ("snapkv", 0.125), ("adakv", 0.25), ("adakv", 0.125):
                entries = 800 if budget is None else int(800 * budget)
                print(json.dumps({
                    "id": f"{task}/{k}", "task": task, "group": "needle", "model": "0" * 64, "query": query, "length": 100,
                    "aimed": 64 << k % 2, "depth": k % 3 / 2, "policy": policy, "table": None, "budget": budget, "entries": entries,
                    "share": entries / 800, "bytes": entries * 64, "metric": "match", "answer": "a", "tokens": 1, "end": "stop",
                    "nll": None, "score": int(budget is None or k < 80 * budget - 5 * (policy == "snapkv"))}))' >"$DIR/answers.jsonl"
    says 0 "12.5% of T, question unseen: full cache 1.000; best adakv 0.833." "$CKVC" report --answers "$DIR/answers.jsonl" --out "$DIR/answers"
    page "$DIR/answers" >"$DIR/page"
    for figure in "What tasks score" "Score against the size" "The worst tenth of tasks" "What the full cache scores" "Score over length at 25%" "Score over length at 12.5%" \
        "Needles at 25%" "Needles at 12.5%"; do
        [ "$(grep -c "^$figure" "$DIR/page")" -eq 2 ] # of the question seen, and unseen
    done
    [ "$(page "$DIR/answers" budget=0.125 policy=adakv | grep -c "^12.5% of T | adakv | ")" -eq 2 ]
    [ "$(page "$DIR/answers" policy=adakv | grep -c "^[0-9.]*% of T | snapkv | ")" -eq 0 ]
    check '
seen, unseen = json.load(open(sys.argv[1]))["answers"]
assert (seen["query"], unseen["query"]) == ("seen", "unseen") and len(seen["lines"]) == 5
cells = [c for line in seen["lines"] for c in line["tasks"]]
assert len(cells) == 10 and seen["lines"][0]["policy"] == "full cache" and seen["lines"][0]["budget"] is None
assert all(c["score_lo"] <= c["score"] <= c["score_hi"] for c in cells)' "$DIR/answers/report.json"
    "$CKVC" report --answers "$DIR/answers.jsonl" --out "$DIR/answers-again" -q
    diff -r "$DIR/answers" "$DIR/answers-again"
    echo '{"id":1}' >"$DIR/broken.jsonl"
    fails 65 "broken.jsonl:1: " "$CKVC" report --answers "$DIR/broken.jsonl" --out "$DIR/never"
    [ ! -e "$DIR/never" ]
}
