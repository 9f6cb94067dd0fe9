# transfer from the outside: heads by index, rank and signature, bins from the target's scan, refusals, and the report on the target.
load helper

setup_file() {
    prompts 9 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run"
    "$CKVC" fit "$DIR/run" --out "$DIR/a.ckvt" --label own -q
    "$CKVC" scan --model models/ckvc-tiny-8l --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16 -q --out "$DIR/scan8"
}

@test "a table transferred to its own model by signature is itself, with its own edges and statistics" {
    "$CKVC" transfer "$DIR/a.ckvt" --heads signature --scan "$DIR/run" --out "$DIR/self.ckvt"
    "$CKVC" verify "$DIR/self.ckvt"
    cells "$DIR/a.ckvt" >"$DIR/a.json"
    cells "$DIR/self.ckvt" >"$DIR/self.json"
    check '
a, b = (json.load(open(p)) for p in sys.argv[1:])
for k in ("WEIGHT", "TAU", "EDGEENT", "EDGEPPL", "hSIG"):
    assert a[k] == b[k], k
assert b["meta"]["fingerprint"] == a["meta"]["fingerprint"] and b["xFER"]["heads"] == "signature"
assert [p["heads"] for p in b["xFER"]["pairing"]] == [[0, 1, 2]] * 4, b["xFER"]' "$DIR/a.json" "$DIR/self.json"
}

@test "a demand pass knows the statistics of heads as a scan does: of a table, and of a target" {
    "$CKVC" calibrate "${OVER[@]}" --side demand --budget 0.5 -q --out "$DIR/demand"
    "$CKVC" fit "$DIR/demand" --out "$DIR/d.ckvt" -q
    "$CKVC" transfer "$DIR/d.ckvt" --heads signature --scan "$DIR/demand" --out "$DIR/d-self.ckvt" 2>/dev/null
    "$CKVC" transfer "$DIR/d.ckvt" --heads signature --scan "$DIR/run" --out "$DIR/d-run.ckvt" 2>/dev/null
    for t in a d d-self d-run; do cells "$DIR/$t.ckvt" >"$DIR/$t.json"; done
    check '
a, d, self, run = (json.load(open(f"{sys.argv[1]}/{t}.json")) for t in ("a", "d", "d-self", "d-run"))
assert a["hSIG"] == d["hSIG"] == self["hSIG"] == run["hSIG"]
assert [p["heads"] for p in self["xFER"]["pairing"]] == [[0, 1, 2]] * 4
for b in range(2 if len(d["SHARE"][0][0]) > 1 else 1):
    for x, y, z in zip(d["SHARE"], self["SHARE"], run["SHARE"]):
        assert all(abs(p[b] - q[b]) < 1e-12 and q == r for p, q, r in zip(x, y, z))
assert self["xFER"]["scan_prompts"] == 9 and self["EDGEENT"] == run["EDGEENT"]' "$DIR"
}

@test "to the deeper model: shape, edges and fingerprint from its scan; score takes the table there and nowhere else" {
    for heads in index rank signature; do
        "$CKVC" transfer "$DIR/a.ckvt" --heads "$heads" --scan "$DIR/scan8" --out "$DIR/to-$heads.ckvt" 2>/dev/null
        "$CKVC" verify "$DIR/to-$heads.ckvt"
    done
    cells "$DIR/to-signature.ckvt" | check '
t = json.load(sys.stdin)
assert len(t["WEIGHT"]) == 8 and t["meta"]["model_name"] == "ckvc-tiny-8l", t["meta"]
assert t["xFER"]["edges"] == "target-scan-quantiles" and t["xFER"]["scan_prompts"] == 9'
    "$CKVC" score --model models/ckvc-tiny-8l --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16 --limit 3 -q \
        --table "$DIR/to-signature.ckvt" --policy identity,recent,sink-recent,random,matched --out "$DIR/s.jsonl"
    [ "$(wc -l <"$DIR/s.jsonl")" -eq 36 ] # 3 prompts x 2 budgets x 6 policies
    fails 65 '' "$CKVC" score "${OVER[@]}" -q --table "$DIR/to-signature.ckvt"
}

