# Coverage: risk cells and sources as scan counts them, prompts drawn evenly over the cells, the same whoever scans and however often.
load helper

setup_file() {
    prompts 24 >"$DIR/prompts.jsonl"
    "$CKVC" scan "${OVER[@]}" --holdout 0.2 --bins 2,2 --out "$DIR/scan" --min-cell 7 >"$DIR/scan.tsv" 2>"$DIR/scan.err"
    drawing "$DIR/ten" --scan "$DIR/scan"
    "$CKVC" fit "$DIR/ten" --out "$DIR/ten.ckvt" 2>"$DIR/fit.err"
}

# what a table's records are
counts() { cells "$1" | check 't = json.load(sys.stdin); print(*[t.get(k) for k in ("NHEAD", "MHEAD", "NGATE", "MGATE")])'; }

drawing() { calibrate "$1" --holdout 0.2 --variants 4 --sample-prompts 10 "${@:2}"; }

# logged RUN: prompts there, drawn, drawn by cells, asked for
logged() {
    check '
c = json.load(open(sys.argv[1] + "/scan/coverage.json"))
print(c["prompts"], c["drawn"], sum(r[4] for r in c["cells"]), c["sample"])' "$1"
}

@test "scan prints cells and sources, names thin cells, and records them" {
    [ "$(head -1 "$DIR/scan.tsv")" = $'entropy_bin\tperplexity_bin\tprompts\teven\todd' ]
    awk -F'\t' 'NR > 1 { n += $3; s += $4 + $5 } END { exit n == 21 && s == 21 ? 0 : 1 }' "$DIR/scan.tsv"
    grep -q -- '--min-cell 7' "$DIR/scan.err"
    grep -q '0/0: [0-9]' "$DIR/scan.err"
    check '
c = json.load(open(sys.argv[1] + "/scan/scan/coverage.json"))
assert c["schema"] == "ckvc-coverage-1" and c["bins"] == [2, 2] and c["prompts"] == 21 and c["drawn"] is None
rows = [line.split("\t") for line in open(sys.argv[1] + "/scan.tsv")][1:]
for e, p, n, even, odd in rows:
    of = {r[2]: r[3] for r in c["cells"] if r[0] == int(e) and r[1] == int(p)}
    assert (of.get(0, 0), of.get(1, 0)) == (int(even), int(odd)) and int(n) == sum(of.values())' "$DIR"
    "$CKVC" scan "${OVER[@]}" --limit 3 --out "$DIR/scan3" -q --json --bins 2,2 |
        check 'assert json.load(sys.stdin)["coverage"]["prompts"] == 3'
    "$CKVC" scan "${OVER[@]}" --limit 3 --holdout 1 --out "$DIR/scan0" -q
}

@test "ten prompts are drawn and logged, the held-out ones stay, the rest leaves nothing" {
    [ "$(logged "$DIR/ten")" = "21 10 10 10" ]
    grep -q '"sample_prompts":10' "$DIR/ten/run.json"
    "$CKVC" verify "$DIR/ten"
    grep -q 'of 10 prompts' "$DIR/fit.err"
    grep -q '3 held-out' "$DIR/fit.err"
    check '
c = json.load(open(sys.argv[1] + "/scan/coverage.json"))
cells = {}
for e, p, s, n, d in c["cells"]:
    a = cells.setdefault((e, p), [0, 0]); a[0] += n; a[1] += d
cut = [d for n, d in cells.values() if d < n]
assert len(cells) == 4 and max(d for n, d in cells.values()) <= min(cut) + 1, cells' "$DIR/ten"
}

