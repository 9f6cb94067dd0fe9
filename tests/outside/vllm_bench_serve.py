#!/usr/bin/env python3
"""vLLM's server under its own client, `vllm bench serve`: plain, and with a table at each budget, one server after another, with a pool of fixed size.

    vllm_bench_serve.py --model DIR --table T.ckvt [--budget 0.25,0.125] [--tokens 1000] [--answer 256] [--requests 24] [--pool 6] [--lengths 1] [--shared 700]
    vllm.sh bench-serve --model ...                       # the same in the environment that vllm.sh makes

All requests come at once, with prompts of random tokens, and the pool holds --pool whole requests, so that memory is what binds. With --shared N the first N
tokens of all prompts are the same, and prefix caching is on. Each line of the table that
is printed is a number of the client's own report. Other programs on the machine distort times: the load is printed with each server."""
import collections
import json
import os
import pathlib
import subprocess
import sys

import outside

os.environ.update(VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_NO_USAGE_STATS="1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
outside.modules("torch", "vllm")
import ckvc.vllm_plugin as plugin  # noqa: E402

a = outside.arguments(smollm2=False, model=(pathlib.Path, outside.ROOT / "build/models/smollm2/f32", ""), table=(pathlib.Path, None, "a table for --model"),
                      budget=(str, "0.25,0.125", ""), tokens=(int, 1000, "of a prompt"), answer=(int, 256, "tokens"), requests=(int, 24, ""),
                      pool=(int, 6, "whole requests that fit into the pool"), block=(int, 32, "slots of a block"), dtype=(str, "float32", ""),
                      shared=(int, 0, "first tokens that all prompts share; above 0 with prefix caching"),
                      lengths=(int, 0, "1: the table's lengths of layers; 0: one length for all"),
                      eager=(int, 1, "0: with CUDA graphs"), wait=(int, 900, "seconds for a server to start"))
# by its module, as the server (outside.vllm_server)
CLIENT = "import argparse, vllm.benchmarks.serve as s; p = argparse.ArgumentParser(); s.add_cli_args(p); s.main(p.parse_args())"
SHOWN = {"request_throughput": "requests a second", "output_throughput": "tokens of answers a second",
         "mean_ttft_ms": "ms to the first token, mean", "mean_tpot_ms": "ms a token, mean", "duration": "seconds in all"}


def layers_of_block(settings):
    """How many layers the model has, and how many of them a block holds: vLLM makes groups as large as the smallest class of layers, or as the largest if that
    is less than half as large again."""
    n = plugin.read_table(settings.table).n_layers
    classes = collections.Counter(plugin.length_class(settings, row) for row in range(n)).values()
    return n, max(classes) if max(classes) < 1.5 * min(classes) else min(classes)


def served(budget):
    """The client's report of one server; budget None: plain vLLM."""
    blocks, layers, of_block = -(-(a.tokens + a.answer) // a.block), 1, 1
    settings = {"table": str(a.table), "budget": budget, "lengths": bool(a.lengths)}
    if budget is not None and a.lengths:  # a block holds the layers of one group, so that there are more blocks of as much memory
        layers, of_block = layers_of_block(plugin.settings_of({"ckvc": settings}))
    options = ["--model", a.model, "--dtype", a.dtype, "--block-size", a.block, "--max-model-len", blocks * a.block, "--max-num-seqs", 64,
               "--num-gpu-blocks-override", a.pool * blocks * layers // of_block + 1, "--max-num-batched-tokens", 2048,
               f"--{'' if a.shared else 'no-'}enable-prefix-caching", *["--enforce-eager"] * a.eager]
    if budget is not None:
        options += ["--additional-config", json.dumps({"ckvc": settings})]
    with outside.vllm_server(options, a.wait) as (address, log):
        if address is None:
            sys.exit(1)
        load, out = os.getloadavg()[0], outside.scratch()
        asked = ["--base-url", address, "--model", a.model, "--dataset-name", "random", "--random-prefix-len", a.shared,
                 "--random-input-len", a.tokens - a.shared, "--random-output-len", a.answer, "--num-prompts", a.requests,
                 "--ignore-eos", "--num-warmups", 1, "--disable-tqdm", "--save-result", "--result-dir", out, "--result-filename", "result.json"]
        done = subprocess.run([sys.executable, "-c", CLIENT, *map(str, asked)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(done.stdout[-3000:])
        result = json.loads((out / "result.json").read_text())
        print(json.dumps({"budget": budget, "load": load, "completed": result["completed"], **{k: result[k] for k in SHOWN}}), flush=True)
        outside.at_most(f"requests that failed, {budget or 'whole'}", a.requests - result["completed"], 0)
        outside.at_most(f"the log does not say whether a table is served, {budget or 'whole'}",
                        (budget is not None) != ("ckvc keeps of each prompt what" in log.read_text()), 0)
        return result


if not a.table:
    outside.skip("it needs --table")
of = {budget: served(budget) for budget in (None, *map(float, a.budget.split(",")))}
print(f"| {a.requests} requests, {a.tokens} tokens, answers of {a.answer} | whole |", *(f"{b:g} |" for b in of if b is not None))
print("| --- |", *("--- |" for _ in of))
for key, name in SHOWN.items():
    print(f"| {name} |", *(f"{result[key]:.4g} |" for result in of.values()))
outside.done()
