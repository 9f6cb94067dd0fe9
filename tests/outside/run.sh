#!/usr/bin/env bash
# Every comparison with other people's programs and models; README.md here. Not part of `make test`. With PYTHON=... in that environment alone; else in
# build/outside/newest, which has the newest of all packages, and those of the Python package once more over the oldest transformers that
# python/pyproject.toml admits and over the one that kvpress pins; llama-cpp-python, which is compiled, has one more. Environments are made where they are not there.
set -uo pipefail
cd "$(dirname "$0")/../.."
envs=build/outside
failed=0 passed=0 skipped=0

# over NAME PACKAGE...: an environment with its own PACKAGEs over those of `newest`.
over() {
    [ -e "$envs/$1/made" ] && return
    rm -rf "${envs:?}/$1"
    { python3 -m venv "$envs/$1" && { [ "$1" = newest ] || echo "$packages" >"$envs/$1/${packages#"$PWD/$envs/newest/"}/newest.pth"; } &&
        "$envs/$1/bin/pip" install -q --disable-pip-version-check "${@:2}" && touch "$envs/$1/made"; } || { echo "test-outside: cannot make $envs/$1" >&2; exit 69; }
}

# compare PYTHON SCRIPT...
compare() {
    for t in "${@:2}"; do
        echo "== $t ($1)"
        if ! "$1" "$t" 2>build/outside.log | tee build/outside.out; then
            tail -n 5 build/outside.log
            failed=$((failed + 1))
        elif grep -q '^skipped:' build/outside.out; then
            skipped=$((skipped + 1))
        else
            passed=$((passed + 1))
        fi
    done
}

if [ -n "${PYTHON:-}" ]; then
    compare "$PYTHON" tests/outside/*_*.py
else
    oldest=$(sed -n 's/.*"transformers>=\([0-9.]*\)".*/\1/p' python/pyproject.toml)
    over newest -r tests/outside/requirements.txt
    packages=$(cd "$envs"/newest/lib/python3*/site-packages && pwd)
    over oldest "transformers==${oldest:?}"
    over kvpress kvpress
    over llama llama-cpp-python
    compare "$envs/newest/bin/python" tests/outside/*_*.py
    compare "$envs/oldest/bin/python" tests/outside/transformers_{generate,calibrate,families,cache,fit}.py
    compare "$envs/llama/bin/python" tests/outside/llama_compact.py
    compare "$envs/kvpress/bin/python" tests/outside/{transformers_{generate,families,fit,score},kvpress_sets,policies_compare}.py
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
