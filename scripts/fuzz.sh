#!/usr/bin/env bash
# The fuzz targets of tests/fuzz.
#   fuzz.sh replay BUILD: every target over its corpus, once; ends with the line
#       "fuzz corpus: N files replayed by M targets, N failed".
#   fuzz.sh run [TARGET...]: real runs of `make fuzz`'s programs, FUZZ_SECONDS (60) each, on copies of the corpora. What crashes,
#       leaks, hangs or takes too much memory lies in build/fuzz/found/TARGET, what is new in build/fuzz/corpus/TARGET.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
corpus=tests/fuzz/corpus
TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # a file is written for every input
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

case ${1:-} in
replay)
    build=${2:?usage: fuzz.sh replay BUILD}
    targets=0 files=0 failed=0
    for source in tests/fuzz/fuzz_*.c; do
        target=$(basename "$source" .c)
        if out=$("$build/fuzz/$target" "$corpus/${target#fuzz_}" 2>&1); then
            files=$((files + ${out##*replayed: })) targets=$((targets + 1))
        else
            failed=$((failed + 1))
            echo "--- $build/fuzz/$target $corpus/${target#fuzz_}"; tail -n 40 <<<"$out"
        fi
    done
    echo "fuzz corpus: $files files replayed by $targets targets, $failed failed"
    [ "$failed" -eq 0 ]
    ;;
run)
    shift
    [ $# -gt 0 ] || set -- $(basename -s .c tests/fuzz/fuzz_*.c)
    failed=0
    for target; do
        target=fuzz_${target#fuzz_} name=${target#fuzz_}
        grown=build/fuzz/corpus/$name found=build/fuzz/found/$name
        mkdir -p "$grown" "$found"
        build/fuzz/fuzz/"$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 -max_len=20000 -print_final_stats=1 \
            -artifact_prefix="$found/" "$grown" "$corpus/$name" >"$TMPDIR/log" 2>&1
        rc=$?
        line=$(grep -o 'cov: [0-9]* ft: [0-9]* corp: [0-9]*' "$TMPDIR/log" | tail -n 1)
        runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$TMPDIR/log")
        echo "$target: ${runs:-?} runs, $line, $(find "$found" -type f | wc -l) found"
        [ $rc -eq 0 ] || { failed=1; tail -n 40 "$TMPDIR/log"; }
    done
    exit $failed
    ;;
*) sed -n 's/^# //p' "$0" | head -n 4; exit 64 ;;
esac
