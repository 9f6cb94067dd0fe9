# eval: answers to tasks from full and compressed caches. That they are those of a decoder with one sequence is held by test_eval; here the verb.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 5 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.25,0.5 -q --out "$DIR/run"
    "$CKVC" fit "$DIR/run" --out "$DIR/t.ckvt" -q
    eval_to "$DIR/whole.jsonl"
}

# eval_to OUT OPTIONS: 10 items of two tasks, each under the full cache and 3 policies x 2 budgets
eval_to() {
    "$CKVC" eval --model "$MODEL" --window 16 --tasks niah,niah-multikey-1 --lengths 200 --depths 0,0.5,1 --count 2 --table "$DIR/t.ckvt" \
        --policy snapkv,random --budget 0.25,24 -q --out "$@"
}

# trained_to OUT OPTIONS: the same on a trained model, without a table
trained_to() {
    "$CKVC" eval --model models/ckvc-tiny-4l --window 16 --tasks niah,niah-multikey-1 --lengths 200 --depths 0,0.5,1 --count 2 \
        --policy snapkv,random --budget 0.25,24 -q --out "$@"
}

@test "lines: the full cache first, then policies and budgets, of every item; each keeps what it says" {
    check '
rows = [json.loads(x) for x in open(sys.argv[1])]
L, G, D = 4, 3, 16
ways = [("full", None)] + [(p, b) for p in ("snapkv", "random", "table") for b in (0.25, 24)]
assert len(rows) % 7 == 0 and len(rows) == 7 * len({r["id"] for r in rows}) == 7 * 8, len(rows)
for i, r in enumerate(rows):
    assert (r["policy"], r["budget"]) == ways[i % 7] and r["id"] == rows[i - i % 7]["id"]
    T = r["length"]
    assert 150 < T <= 205 and r["aimed"] == 200 and r["query"] == "seen" and "question" not in r
    B = T if r["budget"] is None else int(r["budget"] * T) if r["budget"] < 1 else r["budget"]
    assert r["entries"] == L * G * B, (r["entries"], L * G * B)
    assert r["share"] == r["entries"] / (L * G * T) and r["bytes"] == 8 * D * r["entries"]
    assert r["table"] == (sys.argv[2] if r["policy"] == "table" else None) and r["window"] == 16
    assert 0 <= r["score"] <= 1 and r["tokens"] > 0 and r["nll"] > 0 and r["reference_nll"] > 0
# policies answer otherwise than the full cache, and a quarter otherwise than 24 tokens
assert any(a["answer"] != b["answer"] for a, b in zip(rows[0::7], rows[1::7]))
assert any(a["answer"] != b["answer"] for a, b in zip(rows[1::7], rows[2::7]))' "$DIR/whole.jsonl" "$(content_id "$DIR/t.ckvt")"
}

@test "the same bytes for any threads and batch, and for parts 1, 2, 3 merged" {
    eval_to "$DIR/t1.jsonl" -t 1 --batch 1
    eval_to "$DIR/t2.jsonl" -t 2 --batch 3
    cmp "$DIR/whole.jsonl" "$DIR/t1.jsonl"
    cmp "$DIR/whole.jsonl" "$DIR/t2.jsonl"
    for n in 1 3; do # two: below, and of what is stopped
        joined $n eval_to "$DIR/parts-$n.jsonl"
        cmp "$DIR/whole.jsonl" "$DIR/parts-$n.jsonl"
    done
    eval_to "$DIR/parts.jsonl" --shard 0/2
    eval_to "$DIR/parts.jsonl" --shard 1/2 --seed 2
    fails 65 "parts.jsonl.part-1-of-2: was begun with items" "$CKVC" merge "$DIR/parts.jsonl"
}

