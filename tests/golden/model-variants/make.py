"""Expected losses of models whose config.json differs from a golden model's by a patch, by Hugging Face transformers.

    python make.py > expected.json      (torch and transformers; run in this folder)

The weights are those of ../models; each case changes keys of config.json, loads the directory in float32 (attention "eager") and takes
the losses of the base model's longest sequence. Numbers have 7 significant digits.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers

CASES = [
    ("linear", "llama-mha", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    ("linear, transformers 5", "llama-newstyle", {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}}),
    ("dynamic, within", "llama3-gqa", {"max_position_embeddings": 88, "rope_scaling": {"rope_type": "dynamic", "factor": 3.0}}),
    ("dynamic, beyond", "llama3-gqa", {"max_position_embeddings": 40, "rope_scaling": {"type": "dynamic", "factor": 3.0}}),
    ("mistral, window left out", "mistral-swa", {"sliding_window": "-"}),
    ("qwen2, windows from layer 1", "qwen2", {"use_sliding_window": True, "sliding_window": 20}),
    ("qwen2, windows by list", "qwen2", {"use_sliding_window": True, "sliding_window": 16, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention", "full_attention"]}),
    ("qwen2, head_dim given", "qwen2-untied", {"rope_scaling": {"type": "linear", "factor": 1.5}, "head_dim": 8}),
]


def number(x):
    return float("%.7g" % x)


out = []
for name, base, patch in CASES:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join("..", "models", base), folder, dirs_exist_ok=True)
        path = os.path.join(folder, "config.json")
        config = {k: v for k, v in {**json.load(open(path)), **patch}.items() if v != "-"}
        json.dump(config, open(path, "w"))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        sequences = json.load(open(os.path.join(folder, "expected.json")))["sequences"]
        ids = max((s["ids"] for s in sequences), key=len)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()
        nll = torch.logsumexp(logits[:-1], 1) - logits[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        out.append({"name": name, "base": base, "patch": patch, "ids": ids, "max_logit": number(logits.abs().max()),
                    "nll": [number(x) for x in nll]})
json.dump({"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "cases": out}, sys.stdout)
print()
