# Runs and scores in parts (--shard), joined by `ckvc merge`, looked at by `ckvc status`.
RANDOM_MODEL=1
load helper

OF=(--model "$MODEL" --window 16 --continuation 16 --shard-prompts 1 -q)
LOG=(--budget 16,0.5 --bins 2,2 --min-cell 1 --variants 24 --side head)
LAUNCHERS='SLURM|OMPI|PMI|RANK|WORLD|JOB_COMPLETION'

scan() { "$CKVC" scan "${OF[@]}" --manifest "$DIR/prompts.jsonl" --out "$@"; }
log() { "$CKVC" calibrate "${OF[@]}" "${LOG[@]}" --manifest "$DIR/prompts.jsonl" --scan "$DIR/scan" --out "$@"; }
score() { # its warning, of leaks, is another test's
    "$CKVC" score "${OVER[@]}" --budget 16,0.5 --policy identity,matched,snapkv --table "$DIR/t.ckvt" -q --out "$@"
}
same_run() { diff -r "$1" "$2"; }

setup_file() {
    prompts 8 >"$DIR/prompts.jsonl"
    scan "$DIR/scan"
    log "$DIR/whole"
    parts 2 scan "$DIR/halves"
    "$CKVC" fit "$DIR/whole" --out "$DIR/t.ckvt" -q
    score "$DIR/whole.jsonl"
}

@test "the parts of a scan and of a calibration, in one folder, are the run that was made in one go" {
    for n in 1 2 7; do
        joined "$n" log "$DIR/run-$n"
        same_run "$DIR/whole" "$DIR/run-$n"
        "$CKVC" verify "$DIR/run-$n"
    done
    parts 3 scan "$DIR/scan-3"
    fails 65 "in 3 parts that are not one yet*ckvc merge" "$CKVC" inspect "$DIR/scan-3"
    "$CKVC" merge "$DIR/scan-3" -q
    scan "$DIR/scan-3" --resume # coverage.json is of all prompts
    same_run "$DIR/scan" "$DIR/scan-3"
}

@test "parts at once, and in folders of their own, in any order" {
    for i in 0 1 2; do log "$DIR/at-once" --shard $i/3 & done
    wait
    "$CKVC" merge "$DIR/at-once" -q
    same_run "$DIR/whole" "$DIR/at-once"
    for i in 2 0 1; do log "$DIR/own-$i" --shard $i/3; done
    "$CKVC" merge "$DIR/joined" "$DIR/own-1" "$DIR/own-0" "$DIR/own-2" -q
    same_run "$DIR/whole" "$DIR/joined"
    # again is no error, and what the parts hold is left to them
    run -0 "$CKVC" merge "$DIR/joined" "$DIR/own-2" "$DIR/own-1" "$DIR/own-0"
    [ -e "$DIR/own-0/journal-0-of-3.jsonl" ]
    same_run "$DIR/whole" "$DIR/joined"
    says 0 "is one run already" "$CKVC" merge "$DIR/joined"
}

@test "a pass of demand in parts" {
    demand() { "$CKVC" calibrate "${OF[@]}" --side demand --budget 0.5 --recent 4 --manifest "$DIR/prompts.jsonl" --out "$@"; }
    demand "$DIR/demand"
    joined 3 demand "$DIR/demand-3"
    same_run "$DIR/demand" "$DIR/demand-3"
}

@test "features in parts: any number, in any order, killed and resumed" {
    local n
    features() { "$CKVC" calibrate "${OF[@]}" --manifest "$DIR/prompts.jsonl" --side score --positions 32 --out "$@"; }
    features "$DIR/features"
    for n in 1 3 7; do
        joined "$n" features "$DIR/features-$n"
        same_run "$DIR/features" "$DIR/features-$n"
    done
    for n in 2 3; do
        features "$DIR/features-killed-$n" --shard "0/$n" &
        local pid=$! rc=0
        until grep -q sha256 "$DIR/features-killed-$n/journal-0-of-$n.jsonl" 2>/dev/null; do kill -0 $pid; done
        kill -9 $pid 2>/dev/null || true
        wait $pid || rc=$?
        echo "part 0/$n: exit $rc"
        fails 73 "journal-0-of-$n.jsonl*--resume" features "$DIR/features-killed-$n" --shard "0/$n"
        for ((i = n - 1; i > 0; i--)); do features "$DIR/features-killed-$n" --shard "$i/$n"; done
        features "$DIR/features-killed-$n" --shard "0/$n" --resume
        "$CKVC" merge "$DIR/features-killed-$n" -q
        same_run "$DIR/features" "$DIR/features-killed-$n"
    done
}

