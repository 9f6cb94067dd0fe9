#!/usr/bin/env bash
# Tests the CUDA backend where there is no GPU. Kernels and host code are compiled for every device and looked at; then the CPU runs them
# (tests/emulation) beside the CPU backend. Steps whose tools are missing are skipped and counted.
set -euo pipefail
cd "$(dirname "$0")/.."
skipped=0
# A lost wake-up of a fiber would otherwise wait for ever; the longest takes a minute.
bounded() {
    timeout -k 10 600 "$@" || { rc=$?; [ $rc -ne 124 ] || echo "cuda: $*: not done after 600 s, ended"; return $rc; }
}
skip() { echo "cuda: skipped: $1"; skipped=$((skipped + 1)); }

# cuobjdump (and nvdisasm, which it calls) where nvcc is: the toolkit, or PyPI's wheels below CUDA_HOME
PATH=$PATH:${CUDA_HOME:+$CUDA_HOME/bin:}/usr/local/cuda/bin
if command -v nvcc >/dev/null || [ -n "${CUDA_HOME:-}" ]; then
    objects=$(printf '%s\n' lib/backend/cuda/*.c lib/backend/cuda/*.cu lib/backend/backend_create.c | sed 's|\(.*\)\.cu\?$|build/cuda/\1.o|')
    mkdir -p build/cuda
    rm -f $objects # all of them, so that the log has all
    # Lines of one file stay together.
    make -j2 -Otarget CUDA=1 B=build/cuda CFLAGS=-Werror NVCCFLAGS='-Xptxas -v' $objects >build/cuda/log 2>&1 || { tail -n 40 build/cuda/log; exit 1; }
    scripts/cuda_code.py build/cuda/log build/cuda/lib/backend/cuda
    { command -v cuobjdump && command -v nvdisasm; } >/dev/null || skipped=$((skipped + 1))
else
    skip "no nvcc; kernels are not compiled for a device"
fi

if command -v clang++ >/dev/null && [ "$(uname -m)" = x86_64 ]; then
    make -j2 CFLAGS=-Werror emulated
    export CKVC_TEST_BACKEND=cuda
    export -f bounded
    find build/release/emulated/tests -type f -name 'test_*' -perm -u+x | sort |
        xargs -P2 -I{} bash -c 'out=$(bounded {} 2>&1) && echo "cuda: {} passed" || { echo "$out"; echo "cuda: {} failed"; exit 255; }'
    bounded /usr/bin/python3 tests/emulation/beside_cpu.py build/release/emulated/ckvc
else
    skip "no clang++ or no x86-64; kernels do not run on the CPU"
fi
echo "cuda: $skipped skipped"