@test "what makes no sense is refused, unless told" {
    refused() { fails "$1" "$2" "$CKVC" transfer "$DIR/a.ckvt" --out "$DIR/x.ckvt" "${@:3}" && [ ! -e "$DIR/x.ckvt" ]; } # STATUS WORDS OPTIONS...
    refused 64 "--scan RUN" --to-model models/ckvc-tiny-8l --heads rank
    refused 64 "wanted a target"
    refused 65 "the target has 7 x 3" --to-shape 7,3 --heads rank --scan "$DIR/scan8"
    refused 66 "none" --scan "$DIR/none"
    "$CKVC" scan --model models/ckvc-tiny-8l --manifest "$DIR/prompts.jsonl" --window 12 --continuation 16 --limit 2 -q --out "$DIR/scan12"
    refused 65 "the target's scan has 12" --heads rank --scan "$DIR/scan12"
    # a table without statistics of its own
    "$CKVC" transfer "$DIR/a.ckvt" --to-shape 4,3 --out "$DIR/nostat.ckvt"
    fails 65 hSIG "$CKVC" transfer "$DIR/nostat.ckvt" --heads signature --scan "$DIR/scan8" --out "$DIR/x.ckvt"
    fails 65 --force-mapping "$CKVC" transfer "$DIR/nostat.ckvt" --heads rank --scan "$DIR/scan8" --out "$DIR/x.ckvt"
    says 0 warning: "$CKVC" transfer "$DIR/nostat.ckvt" --heads rank --scan "$DIR/scan8" --out "$DIR/x.ckvt" --force-mapping
}

@test "--report: transferred against compiled against identity, and the matrix, as computed from the scores" {
    "$CKVC" transfer "$DIR/a.ckvt" --to-model models/ckvc-tiny-8l --out "$DIR/there.ckvt"
    "$CKVC" verify "$DIR/there.ckvt"
    run -0 "$CKVC" transfer "$DIR/there.ckvt" --to-model "$MODEL" --out "$DIR/back.ckvt" --report "$DIR/rep" --against "$DIR/a.ckvt" \
        --manifest "$DIR/prompts.jsonl"
    [[ $output == *"transfer ckvc-tiny-8l to ckvc-tiny-4l, heads by index, budget 16 tokens: T1 own, transferred "*" against T2 own, 9 prompts"* ]]
    page "$DIR/rep" | sed -n '/^What a transfer costs/,/^Head weights/p' | grep -q 'transfer ckvc-tiny-8l to ckvc-tiny-4l'
    check '
rows = [json.loads(l) for l in open(sys.argv[1] + "/scores.jsonl")]
r = json.load(open(sys.argv[1] + "/report.json"))
moved, compiled = (t["content_id"] for t in r["tables"])
by = {(x["policy"], x["table"], x["budget"], x["id"]): x["reward"] for x in rows}
got = r["transfers"]["rows"]
assert len(got) == 2, got  # two budgets
for row in got:
    b = row["budget"]
    ids = [k[3] for k in by if k[:3] == ("identity", None, b)]
    mean = lambda f: sum(map(f, ids)) / len(ids)
    a = lambda i: by["table", moved, b, i]
    c = lambda i: by["table", compiled, b, i]
    assert abs(row["against_compiled"]["difference"] - mean(lambda i: a(i) - c(i))) < 1e-12, row
    assert row["against_compiled"]["n"] == 9 and row["against_compiled"]["lo"] <= row["against_compiled"]["hi"]
    assert abs(row["compiled_against_identity"]["difference"] - mean(lambda i: c(i) - by["identity", None, b, i])) < 1e-12
    m = [m for m in r["transfers"]["matrices"] if m["budget"] == b]
    assert len(m) == 1 and m[0]["sources"] == ["ckvc-tiny-8l"] and m[0]["targets"] == ["ckvc-tiny-4l"], m
    assert m[0]["pairs"] == 1 and abs(m[0]["drop"][0][0] + row["against_compiled"]["difference"]) < 1e-12
    assert m[0]["mean_drop"] == m[0]["drop"][0][0]' "$DIR/rep"
    cp "$DIR/rep/scores.jsonl" "$DIR/scores"
    "$CKVC" report "$DIR/back.ckvt" --scores "$DIR/rep/scores.jsonl" --out "$DIR/rep" --force
    cmp "$DIR/scores" "$DIR/rep/scores.jsonl" # it is no report's, and stays
    fails 73 '' "$CKVC" report "$DIR/back.ckvt" --out "$DIR/rep"
    fails 64 '' "$CKVC" transfer "$DIR/there.ckvt" --to-shape 4,3 --out "$DIR/y.ckvt" --report "$DIR/rep2" --manifest "$DIR/prompts.jsonl"
    [ ! -e "$DIR/y.ckvt" ]
}