@test "killed and stopped anywhere, resumed: the same bytes" {
    local delay rc=0
    killed "0.05 0.15 0.3" eval_to "$DIR/killed.jsonl" --batch 1
    cmp "$DIR/whole.jsonl" "$DIR/killed.jsonl"
    [ ! -e "$DIR/killed.jsonl.checkpoint" ]
    # from a checkpoint with a torn line, and with other settings
    eval_to "$DIR/torn.jsonl" --shard 0/1
    mv "$DIR/torn.jsonl.part-0-of-1" "$DIR/torn"
    check '
lines = open(sys.argv[1]).read().split("\n")
settings = json.loads(lines[0])
del settings["shard"]
text = "\n".join([json.dumps(settings, sort_keys=True, separators=(",", ":"))] + lines[1:12]) + "\n" + lines[12][:40]
open(sys.argv[1] + ".jsonl.checkpoint", "w").write(text)' "$DIR/torn"
    fails 73 --resume eval_to "$DIR/torn.jsonl"
    fails 65 "was begun with *, this command has " eval_to "$DIR/torn.jsonl" --resume --seed 2
    eval_to "$DIR/torn.jsonl" --resume --batch 1
    cmp "$DIR/whole.jsonl" "$DIR/torn.jsonl"
}

@test "inspect and verify of answers: whose and how many; status of a stopped one" {
    "$CKVC" inspect "$DIR/whole.jsonl" --json | check '
o = json.load(sys.stdin)
assert (o["kind"], o["items"], o["lines"]) == ("answers", 8, 56), o
assert o["policies"] == {"full": 8, "table": 16, "snapkv": 16, "random": 16} and o["queries"] == {"seen": 56}, o
assert o["budgets"] == {"0.25": 24, "24": 24} and len(o["models"]) == 1 and list(o["tables"].values()) == [16], o
assert set(o["tasks"]) == {"niah-single", "niah-multikey-1"} or sum(o["tasks"].values()) == 56, o'
    run -0 "$CKVC" verify "$DIR/whole.jsonl"
    [[ $output == *": ok, answers" ]]
    sed '3s/"score":[0-9.]*/"score":2/' "$DIR/whole.jsonl" >"$DIR/bent.jsonl"
    fails 65 "bent.jsonl:3: " "$CKVC" verify "$DIR/bent.jsonl"
    eval_to "$DIR/half.jsonl" --shard 0/1
    sed '24,$d' "$DIR/half.jsonl.part-0-of-1" >"$DIR/half.jsonl.checkpoint" # 22 lines: three of eight items, and one more line
    sed -i '1s/"shard":"[^"]*",//' "$DIR/half.jsonl.checkpoint"
    rm "$DIR/half.jsonl.part-0-of-1"
    run -0 "$CKVC" status "$DIR/half.jsonl"
    grep -Eq '^- +eval +8 +3 +0 ' <<<"$output"
    says 0 ": eval, all there; ckvc inspect " "$CKVC" status "$DIR/whole.jsonl" --watch 1 # all is there: it ends
}

@test "--limit-time: 75 between two items, of parts too; resumed: the same bytes" {
    local child rc=0 many=(--count 8 -t 1 --batch 1)
    SECONDS=0
    trained_to "$DIR/many.jsonl" "${many[@]}"
    local took=$SECONDS
    trained_to "$DIR/limited.jsonl" "${many[@]}" --shard 0/2 --limit-time 1 2>"$DIR/err" || rc=$?
    [ "$rc" -ne 0 ] || [ "$took" -ge 4 ] || skip "32 items in $took s"
    [ "$rc" -eq 75 ]
    grep -q "^ckvc eval: stopped after [1-9][0-9]* of 16 items; the same command with --resume goes on" "$DIR/err"
    trained_to "$DIR/limited.jsonl" "${many[@]}" --shard 0/2 --resume
    trained_to "$DIR/limited.jsonl" "${many[@]}" --shard 1/2
    "$CKVC" merge "$DIR/limited.jsonl" -q
    cmp "$DIR/many.jsonl" "$DIR/limited.jsonl"
    rc=0
    trained_to "$DIR/stopped.jsonl" "${many[@]}" & # and a signal
    until [ -s "$DIR/stopped.jsonl.checkpoint" ] && [ "$(wc -l <"$DIR/stopped.jsonl.checkpoint")" -gt 7 ]; do sleep 0.05; done
    read -r child <"/proc/$!/task/$!/children" || true # no line end
    kill -TERM "${child% }"
    wait "$!" || rc=$?
    [ "$rc" -eq 75 ]
    trained_to "$DIR/stopped.jsonl" "${many[@]}" --resume
    cmp "$DIR/many.jsonl" "$DIR/stopped.jsonl"
}

