# Rewards of shares: calibrate --side head under a table with shares, fit with one price, and what is refused.
load helper

setup_file() {
    prompts 8 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate "${COMMON[@]}" --side demand --budget 24,0.5 --out "$DIR/demand"
    "$CKVC" fit "$DIR/demand" --out "$DIR/heads.ckvt" --no-prov -q
    "$CKVC" fit "$DIR/demand" --mode layers --out "$DIR/layers.ckvt" --no-prov -q
    rewards "$DIR/run"
}
COMMON=("${OVER[@]}" --shard-prompts 4 --holdout 0.3 -q)

# rewards OUT [options]
rewards() { "$CKVC" calibrate "${COMMON[@]}" --side head --tables "$DIR/heads.ckvt" --variants all --out "$@"; }

@test "one pass of every head's factors; held-out prompts under the table's own shares alone; the losses are score's" {
    needs_h5py
    "$CKVC" verify "$DIR/run"
    "$CKVC" score "${OVER[@]}" -B 24,0.5 --table "$DIR/heads.ckvt" --nearest-budget -q --out "$DIR/s.jsonl" 2>/dev/null
    "$CKVC" inspect "$DIR/run" --json | check '
run = json.load(sys.stdin)
assert [p["kind"] for p in run["passes"]] == ["shares"] and run["passes"][0]["complete"], run["passes"]
assert run["plan"]["mode"] == "heads" and run["plan"]["variants"] == "all", run["plan"]'
    check '
from unfolded import File
score = {(r["id"], r["budget"]): r for r in map(json.loads, open(sys.argv[1] + "/s.jsonl"))}
n = 0
for f in sorted(glob.glob(sys.argv[1] + "/run/pass-01-shares/*.h5")):
    h = File(f)
    factors = list(h.attrs["head_actions"])
    assert len(factors) == 7 and factors[3] == 1 and abs(factors[4] ** 2 - 2) < 1e-15, factors
    losses, entries = h["prompt/action_loss"][:], h["prompt/action_entries"][:]
    assert losses.shape[1:] == (2, 4, 3, 7), losses.shape
    for p, (name, split, T) in enumerate(zip(h["prompt/id"], h["prompt/split"], h["prompt/n_tokens"])):
        for b, budget in enumerate((24, 0.5)):
            r = score[name.decode(), budget]
            own = entries[p, b, :, :, 3]
            assert r["entries"] == own.sum() and (losses[p, b, :, :, 3] == losses[p, b, 0, 0, 3]).all()
            assert losses[p, b, 0, 0, 3] == r["loss_comp"], (losses[p, b, 0, 0, 3], r)
            tried = entries[p, b][:, :, [0, 1, 2, 4, 5, 6]]
            if split == b"heldout":
                assert not tried.any() and not losses[p, b][:, :, [0, 1, 2, 4, 5, 6]].any()
                continue
            n += 1
            assert (tried > 0).all() and (tried <= T).all()
            assert (entries[p, b][:, :, 0] <= own).all() and (entries[p, b][:, :, 6] >= own).all()
            assert (losses[p, b] != losses[p, b, 0, 0, 3]).any()
assert n >= 10, n' "$DIR"
}

