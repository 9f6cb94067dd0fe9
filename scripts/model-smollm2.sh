#!/usr/bin/env bash
# Gets SmolLM2-135M-Instruct (model.sh) and, where torch and transformers are at hand, makes a Hugging Face directory of it, too.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/model.sh smollm2
out=build/models/smollm2
file=SmolLM2-135M-Instruct.Q4_1.gguf
python=${PYTHON:-python3}
convert="scripts/convert-gguf.py $out/$file"
needed="torch transformers tokenizers gguf accelerate sentencepiece"
missing=$("$python" -c 'import importlib.util, sys
print("".join(" " + x for x in sys.argv[1:] if importlib.util.find_spec(x) is None))' $needed)
if [ -n "$missing" ] && { [ ! -f $out/bf16/config.json ] || [ ! -f $out/f32/config.json ]; }; then
    echo "Hugging Face folders of it, $out/bf16 and $out/f32, are made by the same command once $python has what it lacks:"
    echo "  $python -m pip install$missing"
    exit 0
fi
for kind in bf16:bfloat16 f32:float32; do
    dir=$out/${kind%:*}
    [ -f "$dir/config.json" ] && continue
    rm -rf "$dir.part"
    "$python" $convert "$dir.part" --dtype "${kind#*:}" >"$out/convert.log" 2>&1 || { cat "$out/convert.log"; exit 1; }
    mv "$dir.part" "$dir"
done
rm -f "$out/convert.log"
echo "Hugging Face folders of it, for transformers and vLLM: $out/bf16 and $out/f32"