@test "window and the like are the table's, as in generate" {
    "$CKVC" eval --model "$MODEL" --tasks niah,niah-multikey-1 --lengths 200 --depths 0,0.5,1 --count 2 --table "$DIR/t.ckvt" \
        --policy snapkv,random --budget 0.25,24 -q --out "$DIR/own.jsonl"
    cmp "$DIR/whole.jsonl" "$DIR/own.jsonl"
}

@test "unseen: what is kept is decided before the question, which is fed over it" {
    trained_to "$DIR/seen.jsonl"
    trained_to "$DIR/unseen.jsonl" --query unseen
    check '
seen, unseen = ([json.loads(x) for x in open(p)] for p in sys.argv[1:])
assert len(seen) == len(unseen)
for a, b in zip(seen, unseen):
    assert b["query"] == "unseen" and b["question"] > 0 and a["length"] == b["length"] + b["question"]
    if a["policy"] == "full":  # nothing is dropped: rows of a prefill against tokens of a step
        assert a["answer"] == b["answer"] and abs(a["reference_nll"] - b["reference_nll"]) < 2e-6, a["id"]
assert any(a["answer"] != b["answer"] for a, b in zip(seen, unseen) if a["policy"] == "snapkv")' "$DIR/seen.jsonl" "$DIR/unseen.jsonl"
}

@test "turns: the cache is compressed behind the first question; later ones are fed over it, behind the right answers, and are answered as in one text" {
    "$CKVC" eval --model "$MODEL" --window 16 --tasks turns --lengths 300 --count 2 --policy snapkv --budget 0.25 -q --items "$DIR/turns-items.jsonl" --out "$DIR/turns.jsonl"
    py "$DIR/turns-items.jsonl" "$DIR/turns.jsonl" "$DIR/turns-prompts.jsonl" <<'END'
items, rows = ({i["id"]: i for i in map(json.loads, open(p))} for p in sys.argv[1:3])
assert [i["task"] for i in items.values()] == ["niah-turn-%d" % t for t in (1, 1, 2, 2, 3, 3)]
for i in items.values():
    turn, end = int(i["task"][-1]), i["prompt"][i["question_at"]:]
    questions = [q for q in end.split("\n\n")]
    assert len(questions) == turn and all(q.count("?") == 1 for q in questions), end
    for q in questions[:-1]:  # an earlier answer is the right one: it stands in the context beside its key
        assert i["prompt"][:i["question_at"]].count(q.rsplit(" ", 1)[1].rstrip(".")) == 1, q
    assert len(i["answers"]) == 1 and i["prompt"][:i["question_at"]].count(i["answers"][0]) == 1 and i["answers"][0] not in end
    row = rows[i["id"]]  # the last: snapkv's
    assert row["query"] == "seen" and ("question" in row) == (turn > 1), row
    assert row["entries"] == 4 * 3 * int(0.25 * row["length"])
with open(sys.argv[3], "w") as f:
    for i in items.values():
        print(json.dumps({"id": i["id"], "text": i["prompt"]}), file=f)
END
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/turns-prompts.jsonl" --max-new 24 --json >"$DIR/turns-whole.json" 2>/dev/null
    check '
whole = {d["id"]: d for d in map(json.loads, open(sys.argv[2]))}
full = [r for r in map(json.loads, open(sys.argv[1])) if r["policy"] == "full"]
assert len(full) == 6 and all(r["answer"] == whole[r["id"]]["text"] for r in full), [(r["answer"], whole[r["id"]]["text"]) for r in full]
assert all(r["length"] + r.get("question", 0) == whole[r["id"]]["T"] for r in full)' "$DIR/turns.jsonl" "$DIR/turns-whole.json"
    # the first question unseen, too: other lines, which a report holds apart
    "$CKVC" eval --model "$MODEL" --window 16 --tasks turns --lengths 300 --count 2 --policy snapkv --budget 0.25 -q --query unseen --out "$DIR/turns-unseen.jsonl"
    # or all turns seen, as where each is compressed anew
    "$CKVC" eval --model "$MODEL" --window 16 --tasks turns --lengths 300 --count 2 --policy snapkv --budget 0.25 -q --query all-seen --out "$DIR/turns-all.jsonl"
    check '
whole = {d["id"]: d["T"] for d in map(json.loads, open(sys.argv[2]))}
first, rows = ([json.loads(x) for x in open(p)] for p in (sys.argv[3], sys.argv[1]))
assert len(rows) == 12 and all(r["query"] == "all-seen" and "question" not in r and r["length"] == whole[r["id"]] for r in rows)
assert all(r["answer"] == f["answer"] for r, f in zip(rows, first) if r["policy"] == "full" or "-1/" in r["id"])' "$DIR/turns-all.jsonl" "$DIR/turns-whole.json" "$DIR/turns.jsonl"
    run -0 "$CKVC" report --answers "$DIR/turns.jsonl,$DIR/turns-unseen.jsonl,$DIR/turns-all.jsonl" --out "$DIR/turns-report"
    check '
assert [b["query"] for b in json.load(open(sys.argv[1]))["answers"]] == ["seen", "unseen", "all-seen"]' "$DIR/turns-report/report.json"
}

