# Conversations in a manifest: rendered by the family's template, the same in every verb, and part of the plan.
load helper

setup_file() {
    mkdir "$DIR/model"
    cp "$MODEL"/* "$DIR/model/"
    # the embedded model with two of its pieces turned into ChatML's markers
    py "$DIR/model/tokenizer.json" <<'E2'
t = json.load(open(sys.argv[1]))
names = {i: k for k, i in t["model"]["vocab"].items()}
for i, name in ((1500, "<|im_start|>"), (1501, "<|im_end|>")):
    old = names[i]
    t["model"]["merges"] = [m for m in t["model"]["merges"]
                            for pair in [m if isinstance(m, list) else m.split(" ")] if old not in pair and "".join(pair) != old]
    del t["model"]["vocab"][old]
    t["added_tokens"].append({"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True})
json.dump(t, open(sys.argv[1], "w"))
E2
    printf '%s\n' '{"id":"a","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Where is the mail?"}]}' >"$DIR/chat.jsonl"
    printf '%s\n' '<|im_start|>system' 'Be brief.<|im_end|>' '<|im_start|>user' 'Where is the mail?<|im_end|>' '<|im_start|>assistant' >"$DIR/text"
}

@test "messages are the rendered text, without another BOS" {
    ids=$("$CKVC" tokenize --model "$DIR/model" --no-special --json <"$DIR/text")
    echo "{\"id\":\"a\",\"tokens\":$ids}" >"$DIR/ids.jsonl"
    want=$("$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/ids.jsonl" --json --tokens)
    run -0 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --json --tokens
    [ "$output" = "$want" ]
    run -0 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --json --tokens --chat-template chatml
    [ "$output" = "$want" ]
}

@test "no template: the line, and what to do; a template that the tokenizer cannot spell is a usage error" {
    run -65 "$CKVC" perplexity -q --model "$MODEL" --manifest "$DIR/chat.jsonl"
    [[ "$output" == *chat.jsonl:1:*--chat-template* ]]
    run -64 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-template llama3
    [[ "$output" == *"<|start_header_id|>"* ]]
    run -65 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-template none
    run -64 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-date "01 Jan 2025"
    [[ "$output" == *"chatml writes no date"* ]]
}

@test "a family's template that the tokenizer cannot spell stops nobody who has no messages" {
    mkdir "$DIR/mistral"
    cp "$MODEL"/* "$DIR/mistral/"
    py "$DIR/mistral/config.json" <<'E2'
c = json.load(open(sys.argv[1]))
c.update(model_type="mistral", architectures=["MistralForCausalLM"])
json.dump(c, open(sys.argv[1], "w"))
E2
    printf '%s\n' '{"id":"a","tokens":[5,6,7,8]}' >"$DIR/few.jsonl"
    run -0 "$CKVC" generate --model "$DIR/mistral" --manifest "$DIR/few.jsonl" --max-new 2 --json
    run -0 "$CKVC" tokenize --model "$DIR/mistral" <"$DIR/text"
    run -65 "$CKVC" perplexity -q --model "$DIR/mistral" --manifest "$DIR/chat.jsonl"
    [[ "$output" == *chat.jsonl:1:*"name one with --chat-template"* ]]
    run -64 "$CKVC" perplexity -q --model "$DIR/mistral" --manifest "$DIR/few.jsonl" --chat-template mistral
    [[ "$output" == *"writes <s>, which is not a token"* ]]
}

@test "the template stands in the plan" {
    "$CKVC" calibrate -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --window 4 --continuation 4 --budget 8 --bins 1,1 --min-cell 1 \
        --variants 4 --out "$DIR/run"
    grep -q '"chat_template":"chatml"' "$DIR/run/run.json"
}
