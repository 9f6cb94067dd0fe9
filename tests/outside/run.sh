#!/usr/bin/env bash
# Every comparison with other people's programs and models; what they need is in README.md here. Not part of `make test`. PYTHON, or the
# virtual environment build/outside where it is there.
set -uo pipefail
cd "$(dirname "$0")/../.."
[ -x build/outside/bin/python ] && : "${PYTHON:=build/outside/bin/python}"
passed=0 failed=0 skipped=0
for t in tests/outside/*_*.py; do
    echo "== $t"
    if ! "${PYTHON:-python3}" "$t" 2>build/outside.log | tee build/outside.out; then
        tail -n 5 build/outside.log
        failed=$((failed + 1))
    elif grep -q '^skipped:' build/outside.out; then
        skipped=$((skipped + 1))
    else
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
