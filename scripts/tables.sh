#!/usr/bin/env bash
# Makes tables that come with the program again: scripts/tables.sh CKVC OUTDIR [NAME...], all of docs/results/tables.json without a NAME.
#
# Each is made in OUTDIR/NAME, of its model (of scripts/models.txt, or embedded in models/), by the command that tables.json has as `made`. DRY_RUN=1 prints the
# commands alone. Finished parts are not made again, and parts that have begun go on. A real model's table takes hours of two cores (docs/results.md). Its
# last line says whether it is the very table: another version of ckvc tries other candidates, and makes another one.
set -euo pipefail
CKVC=$(realpath "${1:?usage: tables.sh CKVC OUTDIR [NAME...]}")
mkdir -p "${2:?usage: tables.sh CKVC OUTDIR [NAME...]}"
outdir=$(realpath "$2")
shift 2
cd "$(dirname "$0")/.."
export CKVC MODEL OUT
listed=$(python3 -c 'import json
for t in json.load(open("docs/results/tables.json")): print(*(t[k] for k in ("name", "made_from", "content_id", "made")), sep="\t")')
for name in "$@"; do
    grep -q "^$name	" <<<"$listed" || { echo "tables.sh: no table $name; there are $(cut -f1 <<<"$listed" | paste -sd ' ')" >&2; exit 64; }
done
while IFS=$'\t' read -r name file id made <&3; do
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    model=$(awk -F'\t' -v file="$file" '/^=/ && $2 == file { print substr($1, 2) }' scripts/models.txt)
    MODEL=${model:+build/models/$model/$file} MODEL=${MODEL:-models/$file} OUT=$outdir/$name
    echo "$name: ${made//\$CKVC \$MODEL \$OUT/$CKVC $MODEL $OUT}"
    [ -z "${DRY_RUN:-}" ] || continue
    [ -z "$model" ] || scripts/model.sh "$model"
    bash -ec "$made"
    table=$OUT/compiled-$(sed 's/.*FROM=\([a-z]*\).*/\1/' <<<"$made")/table.ckvt
    got=$("$CKVC" inspect "$table" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["content_id"])')
    echo "$name: $table, content id $got, which is $([ "$got" = "$id" ] || echo "not ")the one of tables.json"
done 3<<<"$listed"
