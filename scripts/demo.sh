#!/usr/bin/env bash
# The main job, once through on the embedded models: two disjoint corpora, a calibration and a table each, one table mapped to the
# smaller model, scores on held-out prompts, and the report that compares them. Everything lands in build/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
ckvc=${1:?usage: demo.sh CKVC}
out=build/demo
big=models/ckvc-tiny-8l small=models/ckvc-tiny-4l conf=configs/demo.conf
started=$SECONDS
say() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - started)); }

say "two corpora from Debian's documentation packages"
rm -rf "$out"
mkdir -p "$out"
scripts/demo-corpora.sh "$ckvc" "$out"

for corpus in technical narrative; do
    say "calibrate: $corpus prompts on $big"
    "$ckvc" calibrate --config "$conf" --model "$big" --manifest "$out/$corpus.jsonl" --split fit \
        --leak-check "$out/$corpus-leaks.json" --out "$out/run-$corpus"
    "$ckvc" fit "$out/run-$corpus" --label "$corpus" --bootstrap 200 --out "$out/$corpus.ckvt"
done

say "transfer: the technical table to $small"
"$ckvc" transfer "$out/technical.ckvt" --to-model "$small" --out "$out/technical-4l.ckvt"

say "scores on held-out prompts"
for corpus in technical narrative; do
    "$ckvc" score --config "$conf" --model "$big" --manifest "$out/$corpus.jsonl" --split heldout -q \
        --table "$out/technical.ckvt,$out/narrative.ckvt" --policy identity,matched,sink-recent,window,random --attention-error --utilities --out "$out/scores-$corpus.jsonl"
done
"$ckvc" score --config "$conf" --model "$small" --manifest "$out/technical.jsonl" --split heldout -q \
    --table "$out/technical-4l.ckvt" --policy identity,matched --out "$out/scores-4l.jsonl"

say "report"
"$ckvc" report "$out/technical.ckvt" "$out/narrative.ckvt" "$out/technical-4l.ckvt" "$out/run-technical" "$out/run-narrative" \
    --scores "$out/scores-technical.jsonl,$out/scores-narrative.jsonl,$out/scores-4l.jsonl" --out "$out/report"

say "done"
cat <<EOF
made:
  $out/technical.ckvt  $out/narrative.ckvt     tables for $big
  $out/technical-4l.ckvt                             the first, mapped to $small
  $out/run-technical/  $out/run-narrative/     records, resumable
  $out/report/report.html                            open this
next:
  $ckvc inspect $out/technical.ckvt
  $ckvc calibrate --config configs/quick.conf --model YOUR_MODEL_DIR --manifest $out/technical.jsonl --out my-run
EOF
