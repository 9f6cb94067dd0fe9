# Calls that fail, processes that are killed, power that is cut: some of tests/faults/campaign.py, which tries all of them.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 40 >"$DIR/prompts.jsonl"
    demand "$DIR/whole"
    "$CKVC" fit "$DIR/whole" --out "$DIR/whole.ckvt" -q
    "${CC:-cc}" -shared -fPIC -o "$DIR/fault.so" tests/faults/fault.c -ldl
}

demand() { # OUT [OPTION...]
    "$CKVC" calibrate --side demand --model "${FROM:-$MODEL}" --manifest "${OF:-$DIR/prompts.jsonl}" --window 16 --continuation 16 \
        --budget 0.25 --shard-prompts 1 --threads 1 -q --out "$@"
}

# under_way OUT: demand runs in the background as $pid, has published a shard, and waits until it is told to go on
under_way() {
    demand "$1" &
    pid=$!
    until [ -e "$1/pass-01-demand/shard-00000.h5" ]; do kill -0 $pid; done
    kill -STOP $pid
    [ ! -e "$1/pass-01-demand/shard-00039.h5" ]
}

go_on() { # its exit code in $status
    kill -CONT $pid
    status=0
    wait $pid || status=$?
}

@test "whatever call fails, or where the process ends, the command goes on to the same bytes" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser has a malloc of its own"
    python3 tests/faults/campaign.py --every 150 --only demand,compile,score,merge,report "$CKVC"
    python3 tests/faults/campaign.py --kinds write,unlink --only join,vectors "$CKVC" | tee "$DIR/said"
    grep -q ' 0 failed$' "$DIR/said"
    ! grep -E "(open|write|fsync|rename): 0 calls" "$DIR/said"
}

@test "killed at any moment, and killed again as it resumes: the same bytes" {
    python3 tests/faults/campaign.py --kills 24 --only compile,score,eval,merge,fit,report "$CKVC"
}

@test "report --force, killed at any call that ends it: the earlier report or the new one, whole" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser stands before what is preloaded"
    local report=("$CKVC" report "$DIR/whole.ckvt" -q) call calls back
    "${report[@]}" --out "$DIR/old"
    "${report[@]}" "$DIR/whole" --bootstrap 2 --out "$DIR/new"
    # again CALL AT HOW: over the earlier one, or $FRESH
    again() {
        rm -rf "$DIR/there"
        [ -n "${FRESH:-}" ] || cp -r "$DIR/old" "$DIR/there"
        env FAULT_BELOW="$DIR/there" FAULT_CALL="$1" FAULT_AT="$2" FAULT_HOW="$3" FAULT_COUNT="$DIR/calls" LD_PRELOAD="$DIR/fault.so" \
            "${report[@]}" "$DIR/whole" --bootstrap 2 --out "$DIR/there" --force
    }
    for call in fsync rename; do
        rm -f "$DIR/calls"
        again $call 0 kill
        diff -r "$DIR/new" "$DIR/there"
        calls=$(tr -d ' ' <"$DIR/calls")
        [ "$calls" -gt 3 ]
        for ((back = 0; back < 3; back++)); do
            run -137 again $call $((calls - back)) kill
            diff -r "$DIR/old" "$DIR/there" >/dev/null || diff -r "$DIR/new" "$DIR/there"
            FRESH=1 run -137 again $call $((back + 1)) kill
            [ ! -e "$DIR/there" ] || diff -r "$DIR/new" "$DIR/there"
        done
    done
    again rename "$calls" 22 # a file system without it
    diff -r "$DIR/new" "$DIR/there"
    run -1 compgen -G "$DIR/there.tmp.*"
}

@test "a clock that jumps a year forth and back at each look changes no bytes" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser stands before what is preloaded"
    jumping() { FAULT_CLOCK=31536000 FAULT_CALL=clock FAULT_COUNT="$DIR/looks" LD_PRELOAD="$DIR/fault.so" "$@"; }
    export -f jumping
    jumping "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.25 --shard-prompts 1 --threads 1 -q --out "$DIR/jumped" --limit-time 86400
    [ "$(shard_sums "$DIR/jumped")" = "$(shard_sums "$DIR/whole")" ]
    rm -f "$DIR/looks"
    jumping "$CKVC" fit "$DIR/jumped" --out "$DIR/jumped.ckvt" -q
    [ "$(cat "$DIR/looks")" -ge 1 ]
    [ "$(content_id "$DIR/jumped.ckvt")" = "$(content_id "$DIR/whole.ckvt")" ]
    for _ in 1 2; do
        rm -f "$DIR/looks"
        jumping "$CKVC" status "$DIR/jumped" --json >"$DIR/status.json"
        [ "$(cat "$DIR/looks")" -ge 1 ]
        check 'p = json.load(open(sys.argv[1]))["parts"][0]["passes"][0]; assert p["seconds_since_write"] >= 0, p' "$DIR/status.json"
    done
}

