# Shared by the command-line tests: the program, a small manifest of our own, one calibrated run per file.

export CKVC=${CKVC:-$PWD/build/release/ckvc}
export MODEL=models/ckvc-tiny-4l
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

# Options of a calibration that takes about a second.
SMALL=(--model "$MODEL" --window 16 --continuation 16 --budget 16,0.5 --bins 2,2 --min-cell 1 --variants 24 --shard-prompts 4 -q)

# calibrate OUT [options]: over $DIR/prompts.jsonl
calibrate() {
    local out=$1
    shift
    "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --out "$out" "$@"
}

# The published bytes of a run: shards with their SHA-256, not journal or lock.
shard_sums() { (cd "$1" && find . -name '*.h5' | sort | xargs sha256sum); }

content_id() { "$CKVC" inspect "$1" --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["content_id"])'; }

# one_line: $output is a single line that starts with "ckvc"
one_line() {
    [ "$(wc -l <<<"$output")" -eq 1 ] || { echo "more than one line: $output"; return 1; }
    [[ $output == ckvc* ]] || { echo "not a ckvc message: $output"; return 1; }
}

# The text of a report's page, as its script makes it; more words fill in its form (tests/tools/page.js).
page() { node tests/tools/page.js "$1/report.html" "${@:2}"; }
