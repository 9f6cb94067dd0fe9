#!/usr/bin/env bash
# Runs every cmocka binary below BUILD/tests; fails when one fails. Skipped tests are counted at the end.
set -uo pipefail
build=${1:?usage: unit.sh BUILD}
rc=0 total=0 skipped=0 failed=0
for t in "$build"/tests/test_*; do
    case "$t" in *.d) continue ;; esac
    [ -x "$t" ] || continue
    out=$("$t" 2>&1) || { rc=1; echo "$out"; }
    total=$((total + $(grep -c '^\[       OK \]\|^\[  FAILED  \] [a-z]' <<<"$out")))
    skipped=$((skipped + $(grep -c '^\[  SKIPPED \] [a-z]' <<<"$out")))
    failed=$((failed + $(grep -c '^\[  FAILED  \] [a-z]' <<<"$out")))
    grep '^skipped:' <<<"$out"
done
echo "unit ($build): $total run, $failed failed, $skipped skipped"
exit $rc