@test "the same draw from its own scan, resumed, on one thread, and by hand for the other side" {
    drawing "$DIR/own" --threads 1
    diff <(cd "$DIR/ten/pass-01-both" && sha256sum ./*.h5 | wc -l) <(cd "$DIR/own/pass-01-both" && sha256sum ./*.h5 | wc -l)
    "$CKVC" fit "$DIR/own" --out "$DIR/own.ckvt" -q
    [ "$(counts "$DIR/own.ckvt")" = "$(counts "$DIR/ten.ckvt")" ]
    killed "0.3 0.6 0.9 1.2" drawing "$DIR/stopped"
    diff <(shard_sums "$DIR/own") <(shard_sums "$DIR/stopped")
    # another side under a table: the scan says which prompts, the table where the cells are
    tail=("${OVER[@]}" --holdout 0.2 --variants 4 --shard-prompts 4 -q --side gate --tables "$DIR/own.ckvt")
    "$CKVC" calibrate "${tail[@]}" --sample-prompts 10 --scan "$DIR/scan" --out "$DIR/gate"
    check 'assert load(sys.argv[1])["cells"] == load(sys.argv[2])["cells"]' "$DIR"/{own,gate}/scan/coverage.json
    fails 64 '' "$CKVC" calibrate "${tail[@]}" --scan "$DIR/scan" --out "$DIR/x"
    fails 65 sample drawing "$DIR/own" --resume --sample-prompts 11
}

@test "the order of the manifest leaves the draw alone" {
    # the manifest backwards, in one cell: the draw is a matter of ids
    sed '1!G;h;$!d' "$DIR/prompts.jsonl" >"$DIR/back.jsonl"
    one() { "$CKVC" calibrate --model "$MODEL" --manifest "$1" --window 16 --continuation 16 --bins 1,1 --budget 16 --variants 4 --sample-prompts 6 -q \
        --shard-prompts 4 --side head --out "$2" && "$CKVC" fit "$2" --out "$2.ckvt" --no-prov -q; }
    one "$DIR/prompts.jsonl" "$DIR/forth"
    one "$DIR/back.jsonl" "$DIR/back"
    [ "$(counts "$DIR/forth.ckvt")" = "$(counts "$DIR/back.ckvt")" ]
}

@test "a sample larger than the corpus is all of it; a scan that knows none of the prompts is an error" {
    calibrate "$DIR/all" --limit 5 --sample-prompts 50 --variants 4
    [ "$(logged "$DIR/all")" = "5 5 5 50" ]
    sed 's/"p/"q/' "$DIR/prompts.jsonl" >"$DIR/others.jsonl"
    fails 65 --sample-prompts "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/others.jsonl" --scan "$DIR/scan" --sample-prompts 3 --out "$DIR/x"
    "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --sample-prompts 3 --dry-run >"$DIR/dry"
    grep -q '^prompts: *24$' "$DIR/dry"
    grep -q '^logged: *3$' "$DIR/dry"
}

@test "where the gate can act: said at the end, per budget, in the fit and in the report" {
    local dead=8 alive=0.5
    "$CKVC" calibrate "${OVER[@]}" --bins 2,2 --min-cell 1 --budget $dead,$alive --variants 24 --sample-prompts 8 --out "$DIR/binding" 2>"$DIR/binding.err"
    grep -q "^gate: thresholds keep different sets on .* at budget $dead, .* at $alive of the prompt" "$DIR/binding.err"
    [ "$(grep -c '^gate: not alive' "$DIR/binding.err")" -eq 1 ]
    grep -q "^gate: not alive at budget $dead, .*--budget 0\.[0-9]*.*--gate-grid" "$DIR/binding.err"
    "$CKVC" calibrate "${OVER[@]}" --bins 2,2 --min-cell 1 --budget $dead,$alive --variants 24 --sample-prompts 8 --out "$DIR/binding" -q --resume \
        --json >"$DIR/binding.json"
    "$CKVC" fit "$DIR/binding" --out "$DIR/binding.ckvt" --json >"$DIR/binding-fit.json" 2>"$DIR/binding-fit.err"
    grep -q "budget $dead: 0 by the loss" "$DIR/binding-fit.err"
    "$CKVC" report "$DIR/binding.ckvt" "$DIR/binding" "$DIR/scan" --out "$DIR/binding-report" >"$DIR/binding-report.txt"
    grep -q "at budget $dead tokens the gate is not alive" "$DIR/binding-report.txt"
    check '
at = lambda name: json.load(open(sys.argv[1] + "/" + name))
gate = at("binding.json")["gate"]
assert [g["alive"] for g in gate] == [False, True] and gate[0]["sets_differ"] < 0.05 <= gate[1]["sets_differ"]
fit, report = at("binding-fit.json")["gate"], at("binding-report/report.json")
for key in ("by_loss", "by_penalty", "flat_loss", "supported"):
    assert sum(b[key] for b in fit["by_budget"]) == fit[key], key
run = report["runs"][0]
splits = report["tables"][0]["evidence"]["gate"]["budgets"]
for of, split, told, b in zip(run["budgets"], splits, gate, fit["by_budget"]):
    assert of["all"]["sets_differ"] == told["sets_differ"] and of["alive"] == told["alive"]
    assert split["supported"] == b["supported"] and round(split["by_loss"] * b["supported"]) == b["by_loss"]
    assert of["cells_alive"] <= of["cells_occupied"] <= 4
    cells = sum(split["cells"], [])
    assert len(cells) == 4 and sum(c["supported"] for c in cells) == b["supported"] and sum(c["by_loss"] for c in cells) == b["by_loss"]
    assert all(c["by_loss"] + c["by_penalty"] == c["supported"] for c in cells)
assert run["coverage"]["prompts"] == 24 and run["coverage"]["drawn"] == 8 and run["coverage"]["sample"] == 8
assert sum(s["drawn"] for s in run["coverage"]["sources"]) == 8
assert sum(map(sum, run["coverage"]["drawn_cells"])) == 8
scan = report["runs"][1]["coverage"]
assert scan["prompts"] == 21 and scan["drawn"] is None and "drawn_cells" not in scan' "$DIR"
    page "$DIR/binding-report" >"$DIR/page"
    [ "$(grep -c ": prompts per risk cell$" "$DIR/page")" -eq 2 ]
    grep -q ": where the gate can act, by risk cell, budget " "$DIR/page"
    echo '{"schema":1}' >"$DIR/binding/scan/coverage.json"
    fails 65 "coverage.json*schema" "$CKVC" report "$DIR/binding" --out "$DIR/no-report"
    rm "$DIR/binding/scan/coverage.json" # a run of an older program
    "$CKVC" report "$DIR/binding" --out "$DIR/older" >/dev/null
    check 'assert json.load(open(sys.argv[1]))["runs"][0]["coverage"]["drawn"] == 8' "$DIR/older/report.json"
}

@test "compile draws and tries what the verbs by hand do: the same shards and tables" {
    local common=("${OVER[@]}" --limit 6 -q --shard-prompts 4 --variants 4 --sample-prompts 3)
    local own=(--bins 2,2 --budget 0.5 --head-grid 0.8,1,1.2 --gate-grid 0.8,0.88,1)
    "$CKVC" compile "${common[@]}" "${own[@]}" --mode uniform --ranking paper --rounds 1 --out "$DIR/compiled"
    "$CKVC" calibrate "${common[@]}" "${own[@]}" --side head --out "$DIR/hand-head"
    "$CKVC" fit "$DIR/hand-head" --out "$DIR/hand-head.ckvt" -q --no-prov
    "$CKVC" calibrate "${common[@]}" --side gate --tables "$DIR/hand-head.ckvt" --out "$DIR/hand-gate"
    "$CKVC" fit "$DIR/hand-gate" --tables "$DIR/hand-head.ckvt" --out "$DIR/hand-gate.ckvt" -q --no-prov
    cmp "$DIR/compiled/pass-02-gate/shard-00000.h5" "$DIR/hand-gate/pass-01-gate/shard-00000.h5"
    cmp "$DIR/compiled/tables/pass-01.ckvt" "$DIR/hand-head.ckvt"
    cmp "$DIR/compiled/tables/pass-02.ckvt" "$DIR/hand-gate.ckvt"
}
