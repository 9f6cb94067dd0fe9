# Prompts that compile makes of texts: those that come with the program, and one's own.
RANDOM_MODEL=1
load helper

FEW=(--model "$MODEL" --window 16 --continuation 16 --lengths 200 --prompts 12 --shard-prompts 2)

# from_texts OUT [options]
from_texts() { "$CKVC" compile "${FEW[@]}" -q --out "$@" 2>/dev/null; }

# every byte that a run is for, without its journal
run_sums() { (cd "$1" && find . -name '*.h5' -o -name '*.ckvt' -o -name '*.jsonl' ! -name journal.jsonl | sort | xargs sha256sum); }

setup_file() {
    from_texts "$DIR/run"
}

@test "without --manifest compile takes the default texts: half retrieval, three splits, a checked manifest in the run" {
    check '
lines = rows_of(sys.argv[1] + "/prompts.jsonl")
assert len(lines) == 12, len(lines)
assert sum(l["source"] == "retrieval" for l in lines) == 6, lines
assert {l["split"] for l in lines} == {"fit", "select", "heldout"}, lines
documents = {}
for l in lines:
    documents.setdefault(l["document"], set()).add(l["split"])
assert all(len(splits) == 1 for document, splits in documents.items() if not document.startswith("data-")), documents # long ones are in parts
record = load(sys.argv[1] + "/prompts-check.json")
assert record["leaked_prompts"] == 0 and record["held_out"] == sum(l["split"] != "fit" for l in lines), record' "$DIR/run"
    "$CKVC" verify "$DIR/run" "$DIR/run/table.ckvt"
    "$CKVC" manifest check "$DIR/run/prompts.jsonl" --model "$MODEL" --json | check '
d = json.load(sys.stdin)
assert 160 <= d["shortest"] and d["longest"] <= 200, d'
    # its record goes into the table, and the run can be scored by its own prompts
    run -0 "$CKVC" score --model "$MODEL" --manifest "$DIR/run/prompts.jsonl" --split heldout --window 16 --continuation 16 --table "$DIR/run/table.ckvt" -q
    [[ $output != *"not checked for leaks"* ]]
    "$CKVC" report "$DIR/run/table.ckvt" "$DIR/run" --out "$DIR/report" -q
    # a record that was changed is found
    cp -r "$DIR/run" "$DIR/changed"
    printf '\n' >>"$DIR/changed/prompts.jsonl"
    run "$CKVC" verify "$DIR/changed"
    [ "$status" -ne 0 ] && [[ $output == *prompts.jsonl* ]]
}

@test "the run is that of its own manifest and record, given by hand; a killed one ends with the same bytes" {
    "$CKVC" compile --model "$MODEL" --window 16 --continuation 16 --shard-prompts 2 -q --manifest "$DIR/run/prompts.jsonl" --leak-check "$DIR/run/prompts-check.json" --out "$DIR/hand"
    cmp "$DIR/run/run.json" "$DIR/hand/run.json"
    diff <(run_sums "$DIR/run" | grep -v prompts.jsonl) <(run_sums "$DIR/hand")
    killed "0.2 0.3 T0.4 0.5 T0.6" from_texts "$DIR/killed"
    diff <(run_sums "$DIR/run") <(run_sums "$DIR/killed")
    # killed before the prompts were written
    cp -r "$DIR/run" "$DIR/lost"
    rm "$DIR/lost/prompts.jsonl" "$DIR/lost/prompts-check.json"
    sed -i '/"name":"prompts/d' "$DIR/lost/journal.jsonl"
    from_texts "$DIR/lost" --resume
    diff <(run_sums "$DIR/run") <(run_sums "$DIR/lost")
    # a table that was moved away is there again
    mv "$DIR/lost/table.ckvt" "$DIR/moved.ckvt"
    from_texts "$DIR/lost" --resume
    cmp "$DIR/lost/table.ckvt" "$DIR/moved.ckvt"
    # other prompts are another plan; by its manifest a run goes on without the texts
    fails 65 "prompts*" "$CKVC" compile "${FEW[@]}" -q --out "$DIR/run" --resume --prompts 14
    "$CKVC" compile --model "$MODEL" --window 16 --continuation 16 --shard-prompts 2 -q --manifest "$DIR/run/prompts.jsonl" --leak-check "$DIR/run/prompts-check.json" --out "$DIR/run" --resume
}

