# Probes of the operator and budgets by layer: from records to tables that say what they are, and that nobody runs as something else.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 6 >"$DIR/prompts.jsonl"
    printf '# layer 0 first\n16\n24\n0x\n' >"$DIR/bad.txt"
    printf '16\n24 # more in the middle\n40\n16\n' >"$DIR/layers.txt"
}

@test "an operator's records give its table; others refuse to run or pool it" {
    for op in no-utility mean-pool; do
        calibrate "$DIR/$op" --operator $op --check-rollouts 0.3
        "$CKVC" fit "$DIR/$op" --out "$DIR/$op.ckvt" -q
        "$CKVC" verify "$DIR/$op.ckvt" "$DIR/$op"
        "$CKVC" inspect "$DIR/$op.ckvt" --json | check "assert json.load(sys.stdin)['meta']['probe'] == '$op'"
        "$CKVC" inspect "$DIR/$op/pass-01-both/shard-00000.h5" --json | grep -q "\"operator\":\"$op\""
        grep -q "\"operator\":\"$op\"" "$DIR/$op/run.json"
    done
    fails 65 operator "$CKVC" fit "$DIR/no-utility" "$DIR/mean-pool" --out "$DIR/x.ckvt"
    # A pass under such a table has its operator, and no other.
    local more=("${OVER[@]}" --variants 8 --side gate -q --limit 2)
    "$CKVC" calibrate "${more[@]}" --tables "$DIR/mean-pool.ckvt" --out "$DIR/gate"
    grep -q '"operator":"mean-pool"' "$DIR/gate/run.json"
    fails 65 '' "$CKVC" calibrate "${more[@]}" --tables "$DIR/mean-pool.ckvt" --operator paper --out "$DIR/x"
    "$CKVC" transfer "$DIR/mean-pool.ckvt" --to-shape 2,1 --out "$DIR/small.ckvt" >/dev/null
    "$CKVC" inspect "$DIR/small.ckvt" --json | grep -q '"probe":"mean-pool"'
}

@test "without thresholds there is no gate side, and nobody speaks of thresholds" {
    fails 64 '' calibrate "$DIR/nt" --operator no-threshold
    "$CKVC" calibrate "${SMALL[@]:0:${#SMALL[@]}-1}" --manifest "$DIR/prompts.jsonl" --operator no-threshold --side head --limit 4 --out "$DIR/nt" 2>"$DIR/nt.txt"
    "$CKVC" fit "$DIR/nt" --out "$DIR/nt.ckvt" -q
    "$CKVC" inspect "$DIR/nt.ckvt" --json | grep -q '"probe":"no-threshold"'
    grep -q "no thresholds are in use" "$DIR/nt.txt"
    "$CKVC" report "$DIR/nt" --out "$DIR/nt-report" >"$DIR/says"
    [ "$(grep -c "has no thresholds: every layer keeps its whole budget" "$DIR/says")" -eq 1 ] # said once, not at every budget
    run -1 grep -q "not alive\|--gate-grid" "$DIR/nt.txt" "$DIR/says" "$DIR/nt-report/report.html"
}

@test "a default run says nothing of operators or layers" {
    calibrate "$DIR/plain" --limit 2
    run -1 grep -E 'operator|layer_budgets' "$DIR/plain/run.json"
    run -1 grep -E 'operator|layer_budgets' <("$CKVC" inspect "$DIR/plain/pass-01-both/shard-00000.h5" --json)
}

@test "budgets by layer: each layer's block is logged, the others are not" {
    local few=("${OVER[@]}" --bins 2,2 --min-cell 1 -q)
    "$CKVC" calibrate "${few[@]}" --variants 24 --layer-budgets "$DIR/layers.txt" --budget 16,32 --check-rollouts 0.3 --out "$DIR/layers"
    "$CKVC" fit "$DIR/layers" --out "$DIR/layers.ckvt" -q
    "$CKVC" inspect "$DIR/layers.ckvt" --json --cells | check '
t = json.load(sys.stdin)
assert t["BUDGET"] == [16, 32] and t["meta"]["layer_budgets"] == [16, 24, 40, 16], t["meta"]
counted = [[sum(n) for n in zip(*[[sum(a) for a in head] for head in layer])] for layer in t["NHEAD"]]
# 16 and 16 are of the first block; 24 is nearer to 32 than to 16 by ratio, and so is 40
assert [[n > 0 for n in layer] for layer in counted] == [[True, False], [False, True], [False, True], [True, False]], counted'
    grep -q '"layer_budgets":\[16,24,40,16\]' "$DIR/layers/run.json"
    # Without --budget every value has a block of its own.
    "$CKVC" calibrate "${few[@]}" --variants 8 --limit 2 --layer-budgets "$DIR/layers.txt" --out "$DIR/own"
    "$CKVC" inspect "$DIR/own/pass-01-both/shard-00000.h5" --json | grep -q '"budgets":\[16,24,40\]'
    fails 65 bad.txt:4: calibrate "$DIR/x3" --layer-budgets "$DIR/bad.txt"
    fails 66 '' calibrate "$DIR/x3" --layer-budgets "$DIR/none.txt"
}