@test "--loss kl: the divergences are score's, in a sweep and one by one; a head pass, too; no fit takes both" {
    needs_h5py
    rewards "$DIR/run-kl" -q --loss kl --check-rollouts 0.2
    rewards "$DIR/run-kl-plain" -q --loss kl --rollouts plain --threads 1
    "$CKVC" calibrate "${COMMON[@]}" --side head --variants 24 -q --loss kl --check-rollouts 0.2 --out "$DIR/heads-kl"
    "$CKVC" score "${OVER[@]}" -B 24,0.5 --table "$DIR/heads.ckvt" --nearest-budget -q --out "$DIR/s.jsonl" --force 2>/dev/null
    "$CKVC" fit "$DIR/run-kl" --tables "$DIR/heads.ckvt" -q --out "$DIR/kl.ckvt"
    "$CKVC" inspect "$DIR/kl.ckvt" --json | grep -q '"loss":"kl"'
    fails 65 "--loss kl" "$CKVC" fit "$DIR/run" "$DIR/run-kl" --tables "$DIR/heads.ckvt" -q --out "$DIR/none.ckvt"
    check '
from unfolded import File
score = {(r["id"], r["budget"]): r for r in map(json.loads, open(sys.argv[1] + "/s.jsonl"))}
files = [sorted(glob.glob(sys.argv[1] + f"/{run}/pass-01-{kind}/*.h5")) for run, kind in (("run-kl", "shares"), ("run-kl-plain", "shares"), ("heads-kl", "head"))]
assert len(files[0]) == len(files[1]) > 0 and files[2]
for f, g in zip(*files[:2]):
    f, g = File(f), File(g)
    assert f.attrs["loss"] == b"kl" and (f["prompt/action_loss"][:] == g["prompt/action_loss"][:]).all()
    for p, name in enumerate(f["prompt/id"]):
        for b, budget in enumerate((24, 0.5)):
            r, got = score[name.decode(), budget], f["prompt/action_loss"][p, b, 0, 0, 3]
            assert got == r["kl"] > 0 and abs(f["prompt/loss_full"][p]) < 2e-6, (got, r["kl"])
for f in files[2]:
    f = File(f)
    assert (f["record/reward"][:] <= 2e-6).all() and (f["record/reward"][:] < -1e-4).any()' "$DIR"
}

@test "the same shards in sweeps and one by one, on one thread, with less memory, after any interruption" {
    rewards "$DIR/plain" --rollouts plain --threads 1
    rewards "$DIR/less" --memory 20M --check-rollouts 0
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/plain")
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/less")
    killed "0.05 0.1 0.15 0.2 0.25 0.3" rewards "$DIR/killed"
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/killed")
    "$CKVC" calibrate "${COMMON[@]}" --side head --tables "$DIR/heads.ckvt" --limit 3 --check-rollouts 1 --out "$DIR/checked"
}

@test "--variants takes whole states up to so many rollouts; --dry-run writes nothing" {
    needs_h5py
    rewards "$DIR/few" --variants 10
    check '
from unfolded import File
for f in glob.glob(sys.argv[1] + "/few/pass-01-shares/*.h5"):
    h = File(f)
    for entries, split in zip(h["prompt/action_entries"][:], h["prompt/split"]):
        if split == b"heldout": continue
        states = entries.reshape(-1, 7)
        tried = [e for e in states if e[0] > 0]
        assert 1 <= len(tried) < len(states)
        assert sum(len(set(e) - {e[3]}) for e in tried) <= 10 or len(tried) == 1
        assert all((e > 0).all() for e in tried) and all(not e[[0, 1, 2, 4, 5, 6]].any() for e in states if e[0] == 0)' "$DIR"
    says 0 "hours: *disk_bytes: *at_most: " "$CKVC" calibrate "${COMMON[@]}" --side head --tables "$DIR/heads.ckvt" --dry-run
}

