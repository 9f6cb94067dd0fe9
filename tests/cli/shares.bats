# Tables with budgets for heads: what inspect and verify say of them.
load helper

TABLE=tests/golden/table/shares.ckvt

setup() { DIR=$(mktemp -d); }
teardown() { rm -rf "$DIR"; }

@test "inspect prints shares, floors and what is recommended" {
    "$CKVC" inspect "$TABLE" --json | check '
t = json.load(sys.stdin)
L, G, B = (t["shape"][k] for k in ("n_layers", "n_kv_heads", "n_budgets"))
assert [len(t["shares"]), len(t["shares"][0]), len(t["shares"][0][0])] == [L, G, B], t["shares"]
assert t["layer_shares"] == [[1, 1]] and t["c_min"][1] == {"budget": 64, "floor": 0.5, "recent": 8}
assert t["score"][0] == {"budget": 0.25, "mode": "heads", "score": "window", "window": 32, "pool": 7, "norm": True, "features": 0}'
    says 0 "shares:           0.25 ... 1.75" "$CKVC" inspect "$TABLE"
    [[ $output == *"layer_shares:     1 ... 1"* ]]
    run "$CKVC" verify "$TABLE"
    [ "$output" = "$TABLE: ok, table" ]
    # what each budget recommends stands together near the end, candidates that were dropped are counted, and diagnostics named
    says 0 "recommends:
    budget  ranking  floor  fitted_with_lambda  KL_where_chosen
    0.0625  bank       0.4                 0.1  0.1444" "$CKVC" inspect docs/results/smollm2-135m/table.ckvt
    [[ $output == *"diagnostics:  --json prints them"*"dropped_earlier: 14"* && $output != *split_halves* ]]
    run "$CKVC" inspect tests/golden/table/evidence.ckvt
    [[ $output != *shares* ]]
}

@test "inspect prints a learned ranking, and one line of it" {
    local table=tests/golden/table/learned.ckvt
    "$CKVC" inspect "$table" --json | check '
t = json.load(sys.stdin)
L, G = t["shape"]["n_layers"], t["shape"]["n_kv_heads"]
f = t["features"]
assert f["version"] == 1 and f["n"] == 26 and f["mass"] == [[0.75, 0.25]], f
assert [len(f["theta"]), len(f["theta"][0]), len(f["theta"][0][0])] == [L, G, f["n"]]
assert t["score"][0] == {"budget": 0.25, "mode": "heads", "score": "learned", "window": 64, "pool": 0, "norm": False, "features": 1}'
    says 0 "features:         version 1, 26 a head, mass 0.25 ... 0.75" "$CKVC" inspect "$table"
    run "$CKVC" verify "$table"
    [ "$output" = "$table: ok, table" ]
}

@test "a damaged table is one line, and 65" {
    sed 's/SHARELAY/SHARELAX/' "$TABLE" >"$DIR/t.ckvt"
    fails 65 "t.ckvt: " "$CKVC" verify "$DIR/t.ckvt"
}