@test "manifest build without a path takes the default texts, and makes the prompts of compile" {
    "$CKVC" manifest build --model "$MODEL" --prompts 12 --retrieval 0.5 --min-length 160 --max-length 200 --continuation 16 --split-share select=0.2,heldout=0.2 \
        --out "$DIR/built.jsonl" 2>/dev/null
    "$CKVC" manifest check "$DIR/built.jsonl" --against "$DIR/built.jsonl" --model "$MODEL" --clean "$DIR/clean.jsonl" --out "$DIR/clean-check.json" >/dev/null 2>&1
    cmp "$DIR/clean.jsonl" "$DIR/run/prompts.jsonl"
    # the same with --query unseen: prompts end before the question, and continuations begin with it
    from_texts "$DIR/unseen" --query unseen
    "$CKVC" manifest build --model "$MODEL" --prompts 12 --retrieval 0.5 --query unseen --min-length 160 --max-length 200 --continuation 16 \
        --split-share select=0.2,heldout=0.2 --out "$DIR/built-unseen.jsonl" 2>/dev/null
    check '
built = {l["id"]: l for l in rows_of(sys.argv[1])}
made = rows_of(sys.argv[2])
assert made and all(l == built[l["id"]] for l in made), made
begins = lambda rows: {l["continuation"][0] == "\n" for l in rows if l["source"] == "retrieval"} # a question is a line of its own
assert begins(made) == {True} and begins(rows_of(sys.argv[3])) == {False}, made' "$DIR/built-unseen.jsonl" "$DIR/unseen/prompts.jsonl" "$DIR/run/prompts.jsonl"
    fails 64 "no PATH to take conversations from" "$CKVC" manifest build --chat --out "$DIR/none.jsonl"
}

@test "a dry run makes the same prompts and writes nothing; several lengths take turns" {
    run -0 "$CKVC" compile "${FEW[@]}" --dry-run
    [[ $output == *"texts: 12 prompts (6 retrieval): "*"prompts:        12"* ]]
    from_texts "$DIR/two" --lengths 100,300
    "$CKVC" manifest check "$DIR/two/prompts.jsonl" --model "$MODEL" --json | check '
d = json.load(sys.stdin)
assert 80 <= d["shortest"] <= 100 and 240 <= d["longest"] <= 300, d
assert 160 <= d["total"] / d["prompts"] <= 200, d # half of each'
}

@test "--texts: half of the prompts are of one's own, or all of them; what shares text with a judge is left out" {
    mkdir "$DIR/own"
    cp docs/*.md "$DIR/own"
    echo '<html><body>no text</body></html>' >"$DIR/own/page.txt"
    run -0 "$CKVC" compile "${FEW[@]}" --texts "$DIR/own" --out "$DIR/both"
    [[ $output == *"note: --texts: left out 1 files of HTML"*"(page.txt)"* ]]
    check '
lines = rows_of(sys.argv[1])
own = [l for l in lines if l["document"].startswith("text-")]
assert len(lines) == 12 and len(own) == 6, lines' "$DIR/both/prompts.jsonl"
    from_texts "$DIR/alone" --texts "$DIR/own" --default-texts no
    check 'assert {l["document"].split("-")[0] for l in rows_of(sys.argv[1])} == {"text"}' "$DIR/alone/prompts.jsonl"
    # by hand these are the prompts of --even-splits
    "$CKVC" manifest build "$DIR/own" --model "$MODEL" --prompts 12 --retrieval 0.5 --min-length 160 --max-length 200 --continuation 16 \
        --split-share select=0.2,heldout=0.2 --even-splits --out "$DIR/built-own.jsonl" 2>/dev/null
    "$CKVC" manifest check "$DIR/built-own.jsonl" --against "$DIR/built-own.jsonl" --model "$MODEL" --clean "$DIR/clean-own.jsonl" >/dev/null 2>&1
    cmp "$DIR/clean-own.jsonl" "$DIR/alone/prompts.jsonl"
    # the same text under two names: where it stands on both sides, the prompts to fit go
    mkdir "$DIR/twice"
    for text in docs/*.md; do
        cp "$text" "$DIR/twice"
        sed '1s/^/Again: /' "$text" >"$DIR/twice/again-${text##*/}"
    done
    run -0 "$CKVC" compile "${FEW[@]}" --texts "$DIR/twice" --default-texts no --prompts 40 --dry-run
    [[ $output == *" more share text with these and are left out"* ]]
    # too little for as many as are asked for
    head -c 20000 docs/method.md >"$DIR/short.md"
    run -0 "$CKVC" compile "${FEW[@]}" --texts "$DIR/short.md" --default-texts no --prompts 90 --dry-run
    [[ $output == *"note: the text gives no more than "*" of 90 prompts"* ]]
}

