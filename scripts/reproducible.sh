#!/usr/bin/env bash
# reproducible.sh builds the last commit in two folders whose names differ in length, and compares every file that is installed, the static
# program and the Debian package. It builds everything twice, which takes some minutes, so it is run by hand. tests/cli/packaging.bats does
# the same with a few files.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in "$work/a" "$work/another-place/b"; do
    git clone -q --no-hardlinks . "$folder"
    make -s -C "$folder" -j"$(nproc)" all static deb >/dev/null
    (cd "$folder/build/release" && find share deb static ckvc ./*.a ./*.so -type f | LC_ALL=C sort | xargs sha256sum) >"$work/sums.${folder##*/}"
done
diff "$work/sums.a" "$work/sums.b" || { echo "reproducible: these differ" >&2; exit 1; }
echo "reproducible: $(wc -l <"$work/sums.a") files, the same bytes"
