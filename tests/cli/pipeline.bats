# The way through: calibrate, fit, score, report; the same bytes whatever the threads, the interruptions, the order.
load helper

setup_file() {
    prompts 12 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run"
    calibrate "$DIR/one" --threads 1
    calibrate "$DIR/other" --seed 3
    "$CKVC" fit "$DIR/run" --out "$DIR/a.ckvt" -q
    "$CKVC" fit "$DIR/other" --out "$DIR/o.ckvt" -q --label other
}

@test "a run verifies, says what it is, and holds its shards" {
    run -0 "$CKVC" verify "$DIR/run"
    [ "$(find "$DIR/run" -name '*.h5' | wc -l)" -eq 6 ] # 3 of the scan, 3 of the pass
    [ -z "$(find "$DIR/run" -name '*.log')" ]
    "$CKVC" inspect "$DIR/run" --json | check '
run = json.load(sys.stdin)
assert "pass-01-both" in json.dumps(run), run'
    run -0 "$CKVC" verify "$DIR"/run/pass-01-both/shard-00000.h5
}

@test "the same shards on one thread, on two, and in a second run" {
    calibrate "$DIR/two" --threads 2
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/one")
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/two")
}

@test "one clean stop says so in one line and exits 75" {
    run --separate-stderr "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --out "$DIR/limited" --limit-time 1 --variants all
    [ "$status" -eq 75 ] || [ "$status" -eq 0 ]
    if [ "$status" -eq 75 ]; then
        output=$stderr
        one_line
        [[ $output == *--resume* ]]
    fi
}

@test "stopped and killed at any moment, resumed: the same shards" {
    killed "T0.35 0.15 T0.35 0.3 T0.35 0.5 T0.35 0.7 T0.35 0.9" calibrate "$DIR/killed"
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/killed")
    "$CKVC" verify "$DIR/killed"
}

@test "resume refuses another plan and names the field" {
    fails 65 seed calibrate "$DIR/run" --resume --seed 2
    fails 73 --resume calibrate "$DIR/run"
}

