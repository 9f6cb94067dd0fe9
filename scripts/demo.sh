#!/usr/bin/env bash
# The main job, once through on the embedded models: two disjoint corpora, a table of budgets by head each, by demand and then rewards; then by the paper's
# way, to compare with, a calibration and a table of weights and thresholds each, one table mapped to the smaller model and one compiled for it, scores on held-out prompts beside references and controls, and the report that compares them.
# Everything lands in build/demo of the folder that it is started in; one that is there is removed first where a demo made it. Installed, it lies in share/ckvc/scripts and takes the ckvc of the PATH.
set -euo pipefail
home=$(realpath "$(dirname "$0")/..") # the checkout, or share/ckvc
ckvc=$(command -v "${1:-ckvc}") || { echo "demo: no such program: ${1:-ckvc}; usage: demo.sh [CKVC]" >&2; exit 69; }
out=build/demo mark=.made-by-ckvc-demo
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

for corpus in technical narrative; do
    say "compile: budgets of heads from $corpus prompts on $big, by demand, then by rewards of heads and of the gate below"
    "$ckvc" compile --config "$conf" --model "$big" --manifest "$out/$corpus.jsonl" --budget 0.125,0.25 --label "budgets, $corpus" \
        --rewards --rounds 2 --variants all --bootstrap 200 --shrink --leak-check "$out/$corpus-leaks.json" --out "$out/budgets-$corpus"
done

for corpus in technical narrative; do
    say "calibrate: $corpus prompts on $big"
    "$ckvc" calibrate --config "$conf" --model "$big" --manifest "$out/$corpus.jsonl" --split fit \
        --leak-check "$out/$corpus-leaks.json" --out "$out/run-$corpus"
    "$ckvc" fit "$out/run-$corpus" --label "$corpus" --bootstrap 200 --out "$out/$corpus.ckvt"
done

say "calibrate: technical prompts on $small, to compare with"
"$ckvc" calibrate --config "$conf" --model "$small" --manifest "$out/technical.jsonl" --split fit \
    --leak-check "$out/technical-leaks.json" --out "$out/run-technical-4l"
"$ckvc" fit "$out/run-technical-4l" --label "technical, for 4 layers" --out "$out/compiled-4l.ckvt"

say "transfer: the technical table to $small, its risk edges from that run's scan"
"$ckvc" transfer "$out/technical.ckvt" --to-model "$small" --scan "$out/run-technical-4l" --out "$out/technical-4l.ckvt"

say "scores on held-out prompts"
references=recent,sink-recent,window,window-pooled,random
controls=head-only,gate-only,no-utility,no-threshold,mean-gate,mean-pool
scores=
for corpus in technical narrative; do
    heldout=(--config "$conf" --manifest "$out/$corpus.jsonl" --split heldout -q)
    "$ckvc" score "${heldout[@]}" --model "$big" --table "$out/budgets-technical/table.ckvt,$out/budgets-narrative/table.ckvt" \
        --budget 0.125,0.25 --policy identity,matched,top-k,snapkv,adakv,expected-attention,window-pooled,random,kvzip --out "$out/scores-budgets-$corpus.jsonl"
    "$ckvc" score "${heldout[@]}" --model "$big" --table "$out/technical.ckvt,$out/narrative.ckvt" --policy identity,matched \
        --attention-error --utilities --out "$out/scores-$corpus.jsonl"
    "$ckvc" score "${heldout[@]}" --model "$big" --table "$out/technical.ckvt,$out/narrative.ckvt" --equal-tokens \
        --policy "$references,$controls" --out "$out/controls-$corpus.jsonl"
    "$ckvc" score "${heldout[@]}" --model "$small" --table "$out/technical-4l.ckvt,$out/compiled-4l.ckvt" --policy identity,matched,snapkv,adakv \
        --out "$out/scores-4l-$corpus.jsonl"
done

say "report"
for kind in scores-budgets scores controls scores-4l; do scores+=,$out/$kind-technical.jsonl,$out/$kind-narrative.jsonl; done
"$ckvc" report "$out/budgets-technical/table.ckvt" "$out/budgets-narrative/table.ckvt" "$out/technical.ckvt" "$out/narrative.ckvt" \
    "$out/technical-4l.ckvt" "$out/compiled-4l.ckvt" "$out/budgets-technical" "$out/budgets-narrative" "$out/run-technical" "$out/run-narrative" --scores "${scores#,}" --out "$out/report"
budgets=$out/scores-budgets-technical.jsonl,$out/scores-budgets-narrative.jsonl # README's picture: what is recommended, and references
"$ckvc" report -q "$out/budgets-technical/table.ckvt" "$out/budgets-narrative/table.ckvt" --scores "$budgets" --out "$out/picture"
"$home/scripts/losses_svg.py" "$out/picture/report.json" >"$out/demo.svg"
rm -r "$out/picture"

say "done"
scores=$out/scores-budgets
"$home/scripts/recovered.py" "technical=$scores-technical.jsonl" "narrative=$scores-narrative.jsonl" "both=$scores-technical.jsonl,$scores-narrative.jsonl" >"$out/recovered.md"
cat <<EOF
What $out/budgets-technical/table.ckvt brings on held-out prompts, nats per token over the full cache (recovered: 1 - table / best rule):

$(cat "$out/recovered.md")

made:
  $out/report/report.html                            open this
  $out/demo.svg                                      its first picture, of the recommended tables alone
  $out/budgets-{technical,narrative}/table.ckvt      what we recommend: budgets by head for ${big##*/}
  $out/{technical,narrative}.ckvt                    the paper's tables for it, to compare with
  $out/{technical,compiled}-4l.ckvt                  the first of these mapped to ${small##*/}, and one compiled for it

EOF
say "generate: held-out prompts of the domain that the technical table has not seen, from an eighth of the cache beside all of it"
generate=("$ckvc" generate -q --model "$big" --table "$out/budgets-technical/table.ckvt" --budget 0.125 --max-new 32 --batch 1 --compare)
"${generate[@]}" --manifest "$out/narrative.jsonl" --split heldout --json >"$out/texts.jsonl"
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
printf '\nnext, for a model and texts of your own: README.md\n'
