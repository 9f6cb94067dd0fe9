# Shares of the budget from the outside: fitted from demand, alone and beside records; transferred; compared in a report.
load helper

setup_file() {
    prompts 24 >"$DIR/all.jsonl"
    head -12 "$DIR/all.jsonl" >"$DIR/prompts.jsonl"
    demand "$DIR/demand"
    tail -12 "$DIR/all.jsonl" >"$DIR/later.jsonl"
    demand "$DIR/later" --manifest "$DIR/later.jsonl"
    calibrate "$DIR/run" --holdout 0.3
    "$CKVC" fit "$DIR/demand" --ranking window --out "$DIR/d.ckvt" --no-prov -q
    "$CKVC" fit "$DIR/demand" "$DIR/run" --ranking window --out "$DIR/both.ckvt" --no-prov -q
}

# demand OUT [options]: budgets of $BUDGET
demand() {
    local out=$1
    shift
    "$CKVC" calibrate "${OVER[@]}" --side demand --budget "${BUDGET:-16,0.5}" --holdout 0.3 -q --out "$out" "$@"
}

# same A B SECTION...: those sections of two tables are equal
same() {
    local a=$1 b=$2
    shift 2
    cells "$a" >"$DIR/a.json"
    cells "$b" >"$DIR/b.json"
    check '
a, b = (json.load(open(p)) for p in sys.argv[1:3])
for k in sys.argv[3:]:
    assert a[k] == b[k], k' "$DIR/a.json" "$DIR/b.json" "$@"
}

@test "demand alone makes a table: mean 1, weight 1, no thresholds, intervals around every share" {
    says 0 "demand: * prompts; undecided: *400 resamples" "$CKVC" fit "$DIR/demand" --ranking window --out "$DIR/again.ckvt" --no-prov
    [[ $output == *"budget 16, "*" of 12 undecided, halves of the prompts agree at rho "* ]]
    [[ $output != *"nan"* && $output != *"no records"* ]]
    cmp "$DIR/again.ckvt" "$DIR/d.ckvt"
    "$CKVC" verify "$DIR/d.ckvt"
    cells "$DIR/d.ckvt" | check '
t = json.load(sys.stdin)
for b in 0, 1:
    shares = [g[b] for l in t["SHARE"] for g in l]
    assert len(shares) == 12 and abs(sum(shares) / 12 - 1) < 1e-12, shares
    assert abs(sum(l[b] for l in t["SHARELAY"]) / 4 - 1) < 1e-12, t["SHARELAY"]
    for share, (low, high) in zip(shares, [g[b] for l in t["sSHARE"] for g in l]):
        assert low - 1e-12 <= share <= high + 1e-12, (low, share, high)
assert t["CMIN"] == [[0.2, 8], [0.2, 8]] and t["SCORE"] == [[1, 32, 7, 1, 0, 1]] * 2, t["SCORE"]
assert {w for l in t["WEIGHT"] for g in l for w in g} == {1} and "QHEAD" not in t and t["meta"]["probe"] == "no-threshold"
d = t["meta"]["diagnostics"]["demand"]
assert d["prompts"] < 12 and [b["heads"]["entries"] for b in d["by_budget"]] == [12, 12], d'
}

@test "beside records, after them and before them: one table's entries and shares" {
    same "$DIR/both.ckvt" "$DIR/d.ckvt" SHARE SHARELAY CMIN SCORE sSHARE
    "$CKVC" fit "$DIR/run" --out "$DIR/sides.ckvt" -q
    same "$DIR/both.ckvt" "$DIR/sides.ckvt" WEIGHT TAU EDGEENT EDGEPPL NHEAD QGATE
    "$CKVC" fit "$DIR/demand" --ranking window --tables "$DIR/sides.ckvt" --out "$DIR/after.ckvt" -q
    [ "$(content_id "$DIR/after.ckvt")" = "$(content_id "$DIR/both.ckvt")" ]
    says 0 "demand: no records; shares are the incoming table's" "$CKVC" fit "$DIR/run" --tables "$DIR/after.ckvt" --out "$DIR/before.ckvt"
    same "$DIR/before.ckvt" "$DIR/both.ckvt" SHARE SHARELAY CMIN SCORE sSHARE WEIGHT TAU NHEAD
}

