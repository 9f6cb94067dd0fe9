#!/usr/bin/env bash
# demo.sh [CKVC [full]] does the main job once on the embedded models: it takes two disjoint corpora and makes a table of budgets by head
# from each. To compare with, it then goes the paper's way: a calibration, a table of weights and thresholds, one table mapped to the
# smaller model and one compiled for that model, scores on held-out prompts beside references, and the report that compares them.
# With `full` it takes all prompts of both corpora, makes the paper's tables of both from all prompts and with more rollouts, and adds
# controls. That takes seven minutes instead of two.
# Everything lands in build/demo (build/demo-full) of the folder in which it is started. A folder of that name is removed first if a demo
# made it. Installed, the script lies in share/ckvc/scripts and takes the ckvc of the PATH.
set -euo pipefail
home=$(realpath "$(dirname "$0")/..") # the checkout, or share/ckvc
ckvc=$(command -v "${1:-ckvc}") || { echo "demo: no such program: ${1:-ckvc}; usage: demo.sh [CKVC [full]]" >&2; exit 69; }
[ "${2:-full}" = full ] || { echo "demo: $2: wanted full, or nothing" >&2; exit 64; }
out=build/demo${2:+-full} mark=.made-by-ckvc-demo
if [ -e "$out" ] && [ ! -e "$out/$mark" ] && [ "$(pwd -P)" != "$home" ]; then
    echo "demo: $PWD/$out: is there, and no demo made it; start this in another folder, or move it away" >&2
    exit 73
fi
export CORPORA_BUILD=${CORPORA_BUILD:-$PWD/build}
big=$home/models/ckvc-tiny-8l small=$home/models/ckvc-tiny-4l conf=demo
started=$SECONDS
say() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - started)); }

say "two corpora from Debian's documentation packages"
rm -rf "$out"
mkdir -p "$out"
touch "$out/$mark"
"$home/scripts/corpora.py" --newer "$ckvc" "$out" technical narrative

compile() { # CORPUS OPTION...
    say "compile: budgets of heads from $1 prompts on $big, ${*:2}"
    "$ckvc" compile --config "$conf" --model "$big" --manifest "$out/$1.jsonl" --budget 0.125,0.25 --label "budgets, $1" \
        --leak-check "$out/$1-leaks.json" --out "$out/budgets-$1" "${@:2}"
}
calibrate() { # CORPUS MODEL RUN
    say "calibrate: $1 prompts on $2, for the paper's tables"
    "$ckvc" calibrate --config "$conf" --model "$2" --manifest "$out/$1.jsonl" --split fit "${few[@]}" "${tries[@]}" \
        --leak-check "$out/$1-leaks.json" --out "$out/$3"
}
scores=()
score() { # KIND CORPUS MODEL OPTION...
    "$ckvc" score --config "$conf" --manifest "$out/$2.jsonl" --split heldout -q --model "$3" "${@:4}" --out "$out/$1-$2.jsonl"
    scores+=("$out/$1-$2.jsonl")
}
list() { local IFS=, && echo "$*"; }

if [ "${2:-}" = full ]; then
    compile technical
    compile narrative
    papers=(technical narrative) few=() tries=()
else
    compile technical --split fit,select
    compile narrative --split fit,select --limit 56
    papers=(technical) few=(--limit 24) tries=(--variants 32)
fi
budgets=("$out/budgets-technical/table.ckvt" "$out/budgets-narrative/table.ckvt") of_small=("$out/technical-4l.ckvt" "$out/compiled-4l.ckvt")
tables=("${papers[@]/%/.ckvt}") tables=("${tables[@]/#/$out/}") # the paper's way

for corpus in "${papers[@]}"; do
    calibrate "$corpus" "$big" "run-$corpus"
    "$ckvc" fit "$out/run-$corpus" --label "$corpus" --bootstrap 200 --out "$out/$corpus.ckvt"
done
calibrate technical "$small" run-technical-4l
"$ckvc" fit "$out/run-technical-4l" --label "technical, for 4 layers" --out "$out/compiled-4l.ckvt"