@test "compile ends with the verdict, bytes, and the lines that use the table" {
    cp -r "$DIR/run" "$DIR/said"
    run -0 "$CKVC" compile "${FEW[@]}" --out "$DIR/said" --resume
    [[ $output == *"verdict: at budget 0.25 the table's KL from the whole cache is "*" nats per token on "*"% perplexity)"* ]]
    # each budget's verdict is the mean over the lines that judged it, and the rule is the one that comes nearest
    "$CKVC" compile "${FEW[@]}" --budget 0.5,0.25 --out "$DIR/verdicts" --json 2>"$DIR/verdicts.txt" >"$DIR/verdicts.json"
    for step in "1 of 3, pass-01-demand: " "2 of 3, choosing settings: " "3 of 3, judging the table: "; do grep -q "step $step" "$DIR/verdicts.txt"; done
    check '
said = json.load(open(sys.argv[1] + ".json"))["verdicts"]
assert [v["budget"] for v in said] == [0.5, 0.25]
for v in said:
    lost, kl = {}, {}
    for line in rows_of(sys.argv[1] + "/heldout/pass-02.jsonl"):
        if line["budget"] == v["budget"]:
            lost.setdefault(line["policy"], {})[line["id"]] = -line["reward"]  # the last of several lines counts
            kl.setdefault(line["policy"], {})[line["id"]] = line["kl"]
    losses, mean = ({policy: sum(of.values()) / len(of) for policy, of in x.items()} for x in (lost, kl))
    loss, own = losses["table"], mean.pop("table")
    assert abs(v["loss"]["mean"] - loss) < 1e-12 and abs(v["percent"] - 100 * (math.exp(loss) - 1)) < 1e-9, (v, loss)
    assert abs(v["kl"]["mean"] - own) < 1e-12, (v, own)
    best = min(set(mean) - {"identity"}, key=mean.get)
    assert v["rule"]["name"] == best and abs(v["rule"]["mean"] - (mean[best] - own)) < 1e-12, (v, mean)
' "$DIR/verdicts"
    # what is printed to do next does it
    next=$(sed -n 's/^next: ckvc //p' <<<"$output")
    "$CKVC" $next -q
    [ -s "$DIR/said-report/report.html" ]
    "$CKVC" verify "$DIR/said"
    [[ $output == *"bytes: the table has "*" kB a token in 16 bits, it keeps a share of 0.25"* ]]
    [[ $output == *"with ckvc.hf.compress(model, \"$DIR/said/table.ckvt\", budget=0.25):"*"model.generate(**prompt"* ]]
    [[ $output != *"vllm serve"* && $output == *"compile again with --features 2 --mode lengths --classes 2"* ]]
    "$CKVC" compile "${FEW[@]}" --features 2 --mode lengths --classes 2 -q --out "$DIR/classes"
    # where the ranking reads no attention: llama.cpp; where a layer has one length, too: vLLM
    run -0 "$CKVC" compile "${FEW[@]}" --features 2 --out "$DIR/bare"
    [[ $output != *"vllm serve"* && $output == *"vLLM holds one length per layer: compile again with --mode lengths --classes 2"* ]]
    run -0 "$CKVC" compile "${FEW[@]}" --features 2 --mode lengths --budget 32 --out "$DIR/paged"
    if [[ $("$CKVC" inspect "$DIR/paged/table.ckvt" --json | check 'print(json.load(sys.stdin)["score"][0]["score"])') == learned ]]; then
        [[ $output == *"llm = llama_cpp.Llama(\"MODEL.gguf\", n_ctx=0, verbose=False)"*"ckvc.llama.compact(llm, 0, \"$DIR/paged/table.ckvt\", budget=32))"* ]]
        [[ $output == *"vllm serve $MODEL --additional-config '{\"ckvc\": {\"table\": \"$DIR/paged/table.ckvt\", \"budget\": 32}}'"* ]]
    fi
    # a table that somebody else made: the lines are of the largest budget, which loses the least
    table=docs/results/smollm2-135m-lengths/table.ckvt
    run -0 "$CKVC" inspect $table
    [[ $output == *"a share of 0.125, a share of 0.25"* && $output == *"with ckvc.hf.compress(model, \"$table\", budget=0.25)"* ]]
    [[ $output == *"vllm serve DIR --additional-config '{\"ckvc\": {\"table\": \"$table\", \"budget\": 0.25}}'"* ]]
}