@test "six budgets in one run, tokens and shares" {
    "$CKVC" calibrate --model "$MODEL" --window 16 --continuation 8 --bins 1,1 --min-cell 1 --variants 120 -q --manifest "$DIR/prompts.jsonl" --limit 3 \
        --budget 8,16,32,64,0.25,0.6 --check-rollouts 0.2 --out "$DIR/six"
    "$CKVC" fit "$DIR/six" --out "$DIR/six.ckvt" -q
    "$CKVC" inspect "$DIR/six.ckvt" --json | check '
t = json.load(sys.stdin)
assert t["budgets"] == [8, 16, 32, 64, 0.25, 0.6] and len(t["weight"]) == 6, t["budgets"]'
}

@test "score: every control and reference says its kind and its table; lines differ by what is asked" {
    calibrate "$DIR/run"
    "$CKVC" fit "$DIR/run" --out "$DIR/a.ckvt" -q
    "$CKVC" fit "$DIR/run" --out "$DIR/b.ckvt" -q --label b --unsupported safest
    local score=("$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --limit 2 -q)
    "${score[@]}" --table "$DIR/a.ckvt,$DIR/b.ckvt" --budget 16 --out "$DIR/s.jsonl" \
        --policy identity,matched,recent,sink-recent,random,top-k,window,window-pooled,no-utility,no-threshold,mean-gate,mean-pool,head-only,gate-only
    "${score[@]}" --table "$DIR/a.ckvt" --budget 16 --policy window,recent --equal-tokens --out "$DIR/e.jsonl"
    "${score[@]}" --table "$DIR/a.ckvt" --policy identity,recent --layer-budgets "$DIR/layers.txt" --out "$DIR/l.jsonl"
    check '
folder, a, b = sys.argv[1:]
rows = [json.loads(line) for line in open(folder + "/s.jsonl")]
by = collections.Counter((r["policy"], r["table"]) for r in rows)
alone = {"identity", "recent", "sink-recent", "random", "top-k", "window", "window-pooled"}
each = {"table", "matched", "no-utility", "no-threshold", "mean-gate", "mean-pool", "head-only", "gate-only"}
assert by == {**{(p, None): 2 for p in alone}, **{(p, t): 2 for p in each for t in (a, b)}}, by
keys = {frozenset(r) for r in rows}
assert keys == {frozenset(("id source split model manifest token_hash policy table tau T C budget r_struct r_sem bin_entropy bin_perplexity "
                           "n_candidates n_kept n_kept_window entries head_dim loss_full loss_comp reward kl window").split())}, keys
equal = [json.loads(line) for line in open(folder + "/e.jsonl")]
assert collections.Counter((r["policy"], r["table"]) for r in equal) == {(p, a): 2 for p in ("window", "recent", "table")}
kept = {r["id"]: r["n_kept"] for r in equal if r["policy"] == "table"}
assert all(r["n_kept"] == kept[r["id"]] for r in equal)
layers = [json.loads(line) for line in open(folder + "/l.jsonl")]
assert len(layers) == 6 and all(r["layer_budgets"] == [16, 24, 40, 16] and r["budget"] == 24 for r in layers)
assert all(r["n_kept"] == [16, 24, 40, 16] for r in layers if r["policy"] == "recent")' "$DIR" "$(content_id "$DIR/a.ckvt")" "$(content_id "$DIR/b.ckvt")"
    "$CKVC" report "$DIR/a.ckvt" "$DIR/run" --scores "$DIR/s.jsonl" --scores "$DIR/e.jsonl" --scores "$DIR/l.jsonl" --out "$DIR/report" >/dev/null || {
        "$CKVC" report --help | grep -- --scores; return 1; }
}
