# Budgets in bytes (--bytes): what compile chooses of entries and formats, what score, generate and eval make of it, and what is refused.
load helper

setup_file() {
    prompts 14 >"$DIR/prompts.jsonl"
    "$CKVC" compile "${OVER[@]}" --bytes 0.12,0.3 --holdout 0.5 --features 2 -q --out "$DIR/run" --json >"$DIR/compiled.json"
    "$CKVC" fit "$DIR/run" --out "$DIR/plain.ckvt" --no-prov -q 2>/dev/null
    "${CKVC%/*}/tools/make_model" "$DIR/wide" 2 2 1 64 64 128 4096 sharp    # heads that can be rotated
    "${CKVC%/*}/tools/make_model" "$DIR/odd" 2 2 1 48 64 128 4096 sharp     # heads of one block and a half
    cp models/ckvc-tiny-4l/tokenizer*.json "$DIR/wide"
}

score() { "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16 --limit 3 -q "$@"; }

@test "compile: the table names entries and formats of each byte share, which lost least of all that were tried" {
    "$CKVC" verify "$DIR/run/table.ckvt"
    "$CKVC" inspect "$DIR/run/table.ckvt" --json >"$DIR/what.json"
    # llama.cpp and vLLM know the table's block by its budget, to the last bit
    check '
what = load(sys.argv[1])
said, = re.findall("budget=([0-9.]+)", " ".join(what["uses"]["llama"]))
assert float(said) == max(what["budgets"]) and len(said) > 10, (said, what["budgets"])' "$DIR/what.json"
    check '
bits = {"f16": 16, "q8_0": 8.5, "q4_0": 4.5, "q4_0+mean": 4.5 + 1}  # of heads of 32 numbers and a position of 32 bits
made, what = (json.load(open(p)) for p in sys.argv[1:])
tried = made["bytes"]
assert [(v["bytes"], v["budget"]) for v in made["verdicts"]] == [(x["bytes"], x["budget"]) for x in what["bytes"]], made["verdicts"]
# the model has heads of 32, which are not rotated; 0.12 in f16 is fewer entries than every head keeps, and 0.3 holds all of q4_0
assert [(t["bytes"], t["keys"], t["values"]) for t in tried] == [(0.12, "q8_0", "q4_0"), (0.12, "q8_0", "q8_0"), (0.12, "q4_0+mean", "q4_0"),
    (0.12, "q4_0", "q4_0"), (0.3, "q8_0", "q4_0"), (0.3, "q8_0", "q8_0"), (0.3, "q4_0+mean", "q4_0"), (0.3, "f16", "f16")], tried
for t in tried:
    assert math.isclose(t["budget"], t["bytes"] * 32 / (bits[t["keys"]] + bits[t["values"]]), rel_tol=1e-12), t
assert len(what["budgets"]) == 2 and [x["bytes"] for x in what["bytes"]] == [0.12, 0.3]
for x in what["bytes"]:
    ways = [t for t in tried if t["bytes"] == x["bytes"]]
    chosen, = (t for t in ways if t["chosen"])
    assert {k: chosen[k] for k in x} == x and chosen["kl"] == min(t["kl"] for t in ways if t["kl"] is not None), (x, ways)
meta = what["meta"]
assert meta["select"]["bytes"] == tried and meta["shape"]["n_budgets"] == 2 and len(meta["diagnostics"]["demand"]["by_budget"]) == 2
assert [b["budget"] for b in meta["diagnostics"]["demand"]["by_budget"]] == what["budgets"] and all(c is not None for c in meta["select"]["chosen"])
assert all(len(c[meta["select"]["by"]]) == 2 for c in meta["select"]["candidates"]) and all(len(h) == 2 for h in what["shares"][0])' "$DIR/compiled.json" "$DIR/what.json"
    check '
rows = rows_of(sys.argv[1])
held = lambda r: (r.get("cache_keys", "f32"), r.get("cache_values", "f32"))
what = json.load(open(sys.argv[2]))["bytes"]
for x in what:
    at = [r for r in rows if r["budget"] == x["budget"]]
    assert {held(r) for r in at if r["policy"] == "full"} == {("q8_0", "q8_0"), ("fp8", "fp8"), ("q4_0", "q4_0"), ("q4_0+mean", "q4_0")}
    assert all(held(r) == (x["keys"], x["values"]) for r in at if r["policy"] != "full") and any(r["policy"] == "table" for r in at)
assert {r["budget"] for r in rows} == {x["budget"] for x in what}' "$DIR"/run/heldout/pass-02.jsonl "$DIR/what.json"
}

@test "compile: a run in bytes is resumed to the same bytes, and not as another one" {
    again() { "$CKVC" compile "${OVER[@]}" --bytes 0.12,0.3 --holdout 0.5 --features 2 -q --out "$DIR/again" "$@"; }
    mkdir -p "$DIR/again"
    run again --limit-time 1
    again --resume
    cmp "$DIR/again/table.ckvt" "$DIR/run/table.ckvt"
    # at its end it says how many bytes the table keeps, not only how many entries
    run -0 "$CKVC" compile "${OVER[@]}" --bytes 0.12,0.3 --holdout 0.5 --features 2 --out "$DIR/again" --resume
    [[ $output == *"in 16 bits, it keeps a share of 0.12 ("*" kB a token): "*" of the entries, in "*", a share of 0.3 ("*" kB a token): "* ]]
    [[ $output == *"table.ckvt\", bytes=0.3):"*"model.generate(**prompt"* ]]
    [[ $output == *"verdict: at budget "*" (0.3 of the bytes) the table's KL from the whole cache is "* ]]
    says 65 "*bytes*" "$CKVC" compile "${OVER[@]}" --bytes 0.12,0.25 --holdout 0.5 --features 2 -q --out "$DIR/again" --resume
}

@test "compile: formats that are given are the only way, and so is the preferred one where no prompt chooses" {
    "$CKVC" compile "${OVER[@]}" --bytes 0.3 --cache-keys q8_0 --cache-values q8_0 --features 2 -q --out "$DIR/only" --json >"$DIR/only.json" 2>/dev/null
    "$CKVC" compile "${OVER[@]}" --bytes 0.3 --features 2 -q --out "$DIR/first" --json >"$DIR/first.json" 2>/dev/null
    check '
only, first = (json.load(open(p))["bytes"] for p in sys.argv[1:])
assert [(x["keys"], x["values"]) for x in only] == [("q8_0", "q8_0")] and [(x["keys"], x["values"]) for x in first] == [("q8_0", "q4_0")]' "$DIR/only.json" "$DIR/first.json"
    "$CKVC" inspect "$DIR/first/table.ckvt" | grep "q4_0"
}

@test "score --bytes: the table's entries in its formats; by itself a table is scored so; rules get as many entries as fit" {
    score --table "$DIR/run/table.ckvt" --bytes 0.3 --policy snapkv,full@q8_0,full@q4_0/fp8 >"$DIR/s.jsonl"
    score --table "$DIR/run/table.ckvt" >"$DIR/own.jsonl"
    score --policy snapkv --bytes 0.3 --cache-keys q8_0 --cache-values q4_0 >"$DIR/rule.jsonl"
    check '
what = json.load(open(sys.argv[1]))["bytes"]
s, own, rule = (rows_of(p) for p in sys.argv[2:])
held = lambda r: (r.get("cache_keys", "f32"), r.get("cache_values", "f32"))
x, = (x for x in what if x["bytes"] == 0.3)
for r in s:
    want = {("q8_0", "q8_0"), ("q4_0", "fp8")} if r["policy"] == "full" else {(x["keys"], x["values"])}
    assert held(r) in want and r["budget"] == x["budget"], r
assert len(s) == 3 * 4 and len(own) == 3 * 2
assert {(r["budget"], held(r)) for r in own} == {(x["budget"], (x["keys"], x["values"])) for x in what}
for r in rule:
    assert math.isclose(r["budget"], 0.3 * 32 / 13, rel_tol=1e-12) and held(r) == ("q8_0", "q4_0")
    units = len(r["n_kept"]) * len(r["n_kept"][0])
    assert r["entries"] == units * math.floor(r["budget"] * r["T"]), r' "$DIR/what.json" "$DIR/s.jsonl" "$DIR/own.jsonl" "$DIR/rule.jsonl"
    score --table "$DIR/run/table.ckvt" --cache-keys f16 --cache-values f16 | check 'assert all(json.loads(l)["cache_keys"] == "f16" for l in sys.stdin)'
    score --table "$DIR/run/table.ckvt" --budget 0.5 --nearest-budget | check 'assert not any("cache_keys" in json.loads(l) for l in sys.stdin)'
    score --policy full@q8_0 --budget 0.5 >"$DIR/suffix.jsonl"
    score --policy full --budget 0.5 --cache-keys q8_0 --cache-values q8_0 | cmp - "$DIR/suffix.jsonl"
    # the whole cache is rolled out once for all budgets: the lines are those of each budget alone
    score --policy full@q8_0,snapkv,full@q4_0 --budget 0.25,0.5 | grep '"budget":0.5,' >"$DIR/second.jsonl"
    score --policy full@q8_0,snapkv,full@q4_0 --budget 0.5 | cmp - "$DIR/second.jsonl"
}

@test "generate and eval --bytes: the same entries and formats" {
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --table "$DIR/run/table.ckvt" --bytes 0.3 --max-new 3 --limit 2 --json -q >"$DIR/g.jsonl"
    check '
sizes = {"f16": 64, "q8_0": 34, "q4_0": 18}
x, = (x for x in json.load(open(sys.argv[1]))["bytes"] if x["bytes"] == 0.3)
for g in rows_of(sys.argv[2]):
    assert g["budget"] == x["budget"] and g["cache_bytes"] == g["entries"] * (sizes[x["keys"]] + sizes[x["values"]]), g' "$DIR/what.json" "$DIR/g.jsonl"
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --policy full@q4_0 --window 16 --max-new 3 --limit 1 --json -q |
        check 'g = json.loads(sys.stdin.read()); assert g["cache_bytes"] == g["entries"] * 36, g'
    "$CKVC" eval --model "$MODEL" --tasks niah --lengths 128 --count 1 --table "$DIR/run/table.ckvt" --bytes 0.12 --policy full@q8_0 -q --out "$DIR/a.jsonl"
    check '
x, = (x for x in json.load(open(sys.argv[1]))["bytes"] if x["bytes"] == 0.12)
rows = {r["policy"]: r for r in rows_of(sys.argv[2]) if r["policy"] != "full" or "cache_keys" in r}
assert rows["full"]["cache_keys"] == "q8_0" and (rows["table"]["cache_keys"], rows["table"]["cache_values"]) == (x["keys"], x["values"])
assert rows["table"]["budget"] == x["budget"]' "$DIR/what.json" "$DIR/a.jsonl"
}

@test "report: what is lost by bytes, and a sentence that holds each byte share against the whole cache in the fewest bytes" {
    "$CKVC" report "$DIR/run/table.ckvt" "$DIR/run" --out "$DIR/report" -q
    check '
rows, report = rows_of(sys.argv[1]), json.load(open(sys.argv[2]))
of_number = {"f16": 2, "fp8": 1, "q8_0": 34 / 32, "q4_0": 18 / 32, "q4_0+mean": (18 + 4) / 32}  # of heads of 32 numbers; 4 for the position
held = lambda r: (r.get("cache_keys", "f32"), r.get("cache_values", "f32"))
mean = lambda v: sum(v) / len(v)
name = lambda f: "/".join(dict.fromkeys(f))
def share(lines):
    return sum(r["entries"] * sum(of_number[f] for f in held(r)) for r in lines) / sum(len(r["n_kept"]) * 3 * r["T"] * 4 for r in lines)  # 3 KV heads
seen = 0
for x in report["scores"]["bytes"]:
    policy = "full" if x["label"] == "the whole cache" else "table" if x["table"] else x["label"]
    unfitted = x["label"].endswith("entries as they were")
    lines = [r for r in rows if r["policy"] == policy and r["budget"] == x["budget"] and name(held(r)) == x["formats"] and (policy != "table" or ("ridge" in r) != unfitted)]
    assert len(lines) == x["n"] == len({r["id"] for r in lines}), (x, lines)
    assert math.isclose(share(lines), x["share"], rel_tol=1e-9) and math.isclose(mean([r["kl"] for r in lines]), x["kl"], rel_tol=1e-9), x
    seen += len(lines)
assert seen == len(rows) - len([r for r in rows if r["policy"] == "full" and r["budget"] != rows[0]["budget"]])
t = {2: 12.706204736, 3: 4.302652730, 4: 3.182446305}  # of n - 1 degrees of freedom
for b, asked in zip(report["tables"][0]["verdict"]["budgets"], (0.12, 0.3)):
    x, whole = b["bytes"], b["bytes"]["whole"]
    four = {f: {r["id"]: r["kl"] for r in rows if r["policy"] == "full" and held(r) == f} for f in (("q4_0", "q4_0"), ("q4_0+mean", "q4_0"))}
    best = min(four, key=lambda f: mean(four[f].values()))  # of the caches in 4 bits the one that loses least
    assert x["asked"] == asked and x["share"] <= asked and whole["formats"] == name(best) and math.isclose(whole["share"], sum(map(of_number.get, best)) / 4), x
    own = {r["id"]: r["kl"] for r in rows if r["policy"] == "table" and r["budget"] == b["budget"]}  # the last: fitted, where it is
    other, its = four[best], whole["share"]
    d = [other[i] - own[i] for i in own]
    half = t[len(d)] * math.sqrt(sum((v - mean(d)) ** 2 for v in d) / (len(d) - 1) / len(d))
    assert all(math.isclose(a, c, rel_tol=1e-6, abs_tol=1e-12) for a, c in zip((whole["kl_difference"], whole["kl_lo"], whole["kl_hi"]), (mean(d), mean(d) - half, mean(d) + half))), whole
    decided = abs(mean(d)) > half
    said = "loses less" if decided and mean(d) > 0 else "loses more" if decided else "is not decided whether it loses less"
    assert f"At {100 * asked:.3g}% of the bytes it {said} than the whole cache in {name(best)} does at {100 * its:.3g}%: KL {mean(list(own.values())):.4f} and" in b["says"], b["says"]
    assert f"at {100 * asked:.3g}% of the bytes (" in b["says"]' "$DIR/run/heldout/pass-02.jsonl" "$DIR/report/report.json"
    page "$DIR/report" >"$DIR/page"
    grep -q "What is lost against the bytes that are kept" "$DIR/page" && grep -q "By bytes: KL from the full cache" "$DIR/page"
    score --table "$DIR/plain.ckvt" --policy snapkv --nearest-budget >"$DIR/without.jsonl"
    "$CKVC" report "$DIR/plain.ckvt" --scores "$DIR/without.jsonl" --out "$DIR/without" -q
    check 'r = json.load(open(sys.argv[1])); assert "bytes" not in r["scores"] and all("bytes" not in b for b in r["tables"][0]["verdict"]["budgets"])' "$DIR/without/report.json"
    page "$DIR/without" | { ! grep "bytes that are kept"; }
}

@test "what is refused, in one line" {
    local t=$DIR/run/table.ckvt
    fails 64 "--bytes 0.2: $t has budgets for these shares: 0.12, 0.3" score --table "$t" --bytes 0.2
    fails 64 "no budget of it was chosen in bytes: compile it with --bytes" score --table "$DIR/plain.ckvt" --bytes 0.3
    fails 64 "--bytes: got '2', wanted a share of the bytes of the whole cache, as in 0.1" score --table "$t" --bytes 2
    fails 64 "--bytes: got 'nan', wanted a share of the bytes" score --table "$t" --bytes nan
    fails 64 "--bytes counts bytes and --budget entries" score --table "$t" --bytes 0.3 --budget 0.5
    fails 64 "takes the formats that $t says" score --table "$t" --bytes 0.3 --cache-keys q8_0
    fails 64 "the whole cache takes 0.281 of the bytes in q4_0: give a smaller share" score --policy snapkv --bytes 0.3 --cache-keys q4_0 --cache-values q4_0
    fails 64 "wanted behind @ one of the formats" score --policy full@q5_1 --budget 0.5
    fails 64 "is given twice in the same formats" score --policy full@q8_0,full@q8_0/q8_0 --budget 0.5
    fails 64 "heads of 48 numbers do not go into whole blocks of 32" score --model "$DIR/odd" --policy full@q8_0 --budget 0.5
    fails 64 "--bytes counts bytes and --budget entries" "$CKVC" compile "${OVER[@]}" --bytes 0.3 --budget 0.5 -q --out "$DIR/x"
    fails 64 "--bytes 1: holds the whole cache" "$CKVC" compile "${OVER[@]}" --bytes 1 -q --out "$DIR/x"
    fails 64 "--bytes 0.01: keeps fewer than 9 of the 72 tokens" "$CKVC" compile "${OVER[@]}" --bytes 0.01 -q --out "$DIR/x"
    fails 64 "are both 0.32 of the entries" "$CKVC" compile "${OVER[@]}" --bytes 0.17,0.32 --holdout 0.5 -q --out "$DIR/x"
    fails 64 "--bytes belongs to tables by demand" "$CKVC" compile "${OVER[@]}" --mode uniform --ranking paper --bytes 0.3 -q --out "$DIR/x"
}
