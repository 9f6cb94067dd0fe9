# Formats of caches (--cache-keys, --cache-values): what score lines, answers, texts and reports say of them, and what is refused.
load helper

setup_file() {
    prompts 4 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.5 --queries 8 -q --out "$DIR/demand" 2>/dev/null
    "$CKVC" fit "$DIR/demand" --bank 8 --ridge 0.1 --out "$DIR/t.ckvt" --no-prov -q
    "${CKVC%/*}/tools/make_model" "$DIR/wide" 2 2 1 64 64 128 4096 sharp    # heads that can be rotated
    "${CKVC%/*}/tools/make_model" "$DIR/odd" 2 2 1 48 64 128 4096 sharp     # heads of one block and a half
    cp models/ckvc-tiny-4l/tokenizer*.json "$DIR/wide"
}

score() { "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --budget 0.5 -q "$@"; }

@test "score: the whole cache loses more the fewer bits it has; lines say the format where it is not f32; any threads" {
    for f in f32 f16 bf16 fp8 q8_0 q4_0; do score --policy full --cache-keys $f --cache-values $f >"$DIR/full-$f.jsonl"; done
    score --policy full >"$DIR/plain.jsonl"
    cmp "$DIR/plain.jsonl" "$DIR/full-f32.jsonl"
    score --policy full --cache-keys q4_0 --cache-values q4_0 --threads 1 >"$DIR/one.jsonl"
    cmp "$DIR/one.jsonl" "$DIR/full-q4_0.jsonl"
    check '
kl = {}
for f in ("f32", "f16", "bf16", "fp8", "q8_0", "q4_0"):
    rows = rows_of(f"{sys.argv[1]}/full-{f}.jsonl")
    assert len(rows) == 4 and all((r.get("cache_keys"), r.get("cache_values")) == ((f, f) if f != "f32" else (None, None)) for r in rows)
    assert [r["loss_full"] for r in rows] == [r["loss_full"] for r in rows_of(f"{sys.argv[1]}/plain.jsonl")]
    kl[f] = sum(r["kl"] for r in rows) / 4
assert kl["f32"] < 1e-6 and kl["f32"] < kl["f16"] < kl["bf16"] < kl["q8_0"] < kl["fp8"] < kl["q4_0"] < 0.1, kl' "$DIR"
}

@test "score: keys and values apart, and a table's entries are fitted to keys as they are held" {
    score --table "$DIR/t.ckvt" --policy snapkv --sets >"$DIR/f32.jsonl"
    score --table "$DIR/t.ckvt" --policy snapkv --sets --cache-values q4_0 >"$DIR/values.jsonl"
    score --table "$DIR/t.ckvt" --policy snapkv --sets --cache-keys q4_0 >"$DIR/keys.jsonl"
    score --table "$DIR/t.ckvt" --policy snapkv --sets --cache-keys q4_0 --ridge 0 >"$DIR/kept.jsonl"
    score --table "$DIR/t.ckvt" --policy snapkv --sets --cache-keys q4_0+mean >"$DIR/mean.jsonl"
    score --table "$DIR/t.ckvt" --policy snapkv --sets --cache-keys q4_0+mean --ridge 0 >"$DIR/mean-kept.jsonl"
    check '
f32, values, keys, kept, mean_keys, mean_kept = (rows_of(f"{sys.argv[1]}/{f}.jsonl") for f in ("f32", "values", "keys", "kept", "mean", "mean-kept"))
for rows in (values, keys, kept, mean_keys, mean_kept):
    assert [(r["policy"], r["sets"], r["entries"]) for r in rows] == [(r["policy"], r["sets"], r["entries"]) for r in f32]
assert all("cache_keys" not in r and r["cache_values"] == "q4_0" for r in values) and all("cache_values" not in r for r in keys)
mean = lambda rows: sum(r["kl"] for r in rows if r["policy"] == "table") / 4
assert mean(f32) < mean(keys) < mean(kept), (mean(f32), mean(keys), mean(kept))
assert mean(f32) < mean(mean_keys) < mean(mean_kept), (mean(f32), mean(mean_keys), mean(mean_kept))
assert all(r["ridge"] == 0.1 for r in keys if r["policy"] == "table")' "$DIR"
}

@test "generate: the cache takes the formats' bytes, and texts have the losses that score gives them" {
    for keys in q8_0 q4_0+mean; do
        "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --max-new 9 --json -q --policy snapkv --budget 0.5 \
            --cache-keys $keys --cache-values q4_0 >"$DIR/g.jsonl"
        check '
prompts = {o["id"]: o for o in rows_of(sys.argv[1])}
for x in rows_of(sys.argv[2]):
    # heads of 32 numbers: a block each, and the position where the keys lack their mean
    assert x["cache_bytes"] == x["entries"] * (34 + 18 if sys.argv[3] == "q8_0" else 18 + 18 + 4), x
    print(json.dumps({**prompts[x["id"]], "continuation_tokens": x["tokens"]}))' "$DIR/prompts.jsonl" "$DIR/g.jsonl" $keys >"$DIR/again.jsonl"
        score --manifest "$DIR/again.jsonl" --policy snapkv --cache-keys $keys --cache-values q4_0 --continuation 9 >"$DIR/s.jsonl"
        check '
for g, s in zip(rows_of(sys.argv[1]), rows_of(sys.argv[2])):
    assert s["id"] == g["id"] and s["entries"] == g["entries"]
    assert abs(sum(g["nll"]) / len(g["nll"]) - s["loss_comp"]) < 2e-6, (g["id"], s["loss_comp"])' "$DIR/g.jsonl" "$DIR/s.jsonl"
    done
}

@test "rotated formats, of heads that can be rotated" {
    wide() { score --model "$DIR/wide" --policy full "$@"; }
    wide --cache-keys q4_0+rot --cache-values q4_0+rot >"$DIR/rotated.jsonl"
    wide --cache-keys f32+rot --cache-values f32+rot >"$DIR/exact.jsonl"
    wide >"$DIR/plain.jsonl"
    check '
rotated, exact, plain = (rows_of(p) for p in sys.argv[1:])
for r, e, p in zip(rotated, exact, plain):
    assert r["cache_keys"] == r["cache_values"] == "q4_0+rot" and e["cache_keys"] == "f32+rot"
    assert abs(e["loss_comp"] - p["loss_full"]) < 1e-5 < abs(r["loss_comp"] - p["loss_full"]), (r["loss_comp"], p["loss_full"])' "$DIR/rotated.jsonl" "$DIR/exact.jsonl" "$DIR/plain.jsonl"
    run -0 "$CKVC" generate --model "$DIR/wide" --manifest "$DIR/prompts.jsonl" --policy full --cache-values q4_0+rot --max-new 3 --json -q
    [[ $output == *'"cache_bytes":'* ]]
}

@test "eval: answers say format and bytes; a report keeps formats apart" {
    eval_() { "$CKVC" eval --model "$MODEL" --tasks niah-single-1 --lengths 200 --depths 0.5 --count 2 --window 16 --budget 0.5 -q "$@"; }
    eval_ --policy full,snapkv --cache-keys q8_0 --cache-values fp8 --out "$DIR/answers-q8.jsonl"
    eval_ --policy snapkv --out "$DIR/answers-f32.jsonl"
    check '
for r in rows_of(sys.argv[1]):
    held = "cache_keys" in r
    assert r["bytes"] == r["entries"] * (34 + 32 if held else 256)
    assert held == ("budget" in r and r["budget"] is not None), r' "$DIR/answers-q8.jsonl"
    ! grep -q cache_ "$DIR/answers-f32.jsonl"
    fails 64 "--policy full: the full cache is always there" eval_ --policy full
    score --policy snapkv >"$DIR/a.jsonl"
    score --policy snapkv --cache-keys q8_0 >"$DIR/b.jsonl"
    run -0 "$CKVC" report --scores "$DIR/a.jsonl,$DIR/b.jsonl" --answers "$DIR/answers-q8.jsonl" --out "$DIR/report" -q
    grep -q "keys in q8_0" "$DIR/report/report.json"
    # what is compared at equal entries has one format
    score --table "$DIR/t.ckvt" --policy snapkv,identity --ridge 0 --out "$DIR/both.jsonl"
    score --table "$DIR/t.ckvt" --policy snapkv,identity --ridge 0 --cache-keys q4_0 --cache-values q4_0 --out "$DIR/both-q4.jsonl"
    "$CKVC" report "$DIR/t.ckvt" --scores "$DIR/both.jsonl,$DIR/both-q4.jsonl" --out "$DIR/formats" -q
    check '
scores = json.load(open(sys.argv[1]))["scores"]
for kind in ("at_equal_tokens", "against_identity"):
    assert scores[kind], kind
    for c in scores[kind]:
        assert ("q4_0" in c["title"]) == ("q4_0" in c["base"]), (c["title"], c["base"])' "$DIR/formats/report.json"
}

@test "what is refused, in one line" {
    fails 64 "--cache-values: heads of 32 numbers cannot be rotated: as in llama.cpp" score --policy full --cache-values q4_0+rot
    fails 64 "--cache-keys: heads of 48 numbers do not go into whole blocks of 32" score --model "$DIR/odd" --policy full --cache-keys q8_0
    fails 64 "--cache-keys" score --policy full --cache-keys q5_1
    fails 64 "--cache-values: q4_0+mean is a format of keys, whose mean is taken out; leave out +mean" score --policy full@f16/q4_0+mean
    fails 64 "--cache-keys: heads of 48 numbers" "$CKVC" compile --model "$DIR/odd" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 \
        --budget 0.5 --no-repeat --cache-keys q8_0 -q --out "$DIR/refused"
    ! ls "$DIR"/refused/*demand* # it is refused before anything is logged
    fails 65 "the least is" "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --table "$DIR/t.ckvt" \
        --nearest-budget --budget 0.5,1 -q
    fails 64 "--attention-error measures what is left out of a cache in f32" score --policy snapkv --attention-error --cache-keys f16
    fails 64 "and full is held in q8_0" score --policy snapkv,full@q8_0 --attention-error
    fails 64 "name one, or --policy full" "$CKVC" generate --model "$MODEL" --prompt Once --cache-keys q8_0
    score --policy snapkv --limit 2 --out "$DIR/part.jsonl"
    run -0 score --policy snapkv --cache-keys bf16 --cache-values bf16 --model "$DIR/odd" --limit 1
    [[ $output == *'"cache_values":"bf16"'* ]]
}

@test "compile: chooses and judges under the formats, which the run remembers" {
    prompts 10 >"$DIR/ten.jsonl"
    compile() {
        "$CKVC" compile --model "$MODEL" --manifest "$DIR/ten.jsonl" --window 16 --continuation 8 --budget 0.5 --holdout 0.4 --features 2 -q --out "$DIR/run" "$@"
    }
    compile --cache-keys q8_0 --cache-values q4_0 2>/dev/null
    check '
for r in rows_of(sys.argv[1] + "/heldout/scores.jsonl") if os.path.exists(sys.argv[1] + "/heldout/scores.jsonl") else [r for p in glob.glob(sys.argv[1] + "/**/*.jsonl", recursive=True) for r in rows_of(p) if "policy" in r]:
    assert (r["cache_keys"], r["cache_values"]) == ("q8_0", "q4_0"), r' "$DIR/run"
    says 65 "*cache*" compile --resume --cache-keys q8_0 --cache-values f16
}
