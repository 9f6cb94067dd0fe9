#!/usr/bin/env bats
# export and import: what the options ask for and refuse. Contents: tests/unit/formats/export and tests/python/test_export.py.

load helper

setup_file() { export DIR="$BATS_FILE_TMPDIR" GOLDEN=$PWD/tests/golden/table; }

# refuses CODE WORDS ARGUMENTS...
refuses() {
    local code=$1 words=$2
    shift 2
    run "$CKVC" "$@"
    [ "$status" -eq "$code" ] && one_line && [[ $output == *"$words"* ]] || { echo "$*: $status: $output"; return 1; }
}

@test "a table as safetensors and npz comes back with its content id" {
    for format in safetensors npz; do
        "$CKVC" export "$GOLDEN/shares.ckvt" --format $format --out "$DIR/$format"
        "$CKVC" import "$DIR/$format" --format $format --out "$DIR/$format.ckvt"
        [ "$(content_id "$DIR/$format.ckvt")" = "$(content_id "$GOLDEN/shares.ckvt")" ]
        "$CKVC" verify "$DIR/$format.ckvt"
    done
    grep -q 'not known' "$DIR/safetensors/README.md"
    [ "$(content_id "$DIR/safetensors/table.ckvt")" = "$(content_id "$GOLDEN/shares.ckvt")" ]
}

@test "the card states the verdict of the table's own report, and of no other" {
    "$CKVC" report "$GOLDEN/evidence.ckvt" --out "$DIR/report"
    "$CKVC" export "$GOLDEN/evidence.ckvt" --format safetensors --report "$DIR/report/report.json" --out "$DIR/card"
    word=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["tables"][0]["verdict"]["word"])' "$DIR/report/report.json")
    grep -qF "verdict: **$word**" "$DIR/card/README.md"
    refuses 65 "a report of other tables" export "$GOLDEN/shares.ckvt" --format safetensors --report "$DIR/report/report.json" --out "$DIR/card2"
    refuses 65 "ckvc-report-1" export "$GOLDEN/shares.ckvt" --format safetensors --report "$DIR/card/config.json" --out "$DIR/card2"
    [ ! -e "$DIR/card2" ]
}

@test "records of a run, one a line" {
    prompts 4 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run" --side both
    run "$CKVC" export "$DIR/run" --format records --out "$DIR/records.jsonl"
    [[ $output == *"$(wc -l <"$DIR/records.jsonl") records" ]]
    python3 - "$DIR/records.jsonl" <<'PY'
import json, sys
seen = set()
for line in open(sys.argv[1]):
    r = json.loads(line)
    seen.add(r["kind"])
    assert r["budget"] in (16, r["sequence_length"] // 2) and ("kv_head" in r) == (r["kind"] == "head") and "head" not in r
    if r["kind"] == "head":
        assert abs(r["full_loss"] - r["compressed_loss"] - r["reward"]) < 1e-9
assert seen == {"head", "gate"}, seen
PY
    "$CKVC" calibrate --side score "${SMALL[@]:0:2}" -q --manifest "$DIR/prompts.jsonl" --continuation 16 --out "$DIR/score"
    refuses 65 "no pass of this run has records" export "$DIR/score" --format records --out "$DIR/none.jsonl"
    [ ! -e "$DIR/none.jsonl" ]
}

@test "what makes no sense is refused in one line" {
    local t=$GOLDEN/shares.ckvt
    refuses 64 "--format: got nothing" export "$t" --out "$DIR/x"
    refuses 64 "--format: got onnx, wanted one of safetensors" export "$t" --format onnx --out "$DIR/x"
    refuses 64 "--out PATH is needed" export "$t" --format npz
    refuses 64 "written, never read" import "$t" --format gguf --out "$DIR/x"
    refuses 64 "--length is of --format compilerkv" export "$t" --format npz --length 100 --out "$DIR/x"
    refuses 64 "--budget is of --format duo-attention" export "$t" --format gguf --budget 0.5 --out "$DIR/x"
    refuses 64 "not among the table's" export "$t" --format headkv --budget 0.77 --out "$DIR/x"
    refuses 64 "--model is of --format" import "$t" --format npz --model "$MODEL" --out "$DIR/x"
    refuses 65 "not a .npz file" import "$t" --format npz --out "$DIR/x"
    refuses 66 "model.safetensors" import "$GOLDEN" --format safetensors --out "$DIR/x"
    refuses 65 "arrays, a table has at most" import "$MODEL" --format safetensors --out "$DIR/x"
    "$CKVC" export "$t" --format npz --out "$DIR/once"
    refuses 73 "--force" export "$t" --format npz --out "$DIR/once"
    "$CKVC" export "$t" --format npz --out "$DIR/once" --force
    [ ! -e "$DIR/x" ]
}
