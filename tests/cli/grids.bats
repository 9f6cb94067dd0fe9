# Action grids, the gate's price and the reduction of the loss: recorded in every file, followed by every verb, default runs unchanged.
load helper

setup_file() {
    prompts 4 >"$DIR/prompts.jsonl"
    calibrate "$DIR/fine" --variants all
}

COARSE=(--head-grid 0.8:1.5:0.1 --gate-grid 0.8,0.85,0.93,1 --variants all)

# raw_fit RUN: a table of raw mean rewards, and all its sections as JSON
raw_fit() { "$CKVC" fit "$1" --reward raw --no-prov --out "$1.raw.ckvt" -q && "$CKVC" inspect "$1.raw.ckvt" --json --cells >"$1.raw.json"; }

@test "the default grids, spelled out, are the default plan and shards" {
    calibrate "$DIR/same" --variants all --head-grid 0.800:1.500:0.025 --gate-grid 0.8:0.95:0.01,0.96,0.97:1:0.01 --beta-bud 1 --loss-reduction mean
    cmp "$DIR/fine/run.json" "$DIR/same/run.json"
    diff <(shard_sums "$DIR/fine") <(shard_sums "$DIR/same")
    run -1 grep -q 'grid\|reduction' "$DIR/fine/run.json"
}

@test "a coarse grid gives the records of the fine one for the actions that both have" {
    # 0.9, the start, is not on this gate grid: 0.93 is nearest, so the fine run starts there too, from a table
    calibrate "$DIR/coarse" "${COARSE[@]}" --side head
    calibrate "$DIR/fine-gate" --side gate --variants all --gate-grid 0.8:1:0.01
    calibrate "$DIR/coarse-gate" --side gate --variants all --head-grid 1 --gate-grid 0.8:1:0.05
    raw_fit "$DIR/fine-gate"
    raw_fit "$DIR/coarse-gate"
    check '
fine, coarse = (json.load(open(p)) for p in sys.argv[1:])
assert coarse["GRIDGATE"] == [0.8, 0.85, 0.9, 0.95, 1.0] and coarse["GRIDHEAD"] == [1.0]
where = [fine["GRIDGATE"].index(v) for v in coarse["GRIDGATE"]]
def flat(x, depth):
    return [x] if depth == 0 else [leaf for part in x for leaf in flat(part, depth - 1)]
seen = 0
for name in ("NGATE", "MGATE", "LGATE"):
    for f, c in zip(flat(fine[name], 4), flat(coarse[name], 4)):
        assert [f[a] for a in where] == c, (name, f, c)
        seen += any(c)
assert seen > 20' "$DIR/fine-gate.raw.json" "$DIR/coarse-gate.raw.json"
    raw_fit "$DIR/coarse"
    check '
t = json.load(open(sys.argv[1]))
assert t["GRIDHEAD"] == [0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5] and t["GRIDGATE"] == [0.8, 0.85, 0.93, 1.0]
text = json.dumps(t["TAU"])
assert "0.93" in text and "0.8," not in text, text # the head pass leaves the gate at its start' "$DIR/coarse.raw.json"
}

