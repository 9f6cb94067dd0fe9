# Prompts of one document are one draw: intervals of compile, fit and report; of prompts without one nothing changes.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 24 >"$DIR/prompts.jsonl"
    check '
own, shared = (open("%s/%s.jsonl" % (sys.argv[1], name), "w") for name in ("own", "shared"))
for i, line in enumerate(open(sys.argv[1] + "/prompts.jsonl")):
    p = json.loads(line)
    print(json.dumps(p | {"document": "d%d" % i}), file=own)
    print(json.dumps(p | ({"document": "d%d" % (i // 4)} if i < 20 else {})), file=shared)' "$DIR"
    for m in prompts own shared; do
        "$CKVC" compile --model "$MODEL" --manifest "$DIR/$m.jsonl" --window 16 --continuation 16 --budget 0.25 --ranking window --select 0 \
            --holdout 0.5 --seed 3 --shard-prompts 24 -q --json --out "$DIR/$m" >"$DIR/$m.json"
    done
}

@test "manifest check says which documents stand in several splits" {
    check '
with open(sys.argv[1] + "/split.jsonl", "w") as out:
    for i, line in enumerate(open(sys.argv[1] + "/shared.jsonl")):
        print(json.dumps(json.loads(line) | {"split": "heldout" if i % 8 == 3 or i >= 20 else "fit"}), file=out)' "$DIR"
    says 0 "split.jsonl:4: note: is of the same document as line 1, which is in another split (3 such documents)" "$CKVC" manifest check "$DIR/split.jsonl"
    [ "$("$CKVC" manifest check "$DIR/split.jsonl" --json 2>/dev/null | check 'print(json.load(sys.stdin)["documents_in_several_splits"])')" -eq 3 ]
    run "$CKVC" manifest check "$DIR/shared.jsonl"
    [[ $output != *note:* ]]
}

@test "manifest build: a long document is in parts, which are drawn for splits" {
    check '
line = "Word%d is followed by another one of %d kinds, and so it goes on until the sentence is over.\n\n"
for name, n in ("long", 900), ("short", 300):
    open("%s/%s.txt" % (sys.argv[1], name), "w").writelines(line % (i, n) for i in range(n))' "$DIR"
    says 0 " from 2 documents in 4 parts" "$CKVC" manifest build "$DIR/long.txt" "$DIR/short.txt" --prompts 30 --split-share heldout=0.5 --out "$DIR/parts.jsonl"
    [[ $output == *"note: 1 of 2 documents have prompts in several splits (long ones are drawn in parts of three prompts, at least 32 KB): "*"--split-rest heldout"* ]]
    says 0 "(1 such documents)" "$CKVC" manifest check "$DIR/parts.jsonl"
    says 0 " from 1 documents in 1 parts" "$CKVC" manifest build "$DIR/long.txt" --prompts 1 --min-length 40000 --max-length 60000 --out "$DIR/wide.jsonl"
    run "$CKVC" manifest build "$DIR/short.txt" --prompts 9 --split-share heldout=0.5 --out "$DIR/dealt.jsonl"
    [[ $output == *"note: 1 of 1 documents have prompts in several splits (too few to be drawn: prompts were): "* ]]
    [ "$("$CKVC" manifest build "$DIR/short.txt" --prompts 9 --split-share heldout=0.5 --out "$DIR/dealt.jsonl" -f --json | check 'print(json.load(sys.stdin)["documents_in_several_splits"])')" -eq 1 ]
    # the way out that the note names
    "$CKVC" manifest build "$DIR/long.txt" --prompts 9 --out "$DIR/fit.jsonl"
    "$CKVC" manifest build "$DIR/short.txt" --prompts 9 --split-rest heldout --out "$DIR/judge.jsonl"
    cat "$DIR/fit.jsonl" "$DIR/judge.jsonl" >"$DIR/joined.jsonl"
    run -0 "$CKVC" manifest check "$DIR/joined.jsonl"
    [[ $output != *note:* ]]
}

@test "manifest build --query unseen: prompts end before their questions, which the continuations begin with" {
    check '
word = lambda i: "abcdefghij"[i % 10] * 2 + "klmnopqrst"[i // 10 % 10] * 2
with open(sys.argv[1] + "/words.txt", "w") as out:
    for i in range(0, 1000, 4):
        out.write("The %s of %s was known to %s and to nobody but %s in the town of year %d.\n\n" % (*map(word, range(i, i + 4)), i))' "$DIR"
    for query in seen unseen; do
        "$CKVC" manifest build "$DIR/words.txt" --prompts 6 --retrieval 1 --query $query --min-length 900 --max-length 1000 --continuation 100 --out "$DIR/$query.jsonl"
    done
    check '
import re
questions = "What is the special|Q: key |Tell me the|The value|\S+:"
seen, unseen = ([json.loads(x) for x in open("%s/%s.jsonl" % (sys.argv[1], q))] for q in ("seen", "unseen"))
assert len(seen) == len(unseen) == 6
for p in seen:
    assert re.match(questions, p["text"].rstrip().splitlines()[-1]) or p["text"].endswith("A:"), p
for p in unseen:
    assert re.match("\n(%s)" % questions, p["continuation"]) and not re.match(questions, p["text"].splitlines()[-1]), p
    assert 900 <= len(p["text"]) <= 1000 and len(p["continuation"]) >= 100, p' "$DIR"
    says 64 "--query unseen is for the prompts of --retrieval" "$CKVC" manifest build "$DIR/words.txt" --query unseen --out "$DIR/none.jsonl"
}

@test "prompts that are each their own: the same tables and intervals with their documents named and without" {
    check '
plain, own, shared = (json.load(open("%s/%s.json" % (sys.argv[1], m))) for m in ("prompts", "own", "shared"))
of = lambda r: r["passes"][-1]["heldout"]
assert of(plain) == of(own) and of(plain)["over_snapkv"]["documents"] == of(plain)["prompts"], of(own)
assert of(shared)["over_snapkv"]["documents"] < of(shared)["prompts"], of(shared)
assert of(shared)["over_snapkv"]["mean"] == of(plain)["over_snapkv"]["mean"]' "$DIR"
    for m in prompts own shared; do "$CKVC" inspect "$DIR/$m/table.ckvt" --json --cells >"$DIR/$m.cells"; done
    check '
plain, own, shared = (json.load(open("%s/%s.cells" % (sys.argv[1], m))) for m in ("prompts", "own", "shared"))
ends = lambda t: [x for layer in t["sSHARE"] for head in layer for x in head]
assert ends(plain) == ends(own) and plain["SHARE"] == own["SHARE"] == shared["SHARE"]
wide = lambda t: sum(hi - lo for lo, hi in ends(t))
assert wide(shared) > wide(plain), (wide(shared), wide(plain))
d = [t["meta"]["diagnostics"]["demand"] for t in (plain, shared)]
assert "documents" not in d[0] and d[1]["documents"] < d[1]["prompts"] == d[0]["prompts"], d' "$DIR"
}

@test "compile, report and score lines: intervals by document, as numpy has them" {
    "$CKVC" report "$DIR/shared/table.ckvt" "$DIR/shared" --scores "$DIR/shared/heldout/pass-01.jsonl" --out "$DIR/report" -q
    "$CKVC" report "$DIR/prompts/table.ckvt" "$DIR/prompts" --scores "$DIR/prompts/heldout/pass-01.jsonl" --out "$DIR/report-own" -q
    py "$DIR" <<'PY'
folder = sys.argv[1]
lines = [json.loads(l) for l in open(folder + "/shared/heldout/pass-01.jsonl")]
reward = {(l["policy"], l["id"]): l["reward"] for l in lines}
document = {l["id"]: l.get("document", "of " + l["id"]) for l in lines}
ids = sorted(document)
assert any("document" not in l for l in lines) and all("document" not in json.loads(l) for l in open(folder + "/prompts/heldout/pass-01.jsonl"))
def by_document(other):
    d = [reward["table", i] - reward[other, i] for i in ids]
    m, sums = sum(d) / len(d), collections.Counter()
    for i, x in zip(ids, d):
        sums[document[i]] += x - m
    G = len(sums)
    return m, math.sqrt(G / (G - 1) * sum(s * s for s in sums.values())) / len(d), len(d), G
said = json.load(open(folder + "/shared.json"))["passes"][-1]["heldout"]
near = lambda a, b: abs(a - b) <= 1e-9 * max(1e-3, abs(b))
for other in "snapkv", "adakv", "identity":
    m, se, n, G = by_document(other)
    got = said["over_" + other]
    assert near(got["mean"], m) and near(got["se"], se) and (got["prompts"], got["documents"]) == (n, G) and G < n, (got, m, se, n, G)
def comparisons(x):
    if isinstance(x, dict):
        if {"difference", "n_documents", "standard_error"} <= set(x): yield x
        for v in x.values(): yield from comparisons(v)
    elif isinstance(x, list):
        for v in x: yield from comparisons(v)
wide, own = (list(comparisons(json.load(open("%s/%s/report.json" % (folder, r))))) for r in ("report", "report-own"))
m, se, n, G = by_document("snapkv")
hit = [c for c in wide if near(c["difference"], m) and c["n"] == n]
assert hit and all(near(c["standard_error"], se) and c["n_documents"] == G for c in hit), (m, se, wide)
same = [c for c in own if near(c["difference"], m)]
assert same and all(c["n_documents"] == c["n"] for c in own) and same[0]["standard_error"] != hit[0]["standard_error"]
b = [c["bootstrap"]["hi"] - c["bootstrap"]["lo"] for c in (hit[0], same[0])]
assert b[0] != b[1] and "on %d prompts of %d documents, it loses " % (n, G) in open(folder + "/report/report.html").read(), b
PY
    run -0 "$CKVC" fit "$DIR/shared" --ranking window --out "$DIR/again.ckvt"
    [[ $output =~ "demand: "[0-9]+" prompts of "[0-9]+" documents" ]]
}