@test "fit: one content id for one plan, equal files without provenance" {
    "$CKVC" fit "$DIR/one" --out "$DIR/b.ckvt" -q
    [ "$(content_id "$DIR/a.ckvt")" = "$(content_id "$DIR/b.ckvt")" ]
    "$CKVC" fit "$DIR/run" --out "$DIR/c.ckvt" --no-prov -q
    "$CKVC" fit "$DIR/one" --out "$DIR/d.ckvt" --no-prov -q
    cmp "$DIR/c.ckvt" "$DIR/d.ckvt"
    "$CKVC" verify "$DIR/a.ckvt" "$DIR/c.ckvt"
    run -73 "$CKVC" fit "$DIR/run" --out "$DIR/a.ckvt" -q
    "$CKVC" fit "$DIR"/run/pass-01-both/*.h5 --out "$DIR/e.ckvt" --no-prov -q # bare shards of the same run
    "$CKVC" verify "$DIR/e.ckvt"
}

@test "head then gate by hand: a second side is logged under the first side's table" {
    calibrate "$DIR/head" --side head
    "$CKVC" fit "$DIR/head" --out "$DIR/head.ckvt" -q
    "$CKVC" calibrate "${OVER[@]}" --variants 12 --shard-prompts 4 -q --side gate --tables "$DIR/head.ckvt" --out "$DIR/gate"
    "$CKVC" fit "$DIR/gate" --out "$DIR/joint.ckvt" -q
    # the head side has no records there: it is the incoming table's
    "$CKVC" inspect "$DIR/head.ckvt" --json --cells >"$DIR/h.json"
    "$CKVC" inspect "$DIR/joint.ckvt" --json --cells >"$DIR/j.json"
    check '
h, j = (json.load(open(p)) for p in sys.argv[1:])
assert h["WEIGHT"] == j["WEIGHT"], "weights changed in a gate pass"' "$DIR/h.json" "$DIR/j.json"
    # what a table is: of both sides, the one under the other, or both under one start
    "$CKVC" fit "$DIR/gate" --tables "$DIR/head.ckvt" --out "$DIR/in-turn.ckvt" -q
    for t in head:head-only in-turn:joint a:both-one-start; do
        "$CKVC" inspect "$DIR/${t%:*}.ckvt" --json | grep -q "\"probe\": *\"${t#*:}\"" || { echo "$t"; return 1; }
    done
    run -64 "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --tables "$DIR/head.ckvt" --out "$DIR/x" # --bins beside --tables
}

@test "a held-out share leaves baselines and no records" {
    calibrate "$DIR/held" --holdout 0.4
    run -0 "$CKVC" fit "$DIR/held" --out "$DIR/held.ckvt"
    held=$("$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 0 --budget 8 --policy recent -q --holdout 0.4 \
        --split heldout | wc -l)
    [ "$held" -gt 0 ]
    [ "$held" -lt 12 ]
    fails 65 '' calibrate "$DIR/allheld" --holdout 1
}

@test "report: one page that needs no network, and nothing of it but report.json" {
    "$CKVC" report "$DIR/a.ckvt" "$DIR/o.ckvt" "$DIR/run" "$DIR/other" --out "$DIR/report" >"$DIR/verdict.txt"
    [ "$(grep -c '[0-9] refits' "$DIR/verdict.txt")" -eq 0 ] # 1,000 go without saying
    [ -s "$DIR/report/report.html" ]
    [ -s "$DIR/report/report.json" ]
    [ "$(grep -ciE 'src="|href="http|@import|url\(http' "$DIR/report/report.html")" -eq 0 ]
    [ "$(ls "$DIR/report" | xargs)" = "report.html report.json" ]
    page "$DIR/report" >"$DIR/page"
    for sorted in 0 1 3 5; do [ "$(page "$DIR/report" sort=$sorted | sort | md5sum)" = "$(sort "$DIR/page" | md5sum)" ]; done # the same lines
    py "$DIR/report" "$DIR/page" <<'PY'
import html.parser
text, page, report = open(sys.argv[1] + "/report.html").read(), open(sys.argv[2]).read(), load(sys.argv[1] + "/report.json")
assert json.loads(re.search('id="report">(.*?)</script>', text, re.S)[1]) == report
for finding in report["findings"]:
    assert finding["section"] == "verdict" or finding["text"] in page, finding
for table in report["tables"]:  # numbers that a reader sees are the JSON's
    for w in table["head"]:
        budget = "%g tokens" % w["budget"] if w["budget"] >= 1 else "%g%% of T" % (100 * w["budget"])
        row = "%s | %s | %d | %d | %.3f | %.3f | %.3f" % (table["title"], budget, w["n"], w["supported"], w["mean"], w["min"], w["max"])
        assert row in page, row
for pair in report["pairs"]:
    for head in pair["head"]:
        budget = "%g tokens" % head["budget"] if head["budget"] >= 1 else "%g%% of T" % (100 * head["budget"])
        assert "%s, %s | %s | %s" % (pair["a"], pair["b"], budget, ("%.3f" % head["overall"]).replace("-", "\u2212")) in page, head
class Tables(html.parser.HTMLParser):  # what there is without scripts: well-formed, every row as long as its head
    def __init__(self):
        super().__init__()
        self.heads = self.cells = self.rows = 0
    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.now = {"th": 0, "td": 0}
        elif tag in ("th", "td"):
            self.now[tag] += 1
    def handle_endtag(self, tag):
        if tag == "tr" and self.now["th"]:
            self.heads = self.now["th"]
        elif tag == "tr":
            assert self.now["td"] == self.heads, (self.now, self.heads)
            self.rows += 1
plain = Tables()
plain.feed(text[text.index("<main>") : text.index("</main>")])
assert plain.rows > 100 and "<h3>tables[0].head</h3>" in text, plain.rows
PY
}

@test "report: refits are those of fit --bootstrap, learning curves from one prompt up, the same bytes twice" {
    "$CKVC" fit "$DIR/run" --out "$DIR/refits.ckvt" -q --bootstrap 120
    "$CKVC" report "$DIR/refits.ckvt" "$DIR/o.ckvt" "$DIR/run" "$DIR/other" --bootstrap 120 --out "$DIR/statistics" -q
    "$CKVC" inspect "$DIR/refits.ckvt" --json --cells >"$DIR/refits.json"
    python3 tests/python/check_statistics.py "$DIR/refits.json" "$DIR/statistics/report.json"
    page "$DIR/statistics" >"$DIR/page"
    grep -q '95% over prompts, 120 refits: ' "$DIR/page"
    grep -q 'head weights (120 refits)' "$DIR/page"
    grep -q '^ | .*limit .*, 120 refits$' "$DIR/page"
    "$CKVC" report "$DIR/refits.ckvt" "$DIR/o.ckvt" "$DIR/run" "$DIR/other" --bootstrap 120 --out "$DIR/statistics-again" -q
    diff -r "$DIR/statistics" "$DIR/statistics-again"
    # uniform logging takes the solver: of 10,000 refits fewer are made, and the page says so
    calibrate "$DIR/solver" --behaviour uniform --limit 3
    "$CKVC" fit "$DIR/solver" --out "$DIR/cut.ckvt" -q
    "$CKVC" report "$DIR/cut.ckvt" "$DIR/solver" --bootstrap 10000 --out "$DIR/cut" -q
    page "$DIR/cut" | grep -q '^10000 refits were asked for'
    # without refits: what needs none is still there, the rest says why not
    "$CKVC" report "$DIR/refits.ckvt" "$DIR/run" --bootstrap 0 --out "$DIR/none" --json | check '
side = json.load(sys.stdin)["tables"][0]["statistics"]["head"]
assert side["variance"] and side["bound"] and "curve" not in side, list(side)'
    # records that are not the table's own, or not there
    "$CKVC" report "$DIR/refits.ckvt" --out "$DIR/alone" --json | check '
assert "not among the inputs" in json.load(sys.stdin)["tables"][0]["statistics"]["head"]["missing"]'
}

@test "report: a table pooled from two runs has the records of both, each prompt once" {
    prompts 18 | tail -n 10 >"$DIR/others.jsonl" # four of them are in the first run, too
    "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --scan "$DIR/run" --out "$DIR/pool-a"
    "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/others.jsonl" --scan "$DIR/run" --out "$DIR/pool-b"
    "$CKVC" fit -q "$DIR/pool-a" "$DIR/pool-b" --out "$DIR/pool.ckvt"
    "$CKVC" report "$DIR/pool.ckvt" "$DIR/pool-a" "$DIR/pool-b" --bootstrap 40 --out "$DIR/pool-1" --json >"$DIR/pool-1.json"
    "$CKVC" report "$DIR/pool.ckvt" "$DIR/pool-b" "$DIR/pool-a" --bootstrap 40 --out "$DIR/pool-2" --json >"$DIR/pool-2.json"
    "$CKVC" report "$DIR/pool.ckvt" "$DIR/pool-a" --bootstrap 40 --out "$DIR/pool-3" --json >"$DIR/pool-3.json"
    check '
one, two, part = (json.load(open(p))["tables"][0] for p in sys.argv[1:])
for side in "head", "gate":
    s = one["statistics"][side]
    assert s["missing"] is None and s["prompts"] == one["meta"]["counts"][side]["prompts"] == 18, s["missing"]
    assert s["records"] == one["meta"]["counts"][side]["records"]
    assert s == two["statistics"][side]
    assert "or not all of them" in part["statistics"][side]["missing"], part["statistics"][side]
assert one["run"] == "R1, R2"' "$DIR"/pool-[123].json
}

@test "dry run: sizes and times, nothing written" {
    run -0 "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --dry-run
    [[ $output == *memory* && $output == *rollout* ]]
    "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --dry-run --json | check 'assert json.load(sys.stdin)["prompts"] == 12'
}

@test "both behaviours, all variants, visible alpha, a kept window" {
    calibrate "$DIR/uniform" --behaviour uniform --limit 3
    calibrate "$DIR/all" --variants all --limit 2 --side head
    calibrate "$DIR/visible" --alpha visible --keep-window 4 --limit 3 --bin-edges uniform
    for r in uniform all visible; do "$CKVC" verify "$DIR/$r"; done
    fails 65 '' "$CKVC" fit "$DIR/visible" "$DIR/uniform" --out "$DIR/mixed.ckvt" -q
}

@test "a scan of its own serves a calibration" {
    "$CKVC" scan "${OVER[@]}" --shard-prompts 4 --out "$DIR/scan" -q
    calibrate "$DIR/scanned" --scan "$DIR/scan"
    diff <(cd "$DIR/run/pass-01-both" && ls) <(cd "$DIR/scanned/pass-01-both" && ls)
    fails 65 window "$CKVC" calibrate "${SMALL[@]}" --window 24 --manifest "$DIR/prompts.jsonl" --scan "$DIR/scan" --out "$DIR/x2"
}

@test "ckvc-bench: the stages that are named, on a real prompt" {
    run -0 "$CKVC-bench" "${OVER[@]}" --max-tokens 48 --repeats 1 --sample 2 \
        --stage matmul,attention-layer,attention-heads,demand,prefill,window-rows,fit,sweep,rewards-plain,rewards-sweep -q
    [ "$(wc -l <<<"$output")" -eq 12 ]
    # a set for three heads, and one for each: as many entries, as much to do
    [[ $output == *"attention-layer,T=48 B=12 C=16 H=6 G=3 D=32,16,rows,1,"*",0.000251904,"*",sets of 12 to 12 entries"* ]]
    [[ $output == *"attention-heads,T=48 B=12 C=16 H=6 G=3 D=32,16,rows,1,"*",0.000251904,"*",sets of 4 to 20 entries"* ]]
    [[ $output == *"fit,T=48 B=12 n=96 D=32,12,heads,1,"*"32 more window rows of this run took "* ]]
    [[ $output == *"extrapolated from 2 of"* ]]
    [ "$(sed 1d <<<"$output" | awk -F, '{ print NF }' | sort -u)" = 11 ]
    fails 64 '' "$CKVC-bench" --stage speed
    fails 64 "make bench" "$CKVC" bench
}

@test "bf16: another plan and other rewards, the same guarantees" {
    calibrate "$DIR/bf16" --compute bf16 --threads 1 --check-rollouts 1 --limit 4
    calibrate "$DIR/bf16-again" --compute bf16 --threads 2 --limit 4 --check-rollouts 1
    calibrate "$DIR/f32" --limit 4 --check-rollouts 1
    [ "$(shard_sums "$DIR/bf16")" = "$(shard_sums "$DIR/bf16-again")" ]
    [ "$(shard_sums "$DIR/bf16")" != "$(shard_sums "$DIR/f32")" ]
    grep -q '"compute":"bf16"' "$DIR/bf16/run.json"
    grep -q '+bf16' "$DIR/bf16/journal.jsonl"
    run calibrate "$DIR/f32" --compute bf16 --limit 4 --check-rollouts 1 --resume
    [ "$status" -eq 65 ] || [ "$status" -eq 78 ] || { echo "$status $output"; return 1; }
    [[ $output == *compute* ]]
    run calibrate "$DIR/mixed" --scan "$DIR/f32" --compute bf16 --limit 4
    [ "$status" -ne 0 ]
    [[ $output == *"was made with --compute f32"* ]]
}

@test "memo rates: what calibrate counts as it goes is what the report counts in the records" {
    "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --limit 5 --variants 60 --out "$DIR/memo" --json >"$DIR/memo.json"
    "$CKVC" report "$DIR/memo" --out "$DIR/memo-report" -q
    check '
counted = json.load(open(sys.argv[1] + "/memo.json"))["memo"]
records = json.load(open(sys.argv[1] + "/memo-report/report.json"))["runs"][0]["memo"]
assert counted["prompts"] == 5 and set(records) == {"head", "gate"}
for side in records:
    assert counted[side] == records[side], (side, counted[side], records[side])
    of = records[side]
    assert all(a >= b + d and d > 0 for a, b, d in zip(of["actions"], of["at_baseline"], of["distinct"]))
assert counted["actions"] == sum(sum(records[s]["actions"]) for s in records)' "$DIR"
    run bash -c '"$CKVC" calibrate --model "$MODEL" --window 16 --continuation 16 --budget 16 --bins 2,2 --min-cell 1 --manifest "$0" --limit 2 --out "$1"' \
        "$DIR/prompts.jsonl" "$DIR/memo2"
    [[ $output == *"of the actions cost no rollout"* && $output == *"head "*"by layer"* ]]
    page "$DIR/memo-report" | grep -q '^run | side | actions a prompt | rollouts a prompt | at baseline | memo rate'
}