@test "the table at the end: means of the lines, what the full cache cannot do, bytes" {
    run -0 --separate-stderr "$CKVC" eval --model models/ckvc-tiny-8l --tasks niah,niah-single-3 --lengths 300 --depths 0.5 --count 3 --policy recent --budget 0.5
    echo "$output" >"$DIR/lines"
    echo "$stderr" >"$DIR/talk"
    py "$DIR/lines" "$DIR/talk" <<'END'
rows = [json.loads(x) for x in open(sys.argv[1])]
talk = open(sys.argv[2]).read().split("\n")
mean = lambda policy: sum(r["score"] for r in rows if r["policy"] == policy and r["task"] == "niah") / 3
full, recent = (next(x.split() for x in talk if p in x) for p in ("    full cache ", "of T  recent "))
assert mean("full") > 0.1 and full[3] == f"{mean('full'):.3f}" and recent[5] == f"{mean('recent'):.3f}", (full, recent)
assert full[-1] == "100%" and recent[:3] == ["50%", "of", "T"] and recent[-2] in ("49%", "50%"), (full, recent)
assert any(": 1 of 2 tasks in averages, 6 items" in x for x in talk)
assert "left out of averages: niah-single-3: the full cache has 0.000, wrong answers 0.000" in talk
END
}

@test "the table at the end has the intervals that a report of the file has, whatever the run's seed" {
    "$CKVC" eval --model models/ckvc-tiny-8l --tasks niah --lengths 150 --count 8 --policy snapkv --budget 0.7 --seed 7 --out "$DIR/seed.jsonl" 2>"$DIR/talk"
    "$CKVC" report --answers "$DIR/seed.jsonl" --out "$DIR/seed" --json 2>/dev/null >"$DIR/seed.json"
    check '
line = json.load(open(sys.argv[2]))["answers"][0]["lines"][1]
want = "snapkv {:.2f} {:.3f} ({:.3f} to {:.3f})".format(line["bytes"] / 1e6, line["score"], line["score_lo"], line["score_hi"])
assert any(want in " ".join(x.split()) for x in open(sys.argv[1])), want' "$DIR/talk" "$DIR/seed.json"
}

@test "an answer of one line ends with it" {
    "$CKVC" eval --model models/ckvc-tiny-8l --tasks few-shot --lengths 300 --count 2 --items "$DIR/items" -q >"$DIR/lines"
    check '
items = [json.loads(x) for x in open(sys.argv[2])]
assert [i["id"] for i in items] == [json.loads(x)["id"] for x in open(sys.argv[1])] and all(i["answers"][0] in i["prompt"] for i in items)
for r in map(json.loads, open(sys.argv[1])):
    text = r["answer"].lstrip("\n")
    assert r["end"] == "line" and text.count("\n") == 1 and len(text) > 1, r' "$DIR/lines" "$DIR/items"
}