@test "what is wrong with texts and lengths is said in one line, with what to do" {
    wrong() { fails "$1" "$2" "$CKVC" compile "${FEW[@]}" -q --out "$DIR/x" "${@:3}"; }
    mkdir "$DIR/empty"
    wrong 65 "holds no text file" --texts "$DIR/empty"
    wrong 66 "No such file" --texts "$DIR/nothing"
    wrong 65 "too little text in 1 documents*give more files or longer ones, or shorter --lengths" --texts LICENSE --lengths 1900
    wrong 64 "give --texts DIR, or leave it out" --default-texts no
    wrong 64 "the model's context of 8192 tokens holds a prompt of at most *: give --lengths " --lengths 200,90000
    wrong 64 "no more than --window 16" --lengths 20
    wrong 64 "wanted a number of tokens, as in 4096,8192" --lengths many
    wrong 64 "wanted 1 to 8" --lengths 100,101,102,103,104,105,106,107,108
    wrong 64 "--leak-check is the record of a --manifest" --leak-check "$DIR/run/prompts-check.json"
    for o in "--lengths 200" "--texts docs" "--default-texts no" "--prompts 9" "--query unseen"; do
        fails 64 "${o% *} says how prompts are made of texts, but those of --manifest are made" "$CKVC" compile --model "$MODEL" -q --out "$DIR/x" --manifest "$DIR/run/prompts.jsonl" $o
    done
    # a model without a tokenizer
    mkdir "$DIR/mute" && cp "$MODEL"/config.json "$MODEL"/*.safetensors "$DIR/mute"
    fails 64 "no tokenizer" "$CKVC" compile --model "$DIR/mute" --no-repeat -q --out "$DIR/x" --window 16
    # a program far from its texts
    mkdir "$DIR/far" && cp "$CKVC" "$DIR/far/ckvc"
    fails 66 "the default texts are not beside this program*give texts of your own, as PATH to manifest build, or by --texts DIR --default-texts no to compile" "$DIR/far/ckvc" compile "${FEW[@]}" -q --out "$DIR/x"
    fails 66 "the default texts are not beside this program" "$DIR/far/ckvc" manifest build --out "$DIR/x"
    [ ! -e "$DIR/x" ]
    # a folder that holds a run is refused before anything is read
    fails 73 "$DIR/run: exists and is not empty; go on with --resume" "$CKVC" compile --model "$DIR/nothing" --out "$DIR/run"
    # a context of 2,048 does not hold 1,024 and its repetition, which are built in: prompts become shorter; of some scripts a tokenizer makes bytes
    run -0 "$CKVC" compile --model models/ckvc-tiny-4l --dry-run
    [[ $output =~ "0 cut, 0 too short), longest "([0-9]+)" + 128 tokens" ]]
    [ "${BASH_REMATCH[1]}" -le 1019 ] && [ "${BASH_REMATCH[1]}" -ge 816 ]
    [[ $output == *" are of scripts that this model's tokenizer splits into bytes: down to 1.0 bytes per token"* ]]
}

@test "the default texts: at most 3 MB, each with its sum and its licence in NOTICE, and none is left out" {
    [ "$(cat default-texts/*/*.gz | wc -c)" -le 3000000 ]
    (cd default-texts && grep -E '^[0-9a-f]{64}  ' NOTICE | sha256sum --check --quiet)
    diff <(cd default-texts && ls -- */*.gz | sort) <(grep -oE '[a-z]+/[^ ]+\.gz$' default-texts/NOTICE | sort)
    ! grep -E '^licence: .*(GPL|GFDL|BY-SA)' default-texts/NOTICE
    sources=()
    for folder in default-texts/*/; do sources+=("$(basename "$folder")=$folder"); done
    "$CKVC" manifest build "${sources[@]}" --prompts 8 --out "$DIR/all.jsonl" --json 2>/dev/null | check '
d = json.load(sys.stdin)
assert sum(d["left_out"][k] for k in ("short", "unreadable", "binary", "markup")) == 0, d'
}