@test "a small grid goes through every verb" {
    calibrate "$DIR/small" "${COARSE[@]}"
    "$CKVC" verify "$DIR/small"
    "$CKVC" fit "$DIR/small" --out "$DIR/small.ckvt" --bootstrap 20 -q
    "$CKVC" verify "$DIR/small.ckvt"
    "$CKVC" calibrate "${OVER[@]}" --variants all --shard-prompts 4 -q --side gate --tables "$DIR/small.ckvt" --out "$DIR/small2"
    "$CKVC" fit "$DIR/small2" --tables "$DIR/small.ckvt" --out "$DIR/small2.ckvt" -q --solver adamw
    "$CKVC" transfer "$DIR/small.ckvt" --to-model models/ckvc-tiny-8l --out "$DIR/small8.ckvt"
    "$CKVC" inspect "$DIR/small8.ckvt" --json --cells | check '
t = json.load(sys.stdin)
assert len(t["GRIDHEAD"]) == 8 and t["GRIDGATE"] == [0.8, 0.85, 0.93, 1.0]'
    "$CKVC" score "${OVER[@]}" --table "$DIR/small.ckvt" --policy identity,matched --out "$DIR/small.jsonl" -q
    "$CKVC" report "$DIR/small.ckvt" "$DIR/small2.ckvt" "$DIR/small" --scores "$DIR/small.jsonl" --out "$DIR/report"
    run -1 grep 'τ = 0.80 and τ = 1.00\|NaN\|\<nan\>' "$DIR/report/report.html"
    # 0.9 is not on this grid: entries at 0.93, where its runs start, are those that chose nothing else
    check '
table = json.load(open(sys.argv[1]))["tables"][0]
gate, taus = table["statistics"]["gate"], [block["tau"] for block in table["gate"]]
verdicts = gate["entries"]["verdict"]
flat = [tau for layer in zip(*taus) for row in zip(*layer) for cell in zip(*row) for tau in cell] # entries: [layer][entropy][perplexity][budget]
assert gate["neutral_choice"] == 0.93 and table["statistics"]["head"]["neutral_choice"] == 1.0
logged = [(tau, verdict) for tau, verdict in zip(flat, verdicts, strict=True) if verdict != "no records"]
assert logged and all((tau == 0.93) == (verdict == "neutral") for tau, verdict in logged), logged
assert gate["neutral"] == sum(tau == 0.93 for tau, _ in logged) > 0, logged' "$DIR/report/report.json"
    fails 65 "was made with --*-grid" "$CKVC" fit "$DIR/fine" "$DIR/small" --out "$DIR/x.ckvt" -q
    if python3 -c 'import numpy' 2>/dev/null; then
        PYTHONPATH=python python3 -m ckvc "$DIR/small.ckvt" | grep -q .
    fi
}

@test "one weight and one threshold are a grid, too" {
    calibrate "$DIR/one" --head-grid 1 --gate-grid 0.95 --variants all
    "$CKVC" fit "$DIR/one" --out "$DIR/one.ckvt" -q
    "$CKVC" verify "$DIR/one.ckvt"
    "$CKVC" report "$DIR/one.ckvt" "$DIR/one" --out "$DIR/one-report" >/dev/null
}

@test "the gate's price and the sum of losses change the rewards, and are written down" {
    calibrate "$DIR/sum" --variants all --loss-reduction sum --beta-bud 0
    grep -q '"lambda":0' "$DIR/sum/run.json"
    grep -q '"loss_reduction":"sum"' "$DIR/sum/run.json"
    diff <(cd "$DIR/fine/scan" && sha256sum *.h5 | wc -l) <(cd "$DIR/sum/scan" && sha256sum *.h5 | wc -l)
    raw_fit "$DIR/fine"
    raw_fit "$DIR/sum"
    check '
mean, sums = (json.load(open(p)) for p in sys.argv[1:])
def flat(x):
    return [leaf for part in x for leaf in flat(part)] if isinstance(x, list) else [x]
assert any(flat(mean["MHEAD"]))
assert [16 * v for v in flat(mean["MHEAD"])] == flat(sums["MHEAD"])   # C = 16: exact
assert [16 * v for v in flat(mean["LGATE"])] == flat(sums["LGATE"])
assert flat(sums["MGATE"]) == flat(sums["LGATE"])                     # beta 0: no penalty
assert flat(mean["MGATE"]) != flat(mean["LGATE"])
assert sums["meta"]["loss_reduction"] == "sum" and sums["meta"]["lambda"] == 0 and sums["meta"]["units"]["q"] == "nats"
assert "loss_reduction" not in mean["meta"]' "$DIR/fine.raw.json" "$DIR/sum.raw.json"
    fails 65 "was made with --loss-reduction " "$CKVC" fit "$DIR/fine" "$DIR/sum" --out "$DIR/x.ckvt" -q
    "$CKVC" verify "$DIR/sum"
    "$CKVC" fit "$DIR"/sum/pass-01-both/*.h5 --out "$DIR/bare.ckvt" -q # through the reader of foreign files
    "$CKVC" inspect "$DIR/bare.ckvt" --json | grep -q '"loss_reduction":"sum"'
}

@test "grids that make no sense are usage errors in one line" {
    for bad in 0.8:1.5:0.03 0.8:0.9:0.1 1,0.9 1:8:0.01 1,9 x; do
        fails 64 --head-grid calibrate "$DIR/bad" --head-grid "$bad"
    done
    [ -f "$DIR/fine.ckvt" ] || "$CKVC" fit "$DIR/fine" --out "$DIR/fine.ckvt" -q
    fails 64 '' "$CKVC" calibrate "${OVER[@]}" -q --tables "$DIR/fine.ckvt" --gate-grid 0.9,1 --out "$DIR/bad"
    [ ! -e "$DIR/bad" ]
}