@test "--cost: every policy beside the full cache at batch 1 to 16; a lookup does not grow with the prompt or the budget" {
    "$CKVC" eval --model "$MODEL" --window 16 --tasks niah --lengths 130,1000 --depths 1 --count 1 --table "$DIR/t.ckvt" --policy recent,kvzip --budget 0.25,0.5 \
        -q -t 1 --out "$DIR/of-cost.jsonl" --cost "$DIR/cost.csv"
    check '
answers = [json.loads(x) for x in open(sys.argv[1])]
rows = list(csv.DictReader(open(sys.argv[2])))
assert len(rows) == 2 * (1 + 3 * 2) * 5
near = lambda a, b: abs(a - b) <= 2e-5 * abs(b)
full = {(r["length"], r["batch"]): r for r in rows if r["policy"] == "full"}
lookups = []
for r in rows:
    v = {k: float(x) for k, x in r.items() if x and k not in ("policy", "table")}
    f = {k: float(x) for k, x in full[r["length"], r["batch"]].items() if x and k not in ("policy", "table")}
    a = next(a for a in answers if a["length"] == v["length"] and a["policy"] == r["policy"] and a["budget"] == v.get("budget"))
    assert v["entries"] == a["entries"] and v["cache_bytes"] == a["bytes"] and r["table"] == (a["table"] or "")
    assert near(v["bytes_ratio"], v["cache_bytes"] / f["cache_bytes"]) and near(v["peak_ratio"], v["peak_bytes"] / f["peak_bytes"])
    assert near(v["first_ratio"], v["first_s"] / f["first_s"]) and near(v["token_ratio"], v["token_s"] / f["token_s"])
    assert v["first_s"] > v["prefill_s"] + v["decide_s"] > 0 and v["token_s"] > 0
    assert v["repeat_tokens"] == a.get("repeat_tokens", 0) and (v["repeat_tokens"] > v["length"]) == (r["policy"] == "kvzip")
    assert (r["lookup_ns"] != "") == (r["policy"] == "table")
    lookups += [v["lookup_ns"]] if r["lookup_ns"] else []
# eight times the tokens, twice the budget: what grew with either would show
assert max(lookups) < 4 * min(lookups), lookups
bytes_of = lambda p, batch: float(next(r["peak_bytes"] for r in rows if r["policy"] == p and r["batch"] == batch and float(r["length"]) > 900))
assert bytes_of("recent", "16") < 0.5 * bytes_of("full", "16")
# a second pass over the prompt costs what it feeds
first = lambda p: float(next(r["first_ratio"] for r in rows if r["policy"] == p and float(r["length"]) > 900))
assert first("kvzip") > first("recent")' "$DIR/of-cost.jsonl" "$DIR/cost.csv"
    "$CKVC" report --answers "$DIR/of-cost.jsonl" --out "$DIR/of-cost" -q
    check '
lines = json.load(open(sys.argv[1]))["answers"][0]["lines"]
said = {x["policy"].split()[0]: (x["query_aware"], x["costs_besides"]) for x in lines}
assert said == {"full": (False, ""), "table": (True, ""), "recent": (False, ""), "kvzip": (False, "a second prefill")}, said' "$DIR/of-cost/report.json"
    fails 73 '' eval_to "$DIR/of-cost-2.jsonl" --cost "$DIR/cost.csv"
}

@test "a dry run says what it takes and makes nothing; memory that is not there is refused first" {
    says 0 "at most *items: * 8*lines: * 7*prefill_s: *hours: " eval_to "$DIR/dry.jsonl" --dry-run
    [ ! -e "$DIR/dry.jsonl" ]; [ ! -e "$DIR/dry.jsonl.checkpoint" ]
    run eval_to "$DIR/dry.jsonl" --dry-run --json
    check '
o = json.loads(sys.argv[1]); assert o["items"] == 8 and o["lines"] == 7 and o["hours"] > 0 and o["bytes"] > 1e6 and 56 * 300 < o["disk_bytes"] < 56 * 3000, o' "$output"
    fails 71 "allow more with --memory, or give a smaller --batch" eval_to "$DIR/dry.jsonl" --memory 1M
    [ ! -e "$DIR/dry.jsonl.checkpoint" ]
}

