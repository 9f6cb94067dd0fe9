#!/usr/bin/env bash
# Evaluates a table by kvpress's own evaluation, beside kvpress's presses: scripts/kvpress_ruler.sh MODEL TABLE.ckvt OUTDIR
#
# `ckvc eval` makes RULER's items. kvpress's evaluation (github.com/NVIDIA/kvpress, evaluation/evaluate.py) lets the model answer them and scores the answers, and
# python/examples/harness_kvpress.py puts the table and the items into it. Questions are first unseen, as on kvpress's leaderboard, then seen. OUTDIR/scores.tsv has
# every score, and the means over tasks are printed. MODEL is a directory that ckvc and transformers read. KVzap's press looks for its weights as
# nvidia/KVzap-mlp-NAME, where NAME is that of the directory. A press that fails is named and left out, and the exit status is then 1. Runs that have ended
# are not made again.
#
# KVPRESS names a checkout of kvpress, and PYTHON a Python with kvpress, its extra `eval` and what ckvc.hf needs; without them the commit below is fetched into
# OUTDIR, and an environment is made there. LENGTHS, COUNT, TASKS, RATIOS (shares that are dropped), PRESSES, QUERIES and MODEL_KWARGS (such as
# "{'dtype':'float32'}") change what is done. flash_attn must not be installed, because evaluate.py would use it, and a table needs sdpa.
#
# The whole is 52 runs of 220 items, which wants a GPU, and has not been run. On a CPU this was (docs/results.md): Qwen2.5-Coder-0.5B with LENGTHS=1024 COUNT=3
# QUERIES=unseen RATIOS=0.75 PRESSES="ckvc snapkv expected_attention kvzip" (of 0.875 the first two) MODEL_KWARGS="{'dtype':'float32'}", with a checkout of the commit below and a Python
# that were there, so that fetching them has not been tried.
set -euo pipefail
usage="usage: scripts/kvpress_ruler.sh MODEL TABLE.ckvt OUTDIR"
[ $# -eq 3 ] || { echo "$usage" >&2; exit 64; }
for given in "$1/config.json" "$2"; do
    [ -e "$given" ] || { echo "kvpress_ruler: $given is not there; $usage" >&2; exit 66; }
done
root=$(cd "$(dirname "$0")/.." && pwd)
ckvc=$(command -v "${CKVC:-ckvc}") || { echo "kvpress_ruler: no such program: ${CKVC:-ckvc}; CKVC names it" >&2; exit 69; }
ckvc=$(realpath "$ckvc") model=$(realpath "$1") table=$(realpath "$2")
[ -z "${KVPRESS:-}" ] || KVPRESS=$(realpath "$KVPRESS")
if [ "${PYTHON:-}" ]; then
    python=$(command -v "$PYTHON") || { echo "kvpress_ruler: no such program: $PYTHON; PYTHON names it" >&2; exit 69; }
    PYTHON=$(realpath -s "$python")
fi
mkdir -p "$3"
cd "$3"
commit=8bb29b9c3078452a86d692f29123fa6c793e2b05
if [ -z "${KVPRESS:-}" ]; then
    KVPRESS=$PWD/kvpress
    [ -e kvpress/evaluation ] || { git init -q kvpress && git -C kvpress fetch -q --depth 1 https://github.com/NVIDIA/kvpress "$commit" && git -C kvpress checkout -q FETCH_HEAD; }
fi
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$PWD/python/bin/python3
    [ -e python/ready ] || { python3 -m venv python && "$PYTHON" -m pip install -q "${KVPRESS}[eval]" "$root/python[hf]" && touch python/ready; }
fi
[ -e items.jsonl ] || "$ckvc" eval --model "$model" --tasks "${TASKS:-ruler}" --lengths "${LENGTHS:-4096}" --count "${COUNT:-20}" --seed 20261126 \
    --items items.jsonl --dry-run >/dev/null

failed=0
answered() { # QUERY PRESS RATIO
    local run=runs/$1/$2/$3
    compgen -G "$run/*/metrics.json" >/dev/null && return
    rm -rf "$run"
    mkdir -p "$run"
    "$PYTHON" "$root/python/examples/harness_kvpress.py" "$KVPRESS" "$table" items.jsonl --config_file /dev/null --dataset ckvc --model "$model" --press_name "$2" \
        --compression_ratio "$3" --query_aware "$([ "$1" = seen ] && echo True || echo False)" ${MODEL_KWARGS:+--model_kwargs "$MODEL_KWARGS"} \
        --output_dir "$run" >"$run/log" 2>&1 && return
    failed=1
    echo "kvpress_ruler: $1, $2, ratio $3 is left out ($run/log): $(tail -n 1 "$run/log")" >&2
}
for query in ${QUERIES:-unseen seen}; do
    answered "$query" no_press 0
    for ratio in ${RATIOS:-0.25 0.5 0.75 0.875 0.9375}; do
        for press in ${PRESSES:-ckvc snapkv expected_attention kvzap_mlp_layer kvzip}; do answered "$query" "$press" "$ratio"; done
    done
done
"$PYTHON" - <<'EOF'
import glob
import json

rows, means = [], {}
for path in sorted(glob.glob("runs/*/*/*/*/metrics.json")):
    _, query, press, ratio, *_ = path.split("/")
    with open(path, encoding="utf-8") as f:
        scores = {task: list(of_task.values())[0] / 100 for task, of_task in json.load(f).items()}
    rows += [f"{query}\t{press}\t{ratio}\t{task}\t{score:.4f}\n" for task, score in sorted(scores.items())]
    means[query, press, ratio] = sum(scores.values()) / len(scores)
with open("scores.tsv", "w", encoding="utf-8") as f:
    f.writelines(["query\tpress\tratio\ttask\tscore\n", *rows])
ratios = sorted({ratio for *_, ratio in means}, key=float)
print("query", "press", *ratios, sep="\t")
for query, press in dict.fromkeys((query, press) for query, press, _ in means):
    print(query, press, *(f"{means[query, press, r]:.3f}" if (query, press, r) in means else "-" for r in ratios), sep="\t")
EOF
exit $failed
