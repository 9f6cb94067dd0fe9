#!/usr/bin/env bash
# Every comparison with other people's programs and models; what they need is in README.md here. Not part of `make test`.
set -uo pipefail
cd "$(dirname "$0")/../.."
failed=0
for t in tests/outside/*_*.py; do
    echo "== $t"
    "${PYTHON:-python3}" "$t" 2>"build/outside.log" || { tail -n 5 build/outside.log; failed=$((failed + 1)); }
done
echo "$failed comparisons failed"
[ "$failed" -eq 0 ]
