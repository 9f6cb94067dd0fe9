# What one stumbles over, and what an attack found: names that are nearly right, outputs that are in the way, limits of the system.
load helper

setup_file() {
    prompts 4 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run" --limit 3
    "$CKVC" fit "$DIR/run" --out "$DIR/t.ckvt" -q
}

score() { "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --policy recent "$@"; }

@test "-V is the version" {
    [ "$("$CKVC" -V)" = "$("$CKVC" --version)" ]
    [[ $("$CKVC" -V) == ckvc\ * ]]
}

@test "did you mean: by edit distance, a beginning, or not at all" {
    for word in compule:compile vesion:version perp:perplexity inpsect:inspect calibrat:calibrate; do
        fails 64 "did you mean '${word#*:}'" "$CKVC" "${word%:*}"
    done
    run -64 "$CKVC" frobnicate
    [[ $output != *"did you mean"* ]]
    fails 64 "did you mean --budget\?" "$CKVC" calibrate --bugdet 3
    fails 64 "did you mean --continuation\?" "$CKVC" calibrate --cont 3
    fails 64 "did you mean --label" "$CKVC" fit --labl x
    run -64 "$CKVC" calibrate --qqq 3
    [[ $output != *"did you mean"* ]]
}

@test "a CKVC_ variable that is no option is named, with the nearest that is one" {
    run -0 --separate-stderr env CKVC_WINDWO=3 "$CKVC" version
    [ "$stderr" = "warning: CKVC_WINDWO is set, but no option has this name; did you mean CKVC_WINDOW?" ]
    run --separate-stderr env CKVC_FROBNICATE=3 "$CKVC" version
    [ "$stderr" = "warning: CKVC_FROBNICATE is set, but no option has this name" ]
    # another verb's option, one that is set to nothing, the Python package's and the tests' own are none to speak of
    run --separate-stderr env CKVC_KEEP_WINDOW=3 CKVC_NOTHING= CKVC_LIBRARY=/z CKVC_SHARED=/x CKVC_ASAN=/y "$CKVC" version
    [ -z "$stderr" ]
}

@test "--config NAME that is none: those that come with the program are named" {
    fails 66 '' "$CKVC" scan --config quikc
    for conf in configs/*.conf; do
        name=$(basename "$conf" .conf)
        [[ ${output#*by that name} == *"$name"* ]] || { echo "$name: $output"; return 1; }
    done
}

@test "--config NAME finds the configuration of the checkout, and of an installed program" {
    for name in default paper; do
        diff <("$CKVC" calibrate --config "$name" --print-config) <("$CKVC" calibrate --config "configs/$name.conf" --print-config)
    done
    mkdir -p "$DIR/prefix/bin" "$DIR/prefix/share/ckvc"
    cp "$CKVC" "$DIR/prefix/bin/ckvc"
    echo 'window = 29' >"$DIR/prefix/share/ckvc/default.conf"
    (cd "$DIR" && prefix/bin/ckvc score --config default --print-config) | grep -q '^window = 29  # config file'
    (cd "$DIR" && echo 'window = 31' >default && prefix/bin/ckvc score --config default --print-config) | grep -q '^window = 31 '
    fails 66 '' "$DIR/prefix/bin/ckvc" score --config none
}

@test "a budget that could be one token or everything is refused with what to write" {
    fails 64 "'1.0'*write 1 for 1 token, 0.99 for nearly all of a prompt" score --budget 1.0
    score --budget 1 --limit 1 -q >/dev/null
    score --budget 0.99 --limit 1 -q >/dev/null
}

@test "budgets under which nothing is evicted are named, with the prompts or the context" {
    run -0 --separate-stderr score --budget 82,16 --limit 3 -q
    [[ $stderr == "warning: budget 82 keeps all of 1 of the 3 prompts (80 to 88 tokens): nothing is evicted there"* ]] || { echo "$stderr"; return 1; }
    run --separate-stderr score --budget 1000000 --limit 1 -q
    [[ $stderr == "warning: budget 1000000 is not below the model's context of "* ]]
    run --separate-stderr "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --budget 500 --dry-run --limit 2
    [[ $stderr == *"budget 500 keeps all of 2 of the 2 prompts"* ]]
    run --separate-stderr score --budget 16,0.5 --limit 3 -q
    [ -z "$stderr" ]
}

@test "a budget that keeps nothing of a prompt is refused with the prompt, and what would do" {
    local nothing="budget 0.006 keeps none of the 88 tokens of prompt \"p00\": give at least 0.012"
    fails 64 "budget 0.006 keeps none of the 80 tokens of prompt \"p00\": give at least 0.013" score --budget 0.5,0.006 -q
    score --budget 0.013 --limit 1 -q >/dev/null
    fails 64 "$nothing" "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --policy recent --budget 0.006 --limit 1 -q
    fails 64 "budget 0.006 keeps none" "$CKVC" eval --model "$MODEL" --tasks copy --lengths 120 --count 1 --window 16 --policy recent --budget 0.006 -q
    for side in head demand; do
        fails 64 '' "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --side $side --budget 0.006 --out "$DIR/no-budget"
    done
    [ ! -e "$DIR/no-budget" ]
    printf '0.5\n0.006\n0.5\n0.5\n' >"$DIR/layers"
    fails 64 "budget 0.006 keeps none" score --layer-budgets "$DIR/layers" -q
    # a prompt no longer than the window is kept whole under every budget
    [[ $("$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 80 --continuation 8 --policy recent --budget 0.006 --limit 1 -q) == *'"whole":true'* ]]
}

@test "perplexity ends with the means over prompts and over tokens, as text and as JSON" {
    "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/prompts.jsonl" --json -q >"$DIR/p.json"
    "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/prompts.jsonl" -q >"$DIR/p.txt"
    check '
*rows, last = map(json.loads, open(sys.argv[1] + "/p.json"))
mean = last["mean"]
assert mean["prompts"] == len(rows) == 4 and mean["scored_tokens"] == sum(r["n"] - 1 for r in rows)
by_prompt = sum(r["mean_nll"] for r in rows) / len(rows)
by_token = sum(r["mean_nll"] * (r["n"] - 1) for r in rows) / mean["scored_tokens"]
for got, want in ((mean["mean_nll"]["over_prompts"], by_prompt), (mean["mean_nll"]["over_tokens"], by_token),
                  (mean["ppl"]["over_prompts"], math.exp(by_prompt)), (mean["ppl"]["over_tokens"], math.exp(by_token))):
    assert abs(got - want) < 1e-12 * want, (got, want)
lines = [l.split() for l in open(sys.argv[1] + "/p.txt")][-2:]
assert lines[0][:4] == ["mean", "over", "prompts", "4"] and abs(float(lines[0][4]) - by_prompt) < 1e-6, lines
assert lines[1][:4] == ["mean", "over", "tokens", str(mean["scored_tokens"])] and abs(float(lines[1][5]) - math.exp(by_token)) < 1e-3, lines' "$DIR"
}

@test "where no threshold is tried nobody speaks of thresholds that rest on little" {
    small() { "$CKVC" "$1" "${OVER[@]}" --budget 0.5 --bins 2,2 --variants 4 --out "$DIR/$2" "${@:3}" 2>&1; }
    says 0 "thresholds rest on little" small calibrate thin --side both
    run -0 small calibrate thin-heads --side head
    [[ $output == *"risk cells:"* && $output != *threshold*"rest on little"* ]]
    run small calibrate thin-none --side head --operator no-threshold
    [[ $output == *"risk cells:"* && $output != *"rest on little"* ]]
    run -0 small compile thin-compile --mode uniform --ranking paper --probe no-threshold --rounds 1
    [[ $output != *"rest on little"* ]]
}

@test "inspect and verify know files by their first bytes, too" {
    cp "$DIR/t.ckvt" "$DIR/a-table"
    cp "$DIR/run/pass-01-both/shard-00000.h5" "$DIR/a-shard"
    [ "$("$CKVC" verify "$DIR/a-table")" = "$DIR/a-table: ok, table" ]
    [ "$("$CKVC" verify "$DIR/a-shard")" = "$DIR/a-shard: ok, shard" ]
    [[ $("$CKVC" inspect "$DIR/a-table") == "$DIR/a-table: table"* ]]
}

@test "score looks at its outputs before it works" {
    echo mine >"$DIR/taken"
    run -73 score --model "$DIR/none" --out "$DIR/taken"
    run -73 score --model "$DIR/none" --vectors "$DIR/taken"
    run -73 score --model "$DIR/none" --out "$DIR/no/s.jsonl"
}

@test "score: stopped or killed at any moment, resumed: the same bytes" {
    prompts 16 >"$DIR/many.jsonl"
    many() {
        "$CKVC" score --model "$MODEL" --manifest "$DIR/many.jsonl" --window 16 --continuation 16 --table "$DIR/t.ckvt" \
            --policy identity,matched,random -q --out "$@" 2>/dev/null
    }
    many "$DIR/whole.jsonl" --vectors "$DIR/whole.h5"
    [ ! -e "$DIR/whole.jsonl.checkpoint" ]
    killed "T0.3 0.3 T0.3 0.3 T0.3 0.3 T0.3 0.3" many "$DIR/parts.jsonl"
    cmp "$DIR/whole.jsonl" "$DIR/parts.jsonl"
    [ ! -e "$DIR/parts.jsonl.checkpoint" ]
}

@test "score --resume: counts, vectors and torn ends; other settings are named" {
    local all=("${OVER[@]}" --budget 16 --policy identity,random,recent)
    # the first line of a checkpoint, from a process that was killed as it began
    (ulimit -f 1 && "$CKVC" score "${all[@]}" --out "$DIR/head.jsonl" -q 2>/dev/null) || true
    head -1 "$DIR/head.jsonl.checkpoint" >"$DIR/head"
    grep -q '"window":"16"' "$DIR/head"
    "$CKVC" score "${all[@]}" --out "$DIR/all.jsonl" --vectors "$DIR/all.h5" 2>"$DIR/all.err"
    "$CKVC" score "${all[@]}" --out "$DIR/three.jsonl" --limit 3 -q
    cat "$DIR/head" <(head -9 "$DIR/three.jsonl") <(sed -n 1p "$DIR/all.jsonl" | cut -c1-99 | tr -d '\n') >"$DIR/go.jsonl.checkpoint"
    fails 73 "--resume*--force" "$CKVC" score "${all[@]}" --out "$DIR/go.jsonl"
    fails 65 "was begun with seed 1, this command has 2" "$CKVC" score "${all[@]}" --out "$DIR/go.jsonl" --resume --seed 2 -q
    fails 65 "was begun with sets false, this command has true" "$CKVC" score "${all[@]}" --out "$DIR/go.jsonl" --resume --sets -q
    "$CKVC" score "${all[@]}" --out "$DIR/go.jsonl" --vectors "$DIR/go.h5" --threads 1 --resume 2>"$DIR/go.err"
    cmp "$DIR/all.jsonl" "$DIR/go.jsonl"
    [ "$(stat -c %s "$DIR/all.h5")" -eq "$(stat -c %s "$DIR/go.h5")" ] # every prompt's vectors
    diff <(grep -v prompts, "$DIR/all.err") <(grep -v prompts, "$DIR/go.err") # the summary counts what was done before
    # begun anew
    cp "$DIR/head" "$DIR/go.jsonl.checkpoint"
    "$CKVC" score "${all[@]}" --out "$DIR/go.jsonl" --force --seed 2 -q
    run -1 cmp "$DIR/all.jsonl" "$DIR/go.jsonl"
    run -64 "$CKVC" score "${all[@]}" --resume
}

@test "score: killed before its first prompt there is nothing to go on from, and a rerun just starts" {
    local all=(--model "$MODEL" --manifest "$DIR/first.jsonl" --window 16 --continuation 16 --table "$DIR/t.ckvt" --policy matched -q) pid
    prompts 200 >"$DIR/first.jsonl"
    "$CKVC" score "${all[@]}" --out "$DIR/early.jsonl" &
    pid=$!
    until [ -s "$DIR/early.jsonl.checkpoint" ]; do sleep 0.01; done # what matches is sought first, over all prompts
    kill -9 "$pid"
    wait "$pid" || true
    [ "$(wc -l <"$DIR/early.jsonl.checkpoint")" -eq 1 ]
    cp "$DIR/early.jsonl.checkpoint" "$DIR/again.jsonl.checkpoint"
    printf '{"half' | cat "$DIR/early.jsonl.checkpoint" - >"$DIR/torn.jsonl.checkpoint"
    "$CKVC" score "${all[@]}" --limit 3 --out "$DIR/early.jsonl"
    "$CKVC" score "${all[@]}" --limit 3 --out "$DIR/again.jsonl" --resume
    "$CKVC" score "${all[@]}" --limit 3 --out "$DIR/torn.jsonl"
    "$CKVC" score "${all[@]}" --limit 3 --out "$DIR/plain.jsonl"
    for file in early again torn; do
        cmp "$DIR/plain.jsonl" "$DIR/$file.jsonl"
        [ ! -e "$DIR/$file.jsonl.checkpoint" ]
    done
}

# stop_after SECONDS SIGNAL command...: its exit code in $rc
stop_after() {
    local delay=$1 signal=$2 pid
    shift 2
    "$@" &
    pid=$!
    sleep "$delay"
    kill -s "$signal" "$pid" 2>/dev/null || true
    rc=0
    wait "$pid" || rc=$?
}

@test "Ctrl-C: 75 where a score can go on, 130 where it cannot, with whole prompts on standard output" {
    local all=(--model "$MODEL" --manifest "$DIR/lots.jsonl" --window 16 --continuation 16 --budget 16 --policy identity,random -q) rc n
    prompts 400 >"$DIR/lots.jsonl"
    stop_after 0.7 INT "$CKVC" score "${all[@]}" --out "$DIR/lots-scores.jsonl" 2>"$DIR/err"
    [ "$rc" -ne 0 ] || skip "400 prompts in 0.7 s"
    [ "$rc" -eq 75 ]
    grep -q "^ckvc score: stopped after [0-9]* of 400 prompts; the same command with --resume goes on" "$DIR/err"
    n=$(sed -n 's/.*stopped after \([0-9]*\) of.*/\1/p' "$DIR/err")
    [ "$(wc -l <"$DIR/lots-scores.jsonl.checkpoint")" -eq $((1 + 2 * n)) ]
    stop_after 0.7 INT "$CKVC" score "${all[@]}" >"$DIR/some" 2>"$DIR/err"
    [ "$rc" -eq 130 ]
    grep -q "^ckvc score: stopped after [0-9]* of 400 prompts; their lines are complete" "$DIR/err"
    n=$(sed -n 's/.*stopped after \([0-9]*\) of.*/\1/p' "$DIR/err")
    [ "$(wc -l <"$DIR/some")" -eq $((2 * n)) ]
}

@test "progress off a terminal: how far, what is written and free, memory; -q: nothing" {
    local all=("${OVER[@]}")
    local says=' prompts, .*, [0-9.]* of about [0-9.]* MB written, [0-9.]* GB free, memory [0-9.]* MB'
    "$CKVC" scan "${all[@]}" --out "$DIR/watched" 2>"$DIR/err"
    grep -Eq "^scan: ([0-9]+) of \1$says" "$DIR/err"
    "$CKVC" score "${all[@]}" --policy identity --budget 16 --out "$DIR/watched.jsonl" 2>"$DIR/err"
    grep -Eq "^score: ([0-9]+) of \1$says" "$DIR/err"
    "$CKVC" score "${all[@]}" --policy identity --budget 16 --out "$DIR/watched-2.jsonl" -q 2>"$DIR/err"
    [ ! -s "$DIR/err" ]
}

@test "the dry run of a scan: what it takes at most, nothing written" {
    local all=("${OVER[@]}" --shard-prompts 1 -q)
    "$CKVC" scan "${all[@]}" --out "$DIR/forecast" --dry-run --json >"$DIR/forecast.json"
    [ ! -e "$DIR/forecast" ]
    "$CKVC" scan "${all[@]}" --out "$DIR/forecast" >/dev/null
    # the one file of events: nothing is written to it by coming again
    cp "$DIR/forecast/journal.jsonl" "$DIR/journal-before"
    for _ in 1 2 3; do "$CKVC" scan "${all[@]}" --out "$DIR/forecast" --resume >/dev/null; done
    cmp "$DIR/journal-before" "$DIR/forecast/journal.jsonl"
    py "$DIR/forecast.json" "$(cat "$DIR"/forecast/scan/*.h5 "$DIR/forecast/journal.jsonl" | wc -c)" "$(wc -l <"$DIR/prompts.jsonl")" <<'END'
d = json.load(open(sys.argv[1]))
assert d["prompts"] == int(sys.argv[3]) and min(d["hours"], d["memory_bytes"], d["prompt_s"], d["prefill_s"]) > 0, d
assert int(sys.argv[2]) <= d["disk_bytes"] <= 2 * int(sys.argv[2]), (d, sys.argv)
END
}

@test "the dry run of a score: what it takes, nothing written" {
    local all=("${OVER[@]}" --policy identity,snapkv,matched --budget 16,0.5 --table "$DIR/t.ckvt" -q)
    "$CKVC" score "${all[@]}" --out "$DIR/forecast.jsonl" --dry-run --json >"$DIR/forecast.json"
    run -1 compgen -G "$DIR/forecast.jsonl*"
    "$CKVC" score "${all[@]}" --out "$DIR/forecast.jsonl"
    check '
d, lines = json.load(open(sys.argv[1])), open(sys.argv[2]).readlines()
assert d["prompts"] * d["lines"] == len(lines) and d["prompt_s"] > d["prefill_s"] > 0 and d["hours"] > 0, d
assert d["memory_bytes"] > 1e6 and abs(d["disk_bytes"] / sum(map(len, lines)) - 1) < 0.05, d' "$DIR/forecast.json" "$DIR/forecast.jsonl"
    fails 64 '' "$CKVC" score "${all[@]}" --out "$DIR/forecast.jsonl" --dry-run --shard 0/2
}

@test "--limit-time: 75 between two prompts, of parts too; resumed: the same bytes" {
    local all=(--model "$MODEL" --manifest "$DIR/limited.jsonl" --window 16 --continuation 16 --budget 16 --policy identity,random -q -t 1) rc=0
    prompts 160 >"$DIR/limited.jsonl"
    "$CKVC" score "${all[@]}" --out "$DIR/limited-whole.jsonl"
    for out in once.jsonl "limited-scores.jsonl --shard 0/2"; do
        rc=0 SECONDS=0
        "$CKVC" score "${all[@]}" --limit-time 1 --out "$DIR"/$out 2>"$DIR/err" || rc=$?
        # the second is not over where all prompts are done before it, whatever slowed the run before
        [ "$rc" -ne 0 ] || [ "$SECONDS" -ge 3 ] || skip "all prompts in $SECONDS s"
        [ "$rc" -eq 75 ]
        grep -q "^ckvc score: stopped after [1-9][0-9]* of \(160\|80\) prompts; the same command with --resume goes on" "$DIR/err"
    done
    "$CKVC" score "${all[@]}" --out "$DIR/limited-scores.jsonl" --shard 0/2 --resume
    "$CKVC" score "${all[@]}" --out "$DIR/limited-scores.jsonl" --shard 1/2
    "$CKVC" merge "$DIR/limited-scores.jsonl" -q
    cmp "$DIR/limited-whole.jsonl" "$DIR/limited-scores.jsonl"
}

@test "HUP is as TERM: a clean stop, 75, and --resume goes on" {
    local rc
    prompts 96 >"$DIR/many.jsonl"
    for signal in HUP TERM; do
        rm -rf "$DIR/stopped"
        stop_after 0.5 $signal "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/many.jsonl" --out "$DIR/stopped" 2>"$DIR/err"
        [ "$rc" -ne 0 ] || skip "96 prompts in 0.5 s"
        [ "$rc" -eq 75 ] || { echo "$signal: $rc"; return 1; }
        grep -q "the same command with --resume goes on" "$DIR/err"
    done
    "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/many.jsonl" --out "$DIR/stopped" --resume
    "$CKVC" verify "$DIR/stopped"
}

@test "a run that another process writes: 75 and whose it is" {
    cp -r "$DIR/run" "$DIR/busy"
    echo 4711 >"$DIR/busy/lock"
    fails 75 '' flock "$DIR/busy/lock" "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --limit 3 --out "$DIR/busy" --resume
    [[ $output == *"busy/lock: process 4711 is writing this run; wait for it or stop it" ]]
    calibrate "$DIR/busy" --limit 3 --resume # and then not any more
}

@test "a score that another process writes: 75" {
    for option in --quiet --resume --force; do
        fails 75 '' flock "$DIR/busy.jsonl.checkpoint" "$CKVC" score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 \
            --policy recent --budget 16 --out "$DIR/busy.jsonl" "$option"
        [[ $output == *"busy.jsonl.checkpoint: another process is writing this score; wait for it or stop it" ]]
        [ -e "$DIR/busy.jsonl.checkpoint" ] # it is the other's
    done
    score --out "$DIR/busy.jsonl" -q # and then not any more
    [ ! -e "$DIR/busy.jsonl.checkpoint" ]
}

@test "an id of the Hub where a model is wanted: how to download it" {
    told() { fails 66 '' "$CKVC" "$@" && [[ $output == *"hf download org/A-model --local-dir DIR, then --model DIR" ]]; }
    told perplexity --model org/A-model --manifest "$DIR/prompts.jsonl"
    told tokenize --model org/A-model
    told inspect org/A-model
    told verify org/A-model
    told transfer "$DIR/t.ckvt" --to-model org/A-model --out "$DIR/none.ckvt"
    told manifest check "$DIR/prompts.jsonl" --model org/A-model
    run -66 "$CKVC" inspect "$DIR/A-model" # a path is none
    [[ $output != *download* ]]
}

@test "a Git LFS pointer in any file's place is named, with the way to the file" {
    local ptr=$'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345'
    pointer() { fails 65 '' "${@:2}" && [[ $output == *"$1: a Git LFS pointer in the file's place; get the file: git lfs pull, or hf download" ]]; }
    for name in config.json model.safetensors tokenizer.json; do
        rm -rf "$DIR/lfs" && cp -r "$MODEL" "$DIR/lfs" && rm -f "$DIR/lfs/$name" && echo "$ptr" >"$DIR/lfs/$name"
        pointer "$DIR/lfs/$name" "$CKVC" perplexity --model "$DIR/lfs" --manifest "$DIR/prompts.jsonl"
    done
    for name in p.gguf p.ckvt p.h5 p.jsonl; do echo "$ptr" >"$DIR/$name"; done
    pointer p.gguf "$CKVC" inspect "$DIR/p.gguf"
    pointer p.ckvt "$CKVC" score "${OVER[@]}" --table "$DIR/p.ckvt"
    pointer p.h5 "$CKVC" fit "$DIR/p.h5" --out "$DIR/none.ckvt"
    pointer p.jsonl "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/p.jsonl"
    pointer p.jsonl "$CKVC" report --scores "$DIR/p.jsonl" --out "$DIR/no-report"
    pointer p.jsonl "$CKVC" manifest check "$DIR/prompts.jsonl" --model "$MODEL" --against "$DIR/p.jsonl"
}

@test "a key of config.json that changes the network is refused, one that is not known is named once" {
    rm -rf "$DIR/keyed" && cp -r "$MODEL" "$DIR/keyed" && chmod -R u+w "$DIR/keyed"
    keyed() {
        check 'c = load(sys.argv[1]); c.update(json.loads(sys.argv[3])); json.dump(c, open(sys.argv[2], "w"))' \
            "$MODEL/config.json" "$DIR/keyed/config.json" "$1"
        run "${@:2}" --separate-stderr "$CKVC" perplexity --model "$DIR/keyed" --manifest "$DIR/prompts.jsonl" --limit 1 --json -q
    }
    keyed '{"is_causal": false}' -65
    [[ $output$stderr == *"is_causal (false) is not supported: attention to later tokens"* ]]
    keyed '{"is_causal": true}' -0
    [ -z "$stderr" ]
    keyed '{"use_rope": false, "key_of_tomorrow": [1]}' -0
    [[ $stderr == "warning: $DIR/keyed/config.json: keys that are not known were passed over: use_rope, key_of_tomorrow; "* ]]
    [ "$(wc -l <<<"$stderr")" -eq 1 ]
    check 'json.loads(sys.argv[1].splitlines()[0])' "$output"
}

@test "standard output that is cut short is exit 74, however much was written" {
    [ -w /dev/full ] || skip "no /dev/full"
    for verb in "version" "inspect --json --cells $DIR/t.ckvt" "inspect $DIR/t.ckvt" "help" "score --print-config" \
        "perplexity --model $MODEL --manifest $DIR/prompts.jsonl --json --tokens --logits 0 -q" "manifest check $DIR/prompts.jsonl" \
        "verify $DIR/t.ckvt" "fit $DIR/run --out $DIR/full.ckvt --force --json -q" "transfer $DIR/t.ckvt --to-shape 4,3 --out $DIR/full.ckvt --force" \
        "report $DIR/t.ckvt --out $DIR/full-report" "report $DIR/t.ckvt --out $DIR/full-report --force --json" \
        "calibrate ${SMALL[*]} --manifest $DIR/prompts.jsonl --limit 3 --out $DIR/full-run --json" \
        "scan --model $MODEL --manifest $DIR/prompts.jsonl --window 16 --continuation 16 --bins 2,2 --out $DIR/full-scan" \
        "compile --model $MODEL --window 16 --continuation 16 --budget 16 -q --manifest $DIR/prompts.jsonl --limit 3 --bootstrap 5 --out $DIR/full-compile --json" \
        "score --model $MODEL --manifest $DIR/prompts.jsonl --window 16 --continuation 8 --policy recent -q"; do
        says 74 "ckvc: writing to standard output failed" bash -c '"$CKVC" "$@" >/dev/full' - $verb
    done
    run -74 bash -c 'echo 1 2 | "$CKVC" tokenize --model "$MODEL" --decode >/dev/full'
    (
        ulimit -f 4
        "$CKVC" inspect --json --cells "$DIR/t.ckvt" >"$DIR/cut" || [ $? -eq 74 ]
    )
}

@test "an empty name of an output, or of an input, is refused" {
    for verb in "fit $DIR/run --out" "score --out" "score --vectors" "report $DIR/t.ckvt --out" "calibrate --out" "manifest build x --out" \
        "transfer $DIR/t.ckvt --to-shape 2,2 --out" "transfer $DIR/t.ckvt --to-shape 2,2 --report" "compile --out" "scan --out" \
        "manifest check x --out" "manifest check x --clean" "score --model" "perplexity --manifest"; do
        fails 64 "empty name" "$CKVC" $verb ""
    done
}

@test "an input, and whatever is inside one, is never written to, with --force either" {
    find "$DIR/run" -type f -exec sha256sum {} + | sort >"$DIR/before"
    refused() { fails 64 "an input is never written to" "$CKVC" "$@"; }
    refused fit "$DIR/run" --out "$DIR/run/run.json" --force
    refused fit "$DIR/run" --out "$DIR/run/pass-01-both/shard-00000.h5" --force
    refused fit "$DIR/run" --out "$DIR/run/new/t.ckvt"
    refused fit "$DIR/run/pass-01-both/shard-00000.h5" --out "$DIR/run/run.json" --force # the run that the shard is of
    refused fit "$DIR/run/pass-01-both/shard-00000.h5" --out "$DIR/run/t.ckvt"
    refused fit "$DIR/run/../run" --out "$DIR/./run/t.ckvt"
    refused fit "$DIR/run" --tables "$DIR/t.ckvt" --out "$DIR/t.ckvt" --force
    refused transfer "$DIR/t.ckvt" --to-shape 4,3 --out "$DIR/t.ckvt" --force
    refused score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --policy recent --out "$DIR/prompts.jsonl" --force
    refused score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --policy recent --vectors "$MODEL/config.json" --force
    refused report "$DIR/t.ckvt" "$DIR/run" --out "$DIR/run" --force
    refused calibrate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --scan "$DIR/run" --out "$DIR/run/again"
    ln -s run "$DIR/link"
    refused fit "$DIR/run" --out "$DIR/link/t.ckvt"
    mkdir "$DIR/texts"
    for i in $(seq 400); do echo "The quick brown fox number $i jumps over the lazy dog, and then it rests for a while."; done >"$DIR/texts/a.txt"
    refused manifest build "x=$DIR/texts" --prompts 1 --out "$DIR/texts/a.txt" --force
    find "$DIR/run" -type f -exec sha256sum {} + | sort | diff "$DIR/before" -
    "$CKVC" verify "$DIR/run" "$DIR/t.ckvt"
}

@test "--force replaces regular files alone: no links, no pipes" {
    cp "$DIR/t.ckvt" "$DIR/other.ckvt"
    ln -s other.ckvt "$DIR/link.ckvt"
    ln -s nowhere "$DIR/dangling"
    mkfifo "$DIR/pipe"
    for name in link.ckvt dangling pipe; do
        fails 73 '' "$CKVC" fit "$DIR/run" --out "$DIR/$name" --force -q
    done
    [ -L "$DIR/link.ckvt" ]
    [ -p "$DIR/pipe" ]
    [ -L "$DIR/dangling" ]
    cmp "$DIR/t.ckvt" "$DIR/other.ckvt"
}

@test "--force leaves device nodes where they are" {
    mknod "$DIR/null" c 1 3 2>/dev/null || skip "no device node can be made here (that wants root)"
    for verb in "fit $DIR/run --out" "score --model $MODEL --manifest $DIR/prompts.jsonl --window 16 --continuation 8 --policy recent --out" \
        "transfer $DIR/t.ckvt --to-shape 4,3 --out"; do
        says 73 '' "$CKVC" $verb "$DIR/null" --force
        [ -c "$DIR/null" ]
    done
}

@test "--force in a /dev of its own: what stands there stays" {
    unshare -m true 2>/dev/null || skip "no /dev of our own can be made here (that wants root)"
    run unshare -m bash -c '
        mount -t tmpfs none /dev && mknod /dev/null c 1 3 && mknod /dev/sdz b 7 200 && ln -s null /dev/stdout || exit 99
        for name in null sdz stdout; do
            "$CKVC" fit "$0/run" --out /dev/$name --force -q
            echo "$name $?"
        done
        [ -c /dev/null ] && [ -b /dev/sdz ] && [ -L /dev/stdout ] && echo all there' "$DIR"
    [ "$status" -ne 99 ] || skip "no tmpfs or node can be made here"
    [ "$(grep -cE '^(null|sdz|stdout) 73$' <<<"$output")" -eq 3 ] && [[ $output == *"all there" ]] || { echo "$output"; return 1; }
}

@test "a small stack is enough for every verb" {
    on_small_stack() { (ulimit -s 256 && "$CKVC" "$@") || { echo "$*"; return 1; }; }
    on_small_stack calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --limit 2 --out "$DIR/small"
    on_small_stack fit "$DIR/small" --out "$DIR/small.ckvt" --bootstrap 20 -q
    on_small_stack report "$DIR/small.ckvt" "$DIR/small" --out "$DIR/small-report" -q
    on_small_stack compile --model "$MODEL" --window 16 --continuation 16 --budget 16 -q --manifest "$DIR/prompts.jsonl" --limit 3 --holdout 0.3 --bootstrap 5 --out "$DIR/small-compile" 2>/dev/null
    on_small_stack score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --budget 16 --policy recent --limit 1 -q >/dev/null
    on_small_stack tokenize --model "$MODEL" </dev/null
    on_small_stack manifest check "$DIR/prompts.jsonl" >/dev/null
    on_small_stack verify "$DIR/small" "$DIR/small.ckvt" "$MODEL" >/dev/null
}

@test "a limit on file sizes is an error, not a signal" {
    limited() { fails 74 '' bash -c 'ulimit -f 1; exec "$CKVC" "$@"' - "$@"; }
    limited fit "$DIR/run" --out "$DIR/big.ckvt" -q
    limited calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --limit 3 --out "$DIR/big-run"
    limited report "$DIR/t.ckvt" "$DIR/run" --out "$DIR/big-report" -q
    limited score --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --budget 16 --policy recent --out "$DIR/big.jsonl" -q
    [ ! -e "$DIR/big.ckvt" ]
    [ ! -e "$DIR/big.jsonl" ]
}

@test "report: over one that is there with --force alone, through a link too, and never over what is no report's" {
    local out=$DIR/report
    "$CKVC" report "$DIR/t.ckvt" "$DIR/run" --bootstrap 20 --out "$out/" -q
    cp -r "$out" "$DIR/whole"
    run -73 "$CKVC" report "$DIR/t.ckvt" "$DIR/run" --out "$out" -q
    echo 1 >"$out/earlier.csv"
    ln -s "$out" "$DIR/report-link"
    "$CKVC" report "$DIR/t.ckvt" "$DIR/run" --bootstrap 20 --out "$DIR/report-link" --force -q
    [ -L "$DIR/report-link" ]
    diff -r "$DIR/whole" "$out"
    mkdir "$out/mine"
    fails 73 "holds mine, which is no report's" "$CKVC" report "$DIR/t.ckvt" "$DIR/run" --out "$out" --force -q
    (cd "$DIR/whole" && run "$CKVC" report "$DIR/t.ckvt" "$DIR/run" --out . --force -q && [ "$status" -eq 73 ])
    [ -d "$out/mine" ]
}

@test "weights that overflow: every verb names prompt and position, and none answers" {
    local over="$DIR/ckvc-overflow" verb
    cp -r "$MODEL" "$over"
    python3 - "$over/model.safetensors" <<'EOF'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", data[:8])[0]
norm = json.loads(data[8:8 + n])["model.norm.weight"]
begin, end = (8 + n + at for at in norm["data_offsets"])
assert norm["dtype"] == "BF16"
data[begin:end] = b"\x7f\x7f" * ((end - begin) // 2)  # the largest value
open(sys.argv[1], "wb").write(data)
EOF
    "$CKVC" verify "$over"
    local of=(--model "$over" --manifest "$DIR/prompts.jsonl" --limit 2 -q) window=(--window 16 --budget 16 --policy recent)
    declare -A verbs=([generate]="${of[*]} --max-new 4" [perplexity]="${of[*]:0:6}" [score]="${of[*]} --continuation 8 ${window[*]}"
        [eval]="--model $over --tasks copy --lengths 120 --count 2 -q ${window[*]}")
    for verb in "${!verbs[@]}"; do
        run -65 --separate-stderr "$CKVC" $verb ${verbs[$verb]}
        [[ $stderr == "ckvc $verb: prompt \""*"\", position "[0-9]*": the token's loss is not finite: "* ]]
        [[ $output != *[0-9]* ]]
    done
    fails 65 '' "$CKVC" generate "${of[@]}" --max-new 4 --temperature 1
    fails 65 '' "$CKVC" generate "${of[@]}" --max-new 4 "${window[@]}"
    says 65 "p00*not finite*--max-failures" "$CKVC" calibrate "${SMALL[@]}" --model "$over" --manifest "$DIR/prompts.jsonl" --limit 2 --out "$DIR/over"
    # as many failures as are allowed: a pass that has measured nothing is no success, at once or resumed
    local none='none of the 2 prompts of * could be measured; the first, "p00": *not finite' all=(--model "$over" --manifest "$DIR/prompts.jsonl" --limit 2 --max-failures 2)
    for verb in "calibrate --side demand" "calibrate --side head" "compile --mode uniform --ranking paper"; do
        for go in "" --resume; do
            says 65 "ckvc ${verb%% *}: $DIR/none*: $none" "$CKVC" $verb "${SMALL[@]}" "${all[@]}" --out "$DIR/none-${verb// /}" $go 2>/dev/null
            [[ $output != *"next:"* ]]
        done
    done
    says 65 "ckvc scan: $DIR/none-scan: $none" "$CKVC" scan "${all[@]}" --window 16 --continuation 16 --out "$DIR/none-scan" -q
}

@test "as process 1 of a container TERM, INT and HUP end every verb at once" {
    unshare -pf --mount-proc true 2>/dev/null || skip "no namespace of processes can be made here"
    local outer inner i rc number=(TERM INT HUP) code=(143 130 129)
    mkfifo "$DIR/text"
    for i in 0 1 2; do
        unshare -pf --mount-proc env --default-signal "$CKVC" tokenize --model "$MODEL" <"$DIR/text" 3>&- &
        outer=$!
        exec 9>"$DIR/text" # open until the end: tokenize waits for its text
        until inner=$(pgrep -P $outer); do kill -0 $outer; done
        for _ in $(seq 50); do # until it has begun
            sleep 0.1
            kill -${number[i]} "$inner" 2>/dev/null || break
        done
        rc=0
        kill -KILL "$inner" 2>/dev/null || wait $outer || rc=$?
        exec 9>&-
        [ "$rc" -eq "${code[i]}" ]
    done
}

@test "a process is called by the program's name" {
    local name pid
    mkfifo "$DIR/name"
    env -u OPENBLAS_NUM_THREADS "$CKVC" tokenize --model "$MODEL" <"$DIR/name" 3>&- &
    pid=$!
    exec 9>"$DIR/name"
    until grep -qz OPENBLAS_NUM_THREADS "/proc/$pid/environ"; do kill -0 $pid; done # it has begun again
    for _ in $(seq 30); do
        name=$(cat "/proc/$pid/comm")
        [ "$name" != "$(basename "$CKVC")" ] || break
        sleep 0.1
    done
    exec 9>&-
    wait $pid
    [ "$name" = "$(basename "$CKVC")" ]
}