@test "what is missing, there twice or of another plan is named, and nothing is joined" {
    cp -r "$DIR/halves" "$DIR/gap"
    sed -i '$d' "$DIR/gap/journal-1-of-2.jsonl" # as if killed before the line
    fails 65 "journal-1-of-2.jsonl: scan: shard 7 is missing (3 of this part's 4*finish it with --shard 1/2 --resume" "$CKVC" merge "$DIR/gap"
    scan "$DIR/gap" --shard 1/2 --resume
    "$CKVC" merge "$DIR/gap" -q
    [ "$(shard_sums "$DIR/scan")" = "$(shard_sums "$DIR/gap")" ]

    cp -r "$DIR/halves" "$DIR/one"
    rm "$DIR/one/journal-1-of-2.jsonl"
    fails 65 "part 1/2 is missing; make it with --shard 1/2" "$CKVC" merge "$DIR/one"
    fails 65 "part 0/2 is there twice*overlap" "$CKVC" merge "$DIR/twice" "$DIR/halves" "$DIR/one"
    [ ! -e "$DIR/twice" ]

    scan "$DIR/other-seed" --seed 2 --shard 1/2
    fails 65 "another plan*seed: 2 there, 1 now" "$CKVC" merge "$DIR/mixed" "$DIR/one" "$DIR/other-seed"
    head -7 "$DIR/prompts.jsonl" >"$DIR/fewer.jsonl"
    fails 65 "manifest*n_prompts: 8 there, 7 now" "$CKVC" scan "${OF[@]}" --manifest "$DIR/fewer.jsonl" --out "$DIR/one" --shard 1/2
    scan "$DIR/thirds" --shard 1/3
    fails 65 "all of one number" "$CKVC" merge "$DIR/mixed" "$DIR/one" "$DIR/thirds"
    fails 65 "holds no part of a run" "$CKVC" merge "$DIR/mixed" "$DIR/scan"
    sed -i 's/"backend":"/&x/' "$DIR/one/journal-0-of-2.jsonl"
    rm -rf "$DIR/second" && cp -r "$DIR/halves" "$DIR/second" && rm "$DIR/second/journal-0-of-2.jsonl"
    fails 65 "backend*last bits" "$CKVC" merge "$DIR/mixed" "$DIR/one" "$DIR/second"
    [ ! -e "$DIR/mixed" ]
    cp -r "$DIR/halves" "$DIR/rotten"
    printf x | dd of="$DIR/rotten/scan/shard-00003.h5" bs=1 seek=2000 conv=notrunc status=none
    fails 65 "shard-00003.h5: SHA-256" "$CKVC" merge "$DIR/rotten"
    [ ! -e "$DIR/rotten/journal.jsonl" ]
}

@test "two writers of one part, a part beside a whole run, parts of two numbers" {
    mkdir "$DIR/busy"
    exec 9>"$DIR/busy/lock-0-of-2" # this shell is the other writer
    flock -n 9
    fails 75 lock-0-of-2 scan "$DIR/busy" --shard 0/2
    scan "$DIR/busy" --shard 1/2
    exec 9>&-
    scan "$DIR/busy" --shard 0/2
    exec 9<"$DIR/busy/lock" # a part that goes on
    flock -n -s 9
    fails 75 "a part of it is writing" "$CKVC" merge "$DIR/busy"
    exec 9>&-

    fails 65 "has a part 0/2, this one is 0/3" scan "$DIR/halves" --shard 0/3
    [ ! -e "$DIR/halves/lock-0-of-3" ]
    fails 73 "is a run in 2 parts" scan "$DIR/halves" --resume
    fails 73 "in one piece, not in parts" scan "$DIR/scan" --shard 0/2 --resume
}

@test "what a part cannot know is refused" {
    fails 64 "--scan RUN" "$CKVC" calibrate "${OF[@]}" "${LOG[@]}" --manifest "$DIR/prompts.jsonl" --out "$DIR/none" --shard 0/2
    fails 64 '' log "$DIR/none" --shard 0/2 --until-stable 0.5
    fails 64 '' log "$DIR/none" --shard 0/2 --behaviour epsilon-greedy
    fails 65 "ckvc merge" "$CKVC" calibrate "${OF[@]}" "${LOG[@]}" --manifest "$DIR/prompts.jsonl" --scan "$DIR/halves" --out "$DIR/none"
    for bad in 2/2 -1/2 1 1/ /2 0/0 a/b 0/100001 "0 /2"; do
        fails 64 --shard scan "$DIR/none" --shard "$bad"
    done
    [ ! -e "$DIR/none" ]
}

