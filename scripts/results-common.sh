# Sourced by results-real.sh and results-torch.sh.

# few SPLIT N MANIFEST: N prompts of a split, evenly over the manifest, which has its retrieval prompts first.
few() { grep "\"split\":\"$1\"" "$3" | awk -v n="$2" '{ line[NR] = $0 } END { n = n < NR ? n : NR; for (i = 0; i < n; i++) print line[int(i * NR / n) + 1] }'; }

# resume PATH: --resume, if that is there of a part which has begun.
resume() { [ ! -e "$1" ] || echo --resume; }
