#!/usr/bin/env python3
"""SmolLM2-135M: what `ckvc generate` writes from full and compressed caches, token for token, and its losses, against greedy decoding by
transformers with caches pruned by hand to the sets of `ckvc score --sets` (tests/golden/decode/make.py), in float32; and the speed of both.

Where two tokens' logits lie closer together than 1e-3, rounding decides: from there on a text is no longer compared, and that is said.
"""
import json
import sys
import time

import outside

torch, transformers = outside.modules("torch", "transformers")
sys.path.insert(0, str(outside.ROOT / "tests/golden/decode"))
from make import Pruned  # noqa: E402

a = outside.arguments(tokens=(int, 500, "prompt tokens"), new=(int, 40, "tokens of a text"), prompts=(int, 2, "pieces of the book"),
                      threads=(int, 2, "of ckvc and torch"))
torch.set_num_threads(a.threads)
directory = outside.directory(a, "f32")
prompts = outside.pieces(a, transformers.AutoTokenizer.from_pretrained(directory), a.prompts)
model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
stops = model.generation_config.eos_token_id
stops = [stops] if isinstance(stops, int) else stops or []

both = ["--model", directory, "--budget", 0.25, "--window", 32, "-q", "-t", a.threads]
compared = unlike = 0
worst = 0.0
speed = {"ckvc": [], "transformers": []}
with outside.manifest([{"id": f"p{i}", "tokens": p} for i, p in enumerate(prompts)]) as m:
    for policy in (None, "streamingllm", "pyramidkv", "adakv"):
        sets = [None] * len(prompts)
        chosen = ["--policy", policy] if policy else []
        if policy:
            lines = outside.run(a.ckvc, "score", *both, *chosen, "--manifest", m.name, "--continuation", 0, "--sets").splitlines()
            # one set a layer, or one a head
            sets = [[x if isinstance(x[0], list) else [x] for x in json.loads(line)["sets"]] for line in lines]
        made = outside.run(a.ckvc, "generate", *both, *chosen, "--manifest", m.name, "--max-new", a.new, "--batch", 1, "--json").splitlines()
        for prompt, kept, line in zip(prompts, sets, made):
            got = json.loads(line)
            theirs = Pruned(model, prompt, kept)
            start = time.perf_counter()
            tokens, nll, leads = theirs.greedy(a.new, stops)
            if policy is None:
                speed["transformers"].append((len(tokens) - 1) / (time.perf_counter() - start))
                speed["ckvc"].append(got["tokens_per_s"])
            n = next((i for i, lead in enumerate(leads) if lead < 1e-3), len(tokens))
            if n < len(tokens):
                print(f"{policy or 'full'}: {len(tokens) - n} tokens behind a lead of {leads[n]:.1e} are not compared")
            compared += n
            unlike += sum(x != y for x, y in zip(tokens[:n], got["tokens"])) + (n == len(tokens) != len(got["tokens"]))
            worst = max([worst] + [abs(x - y) for x, y in zip(nll[:n], got["nll"])])

print(f"{compared} tokens compared; full cache, {a.threads} threads: ckvc {max(speed['ckvc']):.1f}, transformers {max(speed['transformers']):.1f} tokens/s")
outside.at_most("tokens that differ", unlike, 0)
outside.at_most("largest difference of a token's loss", worst, 1e-3)
outside.done()
