#!/usr/bin/env python3
"""Checks what nvcc has made of lib/backend/cuda: registers that spill to memory, and tensor-core instructions.

usage: cuda_code.py LOG FOLDER   (LOG is what `-Xptxas -v` said, and FOLDER is where the objects are)

The check fails where a kernel spills more than SPILLS bytes (stores), or where a kernel of attention in bf16 has no HMMA on some device.
To see instructions it needs cuobjdump and nvdisasm (CUDA Toolkit, or PyPI's nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm) on the path;
without them it says so and looks only at spills.
"""
import collections
import glob
import re
import shutil
import subprocess
import sys

SPILLS = 128  # bytes a thread; the widest attention kernels hold 255 registers
TENSOR = re.compile(r"^_Z\d+(attend|columns)_kernelI")  # those whose names do not end in _f32

log, folder = sys.argv[1:]
bad, spilling, kernels, name = [], [], set(), None
with open(log, encoding="utf-8") as text:
    for line in text:
        entry = re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line)
        name = (entry[1], entry[2]) if entry else name
        spill = re.search(r"(\d+) bytes spill stores", line)
        if spill and name:
            kernels.add(name)
            if int(spill[1]):
                spilling.append((int(spill[1]), *name))
                bad += [f"{name[0]} ({name[1]}) spills {spill[1]} bytes"] if int(spill[1]) > SPILLS else []
devices = sorted({d for _, d in kernels})
most = max(spilling, default=(0, "", ""))
print(f"cuda: {len(kernels)} kernels on {', '.join(devices)}; {len(spilling)} spill, {most[0]} bytes at most {most[1]} {most[2]}")
if not kernels:
    bad.append("no kernel was compiled")

if shutil.which("cuobjdump") and shutil.which("nvdisasm"):
    found = collections.Counter()
    for obj in sorted(glob.glob(folder + "/*.o")):
        listing = subprocess.run(["cuobjdump", "-sass", obj], capture_output=True, text=True).stdout
        device = function = None
        for line in listing.splitlines():
            arch, entry = re.search(r"arch = (\S+)", line), re.search(r"Function : (\S+)", line)
            device, function = arch[1] if arch else device, entry[1] if entry else function
            if function and TENSOR.match(function):
                found[function, device] += "HMMA" in line
    bad += [f"{f} ({d}) has no tensor-core instruction" for (f, d), n in found.items() if n == 0]
    bad += [] if found else ["no kernel of attention in bf16 was found"]
    if found:
        print(f"cuda: {len(found)} kernels of attention in bf16 with {min(found.values())} to {max(found.values())} tensor-core instructions")
else:
    print("cuda: skipped: cuobjdump or nvdisasm is not there, instructions not looked at")
print("\n".join(bad), end="\n" if bad else "")
sys.exit(bool(bad))