@test "fit: shares of mean 1 under one price, with intervals and --shrink; in any order, alone and in modes heads and layers" {
    says 0 "rewards of heads: * records of * prompts*shares changed*price" "$CKVC" fit "$DIR/run" --tables "$DIR/heads.ckvt" --bootstrap 50 --out "$DIR/r.ckvt" --no-prov
    "$CKVC" verify "$DIR/r.ckvt"
    "$CKVC" fit "$DIR/run"/pass-01-shares/*.h5 --tables "$DIR/heads.ckvt" --bootstrap 50 --out "$DIR/h5.ckvt" --no-prov -q
    "$CKVC" inspect "$DIR/r.ckvt" "$DIR/h5.ckvt" --json --cells | check '
a, b = (json.loads(line) for line in sys.stdin)
assert a["SHARE"] == b["SHARE"] and a["sSHARE"] == b["sSHARE"]'
    "$CKVC" inspect "$DIR/heads.ckvt" "$DIR/r.ckvt" --json | check '
a, b = (json.loads(line) for line in sys.stdin)
factors = [2 ** (k / 2) for k in (-4, -2, -1, 0, 1, 2, 4)]
d = b["meta"]["diagnostics"]["rewards"]
assert d["mode"] == "heads" and d["units"] == 12 and d["replicates"] == 50, d
assert "demand" in b["meta"]["diagnostics"] and a["layer_shares"] == b["layer_shares"]
assert set(b["meta"]["plans"]) > set(a["meta"]["plans"])
for i in 0, 1:
    x, y = ([g[i] for l in t["shares"] for g in l] for t in (a, b))
    assert abs(sum(y) / 12 - 1) < 1e-12
    ratio = [v / u for u, v in zip(x, y)]
    # one scale for all: of a head that stayed, or of one that was multiplied
    assert any(all(min(abs(r / s / f - 1) for f in factors) < 1e-12 for r in ratio) for s in [ratio[0] / f for f in factors]), ratio
    of = d["by_budget"][i]
    assert of["price"] >= 0 and 0 < of["changed"] <= of["supported"] == 12, of
assert a["shares"] != b["shares"]'
    "$CKVC" fit "$DIR/run" --tables "$DIR/heads.ckvt" --bootstrap 50 --shrink --out "$DIR/s.ckvt" -q
    "$CKVC" inspect "$DIR/r.ckvt" "$DIR/s.ckvt" --json | check '
a, b = (json.loads(line)["meta"]["diagnostics"]["rewards"]["by_budget"] for line in sys.stdin)
for plain, shrunk in zip(a, b):
    assert plain["shrunk"] == 0 and shrunk["shrunk"] > 0 and shrunk["changed"] + shrunk["shrunk"] == plain["changed"], (plain, shrunk)
'
    "$CKVC" calibrate "${COMMON[@]}" --side head --tables "$DIR/layers.ckvt" --variants all --out "$DIR/run-layers"
    "$CKVC" fit "$DIR/run-layers" --tables "$DIR/layers.ckvt" --out "$DIR/l.ckvt" --no-prov -q
    "$CKVC" inspect "$DIR/layers.ckvt" "$DIR/l.ckvt" --json | check '
a, b = (json.loads(line) for line in sys.stdin)
assert a["shares"] == b["shares"] and a["layer_shares"] != b["layer_shares"]
for i in 0, 1:
    assert abs(sum(l[i] for l in b["layer_shares"]) / 4 - 1) < 1e-12'
}

@test "thresholds below shares: sweep and plain way alike, after any interruption; fitted at the shares' price; score and inspect know them" {
    needs_h5py
    cuts() { "$CKVC" calibrate "${COMMON[@]}" --side gate --tables "$DIR/rewarded.ckvt" --variants all --out "$@"; }
    "$CKVC" fit "$DIR/run" --tables "$DIR/heads.ckvt" --out "$DIR/rewarded.ckvt" --no-prov -q
    cuts "$DIR/cuts"
    cuts "$DIR/cuts-checked" --limit 3 --check-rollouts 1
    "$CKVC" verify "$DIR/cuts"
    cuts "$DIR/cuts-plain" --rollouts plain --threads 1
    diff <(shard_sums "$DIR/cuts") <(shard_sums "$DIR/cuts-plain")
    killed "0.05 0.1 0.15 0.2" cuts "$DIR/cuts-killed"
    diff <(shard_sums "$DIR/cuts") <(shard_sums "$DIR/cuts-killed")
    says 0 "rewards of thresholds below shares of heads: *8 states have one*price" "$CKVC" fit "$DIR/cuts" --tables "$DIR/rewarded.ckvt" --bootstrap 50 --cells 2,1 --out "$DIR/cut.ckvt" --no-prov
    "$CKVC" verify "$DIR/cut.ckvt"
    "$CKVC" score "${OVER[@]}" --table "$DIR/rewarded.ckvt,$DIR/cut.ckvt" --policy top-k --equal-tokens -q --out "$DIR/cut.jsonl" 2>/dev/null
    "$CKVC" inspect "$DIR/rewarded.ckvt" "$DIR/cut.ckvt" --json >"$DIR/tables.jsonl"
    "$CKVC" inspect "$DIR/cut.ckvt" --json --cells >"$DIR/cells.json"
    py "$DIR" <<'PY'
from unfolded import File
a, b = map(json.loads, open(sys.argv[1] + "/tables.jsonl"))
assert "relative_thresholds" not in a and b["relative_thresholds"] and a["shares"] == b["shares"] and a["score"] == b["score"]
assert b["shape"]["n_entropy_bins"] == 2 and b["meta"]["diagnostics"]["cuts"]["units"] == 8 and "rewards" in b["meta"]["diagnostics"]
tau, edge = json.load(open(sys.argv[1] + "/cells.json"))["TAU"], b["edges_entropy"][0]
flat = [x for l in tau for e in l for p in e for x in p]
action = lambda x: min(range(9), key=lambda a: abs(b["gate_actions"][a] - x)) # TAU is float32
assert len(set(flat)) > 1 and all(abs(b["gate_actions"][action(x)] - x) < 1e-6 for x in flat), flat
lines = [json.loads(l) for l in open(sys.argv[1] + "/cut.jsonl")]
score = {(l["id"], l["budget"], l["policy"], l["table"]): l for l in lines}
less = n = 0
for f in sorted(glob.glob(sys.argv[1] + "/cuts/pass-01-cuts/*.h5")):
    h = File(f)
    actions = list(h.attrs["gate_actions"])
    losses, entries = h["prompt/action_loss"][:], h["prompt/action_entries"][:]
    assert losses.shape[1:] == (2, 4, 1, 9) and actions[0] == 0 and actions == b["gate_actions"], losses.shape
    for p, (name, split) in enumerate(zip(h["prompt/id"], h["prompt/split"])):
        for i, budget in enumerate((24, 0.5)):
            with_, without = (score[name.decode(), budget, "table", t["content_id"]] for t in (b, a))
            assert losses[p, i, 0, 0, 0] == without["loss_comp"] and entries[p, i, :, 0, 0].sum() == without["entries"]
            if split == b"heldout": continue
            n += 1
            assert (entries[p, i, :, 0, 1:] <= entries[p, i, :, 0, :1]).all() and (entries[p, i] >= 3 * 9).all()
            e = int(h["prompt/r_struct"][p] >= edge)
            want = sum(int(entries[p, i, l, 0, action(tau[l][e][0][i])]) for l in range(4))
            assert with_["entries"] == want, (with_["entries"], want)
            less += want < without["entries"]
            # what goes beside the table keeps as many
            assert score[name.decode(), budget, "top-k", b["content_id"]]["entries"] == want
assert n >= 10 and less > 0, (n, less)
PY
    # shares under the thresholds: no factor takes a head beyond its own
    "$CKVC" calibrate "${COMMON[@]}" --side head --tables "$DIR/cut.ckvt" --check-rollouts 1 --out "$DIR/run-cut"
    "$CKVC" fit "$DIR/run-cut" --tables "$DIR/cut.ckvt" --out "$DIR/again.ckvt" --no-prov -q
    "$CKVC" inspect "$DIR/again.ckvt" --json | check 't = json.load(sys.stdin); assert t["relative_thresholds"] and "share_at_0.0" in t["tau"][0] and "cuts" in t["meta"]["diagnostics"]'
}

@test "what is refused: no table, another table, demand beside, thresholds, what does not apply" {
    refused() { fails "$1" "$2" "$CKVC" "${@:3}" --out "$DIR/none" && [ ! -e "$DIR/none" ]; } # STATUS WORDS COMMAND...
    refused 65 "--tables" fit "$DIR/run"
    prompts 5 >"$DIR/five.jsonl"
    "$CKVC" calibrate "${COMMON[@]}" --manifest "$DIR/five.jsonl" --side demand --budget 24,0.5 --out "$DIR/demand5"
    "$CKVC" fit "$DIR/demand5" --out "$DIR/odd.ckvt" -q
    refused 65 "other shares" fit "$DIR/run" --tables "$DIR/odd.ckvt"
    refused 65 "mode heads" fit "$DIR/run" --tables "$DIR/layers.ckvt"
    refused 64 "no run of --side demand" fit "$DIR/run" "$DIR/demand" --tables "$DIR/heads.ckvt"
    "$CKVC" calibrate "${COMMON[@]}" --side gate --tables "$DIR/heads.ckvt" --variants 9 --out "$DIR/cuts-demand"
    refused 65 "not from rewards" fit "$DIR/cuts-demand" --tables "$DIR/heads.ckvt"
    refused 65 "other shares" fit "$DIR/cuts-demand" --tables "$DIR/odd.ckvt"
    refused 65 "fit them apart" fit "$DIR/cuts-demand" "$DIR/run" --tables "$DIR/heads.ckvt"
    refused 64 "leave out" calibrate "${COMMON[@]}" --side head --tables "$DIR/heads.ckvt" --bins 2,2
    refused 64 "--budget" calibrate "${COMMON[@]}" --side head --tables "$DIR/heads.ckvt" --budget 9
}