say "transfer: the technical table to $small, its risk edges from that run's scan"
"$ckvc" transfer "$out/technical.ckvt" --to-model "$small" --scan "$out/run-technical-4l" --out "$out/technical-4l.ckvt"

say "scores on held-out prompts"
for corpus in technical narrative; do
    score scores-budgets "$corpus" "$big" --table "$(list "${budgets[@]}")" --budget 0.125,0.25 \
        --policy identity,matched,top-k,snapkv,adakv,expected-attention,window-pooled,random,kvzip
done
recommended=("${scores[@]}")
for corpus in technical narrative; do # the prompts of the others: what is compared is of the same
    score unfitted "$corpus" "$big" --table "$(list "${budgets[@]}")" --budget 0.125,0.25 --ridge 0 # beside the same entries fitted
    score scores "$corpus" "$big" --table "$(list "${tables[@]}")" --policy identity,matched --attention-error --utilities
    score scores-4l "$corpus" "$small" --table "$(list "${of_small[@]}")" --equal-tokens --policy identity,matched,snapkv,adakv
    [ "${2:-}" != full ] || score controls "$corpus" "$big" --table "$(list "${tables[@]}")" --equal-tokens \
        --policy recent,sink-recent,window,window-pooled,random,head-only,gate-only,no-utility,no-threshold,mean-gate,mean-pool
done

say "report"
"$ckvc" report "${budgets[@]}" "${tables[@]}" "${of_small[@]}" "$out"/budgets-{technical,narrative} "${papers[@]/#/$out/run-}" \
    --scores "$(list "${scores[@]}")" --out "$out/report"
"$ckvc" report -q "${budgets[@]}" --scores "$(list "${recommended[@]}")" --out "$out/picture" # README's picture: what is recommended, and references
"$home/scripts/losses_svg.py" "$out/picture/report.json" >"$out/demo.svg"
rm -r "$out/picture"

say "done"
"$home/scripts/recovered.py" "technical=${recommended[0]}" "narrative=${recommended[1]}" "both=$(list "${recommended[@]}")" >"$out/recovered.md"
cat <<EOF
What $out/budgets-technical/table.ckvt brings on held-out prompts, nats per token over the full cache (recovered: 1 - table / best rule):

$(cat "$out/recovered.md")

made:
  $out/report/report.html                            open this
  $out/demo.svg                                      its first picture, of the recommended tables alone
  $out/budgets-{technical,narrative}/table.ckvt      what we recommend: budgets by head for ${big##*/}
$(for t in "${tables[@]}"; do printf "  %-50s the paper's way, to compare with\n" "$t"; done)
  $out/{technical,compiled}-4l.ckvt                  the first of these mapped to ${small##*/}, and one compiled for it

EOF
say "generate: held-out prompts of the domain that the technical table has not seen, from an eighth of the cache beside all of it"
generate=("$ckvc" generate -q --model "$big" --table "$out/budgets-technical/table.ckvt" --budget 0.125 --max-new 32 --batch 1 --compare)
"${generate[@]}" --manifest "$out/narrative.jsonl" --split heldout --json >"$out/texts.jsonl"
{
    python3 - "$out" <<'PY'
# The sample that is shown: of all held-out prompts the middle one by how many tokens the texts have in common before the first that differs.
import itertools, json, sys
out, ways = sys.argv[1], {}
for r in map(json.loads, open(out + "/texts.jsonl")):
    ways.setdefault(r["id"], []).append(r["tokens"])
common = sorted((sum(1 for _ in itertools.takewhile(lambda t: t[0] == t[1], zip(*two))), id) for id, two in ways.items())
n, id = common[(len(common) - 1) // 2]
print(f"the first {n} of 32 tokens are the same in the middle one of {len(common)} prompts, all 32 in {sum(a == b for a, b in ways.values())}, none in {sum(k == 0 for k, _ in common)}; the middle one:")
with open(out + "/sample.jsonl", "w") as f:
    f.writelines(line for line in open(out + "/narrative.jsonl") if json.loads(line)["id"] == id)
PY
    "${generate[@]}" --manifest "$out/sample.jsonl"
} | tee "$out/sample.txt"
printf '\nnext, for a model and texts of your own: README.md\n'
