#!/usr/bin/env bash
# Gets SmolLM2-135M-Instruct (model.sh) and, where torch and transformers are at hand, makes a Hugging Face directory of it, too.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/model.sh smollm2
out=build/models/smollm2
file=SmolLM2-135M-Instruct.Q4_1.gguf
python=${PYTHON:-python3}
convert="scripts/convert-gguf.py $out/$file"
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
