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
    [[ "$output" == *chat.jsonl:1:*"--chat-template"* ]]
    run -64 "$CKVC" perplexity -q --model "$DIR/mistral" --manifest "$DIR/few.jsonl" --chat-template mistral
    [[ "$output" == *"writes <s>, which is not a token"* ]]
}

@test "the template stands in the plan" {
    "$CKVC" calibrate -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --window 4 --continuation 4 --budget 8 --bins 1,1 --min-cell 1 \
        --variants 4 --out "$DIR/run"
    grep -q '"chat_template":"chatml"' "$DIR/run/run.json"
}

@test "manifest build --chat: requests as chat APIs have them; the last answer is the continuation, lengths count the template" {
    py "$DIR/requests.jsonl" <<'PY'
turn = lambda role, content, **more: {"role": role, "content": content, **more}
with open(sys.argv[1], "w") as f:
    for i in range(8):  # two of a document, which share a split
        print(json.dumps({"model": "m", "temperature": 0, "tools": [], "document": "d%d" % (i // 2), "messages": [
            turn("system", "Be brief."), turn("user", "Where is the mail of box %d?" % i), turn("assistant", "In the hall."),
            turn("user", "And the key?"), turn("assistant", "Under stone %d." % i, tool_calls=None, refusal=None)]}), file=f)
    print(json.dumps({"messages": [turn("user", "word " * 300), turn("assistant", "yes")]}), file=f)
PY
    gzip -k "$DIR/requests.jsonl"
    run -0 "$CKVC" manifest build --chat --model "$DIR/model" mail="$DIR/requests.jsonl.gz" --max-length 200 --split-share heldout=0.5 --out "$DIR/built.jsonl"
    [[ $output == *"built.jsonl: 8 prompts (0 retrieval) of "*"left out: 1 conversations of other lengths"* ]]
    py "$DIR/built.jsonl" <<'PY'
lines = [json.loads(l) for l in open(sys.argv[1])]
splits = {}
for l in lines:
    number = l["continuation"].removeprefix("Under stone ").removesuffix(".")
    assert [m["role"] for m in l["messages"]] == ["system", "user", "assistant", "user"], l
    assert l["messages"][1]["content"] == "Where is the mail of box %s?" % number and l["source"] == "mail", l
    splits.setdefault(l["document"], set()).add(l["split"])
assert len(lines) == 8 and len(splits) == 4 and all(len(s) == 1 for s in splits.values()), splits
PY
    # the first line, whose rendered text is tokenised here
    head -n 1 "$DIR/built.jsonl" >"$DIR/first.jsonl"
    box=$(check 'print(json.load(sys.stdin)["messages"][1]["content"])' <"$DIR/first.jsonl")
    printf '%s\n' '<|im_start|>system' 'Be brief.<|im_end|>' '<|im_start|>user' "$box<|im_end|>" '<|im_start|>assistant' 'In the hall.<|im_end|>' \
        '<|im_start|>user' 'And the key?<|im_end|>' '<|im_start|>assistant' >"$DIR/turns"
    want=$("$CKVC" tokenize --model "$DIR/model" --no-special --json <"$DIR/turns" | check 'print(len(json.load(sys.stdin)))')
    run -0 "$CKVC" manifest check --model "$DIR/model" "$DIR/first.jsonl"
    [[ ${lines[1]} == *$'\t'1$'\t'"$want"$'\t'"$want.0"$'\t'"$want" ]]
    run -0 "$CKVC" generate --model "$DIR/model" --manifest "$DIR/first.jsonl" --max-new 2 --json
    [[ $output == *"\"T\":$want,"* ]]
    # without a model: characters of roles and contents
    run -0 "$CKVC" manifest build --chat "$DIR/requests.jsonl" --min-length 1000 --json --out "$DIR/long.jsonl"
    [[ $output == *'"longest":1506,'*'"prompts":1,'* ]]
}

@test "manifest build --chat: what no template writes is refused by its line and name" {
    refuses() { # REQUEST WORDS
        printf '%s\n' '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}' "$1" >"$DIR/odd.jsonl"
        run -65 "$CKVC" manifest build --chat "$DIR/odd.jsonl" --out "$DIR/odd-built.jsonl"
        [[ $output == *"odd.jsonl:2: "*"$2"* ]]
        [ ! -e "$DIR/odd-built.jsonl" ]
    }
    refuses '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]}]}' '"messages"[1] has "tool_calls"'
    refuses '{"messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"a","content":"y"}]}' '"messages"[1] has the role "tool"'
    refuses '{"messages":[{"role":"developer","content":"x"},{"role":"assistant","content":"y"}]}' '"messages"[0] has the role "developer"'
    refuses '{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":"y"}]}' '"content" of "messages"[0] is no string'
    refuses '{"tools":[{"type":"function"}],"messages":[]}' '"tools"'
    refuses '{"messages":[{"role":"assistant","content":"y"},{"role":"user","content":"x"}]}' "the last of 2 \"messages\" is the user's: want an answer"
    refuses '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":""}]}' "is the assistant's, and empty"
    refuses '{"messages":[{"role":"assistant","content":"x"}]}' "the last of 1"
    refuses '[1]' '"messages", an array'
    refuses '{"messages":' 'not valid JSON'
    run -65 "$CKVC" manifest build --chat --model "$MODEL" "$DIR/requests.jsonl" --out "$DIR/odd-built.jsonl"
    [[ $output == *"requests.jsonl:"*"this model has none"* ]]
    run -64 "$CKVC" manifest build --chat "$DIR/requests.jsonl" --retrieval 0.5 --out "$DIR/odd-built.jsonl"
}
