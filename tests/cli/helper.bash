# Shared by the command-line tests: the program, a folder for the file's tests, a small manifest of our own, what looks at outputs.
bats_require_minimum_version 1.5.0

export DIR=$BATS_FILE_TMPDIR
export CKVC=${CKVC:-$PWD/build/release/ckvc}
export MODEL=models/ckvc-tiny-4l
if [ -n "${RANDOM_MODEL:-}" ]; then # set where nothing depends on what a model has learned: a narrow one, which takes no time
    MODEL=$DIR/ckvc-random
    [ -d "$MODEL" ] || { "${CKVC%/*}/tools/make_model" "$MODEL" 4 6 3 16 64 128 4096 sharp && cp models/ckvc-tiny-4l/tokenizer*.json "$MODEL"; }
fi
export LC_ALL=C
unset CKVC_CONFIG

# prompts N: a manifest of N prompts given as ids, with enough repetition for attention to have something to find.
prompts() {
    awk -v n="$1" 'BEGIN {
        s = 12345
        for (i = 0; i < n; i++) {
            ids = "0"
            for (t = 1; t < 88 + 4 * (i % 3); t++) {
                s = (s * 1103515245 + 12345) % 2147483648
                v = t % 7 == 0 ? 300 + i % 50 : 256 + int(s / 65536) % 1200
                ids = ids "," v
            }
            printf "{\"id\":\"p%02d\",\"source\":\"%s\",\"tokens\":[%s]}\n", i, i % 2 ? "odd" : "even", ids
        }
    }'
}

# The model over $DIR/prompts.jsonl.
OVER=(--model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16)

# Options of a calibration that takes about a second.
SMALL=(--model "$MODEL" --window 16 --continuation 16 --budget 16,0.5 --bins 2,2 --min-cell 1 --variants 12 --shard-prompts 4 -q)

# calibrate OUT [options]: over $DIR/prompts.jsonl
calibrate() { "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --out "$@"; }

# The published bytes of a run: shards with their SHA-256, not journal or lock.
shard_sums() { (cd "$1" && find . -name '*.h5' | sort | xargs sha256sum); }

cells() { "$CKVC" inspect "$1" --json --cells; }
content_id() { "$CKVC" inspect "$1" --json | check 'print(json.load(sys.stdin)["content_id"])'; }

# check PYTHON [ARGUMENT...]: on what comes from standard input
check() {
    PYTHONPATH="tests/python:${PYTHONPATH:-}" "${PY:-python3}" -c "import collections, csv, glob, json, math, os, re, subprocess, sys
load = lambda path: json.load(open(path))
rows_of = lambda path: [json.loads(line) for line in open(path)]
flat = lambda x: [v for y in x for v in flat(y)] if isinstance(x, list) else [x]
$1" "${@:2}"
}
# py [ARGUMENT...] <<PYTHON
py() { check "$(cat)" "$@"; }

# An interpreter that has h5py, and zstandard for tests/python/unfolded.py, is $PY, or the test is skipped.
needs_h5py() {
    for PY in /usr/bin/python3 python3; do ! "$PY" -c 'import numpy, h5py, zstandard' 2>/dev/null || return 0; done
    skip "h5py or zstandard is not installed (apt-get install -y python3-h5py python3-zstandard)"
}

# one_line: $output is a single line that starts with "ckvc"
one_line() {
    [ "$(wc -l <<<"$output")" -eq 1 ] || { echo "more than one line: $output"; return 1; }
    [[ $output == ckvc* ]] || { echo "not a ckvc message: $output"; return 1; }
}

# says STATUS WORDS COMMAND...: it ends so, and what it says has WORDS (a pattern); fails: so, and in one line
says() {
    run "${@:3}"
    [ "$status" -eq "$1" ] && [[ $output == *$2* ]] || { echo "${*:3}: $status: $output; wanted $1: *$2*"; return 1; }
}
fails() { says "$@" && one_line; }

# killed "SECONDS ..." FUNCTION ARGUMENT...: what calls "$CKVC" is killed after each of these times, stopped (TERM) after the last and where a
# T stands before it, resumed until it ends
killed() {
    local delay signal rc ckvc=$CKVC
    killing() { timeout --foreground -s $signal "${delay#T}" "$ckvc" "$@"; }
    for delay in $1; do
        [[ $delay == T* || $1 == *" $delay" ]] && signal=TERM || signal=KILL
        rc=0
        CKVC=killing "${@:2}" --resume || rc=$?
        [ $rc -ne 0 ] || return 0
        [[ " 73 75 124 137 143 " == *" $rc "* ]] || return $rc # 73: killed as it ended; 75: our clean stop; the others are the signals'
    done
    "${@:2}" --resume || [ $? -eq 73 ]
}

# parts N FUNCTION OUT...: every part, the last one first; joined: and one of them
parts() {
    local i
    for ((i = $1 - 1; i >= 0; i--)); do "${@:2}" --shard "$i/$1"; done
}
joined() { parts "$@" && "$CKVC" merge "$3" -q; }

# The text of a report's page, as its script makes it; more words fill in its form (tests/tools/page.js).
page() { node tests/tools/page.js "$1/report.html" "${@:2}"; }