@test "a manifest that changes: unharmed under a run, refused by the next" {
    cp "$DIR/prompts.jsonl" "$DIR/changing.jsonl"
    OF=$DIR/changing.jsonl under_way "$DIR/manifest"
    sed -i 's/300/301/' "$DIR/changing.jsonl"
    go_on
    [ "$status" -eq 0 ]
    [ "$(shard_sums "$DIR/manifest")" = "$(shard_sums "$DIR/whole")" ]
    OF=$DIR/changing.jsonl run demand "$DIR/manifest" --resume
    [ "$status" -eq 65 ]; one_line; [[ $output == *manifest* ]]
    OF=$DIR/prompts.jsonl demand "$DIR/manifest" --resume
}

@test "a model's file that changes: by another under its name unharmed, refused by the next; in place refused" {
    mkdir -p "$DIR/models"
    cp -r "$MODEL" "$DIR/models/" # its name is in the shards
    FROM=$DIR/models/ckvc-random under_way "$DIR/renamed"
    cp "$DIR/models/ckvc-random/model.safetensors" "$DIR/models/ckvc-random/new"
    printf '\001' | dd of="$DIR/models/ckvc-random/new" bs=1 seek=400000 conv=notrunc status=none
    mv "$DIR/models/ckvc-random/new" "$DIR/models/ckvc-random/model.safetensors"
    go_on
    [ "$status" -eq 0 ]
    [ "$(shard_sums "$DIR/renamed")" = "$(shard_sums "$DIR/whole")" ]
    FROM=$DIR/models/ckvc-random run demand "$DIR/renamed" --resume
    [ "$status" -eq 65 ]; one_line; [[ $output == *model* ]]

    rm -rf "$DIR/models/ckvc-random"
    cp -r "$MODEL" "$DIR/models/"
    FROM=$DIR/models/ckvc-random under_way "$DIR/in-place"
    printf '\001' | dd of="$DIR/models/ckvc-random/model.safetensors" bs=1 seek=400000 conv=notrunc status=none
    go_on 2>"$DIR/said"
    [ "$status" -eq 65 ]
    FROM=$MODEL demand "$DIR/in-place" --resume
    [ "$(shard_sums "$DIR/in-place")" = "$(shard_sums "$DIR/whole")" ]
}

@test "a model's file that is cut off under a run: one line that names it, and 74" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser stands before what is preloaded"
    rm -rf "$DIR/models/ckvc-random"
    cp -r "$MODEL" "$DIR/models/"
    fails 74 "model.safetensors: became shorter" env FAULT_CALL=mmap FAULT_AT=1 FAULT_HOW=short FAULT_BELOW="$DIR/models/ckvc-random" \
        LD_PRELOAD="$DIR/fault.so" "$CKVC" verify "$DIR/models/ckvc-random"
}

@test "two writers: the second is told so, and the first goes on" {
    under_way "$DIR/two"
    fails 75 "$DIR/two" demand "$DIR/two" --resume
    go_on
    [ "$status" -eq 0 ]
    [ "$(shard_sums "$DIR/two")" = "$(shard_sums "$DIR/whole")" ]
}

# lines VERB OUT [OPTION...]: of score and eval, which wait in OUT.checkpoint until all are there
lines() {
    local verb=$1 out=$2 of=(--manifest "${OF:-$DIR/many.jsonl}" --continuation 16)
    shift 2
    [ "$verb" = score ] || of=(--tasks copy --lengths 120 --count 30 --batch 1)
    "$CKVC" "$verb" --model "${FROM:-$MODEL}" "${of[@]}" --window 16 --budget 0.25 --policy recent --threads 1 -q --out "$out" "$@"
}

# lines_under_way VERB OUT: as under_way
lines_under_way() {
    lines "$1" "$2" &
    pid=$!
    until [ "$(wc -l 2>/dev/null <"$2.checkpoint")" -gt 3 ] 2>/dev/null; do kill -0 $pid; done
    kill -STOP $pid
    [ ! -e "$2" ]
}