@test "the making of items says how far it is on a terminal, and nothing of it stays" {
    python3 - <<'END'
import os, pty, subprocess
def said(*options):
    ours, theirs = pty.openpty()
    p = subprocess.Popen([os.environ["CKVC"], "eval", "--model", os.environ["MODEL"], "--tasks", "niah", "--lengths", "200", "--count", "2", "--dry-run", *options],
                         stdout=subprocess.DEVNULL, stderr=theirs, env=dict(os.environ, TERM="xterm"))
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096): text += part
    except OSError: pass  # the other end is closed
    assert p.wait() == 0
    return text
text = said()
assert b"\r\x1b[Kmaking items: 0 of 10 prompts" in text and text.endswith(b"\r\x1b[K") and b"\n" not in text, text
assert said("-q") == b""
END
}

@test "what cannot be is one line" {
    no() { fails "$1" "$2" "$CKVC" eval --model "$MODEL" --lengths 200 --count 1 --depths 1 -q "${@:3}"; }
    no 64 "--tasks is needed"
    no 64 "no task \"nonesuch\"; there are all,needle" --tasks nonesuch
    [[ $output != *"did you mean"* ]]
    no 64 'did you mean "frequent-words"\?' --tasks niah,freqent-words
    no 64 "identity; of each table" --tasks niah --policy nonesuch
    [[ $output != *"did you mean"* ]]
    no 64 "did you mean 'snapkv'\?" --tasks niah --policy snpakv
    no 64 "matched" --tasks niah --table "$DIR/t.ckvt" --window 16 --policy matched
    no 64 "always there" --tasks niah --policy full
    no 64 "needs a --table" --tasks niah --policy pooled
    no 64 "is given twice" --tasks niah --policy recent,recent
    no 64 "--depths: got '2', wanted 0 to 1" --tasks niah --depths 2
    no 64 "--lengths: 64 is given twice" --tasks niah --lengths 64,64
    no 64 "name it" --tasks niah --resume
    no 64 "name it" --tasks niah --shard 0/2
    no 64 "no chat template" --tasks niah --chat
    no 65 "give --window 16" --tasks niah --table "$DIR/t.ckvt" --window 32
    no 65 "more than the model's context" --tasks niah --lengths 8191
    "$CKVC" eval --model "$MODEL" --tasks niah --lengths 120 --depths 0.5 --count 1 --window 300 --policy snapkv,fastkv --budget 4 -q --out "$DIR/short.jsonl"
    check '
full, *rows = map(json.loads, open(sys.argv[1]))
assert len(rows) == 2 and "whole" not in full
assert all(r["whole"] is True and [r[k] for k in ("entries", "answer", "nll", "reference_nll")] == [full[k] for k in ("entries", "answer", "nll", "reference_nll")] for r in rows)' "$DIR/short.jsonl"
    "$CKVC" inspect "$DIR/short.jsonl"
    no 65 "ask for shorter ones" --tasks niah --lengths 8191
    no 64 "wanted whole numbers from 1 to 10000000" --tasks niah --lengths 64.5
    cp "$DIR/t.ckvt" "$DIR/copy.ckvt"
    no 64 "hold the same table; leave one out" --tasks niah --window 16 --table "$DIR/t.ckvt,$DIR/copy.ckvt"
    no 64 "--out and --cost are both $DIR/one" --tasks niah --out "$DIR/one" --cost "$DIR/one" --force
    [ ! -e "$DIR/one" ]
}

@test "--items: what a part or a stopped run has written stays, all else is refused" {
    items() { eval_to "$DIR/with-items.jsonl" --items "$DIR/with.items" "$@"; }
    items --shard 0/2
    cp "$DIR/with.items" "$DIR/before"
    items --shard 1/2
    items --shard 1/2 --resume
    cmp "$DIR/with.items" "$DIR/before"
    fails 73 '' items
    fails 73 "with.items: exists already" items --shard 1/2 --resume --seed 2
    cmp "$DIR/with.items" "$DIR/before"
}

