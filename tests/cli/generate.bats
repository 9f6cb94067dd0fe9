# generate: texts from full and compressed caches. That tokens are transformers' is held by test_decoder; here what the verb makes of it.
load helper

setup_file() {
    prompts 5 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.25,0.5 -q --out "$DIR/run"
    "$CKVC" fit "$DIR/run" --out "$DIR/t.ckvt" -q
}

# generate OPTIONS: over prompts.jsonl, as JSON lines
generate() { "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --max-new 12 --json -q "$@"; }
# Without the times.
tokens_of() { check '
for x in sys.stdin:
    o = json.loads(x); print(o["id"], o["policy"], o["tokens"], o["nll"], o["end"], o["entries"], o["cache_bytes"])'; }

@test "what is generated has the losses that score gives it under the same sets" {
    generate --table "$DIR/t.ckvt" --compare >"$DIR/g.jsonl"
    check '
prompts = {o["id"]: o for o in map(json.loads, open(sys.argv[1]))}
made = [json.loads(x) for x in open(sys.argv[2])]
assert [x["policy"] for x in made] == ["full", "table"] * 5
with open(sys.argv[3], "w") as f:
    for x in made:
        assert len(x["tokens"]) == len(x["nll"]) and (x["end"] == "stop" or len(x["tokens"]) == 12)
        f.write(json.dumps({**prompts[x["id"]], "id": x["id"] + x["policy"], "continuation_tokens": x["tokens"]}) + "\n")
full, table = made[0], made[1]
L, G, D = 4, 3, 32
assert full["entries"] == L * G * full["T"] and full["cache_bytes"] == 8 * D * full["entries"]
assert table["entries"] == L * G * (full["T"] // 4) and table["cache_bytes"] == 8 * D * table["entries"]' "$DIR/prompts.jsonl" "$DIR/g.jsonl" "$DIR/again.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/again.jsonl" --table "$DIR/t.ckvt" --budget 0.25 --window 16 --continuation 12 -q >"$DIR/s.jsonl"
    check '
made, scored = ([json.loads(x) for x in open(p)] for p in sys.argv[1:])
assert len(made) == len(scored)
for g, s in zip(made, scored):
    assert s["id"] == g["id"] + g["policy"]
    want = s["loss_full" if g["policy"] == "full" else "loss_comp"]
    assert abs(sum(g["nll"]) / len(g["nll"]) - want) < 2e-6, (g["id"], want)
    assert g["policy"] == "full" or s["entries"] == g["entries"]' "$DIR/g.jsonl" "$DIR/s.jsonl"
}

@test "the model's own answers become continuations, which the full cache expects" {
    generate >"$DIR/g.jsonl"
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --max-new 12 --as-manifest >"$DIR/own.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/own.jsonl" --policy snapkv --budget 0.25 --window 16 --continuation 12 -q >"$DIR/s.jsonl"
    check '
prompts, own, made, scored = ([json.loads(x) for x in open(p)] for p in sys.argv[1:])
assert len(own) == len(made) == 5
for p, o, g in zip(prompts, own, made):
    assert o.pop("continuation_tokens") == g["tokens"] and o == {k: v for k, v in p.items() if not k.startswith("continuation")}
full = {s["id"]: s["loss_full"] for s in scored}
assert all(abs(sum(g["nll"]) / len(g["nll"]) - full[g["id"]]) < 2e-6 for g in made)' "$DIR/prompts.jsonl" "$DIR/own.jsonl" "$DIR/g.jsonl" "$DIR/s.jsonl"
    fails 64 'answers from the full cache' "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --as-manifest --policy snapkv
}

@test "a prompt's tokens do not depend on its batch, on threads or on what is beside it" {
    generate --table "$DIR/t.ckvt" -t 1 | tokens_of >"$DIR/a"
    generate --table "$DIR/t.ckvt" -t 2 --batch 2 | tokens_of >"$DIR/b"
    generate --table "$DIR/t.ckvt" -t 2 --compare | tokens_of | grep ' table ' >"$DIR/c"
    diff "$DIR/a" "$DIR/b"
    diff "$DIR/a" "$DIR/c"
    generate --temperature 0.8 --top-p 0.9 | tokens_of >"$DIR/a"
    generate --temperature 0.8 --top-p 0.9 --batch 3 | tokens_of >"$DIR/b"
    diff "$DIR/a" "$DIR/b"
    generate --temperature 0.8 --top-p 0.9 --seed 2 | tokens_of >"$DIR/b"
    run -1 diff -q "$DIR/a" "$DIR/b"
}

@test "references keep what score keeps; a table's own window needs no option, and another one is refused" {
    for policy in recent adakv kvzip; do
        generate --policy $policy --window 16 --budget 24 --limit 2 | tokens_of >"$DIR/g"
        "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --policy $policy --window 16 --budget 24 --continuation 0 --limit 2 -q |
            check 'print(*[json.loads(x)["entries"] for x in sys.stdin])' >"$DIR/s"
        [ "$(awk '{print $(NF-1)}' "$DIR/g" | xargs)" = "$(cat "$DIR/s")" ]
    done
    fails 65 '' "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --table "$DIR/t.ckvt" --window 32
}

@test "text: a prompt on the command line or standard input, the block that --compare prints" {
    run -0 "$CKVC" generate --model "$MODEL" --prompt "The quick brown fox" --max-new 5 -q
    [[ ${lines[0]} == prompt && ${lines[1]} == *" full "*"tokens held a head"*"first token"* && ${lines[2]} == "  | "* ]]
    [ "$(echo "The quick brown fox" | "$CKVC" generate --model "$MODEL" --max-new 5 -q --json | tokens_of)" = \
        "$("$CKVC" generate --model "$MODEL" --prompt "The quick brown fox" --max-new 5 -q --json | tokens_of)" ]
    run "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --table "$DIR/t.ckvt" --limit 1 --compare -q
    [[ $output == *"the cache is 24."*" % of the full one"* || $output == *"the cache is 25.0 % of the full one"* ]]
}

@test "prompts no longer than the window are kept whole, from one token on, whatever the budget" {
    for n in 1 2 16 60; do echo "{\"id\":\"n$n\",\"tokens\":[$(seq -s, 300 $((299 + n)))]}"; done >"$DIR/few.jsonl"
    few() { "$CKVC" generate --model "$MODEL" --manifest "$DIR/few.jsonl" --max-new 4 --json -q "$@"; }
    for how in "--table $DIR/t.ckvt --budget 0.25" "--table $DIR/t.ckvt --budget 9 --mode heads" "--policy snapkv --budget 4 --window 16" "--policy fastkv --budget 4 --window 16" "--policy kvzip --budget 4 --window 16"; do
        few $how --compare >"$DIR/few.out"
        check '
rows = [json.loads(x) for x in open(sys.argv[1])]
assert [r["T"] for r in rows] == [1, 1, 2, 2, 16, 16, 60, 60], rows
for full, kept in zip(rows[::2], rows[1::2]):
    whole = full["T"] <= 16
    assert "whole" not in full and kept.get("whole", False) is whole
    assert (full["entries"] == kept["entries"] == 12 * full["T"]) if whole else kept["entries"] < full["entries"], kept
    assert not whole or (full["tokens"], full["nll"]) == (kept["tokens"], kept["nll"])' "$DIR/few.out"
    done
    says 0 "; kept whole, being no longer than the window" "$CKVC" generate --model "$MODEL" --prompt "Too short" --table "$DIR/t.ckvt" --max-new 2
    [ "$(few --table "$DIR/t.ckvt" --skip-short | wc -l)" -eq 1 ]
    [ "$(few | wc -l)" -eq 4 ]
}

@test "the context ends cleanly; what cannot be is one line" {
    local long
    long=$(printf '0%.0s,' $(seq 2040))
    printf '{"id":"long","tokens":[%s7]}\n' "$long" >"$DIR/long.jsonl"
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/long.jsonl" --max-tokens 2048 --max-new 30 --json -q |
        check 'o = json.load(sys.stdin); assert o["end"] == "context" and len(o["tokens"]) == 7, o'
    # without --max-tokens the prompt is cut, and that is said
    run -0 --separate-stderr "$CKVC" generate --model "$MODEL" --manifest "$DIR/long.jsonl" --max-new 30 --json -q
    [[ $stderr == *"cut in the middle to at most 2018 tokens"* && $output == *'"end":"length"'* ]]
    no() { fails "$1" "$2" "$CKVC" generate --model "$MODEL" "${@:3}"; }
    no 64 "do not fit the model's context" --prompt x --max-new 2048
    no 64 "needs a --table" --prompt x --policy pooled
    no 64 "matched" --prompt x --policy matched
    no 64 "wanted full, recent" --prompt x --policy nonesuch
    no 64 "give one of them" --prompt x --manifest "$DIR/prompts.jsonl"
    no 64 "to compare with" --prompt x --compare
    no 64 "name one" --prompt x --budget 8
    no 64 "name one" --prompt x --policy snapkv --mode heads
    no 64 "got several budgets, wanted one" --prompt x --budget 8,16
    no 64 "takes a --temperature above 0" --prompt x --top-p 0.5
    no 64 "no prompt" --prompt ""
    no 71 "allow more with --memory" --manifest "$DIR/prompts.jsonl" --memory 1M
    fails 65 '' "$CKVC" generate --model models/ckvc-tiny-8l --prompt x --table "$DIR/t.ckvt"
    [[ $output == *"is for 4 layers x 3 KV heads, the model has 8 x 3 KV heads; \`ckvc transfer\` maps a table to another model" ]]
}