@test "score and eval: a clock that jumps, two writers, a manifest and a model's file that change" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser stands before what is preloaded"
    prompts 60 >"$DIR/many.jsonl"
    cp "$DIR/many.jsonl" "$DIR/changes.jsonl"
    local verb out weights
    for verb in score eval; do
        out=$DIR/$verb
        rm -rf "$DIR/models/ckvc-random"
        cp -r "$MODEL" "$DIR/models/"
        weights=$DIR/models/ckvc-random/model.safetensors
        lines $verb "$out.jsonl"
        export -f lines
        FAULT_CLOCK=31536000 FAULT_CALL=clock FAULT_COUNT="$out.looks" LD_PRELOAD="$DIR/fault.so" bash -c "lines $verb '$out-jumped.jsonl'"
        cmp "$out.jsonl" "$out-jumped.jsonl"

        OF=$DIR/changes.jsonl lines_under_way $verb "$out-two.jsonl"
        sed -i 's/300/301/' "$DIR/changes.jsonl"
        fails 75 "$out-two.jsonl" lines $verb "$out-two.jsonl" --resume
        go_on
        [ "$status" -eq 0 ]
        cmp "$out.jsonl" "$out-two.jsonl"

        # another file under its name: what runs is unharmed; the next is refused
        FROM=$DIR/models/ckvc-random lines_under_way $verb "$out-other.jsonl"
        cp "$weights" "$weights.new"
        printf '\001' | dd of="$weights.new" bs=1 seek=400000 conv=notrunc status=none
        mv "$weights.new" "$weights"
        cp "$out-other.jsonl.checkpoint" "$out-next.jsonl.checkpoint"
        go_on
        [ "$status" -eq 0 ]
        cmp <(grep -v '"model"' "$out.jsonl") <(grep -v '"model"' "$out-other.jsonl")
        FROM=$DIR/models/ckvc-random run lines $verb "$out-next.jsonl" --resume
        [ "$status" -eq 65 ]; one_line; [[ $output == *model* ]]

        # in place: refused
        FROM=$DIR/models/ckvc-random lines_under_way $verb "$out-place.jsonl"
        printf '\002' | dd of="$weights" bs=1 seek=400000 conv=notrunc status=none
        go_on 2>"$DIR/said"
        [ "$status" -eq 65 ]
        [ ! -e "$out-place.jsonl" ]
    done
    OF=$DIR/changes.jsonl run lines score "$DIR/score-two.jsonl" --resume --force
    [ "$status" -ne 0 ] || [ "$(cmp "$DIR/score.jsonl" "$DIR/score-two.jsonl" | wc -l)" -eq 1 ]
}

@test "what a killed process left is known by its lock, not its number: as process 1, too; no file of the user's goes" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser stands before what is preloaded"
    local fit=("$CKVC" fit "$DIR/whole" -q --out) alone='' file
    unshare -pf --mount-proc true 2>/dev/null && alone="unshare -pf --mount-proc"
    mkdir "$DIR/left"
    run -137 $alone env FAULT_BELOW="$DIR/left" FAULT_CALL=fsync FAULT_AT=1 FAULT_HOW=kill LD_PRELOAD="$DIR/fault.so" "${fit[@]}" "$DIR/left/t.ckvt"
    compgen -G "$DIR/left/t.ckvt.tmp.*"
    touch "$DIR/left/t.ckvt.tmp.1."{0,1,2} # of versions before, and the user's
    $alone "${fit[@]}" "$DIR/left/t.ckvt"
    [ "$(cd "$DIR/left" && echo *)" = "t.ckvt t.ckvt.tmp.1.0 t.ckvt.tmp.1.1 t.ckvt.tmp.1.2" ]

    cp -r "$DIR/whole" "$DIR/mine"
    for file in notes.tmp.txt x.tmp.1 table.ckvt.tmp.5.old pass-01-demand/shard-00000.h5.tmp.1.old; do touch "$DIR/mine/$file"; done
    demand "$DIR/mine" --resume
    "$CKVC" merge "$DIR/mine"
    [ "$(find "$DIR/mine" -name '*.tmp.*' | wc -l)" -eq 4 ]
}

@test "a file system without locks: what is resumed is refused, files are published, nothing is swept" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser stands before what is preloaded"
    local verb left="$DIR/unlocked.ckvt.tmp.0123456789abcdef"
    prompts 4 >"$DIR/many.jsonl"
    echo 'int *__errno_location(void); int flock(int fd, int how) { (void)fd, (void)how; *__errno_location() = 37; return -1; }' >"$DIR/unlocked.c"
    "${CC:-cc}" -shared -fPIC -o "$DIR/unlocked.so" "$DIR/unlocked.c"
    export LD_PRELOAD="$DIR/unlocked.so"
    for verb in "demand $DIR/unlocked" "lines score $DIR/unlocked.jsonl" "lines eval $DIR/unlocked-eval.jsonl" "lines score $DIR/unlocked.jsonl --shard 0/2"; do
        fails 71 "this file system gives no lock; write to another one: " $verb
    done
    [ ! -e "$DIR/unlocked.jsonl" ]
    touch "$left"
    "$CKVC" fit "$DIR/whole" --out "$DIR/unlocked.ckvt" -q
    [ "$(content_id "$DIR/whole.ckvt")" = "$(content_id "$DIR/unlocked.ckvt")" ]
    [ -e "$left" ]
}
