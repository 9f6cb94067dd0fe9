# Sets of KV heads in `ckvc score`: references that rank by head, what they print, what is refused.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 3 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run" 2>/dev/null
    "$CKVC" fit "$DIR/run" --out "$DIR/t.ckvt" --bootstrap 0 -q 2>/dev/null
}

score() { "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 -q "$@"; }

@test "score: references by head keep as many entries, in sets of layers and heads" {
    score --policy full,streamingllm,h2o,snapkv,pyramidkv,dynamickv,adakv,cake,chunkkv,fastkv,vatp,rocketkv,zigzagkv,expected-attention,tova,keydiff,kvzip --budget 48,0.5,4096 --sets >"$DIR/s.jsonl"
    check '
L, G = 4, 3
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 3 * 17 * 3
for r in rows:
    one = r["policy"] in ("full", "streamingllm", "chunkkv", "tova")
    B = r["budget"] if r["budget"] >= 1 else int(r["budget"] * r["T"])
    heads = [s for layer in r["sets"] for s in ([layer] * G if one else layer)]
    assert len(r["sets"]) == L and len(heads) == L * G, r["policy"]
    assert r["entries"] == sum(map(len, heads)), r["policy"]
    B = r["T"] if r["policy"] == "full" or r["budget"] == 4096 else B
    other = r["entries"] - L * G * B  # entries say what they used
    assert other == 0 or r["budget"] < 4096 and r["policy"] in ("pyramidkv", "zigzagkv", "dynamickv", "chunkkv", "fastkv"), (r["policy"], r["entries"])
    assert other <= 0 if r["policy"] in ("dynamickv", "chunkkv", "fastkv") else True, (r["policy"], r["entries"])
    assert r["policy"] != "full" or r["reward"] == 0
    assert ("mode" not in r) if one else r["mode"] == "heads"
    assert r["n_kept"] == [len(x) if one else [len(s) for s in x] for x in r["sets"]]
    assert (r["n_candidates"] is None) == (not one) and "score" not in r and r["bin_entropy"] is None
    for s in heads:
        assert s == sorted(set(s)) and 0 <= s[0] and s[-1] < r["T"]
        if r["policy"] in ("streamingllm", "expected-attention", "kvzip"):
            assert s[:4] == [0, 1, 2, 3]
    assert ("repeat_tokens" in r) == (r["policy"] == "kvzip") and r.get("repeat_tokens", r["T"] + 1) > r["T"]
    assert r["reward"] < 1' "$DIR/s.jsonl"
    score --policy kvzip,cake --budget 9,18 --mode layers >"$DIR/layers.jsonl" # its heads keep what all layers' heads leave to them
    check '
rows = [json.loads(line) for line in open(sys.argv[1])]
assert all(r["mode"] == "layers" and r["entries"] == 4 * 3 * r["budget"] for r in rows) and len(rows) == 3 * 2 * 2, rows
assert any(len(set(r["n_kept"])) > 1 and sum(r["n_kept"]) == 4 * r["budget"] for r in rows if r["policy"] == "kvzip"), rows' "$DIR/layers.jsonl"
    run -0 "$CKVC" report --scores "$DIR/s.jsonl" --out "$DIR/report"
    grep -q expected-attention "$DIR/report/report.json"
}

@test "score: prompts no longer than the window are kept whole by every policy; other prompts' lines are as they were" {
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.5 -q --out "$DIR/demand" 2>/dev/null
    "$CKVC" fit "$DIR/demand" --out "$DIR/shares.ckvt" -q 2>/dev/null
    for n in 1 2 16; do echo "{\"id\":\"n$n\",\"tokens\":[$(seq -s, 300 $((307 + n)))]}"; done >"$DIR/short.jsonl"
    cat "$DIR/prompts.jsonl" "$DIR/short.jsonl" >"$DIR/both.jsonl"
    for how in "--policy full,recent,random,window-pooled,streamingllm,h2o,cake,chunkkv,fastkv,expected-attention,kvzip,no-utility --table $DIR/t.ckvt" "--policy matched,pooled,headkv,adakv --table $DIR/shares.ckvt --equal-tokens"; do
        options=(--budget 0.5 --attention-error --utilities $how)
        score "${options[@]}" >"$DIR/long.out" 2>/dev/null
        score "${options[@]}" --manifest "$DIR/both.jsonl" >"$DIR/both.out" 2>/dev/null
        check '
long, both = ([json.loads(line) for line in open(p)] for p in sys.argv[1:])
whole = both[len(long) :]
assert [{**r, "manifest": 0} for r in long] == [{**r, "manifest": 0} for r in both[: len(long)]] and not any("whole" in r for r in long)
assert len(whole) == len(long) and {r["T"] for r in whole} == {1, 2, 16}
for r in whole:
    kept = json.loads("[" + json.dumps(r["n_kept"]).replace("[", "").replace("]", "") + "]")
    assert r["whole"] is True and set(kept) == {r["T"]} and r["entries"] == 12 * r["T"] and r["reward"] == 0, r
    assert r["bin_entropy"] is None and (r["r_sem"] is None) == (r["T"] == 1) and "repeat_tokens" not in r' "$DIR/long.out" "$DIR/both.out"
        "$CKVC" report --scores "$DIR/both.out" --out "$DIR/report-both" -q -f
    done
    fails 65 "no prompt is left of 3 (3 too short)" score --policy recent --budget 8 --manifest "$DIR/short.jsonl" --skip-short
    fails 65 "need at least 33 (window 16 + 1 + continuation)" "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/short.jsonl" --out "$DIR/never"
}

@test "score: what needs shares says so of a table without them" {
    for what in "--mode heads" "--mode layers" "--policy headkv" "--policy evolkv" "--policy duoattention"; do
        run --separate-stderr score --table "$DIR/t.ckvt" $what
        [ "$status" -ne 0 ]
        [ -z "$output" ]
        output=$stderr one_line
        [[ $stderr == *"has no shares of"* ]]
    done
    run -64 --separate-stderr score --policy pooled
    [[ $stderr == *"--policy pooled needs a --table"* ]]
    printf '16\n16\n16\n16\n' >"$DIR/layers.txt"
    run -64 --separate-stderr score --policy cake --layer-budgets "$DIR/layers.txt"
    [[ $stderr == *"cake has budgets of its own"* ]]
}

@test "score: the paper's tables stay as they are under --mode uniform --ranking paper; the window's score keeps B in every layer" {
    score --table "$DIR/t.ckvt" >"$DIR/own.jsonl"
    score --table "$DIR/t.ckvt" --mode uniform --ranking paper >"$DIR/paper.jsonl"
    cmp "$DIR/own.jsonl" "$DIR/paper.jsonl"
    score --table "$DIR/t.ckvt" --ranking window --policy pooled >"$DIR/window.jsonl"
    check '
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 3 * 2 * 2
for r in rows:
    B = r["budget"] if r["budget"] >= 1 else int(r["budget"] * r["T"])
    assert r["score"] == "window" and r["entries"] == 12 * B
    assert r["n_kept"] == [B] * 4 if r["policy"] == "table" else all(n >= 9 for layer in r["n_kept"] for n in layer)' "$DIR/window.jsonl"
}
