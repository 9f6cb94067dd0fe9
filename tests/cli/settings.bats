# Which score (--alpha, --keep-window, --window): a table is used under its own alone, lines say theirs, a report keeps them apart.
load helper

setup_file() {
    prompts 6 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run" --alpha visible --keep-window 4 --limit 4 --variants 24
    "$CKVC" fit "$DIR/run" --out "$DIR/t.ckvt" -q
}

score() { "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --budget 16 -q "$@"; }

@test "a table made under another score is refused by every verb, with the option to give" {
    local more=(--model "$MODEL" --manifest "$DIR/prompts.jsonl" --limit 2 --continuation 16 --variants 8 -q --tables "$DIR/t.ckvt" --out "$DIR/x")
    refused() { fails 65 "$1" "$CKVC" "${@:2}"; }
    refused "give --alpha visible" calibrate "${more[@]}" --window 16 --side gate
    refused "give --keep-window 4" calibrate "${more[@]}" --window 16 --side gate --alpha visible
    refused "give --window 16" calibrate "${more[@]}" --side gate --alpha visible --keep-window 4
    refused "give --keep-window 4" compile "${more[@]}" --mode uniform --ranking paper --window 16 --alpha visible
    [ ! -e "$DIR/x" ]
    run -65 score --table "$DIR/t.ckvt" --alpha visible
    [[ $output == *"t.ckvt: was made with --keep-window 4, this run has 0; give --keep-window 4" ]]
    "$CKVC" calibrate "${more[@]/%x/gate}" --window 16 --side gate --alpha visible --keep-window 4
    "$CKVC" fit "$DIR/gate" --tables "$DIR/t.ckvt" --out "$DIR/both.ckvt" -q
    calibrate "$DIR/plain" --limit 2 --side head
    refused "calibrate with --alpha visible" fit "$DIR/plain" --tables "$DIR/t.ckvt" --out "$DIR/x.ckvt"
}

@test "a kept window that takes the whole budget is named, with the prompt that it does so in" {
    run -0 score --limit 2 --policy top-k --keep-window 16
    [ "$(grep -c '^warning: --keep-window 16 takes all of budget 16, 16 tokens of a prompt of ' <<<"$output")" -eq 1 ]
    run "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --limit 2 --keep-window 16 --side head --variants 4 --out "$DIR/full-window"
    [ "$(grep -c 'takes all of budget 16' <<<"$output")" -eq 1 ]
    run score --limit 2 --policy top-k --keep-window 8
    [[ $output != *"takes all"* ]]
}

@test "--loss kl: a head pass logs divergences, which no fit takes beside losses" {
    needs_h5py
    calibrate "$DIR/kl" --limit 4 --side head --loss kl --check-rollouts 0.2
    calibrate "$DIR/nll" --limit 4 --side head
    "$CKVC" fit "$DIR/kl" --out "$DIR/kl.ckvt" -q
    "$CKVC" inspect "$DIR/kl.ckvt" --json | grep -q '"loss":"kl"'
    fails 65 "--loss kl" "$CKVC" fit "$DIR/nll" "$DIR/kl" --out "$DIR/none.ckvt"
    check '
from unfolded import File
files = [File(f) for f in glob.glob(sys.argv[1] + "/kl/pass-01-head/*.h5")]
assert files
for f in files:
    assert f.attrs["loss"] == b"kl" and (abs(f["prompt/loss_full"][:]) < 2e-6).all()
    assert (f["record/reward"][:] <= 2e-6).all() and (f["record/reward"][:] < -1e-4).any()' "$DIR"
}

@test "score lines say which score, where it is not the default" {
    score --limit 1 --policy identity --alpha visible --keep-window 4 | grep '"alpha":"visible".*"keep_window":4.*"window":16'
    "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --limit 1 --continuation 8 --budget 16 -q --policy identity >"$DIR/default"
    run -1 grep -E '"(alpha|keep_window|window)"' "$DIR/default"
}

@test "matched keeps as many tokens as its table on the held-out prompts, whatever the others are" {
    # every second prompt is held out; the held-out ones alone, and among the others, have one threshold
    awk 'NR % 2 { sub(/"source"/, "\"split\":\"heldout\",\"source\"") } { print }' "$DIR/prompts.jsonl" >"$DIR/mixed.jsonl"
    taus() {
        "$CKVC" score --model "$MODEL" --window 16 --continuation 8 --budget 0.5 --alpha visible --keep-window 4 -q --table "$DIR/wide.ckvt" \
            --policy matched --nearest-budget "$@" | check '
print(*sorted({r["tau"] for r in map(json.loads, sys.stdin) if r["policy"] == "matched"}))'
    }
    "$CKVC" fit "$DIR/run" --out "$DIR/wide.ckvt" -q --unsupported safest
    local heldout all
    heldout=$(taus --manifest "$DIR/mixed.jsonl" --split heldout)
    all=$(taus --manifest "$DIR/prompts.jsonl")
    [ "$(taus --manifest "$DIR/mixed.jsonl")" = "$heldout" ]
    [ "$all" != "$heldout" ]
}

@test "a report keeps scores under different settings apart, and compares what needs no table" {
    score --policy identity,recent >"$DIR/paper.jsonl"
    score --policy identity,recent,top-k --alpha visible --keep-window 4 --table "$DIR/t.ckvt" >"$DIR/visible.jsonl"
    "$CKVC" report "$DIR/t.ckvt" --scores "$DIR/paper.jsonl,$DIR/visible.jsonl" --out "$DIR/report" -q
    check '
folder = sys.argv[1]
s = json.load(open(folder + "/report/report.json"))["scores"]
rows = [json.loads(line) for f in ("paper", "visible") for line in open(f"{folder}/{f}.jsonl")]
def mean(policy, alpha):
    r = [x["reward"] for x in rows if x["policy"] == policy and x.get("alpha", "paper") == alpha]
    return sum(r) / len(r)
titles = {x["title"] for x in s["series"]}
assert titles == {"identity, paper α", "recent, paper α", "T1 ckvc-tiny-4l, visible α, last 4 kept", "identity, visible α, last 4 kept",
                  "recent, visible α, last 4 kept", "top-k, visible α, last 4 kept"}, titles
(one,) = s["between_scores"]
assert {one["alpha"], one["base"]} == {"visible", "identity, paper α"}, one
assert abs(one["all"]["difference"] - (mean("identity", "visible") - mean("identity", "paper"))) < 1e-12
# within one score alone: against identity and references
(table,) = [x for x in s["against_identity"] if x["policy"] == "table"]
assert table["base"] == "identity, visible α, last 4 kept"
assert abs(table["all"]["difference"] - (mean("table", "visible") - mean("identity", "visible"))) < 1e-12' "$DIR"
    page "$DIR/report" | grep -q "^Which score"
}

@test "a prompt that a run took records from is none to judge by, under whatever name it is scored" {
    # the run logged the first four prompts; here they stand in another file, under other ids, marked as held out
    sed 's/"id":"/"split":"heldout","id":"copy-/' "$DIR/prompts.jsonl" >"$DIR/copied.jsonl"
    "$CKVC" score --model "$MODEL" --manifest "$DIR/copied.jsonl" --window 16 --continuation 16 --budget 16 --alpha visible --keep-window 4 \
        --table "$DIR/t.ckvt" --policy identity -q >"$DIR/copied-scores.jsonl"
    counts() {
        rm -rf "$DIR/report"
        "$CKVC" report "$DIR/t.ckvt" "$DIR/run" --scores "$DIR/copied-scores.jsonl" --out "$DIR/report" -q
        check '
s = json.load(open(sys.argv[1]))["scores"]
print(s["rows"], s["prompts_used_in_calibration_left_out"], s["rows_used_in_calibration"], s["held_out_checked"])' "$DIR/report/report.json"
    }
    [ "$(counts)" = "4 8 0 True" ]
    grep -v 'copy-p0[45]' "$DIR/copied-scores.jsonl" >"$DIR/four.jsonl" && mv "$DIR/four.jsonl" "$DIR/copied-scores.jsonl"
    [ "$(counts)" = "8 0 8 False" ]
    grep -q "too favourable" "$DIR/report/report.html"
}