# auto VARIABLE=VALUE...: what `--shard auto` takes, or its error
auto() {
    local name
    for name in $(compgen -e | grep -E "^($LAUNCHERS)"); do unset "$name"; done
    rm -rf "$DIR/auto"
    env "$@" "$CKVC" scan "${OF[@]}" --manifest "$DIR/prompts.jsonl" --limit 1 --out "$DIR/auto" --shard auto 2>&1
}

@test "--shard auto takes what the launcher says, and says so" {
    [ "$(auto SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_MAX=8 SLURM_PROCID=0 SLURM_NTASKS=1)" = \
        "part 2/4, by SLURM_ARRAY_TASK_ID" ]
    [ -e "$DIR/auto/journal-2-of-4.jsonl" ]
    # the shell of a batch script: no step, with or without --ntasks
    [ "$(auto SLURM_JOB_ID=9 SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2 SLURM_PROCID=0)" = "part 1/2, by SLURM_ARRAY_TASK_ID" ]
    [ "$(auto SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=3)" = "part 1/3, by SLURM_PROCID" ]
    [ "$(auto SLURM_PROCID=1 SLURM_NTASKS=3)" = "part 1/3, by SLURM_PROCID" ]
    [ "$(auto OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 SLURM_PROCID=0 SLURM_NTASKS=3)" = "part 2/3, by OMPI_COMM_WORLD_RANK" ]
    [ "$(auto PMI_RANK=1 PMI_SIZE=2)" = "part 1/2, by PMI_RANK" ]
    [ "$(auto RANK=0 WORLD_SIZE=2 LOCAL_RANK=0)" = "part 0/2, by RANK" ]
    [ "$(auto JOB_COMPLETION_INDEX=3 JOB_COMPLETIONS=5)" = "part 3/5, by JOB_COMPLETION_INDEX" ]
    for bad in "" "JOB_COMPLETION_INDEX=3" "SLURM_JOB_ID=9 SLURM_PROCID=0 SLURM_NTASKS=3" "SLURM_PROCID=3 SLURM_NTASKS=3" "RANK=x WORLD_SIZE=2" \
        "SLURM_ARRAY_TASK_ID=4 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=4" \
        "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2 SLURM_PROCID=1 SLURM_NTASKS=3"; do
        fails 64 "--shard auto*--shard I/N" auto $bad
    done
}

@test "status says what is done, what is missing and what failed" {
    cp -r "$DIR/halves" "$DIR/seen"
    sed -i '$d' "$DIR/seen/journal-0-of-2.jsonl"
    says 0 "scan of ckvc-random" "$CKVC" status "$DIR/seen"
    grep -Eq '^0/2 +scan +4 +3 +0 ' <<<"$output"
    grep -Eq '^1/2 +scan +4 +4 +0 ' <<<"$output"
    [[ $output != *"next: ckvc merge"* ]]
    rm "$DIR/seen/journal-1-of-2.jsonl"
    # eight prompts a second: files at times that we know
    for k in 0 2 4; do touch -d "2020-01-01 00:00:0$k" "$DIR/seen/scan/shard-0000$k.h5"; done
    "$CKVC" status "$DIR/seen" --json | check '
o = json.load(sys.stdin)
assert o["missing"] == ["1/2"] and not o["complete"] and not o["merged"], o
(part,) = o["parts"]
(scan,) = part["passes"]
assert part["part"] == "0/2" and not part["complete"], part
assert (scan["prompts"], scan["done"], scan["shards"], scan["shards_published"]) == (4, 3, 4, 3), scan
assert scan["prompts_per_second"] == 0.5 and scan["seconds_left"] == 2, scan
assert scan["seconds_since_write"] > 1e8, scan'
    printf '%s\n' '{"id":"p06","pass":"scan","prompt":6,"reason":"not finite"}' >>"$DIR/seen/journal-0-of-2.jsonl"
    says 0 'prompt "p06" leaves no records: not finite' "$CKVC" status "$DIR/seen"
    grep -Eq '^0/2 +scan +4 +4 +1 ' <<<"$output"
    says 0 "next: ckvc merge $DIR/halves" "$CKVC" status "$DIR/halves" "$DIR/scan" --watch 1 # all is done: it ends
    # between the passes of a compile, whose end is its table
    cp -r "$DIR/scan" "$DIR/between"
    sed -i 's/"verb":"scan"/"verb":"compile"/' "$DIR/between/run.json"
    says 0 "no table.ckvt yet" "$CKVC" status "$DIR/between"
    "$CKVC" status "$DIR/between" --json | grep -q '"complete":false,"merged"'
    fails 66 '' "$CKVC" status "$DIR"
}