@test "scripts/eval-backbone.sh: a plan, then tables, answers, costs and the page, on an embedded model" {
    export CKVC BUDGETS=0.25 POLICIES=random LENGTHS=400
    prompts 12 | sed 's/"source"/"split":"fit","source"/' >"$DIR/backbone.jsonl"
    prompts 4 | sed 's/"id":"/"id":"h/; s/"source"/"split":"heldout","source"/' >>"$DIR/backbone.jsonl"
    backbone() { scripts/eval-backbone.sh "$1" "$2" "$DIR/backbone.jsonl" "$DIR/backbone" "${@:3}"; }
    says 64 "usage: scripts/eval-backbone.sh NAME" backbone nonesuch "$MODEL"
    run -66 backbone qwen2-7b "$DIR/nonesuch"
    [[ $output == *"fetch Qwen/Qwen2-7B-Instruct" ]]
    run -0 backbone tiny "$MODEL"
    [ ! -e "$DIR/backbone/demand" ]
    [ "$(grep -c "^at most " <<<"$output")" -eq 6 ] # of two compiles and four evals
    backbone tiny "$MODEL" compile eval report 2>"$DIR/talk" || { tail -n 3 "$DIR/talk"; return 1; }
    for q in seen unseen; do
        check '
rows = [json.loads(x) for x in open(sys.argv[1])]
assert [r["policy"] for r in rows[:4]] == ["full", "random", "table", "table"] and {r["query"] for r in rows} == {sys.argv[2]}' "$DIR/backbone/ruler-$q.jsonl" $q
    done
    [ "$(wc -l <"$DIR/backbone/costs.csv")" -eq 21 ]; [ -e "$DIR/backbone/report/report.html" ]
}

@test "scripts/kvpress_ruler.sh: every press, ratio and query once, what fails by name, and the means over tasks" {
    # stands for a Python with kvpress: of a run, two tasks' scores in the folder that evaluate.py would make; KVzap finds no weights
    cat >"$DIR/stub" <<'EOF'
#!/usr/bin/env bash
[[ $1 == */harness_kvpress.py ]] || exec python3 "$@"
echo "$*" >>"$CALLS"
while [ $# -gt 0 ]; do
    case $1 in
    --press_name) press=$2 ;;
    --output_dir) out=$2 ;;
    esac
    shift
done
[ "$press" != kvzap_mlp_layer ] || { echo "no weights here"; exit 1; }
mkdir "$out/some" && echo '{"a": {"string_match": 100.0}, "b": {"string_match": 50.0}}' >"$out/some/metrics.json"
EOF
    chmod +x "$DIR/stub"
    export CKVC KVPRESS=$DIR PYTHON=$DIR/stub CALLS=$DIR/calls TASKS=niah-single-1 LENGTHS=128 COUNT=1 RATIOS="0.5 0.875" PRESSES="ckvc kvzap_mlp_layer"
    echo >"$DIR/any.ckvt"
    says 64 "usage: scripts/kvpress_ruler.sh MODEL TABLE.ckvt OUTDIR" scripts/kvpress_ruler.sh "$MODEL"
    says 66 "nonesuch is not there" scripts/kvpress_ruler.sh "$MODEL" "$DIR/nonesuch" "$DIR/harness"
    says 1 "unseen, kvzap_mlp_layer, ratio 0.5 is left out (runs/unseen/kvzap_mlp_layer/0.5/log): no weights here" scripts/kvpress_ruler.sh "$MODEL" "$DIR/any.ckvt" "$DIR/harness"
    [[ $output == *$'query\tpress\t0\t0.5\t0.875'*$'seen\tckvc\t-\t0.750\t0.750'* ]]
    [ "$(wc -l <"$DIR/harness/items.jsonl")" -eq 1 ] && [ "$(wc -l <"$DIR/harness/scores.tsv")" -eq 13 ]
    [ "$(wc -l <"$CALLS")" -eq 10 ] && [ "$(grep -c -- "--query_aware True" "$CALLS")" -eq 5 ]
    rm -r "$DIR/harness/runs/seen/ckvc/0.5"
    run -1 scripts/kvpress_ruler.sh "$MODEL" "$DIR/any.ckvt" "$DIR/harness" # what has ended is not made again
    [ "$(wc -l <"$CALLS")" -eq 15 ]
}
