#!/usr/bin/env bash
# Runs clang-format over our C and CUDA files. With --check it changes nothing and fails on a difference.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || { echo "format: clang-format is missing: apt-get install -y clang-format" >&2; exit 69; }
mapfile -t files < <(git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' '*.cc')
if [ "${1:-}" = --check ]; then
    clang-format --dry-run --Werror "${files[@]}" && echo "format-check: ${#files[@]} files"
else
    clang-format -i "${files[@]}"
fi