@test "a bank: logged positions, the same of every head, a prompt's second after all prompts' first" {
    needs_h5py
    awk '{ sub(/\[0,/, "[" 256 + NR ","); print }' "$DIR/prompts.jsonl" >"$DIR/unlike.jsonl" # no two positions are alike
    demand "$DIR/logged" --manifest "$DIR/unlike.jsonl"
    says 0 "bank: 14 query vectors of each query head, drawn from * that * prompts and their continuations logged" \
        "$CKVC" fit "$DIR/logged" --bank 14 --out "$DIR/bank.ckvt" --force
    "$CKVC" verify "$DIR/bank.ckvt"
    for more in "--bank-of prompt" "--bank-of continuation" "--bank 5 --ridge 0.3" "--bank 1000 --seed 2"; do
        "$CKVC" fit "$DIR/logged" --bank 14 $more --out "$DIR/bank-${more// /_}.ckvt" -q
    done
    for t in "$DIR"/bank*.ckvt; do cells "$t" >"$t.json"; done
    py "$DIR" <<'PYTHON'
import numpy as np
from unfolded import File
rows, n_rows = {}, 0
for path in glob.glob(f"{sys.argv[1]}/logged/pass-01-demand/*.h5"):
    s = File(path)
    for p, part, v in zip(*(s[f"query/{k}"] for k in ("prompt", "part", "vectors"))):
        rows[v.view("f2").astype("f4").tobytes()] = s["prompt/id"][p], int(part)
        n_rows += 1
assert len(rows) == n_rows
def bank_of(name):
    t = load(f"{sys.argv[1]}/bank{name}.ckvt.json")
    bank = np.array(t["BANK"], "f4")
    return t, [rows[np.ascontiguousarray(bank[:, :, i]).tobytes()] for i in range(bank.shape[2])], bank
t, drawn, bank = bank_of("")
assert bank.shape == (4, 6, 14, 32) and t["RIDGE"] == [[0, 0]] * 4 and t["BANKUSE"] == [[14, 96]] * 2, t["BANKUSE"]
n = len({i for i, _ in rows.values()})
assert t["meta"]["diagnostics"]["bank"] == {"of": "both", "queries": 14, "prompts": n, "rows": n_rows}, t["meta"]["diagnostics"]["bank"]
assert [part for _, part in drawn] == [0, 1] * 7 and max(collections.Counter(i for i, _ in drawn[:n // 2 * 2]).values()) == 1, drawn
for of, name in enumerate(("prompt", "continuation")):
    t, one, _ = bank_of(f"---bank-of_{name}")
    assert one[:7] == drawn[of::2] and {part for _, part in one} == {of}, one
    assert max(collections.Counter(i for i, _ in one[:n]).values()) == 1
t, few, _ = bank_of("---bank_5_--ridge_0.3")
assert few == drawn[:5] and t["RIDGE"] == [[0.3, 0.3]] * 4 and t["BANKUSE"] == [[5, 96]] * 2
t, all_of_them, _ = bank_of("---bank_1000_--seed_2")
assert sorted(all_of_them) == sorted(rows.values()) and all_of_them[:14] != drawn
PYTHON
    "$CKVC" inspect "$DIR/bank.ckvt" --json | check 'b = json.load(sys.stdin)["bank"]
assert (b["queries"], b["head_dim"], b["bytes"]) == (14, 32, 4 * 6 * 14 * 32 * 2) and b["ridge"] == [[0, 0]] * 4, b
assert [(u["queries"], u["span"]) for u in b["use"]] == [(14, 96)] * 2, b'
    "$CKVC" inspect "$DIR/bank---bank_5_--ridge_0.3.ckvt" | grep -q "ridge: *0.3 ... 0.3"
}

@test "a bank beside records is that of demand alone; without logged queries, or with --bank 0, there is none" {
    same "$DIR/both.ckvt" "$DIR/d.ckvt" BANK RIDGE BANKUSE
    same "$DIR/before.ckvt" "$DIR/both.ckvt" BANK RIDGE BANKUSE
    demand "$DIR/bare" --queries 0
    "$CKVC" fit "$DIR/bare" --out "$DIR/bare.ckvt" -q
    "$CKVC" fit "$DIR/demand" --bank 0 --out "$DIR/bankless.ckvt" -q
    for t in bare bankless; do
        [[ $(cells "$DIR/$t.ckvt") != *'"BANK"'* && $("$CKVC" inspect "$DIR/$t.ckvt" --json) != *'"bank"'* ]]
    done
    same "$DIR/bare.ckvt" "$DIR/bankless.ckvt" SHARE THETA MASS
    fails 64 "--ridge" "$CKVC" fit "$DIR/bare" --ridge 1 --out "$DIR/x.ckvt"
    fails 64 "--bank is 0" "$CKVC" fit "$DIR/demand" --bank 0 --ridge 1 --out "$DIR/x.ckvt"
    fails 64 "--bank" "$CKVC" fit "$DIR/demand" --bank 1025 --out "$DIR/x.ckvt"
    fails 71 "--memory" "$CKVC" fit "$DIR/demand" --bank 1000 --memory 1M --out "$DIR/x.ckvt"
    "$CKVC" fit "$DIR/demand" "$DIR/bare" --out "$DIR/first.ckvt" -q # other numbers of queries pool
}

@test "two runs of demand pool; of other floors or budgets they do not" {
    "$CKVC" fit "$DIR/demand" "$DIR/later" --out "$DIR/pooled.ckvt" -q
    "$CKVC" fit "$DIR/later" "$DIR/demand" --out "$DIR/turned.ckvt" -q
    [ "$(content_id "$DIR/pooled.ckvt")" = "$(content_id "$DIR/turned.ckvt")" ]
    demand "$DIR/floor" --demand-floor 0.3
    fails 65 "--demand-floor 0." "$CKVC" fit "$DIR/demand" "$DIR/floor" --out "$DIR/x.ckvt"
    [[ $output == *0.05* && $output == *0.3* ]]
    BUDGET=16,0.25 demand "$DIR/other"
    fails 65 --budget "$CKVC" fit "$DIR/other" "$DIR/run" --out "$DIR/x.ckvt"
    fails 71 '' "$CKVC" fit "$DIR/demand" --memory 1K --out "$DIR/x.ckvt"
    [ ! -e "$DIR/x.ckvt" ]
}

@test "rewards of shares and of thresholds below them are gone: what asks for them, or holds them, is refused by one line" {
    "$CKVC" fit "$DIR/demand" --mode layers --ranking window --out "$DIR/layers.ckvt" -q
    "$CKVC" fit "$DIR/demand" --mode uniform --ranking window --out "$DIR/shared.ckvt" -q
    ask() { "$CKVC" calibrate "${OVER[@]}" --keep-window 0 --operator no-threshold --side "$1" --tables "$2" --dry-run -q; }
    fails 64 "--side head: $DIR/d.ckvt recommends budgets of heads, and ckvc no longer logs rewards of shares" ask head "$DIR/d.ckvt"
    fails 64 "--side gate: $DIR/layers.ckvt recommends budgets of layers, and ckvc no longer logs" ask gate "$DIR/layers.ckvt"
    run -0 ask head "$DIR/shared.ckvt" # weights under it are the paper's way
    fails 64 "unknown option*--rewards" "$CKVC" compile "${OVER[@]}" --budget 16 --rewards --out "$DIR/none"
    for kind in shares cuts; do # a run by an earlier ckvc
        rm -rf "$DIR/old"
        cp -r "$DIR/demand" "$DIR/old"
        sed -i "s/pass-01-demand/pass-02-$kind/" "$DIR/old/journal.jsonl"
        for verb in "fit --out $DIR/none.ckvt" status verify "inspect --records"; do
            fails 65 "journal.jsonl:1: pass pass-02-$kind has losses under other shares, or under thresholds below them, which this version of ckvc no longer has" "$CKVC" ${verb%% *} "$DIR/old" ${verb#"${verb%% *}"}
        done
    done
    [ ! -e "$DIR/none.ckvt" ]
}

@test "transfer: to its own model the same shares; by rank they follow the spread; in depth mean 1" {
    for heads in index signature rank; do
        "$CKVC" transfer "$DIR/both.ckvt" --heads "$heads" --scan "$DIR/run" --out "$DIR/$heads.ckvt" 2>/dev/null
        "$CKVC" verify "$DIR/$heads.ckvt"
        cells "$DIR/$heads.ckvt" >"$DIR/$heads.json"
    done
    "$CKVC" transfer "$DIR/both.ckvt" --to-shape 7,5 --out "$DIR/deep.ckvt"
    cells "$DIR/deep.ckvt" >"$DIR/deep.json"
    cells "$DIR/both.ckvt" | check '
t = json.load(sys.stdin)
index, signature, rank, deep = (json.load(open(f"{sys.argv[1]}/{n}.json")) for n in ("index", "signature", "rank", "deep"))
near = lambda a, b: abs(a - b) < 1e-12
for o in index, signature:
    assert all(near(x, y) for a, b in zip(t["SHARE"], o["SHARE"]) for g, h in zip(a, b) for x, y in zip(g, h))
    assert "sSHARE" not in o and o["CMIN"] == t["CMIN"] and o["SCORE"] == t["SCORE"]
for l, layer in enumerate(t["SHARE"]):
    order = sorted(range(3), key=lambda g: t["hSIG"][l][g][0])
    for b in 0, 1:
        assert all(near(x, y) for x, y in zip([rank["SHARE"][l][g][b] for g in order], sorted(g[b] for g in layer)))
assert "share_rank_agreement_in_source" in rank["xFER"]
for b in 0, 1:  # bilinear at relative depth and place, then divided by the mean
    want = []
    for i in range(7):
        for j in range(5):
            x, y = i * 3 / 6, j * 2 / 4
            p, q = min(int(x), 2), min(int(y), 1)
            s = lambda l, g: t["SHARE"][l][g][b]
            want.append((1 - x + p) * ((1 - y + q) * s(p, q) + (y - q) * s(p, q + 1))
                        + (x - p) * ((1 - y + q) * s(p + 1, q) + (y - q) * s(p + 1, q + 1)))
    got = [g[b] for l in deep["SHARE"] for g in l]
    assert all(near(x, y * 35 / sum(want)) for x, y in zip(got, want)), (got, want)
    assert near(sum(l[b] for l in deep["SHARELAY"]) / 7, 1)' "$DIR"
}

@test "a report says how far shares of two tables agree, with the runs of both" {
    "$CKVC" fit "$DIR/later" --out "$DIR/l.ckvt" -q
    "$CKVC" report "$DIR/d.ckvt" "$DIR/l.ckvt" "$DIR/demand" "$DIR/later" "$DIR/run" --out "$DIR/report" >/dev/null
    grep -q "Shares of heads of T1 and T2" "$DIR/report/report.html"
    cells "$DIR/d.ckvt" >"$DIR/a.json"
    cells "$DIR/l.ckvt" >"$DIR/b.json"
    check '
d, l, r = (json.load(open(f"{sys.argv[1]}/{n}")) for n in ("a.json", "b.json", "report/report.json"))
def ranks(x):
    return [sum(v < u for v in x) + (sum(v == u for v in x) - 1) / 2 for u in x]
def rho(x, y):
    x, y = ranks(x), ranks(y)
    m = (len(x) - 1) / 2
    return sum((a - m) * (b - m) for a, b in zip(x, y)) / (sum((a - m) ** 2 for a in x) * sum((b - m) ** 2 for b in y)) ** 0.5
(pair,) = r["pairs"]
for b, s in enumerate(pair["shares"]):
    x, y = ([g[b] for layer in t["SHARE"] for g in layer] for t in (d, l))
    assert abs(s["overall"] - rho(x, y)) < 1e-12, (s, rho(x, y))
    assert s["n"] == 12 and s["split_half_a"] > 0
    assert -1 <= s["lo"] <= s["overall"] <= s["hi"] <= 1 and s["lo"] < s["hi"], s
    assert len(s["bin_lo"]) == len(s["bin_hi"]) == len(s["bins"])' "$DIR"
    page "$DIR/report" >"$DIR/page"
    [ "$(grep -c "heads with the most hold" "$DIR/page")" -eq 2 ]
    [ "$(sed -n "/^Rank agreement of heads' shares/,/^Lines are/p" "$DIR/page" | grep -c "^all heads\|^layer ")" -eq 7 ] # two budgets, all heads and four layers; what is undefined is not drawn
    check '
d, r = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("a.json", "report/report.json"))
at = r["tables"][0]["shares"][0]
lo, share, hi = (sum(at[k], []) for k in ("lo", "share", "hi"))
assert at["budget"] == 16 and len(share) == 12 and all(a <= x <= b for a, x, b in zip(lo, share, hi)), at
assert share == [g[0] for layer in d["SHARE"] for g in layer]' "$DIR"
}

@test "a learned ranking for keys of another length than the model's is refused" {
    local models=tests/golden/models # mistral has 3 layers of 2 KV heads of 10, internlm2 of 12
    awk 'BEGIN {
        for (i = 0; i < 4; i++) {
            ids = "0"
            for (t = 1; t < 60; t++) { ids = ids "," (t * (7 + i) + t % 5) % 250 }
            printf "{\"id\":\"p%d\",\"tokens\":[%s]}\n", i, ids
        }
    }' >"$DIR/ids.jsonl"
    args=(--manifest "$DIR/ids.jsonl" --window 8 --continuation 8 -q)
    "$CKVC" calibrate --model $models/mistral "${args[@]}" --side demand --no-repeat --budget 16 --out "$DIR/keys-demand"
    "$CKVC" calibrate --model $models/mistral "${args[@]}" --side score --no-repeat --out "$DIR/keys-score"
    "$CKVC" fit "$DIR/keys-demand" "$DIR/keys-score" --out "$DIR/keys.ckvt" --bootstrap 0 -q
    "$CKVC" score --model $models/mistral "${args[@]}" --table "$DIR/keys.ckvt" --out "$DIR/keys.jsonl" 2>/dev/null
    fails 65 "keys.ckvt: its learned ranking has 34 features, for keys of another length than the model's 12;" \
        "$CKVC" score --model $models/internlm2 "${args[@]}" --table "$DIR/keys.ckvt" --out "$DIR/none.jsonl"
    [ ! -e "$DIR/none.jsonl" ]
}

@test "one pass: a learned ranking from a run of demand alone; other weights of the continuation; a score pass of other positions comes first" {
    "$CKVC" fit "$DIR/demand" --out "$DIR/one.ckvt" --no-prov -q
    "$CKVC" calibrate "${OVER[@]}" --side score --holdout 0.3 -q --out "$DIR/alone"
    "$CKVC" fit "$DIR/demand" "$DIR/alone" --out "$DIR/two.ckvt" --no-prov -q
    same "$DIR/one.ckvt" "$DIR/two.ckvt" SHARE SHARELAY CMIN SCORE sSHARE THETA MASS
    "$CKVC" calibrate "${OVER[@]}" --side score --positions 48 --holdout 0.3 -q --out "$DIR/fewer"
    "$CKVC" fit "$DIR/fewer" "$DIR/demand" --out "$DIR/three.ckvt" --no-prov -q
    "$CKVC" fit "$DIR/demand" --mix 0.75 --out "$DIR/mixed.ckvt" --no-prov -q
    "$CKVC" inspect "$DIR/one.ckvt" "$DIR/three.ckvt" "$DIR/mixed.ckvt" --json | check '
one, three, mixed = (json.loads(line) for line in sys.stdin)
assert [t["meta"]["diagnostics"]["learned"]["positions"] for t in (one, three)] == [128, 48]
assert mixed["features"] == one["features"] and mixed["shares"] != one["shares"]
said = lambda t: [b.get("mix") for b in t["meta"]["diagnostics"]["demand"]["by_budget"]]
assert said(mixed) == [0.75, 0.75] and said(one) == [None, None], (said(mixed), said(one))'
    fails 65 "--mix 0.3 was not logged. This run has 0, 0.25, 0.5, 0.75 and 1; choose one, or calibrate again" "$CKVC" fit "$DIR/demand" --mix 0.3 --out "$DIR/none.ckvt"
    # of the held-out prompts as many as judge
    [ "$("$CKVC" inspect "$DIR/demand" --json | check 'print(json.load(sys.stdin)["plan"]["judges"])')" -eq 8 ]
    "$CKVC" calibrate "${OVER[@]}" --side demand --budget 16,0.5 --holdout 0.3 --judges 0 -q --out "$DIR/unjudged"
    run -0 "$CKVC" fit "$DIR/unjudged" --out "$DIR/unjudged.ckvt" --no-prov
    [[ $output == *"learned ranking: "* && $output != *"held-out"* ]]
    same "$DIR/one.ckvt" "$DIR/unjudged.ckvt" SHARE THETA MASS
}

@test "a learned ranking beside shares: fitted from --side score, in the table, and what its sets are ranked by" {
    "$CKVC" calibrate "${OVER[@]}" --side score --positions 48 --holdout 0.3 -q --out "$DIR/score"
    says 0 "learned ranking: * prompts, 48 positions of each head; cross-entropy*(gradient left 1e-09)" "$CKVC" fit "$DIR/demand" "$DIR/score" --out "$DIR/learned.ckvt" --no-prov
    [[ $output == *"held-out prompts "*", of the window score "* && $output != *nan* ]]
    "$CKVC" verify "$DIR/learned.ckvt"
    same "$DIR/learned.ckvt" "$DIR/d.ckvt" SHARE SHARELAY CMIN sSHARE
    "$CKVC" fit "$DIR/score" "$DIR/demand" --out "$DIR/learned2.ckvt" --no-prov -q
    cmp "$DIR/learned.ckvt" "$DIR/learned2.ckvt"
    "$CKVC" fit "$DIR/score" --tables "$DIR/learned.ckvt" --out "$DIR/learned4.ckvt" --no-prov -q
    same "$DIR/learned.ckvt" "$DIR/learned4.ckvt" SHARE SCORE THETA MASS
    "$CKVC" fit "$DIR/score" --tables "$DIR/d.ckvt" --out "$DIR/learned3.ckvt" --no-prov -q
    "$CKVC" inspect "$DIR/learned.ckvt" "$DIR/learned3.ckvt" --json | check '
a, b = (json.loads(line) for line in sys.stdin)
for t in a, b:
    assert all(s["score"] == "learned" for s in t["score"]), t["score"]
    f = t["features"]
    assert f["version"] == 1 and len(f["theta"]) == 4 and len(f["theta"][0]) == 3 and len(f["theta"][0][0]) == 56
d = a["meta"]["diagnostics"]["learned"]
assert d["heldout_cross_entropy"] < d["heldout_cross_entropy_window"], d
assert a["features"] == b["features"]'
    run -0 "$CKVC" fit "$DIR/demand" "$DIR/score" --features 2 --out "$DIR/few.ckvt" --no-prov
    [[ $output == *"held-out prompts "*", of the window score "* && $output != *nan* ]]
    "$CKVC" fit "$DIR/demand" "$DIR/score" --mode layers --out "$DIR/alike.ckvt" --no-prov -q
    "$CKVC" inspect "$DIR/learned.ckvt" "$DIR/few.ckvt" "$DIR/alike.ckvt" --json | check '
a, b, alike = (json.loads(line) for line in sys.stdin)
assert alike["features"]["mass"] == [[1] * 3] * 4 and alike["features"]["theta"] == a["features"]["theta"], alike["features"]["mass"]
assert all((s["score"], s["window"], s["features"]) == ("learned", 0, 2) for s in b["score"]), b["score"]
assert b["features"]["version"] == 2 and b["features"]["n"] == 43 and b["features"]["mass"] == a["features"]["mass"]
a, b = (t["meta"]["diagnostics"]["learned"] for t in (a, b))
assert b["cross_entropy"] > a["cross_entropy"], (a, b)
assert b["heldout_cross_entropy_window"] == a["heldout_cross_entropy_window"]'
    "$CKVC" calibrate "${OVER[@]}" --side score --positions 200 --holdout 0.3 -q \
        --out "$DIR/every" # all positions of every prompt: half of them say the same to 1%
    "$CKVC" fit "$DIR/demand" "$DIR/every" --out "$DIR/every.ckvt" --no-prov -q
    "$CKVC" inspect "$DIR/learned.ckvt" "$DIR/every.ckvt" --json | check '
some, every = (json.loads(line)["meta"]["diagnostics"]["learned"] for line in sys.stdin)
for key in "heldout_cross_entropy", "heldout_cross_entropy_window":
    assert some[key] != every[key] and abs(some[key] / every[key] - 1) < 0.01, (key, some, every)'
    args=(--model "$MODEL" --manifest "$DIR/later.jsonl" --window 16 --continuation 16 -B 16,0.5 -q)
    "$CKVC" score "${args[@]}" --table "$DIR/learned.ckvt" --out "$DIR/sl.jsonl" --sets 2>/dev/null
    "$CKVC" score "${args[@]}" --table "$DIR/learned.ckvt" --ranking window --out "$DIR/sw.jsonl" --sets 2>/dev/null
    "$CKVC" score "${args[@]}" --table "$DIR/d.ckvt" --out "$DIR/sd.jsonl" --sets 2>/dev/null
    check '
learned, window, plain = ([json.loads(x) for x in open(f"{sys.argv[1]}/{n}.jsonl")] for n in ("sl", "sw", "sd"))
assert all(r["score"] == "learned" for r in learned) and all(r["score"] == "window" for r in window + plain)
assert [r["entries"] for r in learned] == [r["entries"] for r in window]
assert [r["sets"] for r in window] == [r["sets"] for r in plain] and [r["sets"] for r in learned] != [r["sets"] for r in plain]' "$DIR"
    run -65 "$CKVC" fit "$DIR/score" --out "$DIR/none.ckvt"
    [ ! -e "$DIR/none.ckvt" ]
    [[ $output == *"--side demand"* ]]
    fails 65 "--side score" "$CKVC" score "${args[@]}" --table "$DIR/d.ckvt" --ranking learned --out "$DIR/none.jsonl"
}
