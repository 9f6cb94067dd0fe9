# Fitted entries from the outside: a table with a bank, its sections, scores with and without, texts, a compile that chooses the ridge.
load helper

setup_file() {
    prompts 14 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.25,0.5 -q --out "$DIR/demand" 2>/dev/null
    "$CKVC" fit "$DIR/demand" --bank 8 --ridge 0.1 --out "$DIR/t.ckvt" --no-prov -q
    "$CKVC" fit "$DIR/demand" --bank 0 --out "$DIR/none.ckvt" --no-prov -q
}

score() { "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 -q "$@"; }

@test "fit: the bank has sections of its own, and nothing else of the table changes" {
    "$CKVC" verify "$DIR/t.ckvt"
    cells "$DIR/t.ckvt" >"$DIR/t.json"
    cells "$DIR/none.ckvt" >"$DIR/none.json"
    check '
t, none = (json.load(open(p)) for p in sys.argv[1:3])
assert set(t) - set(none) == {"BANK", "RIDGE", "BANKUSE"}
assert not [k for k in none if k not in ("meta", "content_id", "file") and t[k] != none[k]], [k for k in none if t[k] != none[k]]
assert all(x == 0.1 for layer in t["RIDGE"] for x in layer) and t["BANKUSE"] == [[8, 96], [8, 96]]
assert len(t["BANK"][0][0]) == 8 and any(x for x in t["BANK"][0][0][0])' "$DIR/t.json" "$DIR/none.json"
    "$CKVC" transfer "$DIR/t.ckvt" --to-shape 7,3 --out "$DIR/deep.ckvt"
    cells "$DIR/deep.ckvt" | check 'assert "BANK" not in json.load(sys.stdin)'
}

@test "score: the sets are those of a table without a bank, the losses are others, and --ridge 0 gives these back; any threads" {
    score --table "$DIR/t.ckvt" --sets >"$DIR/fitted.jsonl"
    score --table "$DIR/t.ckvt" --sets --threads 1 >"$DIR/one.jsonl"
    score --table "$DIR/t.ckvt" --sets --ridge 0 >"$DIR/zero.jsonl"
    score --table "$DIR/none.ckvt" --sets >"$DIR/none.jsonl"
    cmp "$DIR/fitted.jsonl" "$DIR/one.jsonl"
    check '
fitted, zero, none = (rows_of(p) for p in sys.argv[1:4])
assert [(r["sets"], r["kl"]) for r in zero] == [(r["sets"], r["kl"]) for r in none] and len(fitted) == 28
assert [r["sets"] for r in fitted] == [r["sets"] for r in none]
assert all(r["ridge"] == 0.1 for r in fitted) and not any("ridge" in r for r in zero + none)
assert sum(r["kl"] != z["kl"] for r, z in zip(fitted, zero)) > 20
kl = [sum(r["kl"] for r in rows) for rows in (fitted, zero)]
assert kl[0] < 0.95 * kl[1], kl' "$DIR/fitted.jsonl" "$DIR/zero.jsonl" "$DIR/none.jsonl"
    says 64 "*none.ckvt: has no bank, so that --ridge has nothing to fit by*" score --table "$DIR/none.ckvt" --ridge 1
    says 64 "*--ridge*" score --table "$DIR/t.ckvt" --ridge 2e6
}

@test "score: what a prompt and a bank share is of this prompt and of this bank" {
    "$CKVC" fit "$DIR/demand" --bank 8 --ridge 0.1 --seed 5 --out "$DIR/t-5.ckvt" --no-prov -q
    "$CKVC" fit "$DIR/demand" --bank 4 --ridge 0.1 --out "$DIR/t-4.ckvt" --no-prov -q
    score --table "$DIR/t.ckvt" --table "$DIR/t-5.ckvt" --table "$DIR/t-4.ckvt" >"$DIR/three.jsonl"
    for t in t t-5 t-4; do score --table "$DIR/$t.ckvt"; done >"$DIR/each.jsonl"
    tail -n 1 "$DIR/prompts.jsonl" >"$DIR/last.jsonl"
    score --table "$DIR/t.ckvt" --manifest "$DIR/last.jsonl" >"$DIR/alone.jsonl"
    check '
three, each, alone = (sorted(((r["id"], r["table"], r["budget"]), r["kl"]) for r in rows_of(p)) for p in sys.argv[1:4])
assert three == each and len({kl for _, kl in each}) == len(each) == 3 * 28
assert set(alone) <= set(each) and len(alone) == 2' "$DIR/three.jsonl" "$DIR/each.jsonl" "$DIR/alone.jsonl"
}

@test "score: NAME+fit has the entries of a reference by a table's bank; the report has it as a policy of its own" {
    score --table "$DIR/t.ckvt" --sets --policy cake,cake+fit,snapkv,snapkv+fit,kvzip,kvzip+fit,headkv,headkv+fit >"$DIR/refs.jsonl"
    score --table "$DIR/t.ckvt" --sets --policy cake+fit,kvzip+fit --threads 1 >"$DIR/refs-one.jsonl"
    score --table "$DIR/t.ckvt" --sets --policy cake+fit,kvzip+fit --ridge 0 >"$DIR/refs-zero.jsonl"
    score --table "$DIR/t.ckvt" --sets >"$DIR/refs-table.jsonl"
    check '
refs, one, zero, plain = (rows_of(p) for p in sys.argv[1:5])
key = lambda r: (r["id"], r["policy"].replace("+fit", ""), r["budget"])
of = lambda rows, fitted: {key(r): r for r in rows if r["policy"].endswith("+fit") == fitted and r["policy"] != "table"}
fits, kept, table = of(refs, True), of(refs, False), [r for r in refs if r["policy"] == "table"]
assert len(fits) == len(kept) == 4 * 28 and table == plain  # the table is what it is without them
for k, r in fits.items():
    assert (r["sets"], r["entries"], r.get("repeat_tokens")) == (kept[k]["sets"], kept[k]["entries"], kept[k].get("repeat_tokens")), k
    assert r["ridge"] == 0.1 and "ridge" not in kept[k] and r["table"] == table[0]["table"], r
    assert kept[k]["table"] == (r["table"] if k[1] == "headkv" else None)
assert sum(r["kl"] != kept[k]["kl"] for k, r in fits.items()) > 100
assert [r for r in one if r["policy"] != "table"] == [r for r in refs if r["policy"] in ("cake+fit", "kvzip+fit")]
assert of(zero, True) and all(r["kl"] == kept[k]["kl"] and "ridge" not in r for k, r in of(zero, True).items())' \
        "$DIR/refs.jsonl" "$DIR/refs-one.jsonl" "$DIR/refs-zero.jsonl" "$DIR/refs-table.jsonl"
    "$CKVC" report "$DIR/t.ckvt" --scores "$DIR/refs.jsonl" --out "$DIR/refs-report" --force 2>/dev/null
    check '
report = json.load(open(sys.argv[1]))
labels = {x["label"] for x in report["scores"]["losses"]}
assert {"cake", "cake+fit", "kvzip, reads twice", "kvzip+fit, reads twice", "headkv+fit, by T1"} <= labels, labels
titles = {x["title"] for x in report["scores"]["series"]}
assert any(x.startswith("cake+fit by the bank of T1") for x in titles) and "cake" in titles, titles
base = {x["base_policy"] for x in report["scores"]["at_equal_tokens"]}
assert {"cake", "cake+fit", "kvzip+fit"} <= base, base
assert not any("+fit, the best simple" in x for x in report["findings"])' "$DIR/refs-report/report.json"
}

@test "NAME+fit: what is refused, and answers" {
    says 64 "*--policy cake+fit needs a --table*" score --policy cake+fit --budget 0.5
    says 64 "*--policy cake+fit:*none.ckvt has no bank*" score --table "$DIR/none.ckvt" --policy cake+fit
    says 64 "*cake+fit: does not go with --equal-tokens*" score --table "$DIR/t.ckvt" --policy cake+fit --equal-tokens
    for name in identity full matched no-threshold; do
        says 64 "*got '$name+fit', and only references can be fitted*" score --table "$DIR/t.ckvt" --policy "$name+fit"
    done
    says 64 "*got 'cak+fit'*" score --table "$DIR/t.ckvt" --policy cak+fit
    says 64 "*cake+fit is given twice*" score --table "$DIR/t.ckvt" --policy cake+fit,cake+fit
    says 64 "*cake+fit: references are fitted by*" "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --budget 0.25 --table "$DIR/t.ckvt" --policy cake+fit
    "$CKVC" eval --model "$MODEL" --tasks niah --lengths 128 --count 2 --window 16 --table "$DIR/t.ckvt" --policy snapkv,snapkv+fit --budget 0.25 -q --out "$DIR/answers.jsonl"
    check '
rows = rows_of(sys.argv[1])
of = {p: [r for r in rows if r["policy"] == p] for p in ("snapkv", "snapkv+fit", "table")}
assert len(of["snapkv+fit"]) == len(of["snapkv"]) > 0
assert all(r["table"] == of["table"][0]["table"] for r in of["snapkv+fit"])
assert [r["entries"] for r in of["snapkv+fit"]] == [r["entries"] for r in of["snapkv"]]
assert [r["nll"] for r in of["snapkv+fit"]] != [r["nll"] for r in of["snapkv"]]' "$DIR/answers.jsonl"
}

@test "a table at its shortest: all of a short prompt is kept, and nothing is fitted" {
    head -1 "$DIR/prompts.jsonl" | check '
p = json.load(sys.stdin)
p["tokens"] = p["tokens"][:20]
print(json.dumps(p))' >"$DIR/short.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/short.jsonl" --window 16 --continuation 8 -q --table "$DIR/t.ckvt" >"$DIR/short-scores.jsonl"
    check '
rows = rows_of(sys.argv[1])
assert rows and all(r.get("whole") and r["reward"] == 0 and "ridge" not in r for r in rows), rows' "$DIR/short-scores.jsonl"
}

@test "generate: texts from fitted entries are others than from the same entries as they were" {
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --max-new 24 --json -q --budget 0.25 --table "$DIR/t.ckvt" >"$DIR/fitted-texts.jsonl"
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --max-new 24 --json -q --budget 0.25 --table "$DIR/none.ckvt" >"$DIR/plain-texts.jsonl"
    check '
fitted, plain = ([(r["text"], r["entries"]) for r in rows_of(p)] for p in sys.argv[1:3])
assert [e for _, e in fitted] == [e for _, e in plain] and len(fitted) == 14
assert sum(a != b for a, b in zip(fitted, plain)) > 3, fitted' "$DIR/fitted-texts.jsonl" "$DIR/plain-texts.jsonl"
}

@test "generate: the memory that it needs has the second cache, as measured" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser has memory of its own"
    check '
ids = [0] + [256 + i * i % 1200 for i in range(1, 1900)]
print(json.dumps({"id": "long", "source": "even", "tokens": ids}))' >"$DIR/long.jsonl" </dev/null
    py "$CKVC" "$MODEL" "$DIR" <<'PYTHON'
import resource
def run(table, *more):
    of = [sys.argv[1], "generate", "--model", sys.argv[2], "--manifest", f"{sys.argv[3]}/long.jsonl", "--table", f"{sys.argv[3]}/{table}.ckvt",
          "--max-new", "2", "--budget", "0.25", "--threads", "1", "-q", *more]
    child = subprocess.Popen(of, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    words = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    return os.waitstatus_to_exitcode(status), words, used.ru_maxrss * 1024
said, peak = {}, {}
for table in "t", "none":
    code, words, _ = run(table, "--memory", "1M")
    assert code == 71 and "allow more with --memory" in words, (code, words)
    said[table] = 1e6 * float(re.search(r"need ([0-9.]+) MB", words)[1])
    ran = [run(table) for _ in range(3)]
    assert all(code == 0 for code, *_ in ran), ran
    peak[table] = min(bytes for *_, bytes in ran)
more, measured = said["t"] - said["none"], peak["t"] - peak["none"]
print(said, peak, more, measured)
assert abs(more - measured) < 0.1 * measured, (more, measured)
PYTHON
}

@test "compile: the ridge is chosen with the floor on select prompts, and the table says it; --bank 0 tries none" {
    local trained=(--model models/ckvc-tiny-4l --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16) # one whose heads can be mended
    "$CKVC" compile "${trained[@]}" --budget 0.25 --holdout 0.5 --select 0.5 --bank 8 -q --json --out "$DIR/compiled" >"$DIR/compiled.json"
    cells "$DIR/compiled/table.ckvt" | check '
t = json.load(sys.stdin)
tried = t["meta"]["select"]["candidates"]
assert sorted({c.get("ridge", 0) for c in tried}) == [0, 0.1, 0.5]
chosen = tried[t["meta"]["select"]["chosen"][0]]
assert all(layer[0] == chosen.get("ridge", 0) > 0 for layer in t["RIDGE"]), (chosen, t["RIDGE"])'
    # the prompts that judge are scored without fitting, too, and the report says what it brings
    "$CKVC" report "$DIR/compiled/table.ckvt" "$DIR/compiled" --out "$DIR/report" >"$DIR/said.txt" 2>/dev/null
    grep -Eq 'Against the same entries without fitting, with a KL of [0-9.]+, the table is ([0-9.]+ (better|worse) \(|ahead by )' "$DIR/said.txt"
    check '
report, lines = load(sys.argv[1]), [l for l in rows_of(sys.argv[2]) if l["policy"] == "table"]
with_, without = [l for l in lines if "ridge" in l], [l for l in lines if "ridge" not in l]
assert len(with_) == len(without) >= 2 and [l["entries"] for l in with_] == [l["entries"] for l in without]
mean = lambda of, key: sum(l[key] for l in of) / len(of)
b = report["tables"][0]["verdict"]["budgets"][0]
assert len(report["tables"][0]["verdict"]["budgets"]) == 1 and abs(b["kl"]["mean"] - mean(with_, "kl")) < 1e-9, b
u = b["unfitted"]
assert abs(u["kl"]["mean"] - mean(without, "kl")) < 1e-9 and abs(u["loss"]["mean"] + mean(without, "reward")) < 1e-9, u
assert abs(u["kl_difference"] - (mean(without, "kl") - mean(with_, "kl"))) < 1e-9 and u["kl_lo"] < u["kl_difference"] < u["kl_hi"], u
' "$DIR/report/report.json" "$DIR/compiled/heldout/pass-02.jsonl"
    page "$DIR/report" | grep -A1 "^What fitting the kept entries brings" | grep "the same entries as they were | fitted | saved"
    # what the compile says of its table is what it loses fitted
    check '
lines = [l for l in rows_of(sys.argv[1]) if l["policy"] == "table" and "ridge" in l]
said = load(sys.argv[2])["passes"][1]["heldout"]
assert abs(said["reward"] - sum(l["reward"] for l in lines) / len(lines)) < 1e-12, said' "$DIR/compiled/heldout/pass-02.jsonl" "$DIR/compiled.json"
    "$CKVC" compile "${OVER[@]}" --budget 0.25 --holdout 0.5 --select 0.5 --bank 0 -q --out "$DIR/without"
    cells "$DIR/without/table.ckvt" | check '
t = json.load(sys.stdin)
assert "BANK" not in t and not any("ridge" in c for c in t["meta"]["select"]["candidates"])'
}
