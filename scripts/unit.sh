#!/usr/bin/env bash
# Runs every cmocka binary below BUILD/tests, or those named. It runs one more at a time than there are cores, because some wait for a disk.
# It prints what failed and the reasons of what was skipped. Its last lines say which kernels the tests have run and which they have not
# ("ran: PATH" in a test's output):
#   ran: AVX2, AVX-512, ...
#   not on this CPU: AVX-512
#   unit BUILD: N passed, N failed, N skipped
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: unit.sh BUILD [PROGRAM...]}
shift
export OPENBLAS_NUM_THREADS=1 # no worker threads of the library's own beside our pool's
passed=0 failed=0 skipped=0 said=
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
programs=
for t in ${*:-$(find "$build"/tests -name 'test_*' -type f -perm -u+x | sort)}; do
    [ -e "tests/unit/${t#"$build"/tests/}.c" ] || continue # of a test that has moved
    programs+=$t$'\n'
done
one() { { CMOCKA_MESSAGE_OUTPUT=TAP timeout 600 "$1" 2>&1; printf '\n%d\n' $?; } >"$2/${1//\//+}"; }
export -f one
xargs -P$(($(nproc) + 1)) -I{} bash -c 'one "$@"' - {} "$outputs" <<<"${programs%$'\n'}"
for t in $programs; do
    out=$(cat "$outputs/${t//\//+}")
    rc=${out##*$'\n'}
    s=$(grep -c '# SKIP' <<<"$out")
    f=$(grep '^not ok' <<<"$out" | grep -vc '# SKIP')
    p=$(grep '^ok' <<<"$out" | grep -vc '# SKIP')
    if [ $rc -ne 0 ]; then
        [ "$f" -eq 0 ] && f=1 # a crash before its test could say so
        echo "--- $t (exit $rc)"
        tail -n 60 <<<"$out"
    fi
    grep '^skipped:' <<<"$out" | sort -u
    said+=$(grep '^ran:' <<<"$out")$'\n'
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
ran= lacking=
for path in AVX2 AVX-512; do
    if grep -qx "ran: $path" <<<"$said"; then ran+=", $path"; else lacking+=", $path"; fi
done
ran=${ran#, } lacking=${lacking#, }
echo "ran: ${ran:-none}"
if [ "$failed" -eq 0 ]; then echo "not on this CPU: ${lacking:-none}"; else echo "not run, or failed: ${lacking:-none}"; fi
echo "unit $build: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
