# Conversations in a manifest: rendered by the family's template, the same in every verb, and part of the plan.
load helper

# ChatML without a system message, as many models state it.
CHATML="{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"

# states MODEL TEMPLATE [MORE]: in its tokenizer_config.json, with the members of the object MORE.
states() {
    check 'c = load(sys.argv[1]); c.update(chat_template=sys.argv[2], **json.loads(sys.argv[3])); json.dump(c, open(sys.argv[1], "w"))' "$1/tokenizer_config.json" "$2" "${3:-{\}}"
}

setup_file() {
    mkdir "$DIR/model"
    cp "$MODEL"/* "$DIR/model/"
    # the embedded model with two of its pieces turned into ChatML's markers
    check '
t = json.load(open(sys.argv[1]))
names = {i: k for k, i in t["model"]["vocab"].items()}
for i, name in ((1500, "<|im_start|>"), (1501, "<|im_end|>")):
    old = names[i]
    t["model"]["merges"] = [m for m in t["model"]["merges"]
                            for pair in [m if isinstance(m, list) else m.split(" ")] if old not in pair and "".join(pair) != old]
    del t["model"]["vocab"][old]
    t["added_tokens"].append({"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True})
json.dump(t, open(sys.argv[1], "w"))' "$DIR/model/tokenizer.json"
    states "$DIR/model" "$CHATML"
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
    [[ "$output" == *chat.jsonl:1:*"this model states none"*--chat-template* ]]
    run -64 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-template llama3
    [[ "$output" == *"<|start_header_id|>"* ]]
    run -65 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-template none
    run -64 "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-date "01 Jan 2025"
    [[ "$output" == *"chatml writes no date"* ]]
    says 64 "chatml/qwen2.5" "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-template vicuna
}

@test "a template of another text: messages are refused with the way to render them, or follow a name" {
    cp -r "$DIR/model" "$DIR/own"
    ids='{"id":"a","tokens":[5,6,7,8]}'
    printf '%s\n' "$ids" >"$DIR/ids-alone.jsonl"
    # by a token's name all of these are ChatML; the last one has it in a file beside the key
    for other in "${CHATML/assistant/assistant
<think>}" "{{ bos_token }}$CHATML" "${CHATML/message in/m in}"; do
        states "$DIR/own" "$other"
        says 65 'chat.jsonl:1: prompt "a": *`python3 -m ckvc render MODEL --manifest chat.jsonl --out tokens.jsonl`*--chat-template NAME' \
            "$CKVC" perplexity -q --model "$DIR/own" --manifest "$DIR/chat.jsonl"
        says 0 '"chat_template":"unknown"' "$CKVC" inspect "$DIR/own" --json
    done
    states "$DIR/own" "$CHATML"
    says 0 '"chat_template":"chatml"' "$CKVC" inspect "$DIR/own" --json
    echo "{{ messages }}" >"$DIR/own/chat_template.jinja"
    says 0 '"chat_template":"unknown"' "$CKVC" inspect "$DIR/own" --json
    says 65 "python3 -m ckvc render" "$CKVC" manifest check --model "$DIR/own" "$DIR/chat.jsonl"
    printf '%s\n' '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}' >"$DIR/one.jsonl"
    says 65 "python3 -m ckvc render" "$CKVC" manifest build --chat --model "$DIR/own" "$DIR/one.jsonl" --out "$DIR/one-built.jsonl"
    says 64 "whose text ckvc does not know" "$CKVC" eval -q --model "$DIR/own" --tasks niah --lengths 128 --count 1 --chat --out "$DIR/one-answers.jsonl"
    # whoever knows names one, and who has no messages is not asked
    want=$("$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --json --tokens)
    run -0 "$CKVC" perplexity -q --model "$DIR/own" --manifest "$DIR/chat.jsonl" --json --tokens --chat-template chatml
    [ "$output" = "$want" ]
    run -0 "$CKVC" manifest check --model "$DIR/own" "$DIR/chat.jsonl" --chat-template chatml
    run -0 "$CKVC" manifest build --chat --model "$DIR/own" "$DIR/one.jsonl" --chat-template chatml/qwen2 --out "$DIR/one-built.jsonl"
    run -64 "$CKVC" manifest check "$DIR/chat.jsonl" --chat-template chatml
    run -64 "$CKVC" manifest build --model "$DIR/own" "$DIR/text" --chat-template chatml --out "$DIR/two-built.jsonl"
    run -0 "$CKVC" perplexity -q --model "$DIR/own" --manifest "$DIR/ids-alone.jsonl"
    # a name beside a text that is known: taken, with a word
    says 0 "own template is chatml, which auto takes" "$CKVC" perplexity -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --chat-template chatml/qwen2
}

@test "manifest build --chat: answers are trimmed as the template trims them" {
    cp -r "$DIR/model" "$DIR/trims"
    check '
t = load(sys.argv[1])
names = {v: k for k, v in t["model"]["vocab"].items()}
for i, name in ((1510, "<|start_header_id|>"), (1511, "<|eot_id|>")):
    t["model"]["merges"] = [m for m in t["model"]["merges"] for pair in [m if isinstance(m, list) else m.split(" ")] if names[i] not in pair and "".join(pair) != names[i]]
    del t["model"]["vocab"][names[i]]
    t["added_tokens"].append({"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
json.dump(t, open(sys.argv[1], "w"))' "$DIR/trims/tokenizer.json"
    check 'turn = lambda r, c: {"role": r, "content": c}
for answer in ("\n In the hall. \n", " \n"): print(json.dumps({"messages": [turn("user", "Where?" + answer), turn("assistant", answer)]}))' >"$DIR/edges.jsonl"
    answers() { check 'print(sorted(l["continuation"] for l in rows_of(sys.argv[1])))' "$DIR/trimmed.jsonl"; }
    run -0 "$CKVC" manifest build --chat --model "$DIR/trims" --chat-template llama3 "$DIR/edges.jsonl" --out "$DIR/trimmed.jsonl"
    [ "$(answers)" = "['In the hall.']" ] # the other answer is nothing
    run -0 "$CKVC" manifest build --chat --model "$DIR/trims" --chat-template chatml "$DIR/edges.jsonl" --out "$DIR/trimmed.jsonl" --force
    [ "$(answers)" = "['\\n In the hall. \\n', ' \\n']" ]
}

@test "the template stands in the plan" {
    "$CKVC" calibrate -q --model "$DIR/model" --manifest "$DIR/chat.jsonl" --window 4 --continuation 4 --budget 8 --bins 1,1 --min-cell 1 \
        --variants 4 --out "$DIR/run"
    grep -q '"chat_template":"chatml"' "$DIR/run/run.json"
}

@test "manifest build --chat: requests as chat APIs have them; the last answer is the continuation, lengths count the template" {
    check '
turn = lambda role, content, **more: {"role": role, "content": content, **more}
with open(sys.argv[1], "w") as f:
    for i in range(8):  # two of a document, which share a split
        print(json.dumps({"model": "m", "temperature": 0, "tools": [], "document": "d%d" % (i // 2), "messages": [
            turn("system", "Be brief."), turn("user", "Where is the mail of box %d?" % i), turn("assistant", "In the hall."),
            turn("user", "And the key?"), turn("assistant", "Under stone %d." % i, tool_calls=None, refusal=None)]}), file=f)
    print(json.dumps({"messages": [turn("user", "word " * 300), turn("assistant", "yes")]}), file=f)' "$DIR/requests.jsonl"
    gzip -k "$DIR/requests.jsonl"
    run -0 "$CKVC" manifest build --chat --model "$DIR/model" mail="$DIR/requests.jsonl.gz" --max-length 200 --split-share heldout=0.5 --out "$DIR/built.jsonl"
    [[ $output == *"built.jsonl: 8 prompts (0 retrieval) of "*"left out: 1 conversations of other lengths, 0 repeated"* ]]
    check '
lines = [json.loads(l) for l in open(sys.argv[1])]
splits = {}
for l in lines:
    number = l["continuation"].removeprefix("Under stone ").removesuffix(".")
    assert [m["role"] for m in l["messages"]] == ["system", "user", "assistant", "user"], l
    assert l["messages"][1]["content"] == "Where is the mail of box %s?" % number and l["source"] == "mail", l
    splits.setdefault(l["document"], set()).add(l["split"])
assert len(lines) == 8 and len(splits) == 4 and all(len(s) == 1 for s in splits.values()), splits' "$DIR/built.jsonl"
    # the first line, whose rendered text is tokenised here
    head -n 1 "$DIR/built.jsonl" >"$DIR/first.jsonl"
    box=$(check 'print(json.load(sys.stdin)["messages"][1]["content"])' <"$DIR/first.jsonl")
    printf '%s\n' '<|im_start|>system' 'Be brief.<|im_end|>' '<|im_start|>user' "$box<|im_end|>" '<|im_start|>assistant' 'In the hall.<|im_end|>' \
        '<|im_start|>user' 'And the key?<|im_end|>' '<|im_start|>assistant' >"$DIR/turns"
    want=$("$CKVC" tokenize --model "$DIR/model" --no-special --json <"$DIR/turns" | check 'print(len(json.load(sys.stdin)))')
    run -0 "$CKVC" manifest check --model "$DIR/model" "$DIR/first.jsonl"
    [[ ${lines[1]} == *$'\t'1$'\t'"$want"$'\t'"$want.0"$'\t'"$want" ]]
    says 0 "\"T\":$want," "$CKVC" generate --model "$DIR/model" --manifest "$DIR/first.jsonl" --max-new 2 --json
    # requests of one conversation, each with the turns before it, are of one document; answers to the same are one prompt
    check '
turn = lambda role, content: {"role": role, "content": content}
with open(sys.argv[1], "w") as f:
    for i in range(60):
        messages = [turn("user", "Where is box %d?" % i)]
        for k in range(2):
            messages.append(turn("assistant", "In room %d." % k))
            print(json.dumps({"messages": messages}), file=f)
            messages.append(turn("user", "And then?"))
    print(json.dumps({"messages": [turn("user", "Where is box 7?"), turn("assistant", "Nowhere.")]}), file=f)' "$DIR/log.jsonl"
    run -0 "$CKVC" manifest build --chat "$DIR/log.jsonl" --split-share heldout=0.5 --out "$DIR/log-built.jsonl"
    [[ $output == *"log-built.jsonl: 120 prompts "*"left out: 0 conversations of other lengths, 1 repeated"* && $output != *note:* ]]
    check 'l = [json.loads(x) for x in sys.stdin]; assert len({x["document"] for x in l}) == 60 and {x["split"] for x in l} == {"fit", "heldout"}' <"$DIR/log-built.jsonl"
    says 65 "text for only 120 of 121 prompts*, 1 repeated)" "$CKVC" manifest build --chat "$DIR/log.jsonl" --prompts 121 --out "$DIR/more.jsonl"
    # without a model: characters of roles and contents
    says 0 '"longest":1506,*"prompts":1,' "$CKVC" manifest build --chat "$DIR/requests.jsonl" --min-length 1000 --json --out "$DIR/long.jsonl"
}

@test "manifest build --chat: what no template writes is refused by its line and name" {
    refuses() { # REQUEST WORDS
        printf '%s\n' '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}' "$1" >"$DIR/odd.jsonl"
        fails 65 "odd.jsonl:2: *${2//[/\\[}" "$CKVC" manifest build --chat "$DIR/odd.jsonl" --out "$DIR/odd-built.jsonl"
        [ ! -e "$DIR/odd-built.jsonl" ]
    }
    refuses '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]}]}' '"messages"[1] has "tool_calls"'
    refuses '{"messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"a","content":"y"}]}' '"messages"[1] has the role "tool"'
    refuses '{"messages":[{"role":"developer","content":"x"},{"role":"assistant","content":"y"}]}' '"messages"[0] has the role "developer"'
    refuses '{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":"y"}]}' '"content" of "messages"[0] is no string'
    refuses '{"tools":[{"type":"function"}],"messages":[]}' '"tools" is written into the prompt'
    refuses '{"system":"Be a pirate.","messages":[]}' '"system" is written into the prompt'
    refuses '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"assistant","content":"z"}]}' "behind another's turn"
    refuses '{"messages":[{"role":"assistant","content":"y"},{"role":"user","content":"x"}]}' "the last of 2 \"messages\" is the user's: want an answer"
    refuses '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":""}]}' "is the assistant's, and empty"
    refuses '{"messages":[{"role":"assistant","content":"x"}]}' "the last of 1"
    refuses '[1]' '"messages", an array'
    refuses '{"messages":' 'not valid JSON'
    says 65 "requests.jsonl:*this model states none" "$CKVC" manifest build --chat --model "$MODEL" "$DIR/requests.jsonl" --out "$DIR/odd-built.jsonl"
    run -64 "$CKVC" manifest build --chat "$DIR/requests.jsonl" --retrieval 0.5 --out "$DIR/odd-built.jsonl"
}

# Two turns of a user about a text, and a model whose template is ChatML.
two_turns() {
    check '
words = " ".join("The mail of box %d stays in the hall until %d." % (i, 7 * i % 60) for i in range(24))
turn = lambda role, content: {"role": role, "content": content}
print(json.dumps({"id": "two", "messages": [turn("user", words + " Where is it?"), turn("assistant", "In the hall."), turn("user", "And the key?")],
                  "continuation": "Under the stone beside the door."}), file=open(sys.argv[1], "w"))' "$DIR/two.jsonl"
}

@test "score --compress-after first: the later turn's loss over the cache that the first one left, beside compressing again" {
    two_turns
    for after in last first; do
        "$CKVC" score -q --model "$DIR/model" --manifest "$DIR/two.jsonl" --policy full,snapkv,streamingllm --budget 0.25 -W 16 --compress-after $after --out "$DIR/after-$after.jsonl"
    done
    check '
last, first = ([json.loads(l) for l in open(p)] for p in sys.argv[1:])
for a, b in zip(last, first):
    # the same tokens are scored behind the same tokens: under the full cache the same loss, but for the order of sums
    assert a["C"] == b["C"] > 4 and a["T"] == b["T"] + b["later_tokens"] and b["later_tokens"] > 8, (a, b)
    assert abs(a["loss_full"] - b["loss_full"]) < 2e-5, (a, b)
    assert b["compress_after"] == "first" and "compress_after" not in a and a["token_hash"] != b["token_hash"]
    assert b["entries"] / b["T"] <= a["entries"] / a["T"] * 1.01 and b["entries"] < a["entries"], (a, b)  # of the first turn alone
full, *rest = first
assert full["loss_comp"] == full["loss_full"] and all(r["loss_comp"] != r["loss_full"] for r in rest), first' "$DIR/after-last.jsonl" "$DIR/after-first.jsonl"
    run -0 "$CKVC" report --scores "$DIR/after-last.jsonl,$DIR/after-first.jsonl" --out "$DIR/two-report"
    check '
s = json.load(open(sys.argv[1]))["scores"]
rows = sorted((l["setting"], l["label"]) for l in s["losses"])
assert rows == [("25% of T" + after, p) for after in ("", ", compressed after the first turn") for p in ("snapkv", "streamingllm")], rows
assert not s["at_equal_tokens"] and not s["between_scores"], s' "$DIR/two-report/report.json"
    # a line without a continuation has nothing to score behind its later turn
    check 'l = json.load(sys.stdin); del l["continuation"]; print(json.dumps(l))' <"$DIR/two.jsonl" >"$DIR/bare.jsonl"
    says 65 'bare.jsonl:1: prompt "two" has a later turn and no continuation' "$CKVC" score -q --model "$DIR/model" --manifest "$DIR/bare.jsonl" --policy full --compress-after first
    run -64 "$CKVC" score -q --model "$DIR/model" --manifest "$DIR/two.jsonl" --policy full --compress-after first --attention-error
}

@test "generate --then: later turns are asked of the same cache, behind the model's own answers" {
    two_turns
    printf '%s\n' "And the key?" "Who has it?" >"$DIR/then.txt"
    tokens() { check 'print(*(t for l in sys.stdin for d in [json.loads(l)] if d.get("turn", 1) == int(os.environ["TURN"]) for t in d["tokens"]))'; }
    ids=$("$CKVC" tokenize --model "$MODEL" --json <<<"The mail stays in the hall.")
    echo "{\"id\":\"a\",\"tokens\":$ids}" >"$DIR/a.jsonl"
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/a.jsonl" --max-new 6 --then "$DIR/then.txt" --json >"$DIR/turns.json" 2>/dev/null
    # the third answer is what the whole of it, given as a prompt, is answered with
    py "$DIR/a.jsonl" "$DIR/turns.json" "$DIR/whole.jsonl" "$("$CKVC" tokenize --model "$MODEL" --no-special --json < <(printf '\nAnd the key?'))" \
        "$("$CKVC" tokenize --model "$MODEL" --no-special --json < <(printf '\nWho has it?'))" <<'PY'
prompt, turns = json.load(open(sys.argv[1])), [json.loads(l) for l in open(sys.argv[2])]
assert [t["turn"] for t in turns] == [1, 2, 3] and all(t["end"] == "length" for t in turns), turns
ids = prompt["tokens"] + turns[0]["tokens"] + json.loads(sys.argv[4]) + turns[1]["tokens"] + json.loads(sys.argv[5])
print(json.dumps({"id": "a", "tokens": ids}), file=open(sys.argv[3], "w"))
PY
    b=$("$CKVC" generate --model "$MODEL" --manifest "$DIR/whole.jsonl" --max-new 6 --json 2>/dev/null | TURN=1 tokens)
    [ "$(wc -w <<<"$b")" -eq 6 ]
    [ "$(TURN=3 tokens <"$DIR/turns.json")" = "$b" ]
    # an answer that the model ends: its end is not fed, the next turn stands behind what is before it
    mkdir "$DIR/ends"
    cp "$MODEL"/* "$DIR/ends/"
    check '
c, first = json.load(open(sys.argv[1])), json.loads(open(sys.argv[2]).readline())
c["eos_token_id"] = first["tokens"][3]
json.dump(c, open(sys.argv[1], "w"))' "$DIR/ends/config.json" "$DIR/turns.json"
    rm -f "$DIR/ends/generation_config.json"
    "$CKVC" generate --model "$DIR/ends" --manifest "$DIR/a.jsonl" --max-new 6 --then "$DIR/then.txt" --json >"$DIR/ended.json" 2>/dev/null
    check '
prompt, first = json.load(open(sys.argv[1])), json.loads(open(sys.argv[2]).readline())
assert first["end"] == "stop" and len(first["tokens"]) < 6, first
print(json.dumps({"id": "a", "tokens": prompt["tokens"] + first["tokens"][:-1] + json.loads(sys.argv[4])}), file=open(sys.argv[3], "w"))' "$DIR/a.jsonl" "$DIR/ended.json" "$DIR/whole.jsonl" "$("$CKVC" tokenize --model "$MODEL" --no-special --json < <(printf '\nAnd the key?'))"
    b=$("$CKVC" generate --model "$DIR/ends" --manifest "$DIR/whole.jsonl" --max-new 6 --json 2>/dev/null | TURN=1 tokens)
    [ -n "$b" ]
    [ "$(TURN=2 tokens <"$DIR/ended.json")" = "$b" ]
    # in a conversation the template writes what stands between the turns
    "$CKVC" generate --model "$DIR/model" --manifest "$DIR/two.jsonl" --max-new 5 --then "$DIR/then.txt" --policy snapkv -W 16 --compare --json >"$DIR/both.json" 2>/dev/null
    between=$(printf '<|im_end|>\n<|im_start|>user\nAnd the key?<|im_end|>\n<|im_start|>assistant\n' | "$CKVC" tokenize --model "$DIR/model" --no-special --json)
    check 'm = json.load(sys.stdin)["messages"]; print("".join("<|im_start|>%s\n%s<|im_end|>\n" % (x["role"], x["content"]) for x in m) + "<|im_start|>assistant")' \
        <"$DIR/two.jsonl" >"$DIR/first-turns"
    ids=$("$CKVC" tokenize --model "$DIR/model" --no-special --json <"$DIR/first-turns")
    check '
first = next(d for d in map(json.loads, open(sys.argv[1])) if d["policy"] == "full")
print(json.dumps({"id": "two", "tokens": json.loads(sys.argv[3]) + first["tokens"] + json.loads(sys.argv[4])}), file=open(sys.argv[2], "w"))' "$DIR/both.json" "$DIR/second.jsonl" "$ids" "$between"
    "$CKVC" generate --model "$DIR/model" --manifest "$DIR/second.jsonl" --max-new 5 --json >"$DIR/second.json" 2>/dev/null
    check '
got = next(d for d in map(json.loads, open(sys.argv[1])) if d["policy"] == "full" and d["turn"] == 2)
assert got["tokens"] == json.load(open(sys.argv[2]))["tokens"], got' "$DIR/both.json" "$DIR/second.json"
    check 'l = [json.loads(x) for x in sys.stdin]; assert [(x["policy"], x["turn"]) for x in l] == [(p, t) for t in (1, 2, 3) for p in ("full", "snapkv")], l
assert len({x["entries"] for x in l}) == 2' <"$DIR/both.json"
    # the manifest's own answer between its turns: the full cache answers as where all is the prompt
    a=$("$CKVC" generate --model "$DIR/model" --manifest "$DIR/two.jsonl" --max-new 8 --json 2>/dev/null | TURN=1 tokens)
    [ "$(wc -w <<<"$a")" -eq 8 ]
    [ "$("$CKVC" generate --model "$DIR/model" --manifest "$DIR/two.jsonl" --max-new 8 --compress-after first --json 2>/dev/null | TURN=1 tokens)" = "$a" ]
    # a prompt that has to be cut has room for its later turns and the answer
    check '
d = json.load(open(sys.argv[1]))
d["messages"][0]["content"] *= 8
print(json.dumps(d), file=open(sys.argv[2], "w"))' "$DIR/two.jsonl" "$DIR/long.jsonl"
    for after in last first; do
        "$CKVC" generate --model "$DIR/model" --manifest "$DIR/long.jsonl" --max-new 12 --compress-after $after --policy streamingllm --json 2>/dev/null |
            check 'd = json.load(sys.stdin); assert len(d["tokens"]) == 12 and d["T"] + d.get("later_tokens", 0) == 2048 - 12, d'
    done
    run -65 "$CKVC" generate --model "$DIR/model" --manifest "$DIR/long.jsonl" --compress-after first --max-tokens 20 -W 16 --policy snapkv
    [[ $output == *"tokens behind its first turn: 20 that it may have in all leave no room"* ]]
    printf 'a\n\nb\n' >"$DIR/blank.txt"
    says 65 "blank.txt:2: want a turn of the user on each line" "$CKVC" generate --model "$MODEL" --manifest "$DIR/a.jsonl" --then "$DIR/blank.txt"
}
