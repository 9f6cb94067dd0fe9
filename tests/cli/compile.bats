#!/usr/bin/env bats
# Passes that end by themselves, and the alternating loop: the same as by hand, the same after any interruption.

bats_require_minimum_version 1.5.0
load helper

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    load helper
    prompts 16 >"$DIR/prompts.jsonl"
}
setup() { load helper; DIR=$BATS_FILE_TMPDIR; }

# after RUN: the journal's line on how its head pass ended
stable_line() { grep until_stable "$1/journal.jsonl"; }

@test "--until-stable ends a pass of heads at a shard, the same one after a resume and on another number of threads" {
    calibrate "$DIR/all" --side head --variants 48 --until-stable 1
    [[ $(stable_line "$DIR/all") == *'"reached":false'*'"shards":4'* ]]
    calibrate "$DIR/some" --side head --variants 48 --until-stable 0.05
    [[ $(stable_line "$DIR/some") == *'"reached":true'* ]]
    [ "$(find "$DIR/some/pass-01-head" -name '*.h5' | wc -l)" -lt 4 ]
    [ -z "$(find "$DIR/some" -name '*.log')" ]
    "$CKVC" verify "$DIR/some"
    calibrate "$DIR/other" --side head --variants 48 --until-stable 0.05 --threads 1 --limit-time 1 || calibrate "$DIR/other" --side head --variants 48 --until-stable 0.05 --resume
    diff <(shard_sums "$DIR/some") <(shard_sums "$DIR/other")
    diff <(stable_line "$DIR/some") <(stable_line "$DIR/other")
    # killed between the shard and its verdict: the resume gives it
    rm -rf "$DIR/killed" && cp -r "$DIR/some" "$DIR/killed"
    sed -i '/until_stable/d' "$DIR/killed/journal.jsonl"
    calibrate "$DIR/killed" --side head --variants 48 --until-stable 0.05 --resume
    diff <(shard_sums "$DIR/some") <(shard_sums "$DIR/killed")
    diff <(stable_line "$DIR/some") <(stable_line "$DIR/killed")
    # the records are whole: a fit takes them, and its table says where they ended
    "$CKVC" fit -q "$DIR/some" --out "$DIR/some.ckvt"
    "$CKVC" inspect "$DIR/some.ckvt" --json | python3 -c '
import json, sys
(s,) = json.load(sys.stdin)["meta"]["until_stable"]
assert s["reached"] and s["pass"] == "pass-01-head" and s["prompts"] in (4, 8, 12), s'
    run calibrate "$DIR/x" --side gate --until-stable 0.5
    [ "$status" -eq 64 ]
    one_line
}
