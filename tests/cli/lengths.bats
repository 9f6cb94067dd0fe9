# A length for each layer and a set for each KV head (--mode lengths): fitted, in classes, compiled, scored, served.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 12 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 16,0.5 -q --out "$DIR/demand" 2>/dev/null
    "$CKVC" fit "$DIR/demand" --mode lengths --out "$DIR/lengths.ckvt" --no-prov -q
    "$CKVC" fit "$DIR/demand" --out "$DIR/heads.ckvt" --no-prov -q
}

score() { "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 -q "$@"; }

@test "fit: shares of lengths are of mean 1, beside those of heads, and only where the mode asks for them" {
    "$CKVC" verify "$DIR/lengths.ckvt"
    cells "$DIR/heads.ckvt" >"$DIR/heads.json"
    cells "$DIR/lengths.ckvt" >"$DIR/lengths.json"
    check '
heads, lengths = (load(p) for p in sys.argv[1:])
assert "SHARELEN" not in heads and all(heads[k] == lengths[k] for k in ("SHARE", "SHARELAY", "CMIN", "THETA", "MASS"))
for b in 0, 1:
    shares = [layer[b] for layer in lengths["SHARELEN"]]
    assert len(set(shares)) == 4 and abs(sum(shares) / 4 - 1) < 1e-12, shares
    assert lengths["SHARELEN"] != lengths["SHARELAY"]
assert [s[5] for s in lengths["SCORE"]] == [3, 3] and [s[5] for s in heads["SCORE"]] == [1, 1]
of = [m["meta"]["diagnostics"]["demand"]["by_budget"][0] for m in (heads, lengths)]
assert "lengths" not in of[0] and of[1]["lengths"]["entries"] == 4, of' "$DIR/heads.json" "$DIR/lengths.json"
    says 0 "; lengths * of 4 undecided" "$CKVC" fit "$DIR/demand" --mode lengths --out "$DIR/again.ckvt" --no-prov
    cmp "$DIR/again.ckvt" "$DIR/lengths.ckvt"
    "$CKVC" inspect "$DIR/lengths.ckvt" | grep -q '^ *length_shares'
    "$CKVC" transfer "$DIR/lengths.ckvt" --to-shape 7,3 --out "$DIR/deep.ckvt"
    cells "$DIR/deep.ckvt" | check '
t = json.load(sys.stdin)
assert all(abs(sum(layer[b] for layer in t["SHARELEN"]) / 7 - 1) < 1e-12 for b in (0, 1)) and t["SCORE"][0][5] == 3'
}

@test "score: each head keeps the first of its own ranking, heads of a layer as many, layers as their shares; other modes stand beside" {
    score --table "$DIR/lengths.ckvt" --budget 16,0.5 --sets >"$DIR/s.jsonl"
    score --table "$DIR/lengths.ckvt" --mode heads --kept-floor 0.05 --sets >"$DIR/h.jsonl"
    score --table "$DIR/heads.ckvt" --kept-floor 0.05 --sets >"$DIR/own.jsonl"
    check '
rows, heads, own = (rows_of(p) for p in sys.argv[1:4])
table = json.load(sys.stdin)
shares = [[layer[b] for layer in table["SHARELEN"]] for b in (0, 1)]
assert all(r["mode"] == "lengths" and len(r["sets"]) == 4 and len(r["sets"][0]) == 3 for r in rows) and len(rows) == 24
for r in rows:
    counts = [[len(s) for s in layer] for layer in r["sets"]]
    B = 16 if r["budget"] == 16 else r["T"] // 2
    assert counts == r["n_kept"] and all(len(set(c)) == 1 for c in counts), counts
    assert sum(c[0] for c in counts) == 4 * B and r["entries"] == 12 * B, (counts, B)
    of = shares[r["budget"] != 16]
    assert all(counts[i][0] >= counts[j][0] for i in range(4) for j in range(4) if of[i] > of[j]), (counts, of)
    assert any(a != b for layer in r["sets"] for a, b in zip(layer, layer[1:]))
    for layer, other in zip(r["sets"], next(h for h in heads if (h["id"], h["budget"]) == (r["id"], r["budget"]))["sets"]):
        assert all(set(a) <= set(b) or set(b) <= set(a) for a, b in zip(layer, other))  # both are the first of one ranking
assert len({tuple(c[0] for c in r["n_kept"]) for r in rows if r["budget"] == 16}) == 1
assert [(r["sets"], r["kl"]) for r in heads] == [(r["sets"], r["kl"]) for r in own]' "$DIR/s.jsonl" "$DIR/h.jsonl" "$DIR/own.jsonl" < <(cells "$DIR/lengths.ckvt")
    # rules by head keep what they keep without the mode
    score --policy snapkv,adakv,cake --budget 16 >"$DIR/rules.jsonl"
    score --policy snapkv,adakv,cake --budget 16 --mode lengths >"$DIR/rules-lengths.jsonl"
    diff "$DIR/rules.jsonl" "$DIR/rules-lengths.jsonl"
    # what is beside the table keeps as many in every head
    score --table "$DIR/lengths.ckvt" --policy top-k,matched --equal-tokens --budget 16 | check '
rows = [json.loads(line) for line in sys.stdin]
of = {p: [r["n_kept"] for r in rows if r["policy"] == p] for p in ("table", "top-k")}
assert of["table"] == of["top-k"] and {r["mode"] for r in rows} == {"lengths"}'
    for what in "score --budget 16 --manifest $DIR/prompts.jsonl --continuation 8" "generate --prompt a"; do
        says 65 "has no shares of lengths, which mode lengths needs; fit one from a demand pass with --mode lengths" \
            "$CKVC" ${what%% *} ${what#* } --model "$MODEL" --table "$DIR/heads.ckvt" --mode lengths --window 16
    done
}

@test "classes: layers of a class have one length under every budget and floor, and little of the budget is left" {
    for k in 1 2 3; do
        "$CKVC" fit "$DIR/demand" --mode lengths --classes "$k" --out "$DIR/k$k.ckvt" -q
        score --table "$DIR/k$k.ckvt" --budget 10,13,16,0.3,0.5,0.7 --nearest-budget --kept-floor 0.05 >"$DIR/k$k.jsonl"
        check '
K, table = int(sys.argv[1]), json.load(sys.stdin)
classes = [[layer[b] for layer in table["SHARELEN"]] for b in (0, 1)]
assert all(len(set(c)) == K and abs(sum(c) / 4 - 1) < 1e-12 for c in classes), classes
for r in rows_of(sys.argv[2]):
    lengths = [n[0] for n in r["n_kept"]]
    B = r["budget"] if r["budget"] >= 1 else int(r["budget"] * r["T"])
    assert any(all(lengths[i] == lengths[j] for i in range(4) for j in range(4) if of[i] == of[j]) for of in classes), (lengths, classes)
    assert 4 * B - (4 - K) <= sum(lengths) <= 4 * B and r["entries"] == 3 * sum(lengths), (lengths, B)' "$k" "$DIR/k$k.jsonl" < <(cells "$DIR/k$k.ckvt")
    done
    "$CKVC" fit "$DIR/demand" --mode lengths --classes 4 --out "$DIR/k4.ckvt" --no-prov -q
    cmp "$DIR/k4.ckvt" "$DIR/lengths.ckvt" # as many classes as layers change nothing
    fails 64 "--classes belongs to --mode lengths" "$CKVC" fit "$DIR/demand" --classes 2 --out "$DIR/none.ckvt"
    fails 64 "--classes belongs to --mode lengths" "$CKVC" compile "${OVER[@]}" --budget 16 --classes 2 --out "$DIR/none"
    [ ! -e "$DIR/none.ckvt" ] && [ ! -e "$DIR/none" ]
}

@test "compile: the choice and the verdict are of the mode, every weight of demand makes shares of lengths" {
    "$CKVC" compile "${OVER[@]}" --budget 16,0.5 --holdout 0.6 --select 0.5 --mode lengths --classes 2 -q --out "$DIR/made" 2>/dev/null
    check '
run = load(sys.argv[1] + "/run.json")
assert run["fit"]["mode"] == "lengths" and run["fit"]["classes"] == 2, run["fit"]
for part, policies in (("select", {"table"}), ("heldout", {"identity", "top-k", "snapkv", "adakv", "cake", "table"})):
    rows = rows_of(f"{sys.argv[1]}/{part}/pass-02.jsonl")
    assert {r["policy"] for r in rows} - {"full"} == policies and {r["mode"] for r in rows if r["policy"] == "table"} == {"lengths"}
    assert all(len({n for layer in r["n_kept"] for n in layer}) <= 2 for r in rows if r["policy"] == "table")
table = json.load(sys.stdin)
assert {s[5] for s in table["SCORE"]} == {3} and all(len({layer[b] for layer in table["SHARELEN"]}) <= 2 for b in (0, 1))' "$DIR/made" < <(cells "$DIR/made/table.ckvt")
    cells "$DIR/made/tables/pass-01-mix-0.5.ckvt" >"$DIR/mixed.json"
    "$CKVC" fit "$DIR/made" --mix 0.5 --mode lengths --classes 2 --out "$DIR/by-hand.ckvt" -q
    [ "$(content_id "$DIR/by-hand.ckvt")" = "$(content_id "$DIR/made/tables/pass-01-mix-0.5.ckvt")" ]
    "$CKVC" report "$DIR/made/table.ckvt" --scores "$DIR/made/heldout/pass-02.jsonl" --out "$DIR/report" -q
    grep -q 'in mode lengths' "$DIR/report/report.json"
    "$CKVC" generate --model "$MODEL" --table "$DIR/made/table.ckvt" --budget 16 --window 16 --prompt "$(head -c 400 README.md)" --max-new 4 -q >"$DIR/text"
    [ -s "$DIR/text" ]
}
