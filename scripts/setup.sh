#!/usr/bin/env bash
# Makes sure that the Debian packages which building and testing need are there. It installs them where it may (as root, or by a sudo that
# asks for no password); otherwise it prints the one line to run. `setup.sh ci` adds what the style checks and the wheel need. Optional
# packages come along when anything is installed, or with ci; without them the tests of launchers are skipped.
set -euo pipefail
packages=(gcc libc6-dev make pkg-config libhdf5-dev libopenblas-pthread-dev libzstd-dev libjansson-dev libpcre2-dev libutf8proc-dev
    nettle-dev libxxhash-dev zlib1g-dev libcmocka-dev bats nodejs python3 python3-numpy python3-h5py python3-zstandard)
optional=()
[ "${1:-}" = ci ] && packages+=(clang clang-format clang-tidy libclang-rt-14-dev python3-pip python3-venv python3-setuptools python3-wheel lintian mandoc) &&
    optional+=(slurm-wlm munge openmpi-bin)

absent() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" != installed ]; }
missing=() wanted=()
for p in "${packages[@]}"; do absent "$p" && missing+=("$p"); done
for p in "${optional[@]}"; do absent "$p" && wanted+=("$p"); done
[ ${#missing[@]} -eq 0 ] && { [ "${1:-}" != ci ] || [ ${#wanted[@]} -eq 0 ]; } && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
fi
line="apt-get install -y --no-install-recommends ${missing[*]}"
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$log" 2>&1; }
echo "setup: missing packages: ${missing[*]} ${wanted[*]}" >&2
if [ "${as_root[*]:-}" != false ] && command -v apt-get >/dev/null; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if "${as_root[@]}" apt-get update >"$log" 2>&1; then
        install "${missing[@]}" "${wanted[@]}" && { echo "setup: installed" >&2; exit 0; }
        if install "${missing[@]}"; then
            without=()
            for p in "${wanted[@]}"; do install "$p" || without+=("$p"); done
            echo "setup: installed, without ${without[*]}" >&2
            exit 0
        fi
    fi
    tail -n 5 "$log" >&2
fi
[ ${#missing[@]} -eq 0 ] && exit 0
echo "setup: cannot install them here; run as root: apt-get update && $line" >&2
exit 69