@test "status, inspect and verify of a score: what is done and missing of its parts, what it holds" {
    score "$DIR/seen.jsonl" --shard 0/3
    score "$DIR/seen.jsonl" --shard 2/3
    sed -i '$d' "$DIR/seen.jsonl.part-2-of-3"
    "$CKVC" status "$DIR/seen.jsonl" --json | check '
o = json.load(sys.stdin)
assert o["missing"] == ["1/3"] and not o["complete"] and not o["merged"], o
whole, half = o["parts"]
assert whole["complete"] and whole["part"] == "0/3", o
(a,), (b,) = whole["passes"], half["passes"]
assert a["done"] == a["prompts"] and b["done"] == b["prompts"] - 1 and b["pass"] == "score", o
assert a["prompts_per_second"] is None and 0 <= b["seconds_since_write"] < 600, o'
    score "$DIR/seen.jsonl" --shard 1/3
    score "$DIR/seen.jsonl" --shard 2/3 --resume
    says 0 "next: ckvc merge $DIR/seen.jsonl" "$CKVC" status "$DIR/seen.jsonl" --watch 1
    "$CKVC" merge "$DIR/seen.jsonl" -q
    cmp "$DIR/whole.jsonl" "$DIR/seen.jsonl"
    says 0 ": score, all there; ckvc inspect " "$CKVC" status "$DIR/seen.jsonl"
    "$CKVC" inspect "$DIR/seen.jsonl" --json | check '
o, rows = json.load(sys.stdin), [json.loads(x) for x in open(sys.argv[1])]
assert o["kind"] == "scores" and o["lines"] == len(rows) and o["prompts"] == len({r["id"] for r in rows}), o
assert o["policies"] == {p: sum(r["policy"] == p for r in rows) for p in {r["policy"] for r in rows}}, o
assert list(o["models"]) == [rows[0]["model"]] and list(o["manifests"]) == [rows[0]["manifest"]], o' "$DIR/seen.jsonl"
    run -0 "$CKVC" verify "$DIR/seen.jsonl"
    [[ $output == *": ok, scores" ]]
    sed -i '2s/"reward":-*[0-9]/"reward":7/' "$DIR/seen.jsonl"
    fails 65 "seen.jsonl:2: " "$CKVC" verify "$DIR/seen.jsonl"
    fails 65 "is no run, score or eval" "$CKVC" status "$DIR/prompts.jsonl"
}

@test "the parts of a score are the score that was made in one go" {
    for n in 1 7; do # two and three: below and above
        parts "$n" score "$DIR/s-$n.jsonl"
        [ ! -e "$DIR/s-$n.jsonl" ]
        "$CKVC" merge "$DIR/s-$n.jsonl" -q
        cmp "$DIR/whole.jsonl" "$DIR/s-$n.jsonl"
        [ ! -e "$DIR/s-$n.jsonl.part-0-of-$n" ]
    done
    mkdir "$DIR/a" "$DIR/b"
    score "$DIR/a/s.jsonl" --shard 0/2
    fails 65 "part 1/2 is missing" "$CKVC" merge "$DIR/j.jsonl" "$DIR/a/s.jsonl"
    score "$DIR/b/s.jsonl" --shard 1/2
    sed -i '$d' "$DIR/b/s.jsonl.part-1-of-2" # killed within its last prompt
    fails 65 "3 of 4 prompts are done; finish it with --shard 1/2 --resume" "$CKVC" merge "$DIR/j.jsonl" "$DIR/a/s.jsonl" "$DIR/b/s.jsonl"
    score "$DIR/b/s.jsonl" --shard 1/2 --resume
    "$CKVC" merge "$DIR/j.jsonl" "$DIR/b/s.jsonl" "$DIR/a/s.jsonl" -q
    cmp "$DIR/whole.jsonl" "$DIR/j.jsonl"
    fails 65 "there twice" "$CKVC" merge "$DIR/k.jsonl" "$DIR/a/s.jsonl" "$DIR/b/s.jsonl" "$DIR/a/s.jsonl"
    rm "$DIR/b/s.jsonl.part-1-of-2"
    score "$DIR/b/s.jsonl" --shard 1/2 --seed 2
    fails 65 "was begun with seed 2, part 0 1" "$CKVC" merge "$DIR/k.jsonl" "$DIR/a/s.jsonl" "$DIR/b/s.jsonl"
    [ ! -e "$DIR/k.jsonl" ]
    fails 64 '' score "$DIR/c.jsonl" --shard 0/2 --vectors "$DIR/v.h5"
}
