# Prompts that go through the layers together, where the memory does not hold all copies of weights: the same shards, the same lines.
load helper

SCORE=(--model "$MODEL" --window 16 --continuation 16 --budget 16,0.5 --policy identity,snapkv,pyramidkv,kvzip,fastkv -q --sets)

score() { "$CKVC" score "${SCORE[@]}" --manifest "$DIR/prompts.jsonl" --out "$@"; }

EVAL=(eval --model "$MODEL" --tasks copy,niah --lengths 150 --count 2 --policy snapkv,fastkv --budget 0.25 --window 8 --batch 4 -q)
answers() { "$CKVC" "${EVAL[@]}" --out "$@"; }

setup_file() {
    prompts 12 | check '
for i, line in enumerate(sys.stdin):
    o = json.loads(line)
    o["tokens"] = o["tokens"][:40 + i % 5]
    print(json.dumps(o))' >"$DIR/prompts.jsonl"
    calibrate "$DIR/all" --shard-prompts 3
    calibrate "$DIR/few" --shard-prompts 3 --memory 12M
    score "$DIR/all.jsonl" --memory 1G
}

# together [options]: how many prompts the plan has go together; nothing where all copies stay.
together() { calibrate "$DIR/none" --dry-run "$@" | sed -n 's/.* for \([0-9]*\) prompts together$/\1/p'; }

@test "the plan: several prompts where copies do not stay, one where they do or where choices follow from records" {
    [ "$(together --memory 12M)" -ge 3 ]
    [ -z "$(together)" ]
    [ "$(together --memory 12M --behaviour epsilon-greedy)" -eq 1 ]
    [ "$(together --memory 12M --rollouts plain)" -eq 1 ]
    says 0 "MB do not stay: * s a pass through the layers* MB a prompt and pass*make it compute-bound" calibrate "$DIR/none" --dry-run --memory 12M
}

@test "the same shards, on one thread and on two, of the scan and of the pass" {
    diff <(shard_sums "$DIR/all") <(shard_sums "$DIR/few")
    [ "$(shard_sums "$DIR/few" | wc -l)" -eq 8 ]
    calibrate "$DIR/two" --shard-prompts 3 --memory 14M --threads 2
    diff <(shard_sums "$DIR/all") <(shard_sums "$DIR/two")
}

# without RUN SHARD ...: takes the pass's shards away, as if they had never been done.
without() {
    local run=$1 shard
    shift
    for shard; do
        rm "$run"/pass-01-*/shard-0000"$shard".h5
        sed -i "/\"pass\":\"pass-01-.*\"shard\":$shard[,}]/d" "$run/journal.jsonl"
    done
}

@test "a run that ended inside a batch goes on with other batches: the same shards" {
    for shards in 3 2,3 1,2,3 1; do # of three prompts each, of which none but the last ends where a batch does; and a hole
        rm -rf "$DIR/part"
        cp -r "$DIR/few" "$DIR/part"
        without "$DIR/part" ${shards//,/ }
        [ "$(shard_sums "$DIR/part" | wc -l)" -lt 8 ]
        calibrate "$DIR/part" --shard-prompts 3 --memory 12M --resume
        diff <(shard_sums "$DIR/all") <(shard_sums "$DIR/part")
    done
    "$CKVC" verify "$DIR/part"
}

@test "demand, with and without a repetition, and score: the same shards" {
    for repeat in "" --no-repeat; do
        calibrate "$DIR/demand$repeat" --side demand $repeat
        [ "$(together --side demand --memory 13M $repeat)" -ge 3 ] # query vectors take some of it
        calibrate "$DIR/demand-few$repeat" --side demand --memory 13M $repeat
        diff <(shard_sums "$DIR/demand$repeat") <(shard_sums "$DIR/demand-few$repeat")
    done
    [ "$(together --side score --memory 12M)" -ge 3 ]
    calibrate "$DIR/score" --side score
    calibrate "$DIR/score-few" --side score --memory 12M
    diff <(shard_sums "$DIR/score") <(shard_sums "$DIR/score-few")
}

@test "killed at any moment, stopped, resumed: the same shards" {
    killed "0.05 0.1 0.15 0.2 0.25 0.3" calibrate "$DIR/killed" --shard-prompts 3 --memory 12M
    diff <(shard_sums "$DIR/all") <(shard_sums "$DIR/killed")
}

@test "score: the same lines whatever stays in memory, on any threads, in parts" {
    says 0 "MB do not stay: * s a pass through the layers*make it compute-bound" "$CKVC" score "${SCORE[@]}" --manifest "$DIR/prompts.jsonl" --memory 13M --dry-run
    [ "$(wc -l <"$DIR/all.jsonl")" -eq 120 ]
    for memory in 12M 15M; do # 13M: below
        score "$DIR/$memory.jsonl" --memory "$memory" --threads 2
        cmp "$DIR/all.jsonl" "$DIR/$memory.jsonl"
    done
    joined 3 score "$DIR/parts.jsonl" --memory 13M
    cmp "$DIR/all.jsonl" "$DIR/parts.jsonl"
}

@test "score: killed and stopped among prompts that go together, resumed: the same lines" {
    killed "0.05 0.1 0.2 0.3 0.4" score "$DIR/killed.jsonl" --memory 13M
    cmp "$DIR/all.jsonl" "$DIR/killed.jsonl"
}

@test "eval: the dry run says how many items are prefilled together; the same answers, in parts, killed and resumed" {
    run -0 "$CKVC" "${EVAL[@]}" --dry-run --memory 17M
    [[ $output == *"MB do not stay: "*" for "[2-4]" prompts together"*"make it compute-bound"* ]]
    run "$CKVC" "${EVAL[@]}" --dry-run
    [[ $output != *"do not stay"* ]]
    answers "$DIR/answers.jsonl"
    answers "$DIR/few.jsonl" --memory 17M --threads 2
    cmp "$DIR/answers.jsonl" "$DIR/few.jsonl"
    joined 3 answers "$DIR/thirds.jsonl" --memory 17M
    cmp "$DIR/answers.jsonl" "$DIR/thirds.jsonl"
    killed "0.1 0.2 0.4 0.6" answers "$DIR/some.jsonl" --batch 3 --memory 17M
    cmp "$DIR/answers.jsonl" "$DIR/some.jsonl"
}

# texts [options]: without what the clock says.
texts() {
    "$CKVC" generate --model "$MODEL" --manifest "$DIR/prompts.jsonl" --policy snapkv --budget 0.25 --window 8 --compare --json --max-new 12 -q "$@" |
        sed 's/"[a-z_]*_s": *[^,}]*//g'
}

@test "generate: the same texts, likeliest and drawn" {
    for how in "" "--temperature 0.8"; do
        texts $how >"$DIR/all.txt"
        [ "$(grep -c tokens "$DIR/all.txt")" -eq 24 ]
        diff "$DIR/all.txt" <(texts $how --memory 11M --batch 5)
    done
}
