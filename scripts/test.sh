#!/usr/bin/env bash
# Runs every test: unit tests of the release build and of the ASan+UBSan build, command-line tests, and Python readers. It needs what `make
# test` has built. Its last lines say which kernels the tests have run, which are not on this CPU (unit.sh), and "N passed, N failed, N
# skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
export OPENBLAS_NUM_THREADS=1 # no worker threads of the library's own beside our pool's
passed=0 failed=0 skipped=0 paths=
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }
started=$SECONDS
stage() { echo "== $1 ($((SECONDS - started)) s)"; }

for variant in release asan; do
    stage "unit tests, $variant"
    out=$(scripts/unit.sh "build/$variant")
    echo "$out"
    paths=$(tail -n 3 <<<"$out" | head -n 2) # the same of both, unless one of them has failed
    add $(sed -nE 's/^unit .*: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' <<<"$out")
done

stage "fuzz corpus, asan"
out=$(scripts/fuzz.sh replay build/asan)
echo "$out"
add $(sed -nE 's/^fuzz corpus: .* by ([0-9]+) targets, ([0-9]+) failed$/\1 \2 0/p' <<<"$out")

stage "command line and python"
export CKVC="$PWD/build/release/ckvc" CKVC_ASAN="$PWD/build/asan/ckvc"
export CKVC_THREADS=1 # where a test names no number: files run beside each other, and threads that wait for a busy core cost a seventh
outputs=$(mktemp -d)
links=$(mktemp -d)
trap 'rm -rf "$outputs" "$links"' EXIT
# Debian's python3 where it will do: one of a version manager takes ten times as long to start
/usr/bin/python3 -c 'import numpy, h5py' 2>/dev/null && ln -s /usr/bin/python3 "$links/"
export outputs PATH="$links:$PATH"
file() { # TEST: its TAP to a file of $outputs
    {
        if [[ $1 == *.bats ]]; then
            bats --tap "$1"
        elif out=$(python3 "$1" 2>&1); then
            echo "ok 1 $1 $(sed -n 's/^skipped:/# skip/p' <<<"$out" | head -n 1)" && echo 1..1
        else
            printf '%s\n' "$out" "not ok 1 $1" 1..1
        fi
    } >"$outputs/${1##*/}" 2>&1
}
export -f file
# One file more at a time than there are cores, since some wait for a disk or for Slurm; long ones first.
{ printf 'tests/cli/%s.bats\n' faults launchers; ls -S tests/cli/*.bats tests/python/test_*.py | grep -v -e /faults -e /launchers; } |
    xargs -P$(($(nproc) + 1)) -I{} bash -c 'file {}'
for file in "$outputs"/*; do
    grep -v '^ok\|^1\.\.' "$file"
    grep '^ok .*# skip' "$file"
    s=$(grep -c '^ok .*# skip' "$file")
    add $(($(grep -c '^ok' "$file") - s)) "$(grep -c '^not ok' "$file")" "$s"
    grep -q '^1\.\.' "$file" || add 0 1 0
done

stage done
echo "$paths"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
