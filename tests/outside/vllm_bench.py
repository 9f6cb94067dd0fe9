#!/usr/bin/env python3
"""What a table brings in vLLM: requests that decode at once in a pool of fixed size, requests and tokens a second, the time to the first token and of each
later one, and what compaction costs. Engines with whole prompts (plain vLLM), and with each budget, take turns in one process, over one list of requests.

    vllm_bench.py --model DIR --table T.ckvt --prompts p.jsonl      # p.jsonl: a manifest with tokens; prompts are cut to --tokens
    vllm.sh bench --model ...                                       # the same in the environment that vllm.sh makes

In each turn some requests come alone, and then all of them come at once to a pool that holds --pool whole requests. Their answers have 64 to 256 tokens, drawn
by a fixed seed. A table's column has its medians over the turns. Other programs on the machine distort them: the load is printed with each turn."""
import gc
import json
import os
import pathlib
import random
import statistics
import time
from unittest import mock

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1",
                  HF_HUB_OFFLINE="1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")

import outside  # noqa: E402  (vLLM reads the variables above)

(torch, vllm) = outside.modules("torch", "vllm")
import ckvc.vllm  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402

a = outside.arguments(smollm2=False, model=(pathlib.Path, outside.ROOT / "build/models/smollm2/f32", ""), table=(pathlib.Path, None, "a table for --model"),
                      prompts=(pathlib.Path, None, "a manifest with tokens"), budget=(str, "0.25,0.125", ""), tokens=(int, 1000, "of a prompt"),
                      shortest=(int, 64, "answer"), longest=(int, 256, "answer"), requests=(int, 24, ""), alone=(int, 3, "requests that come alone"),
                      pool=(int, 6, "whole requests that fit into the pool"), rounds=(int, 2, ""), block=(int, 32, "slots of a block"),
                      dtype=(str, "float32", ""), fit=(int, 1, "0: entries as they are"), eager=(int, 1, "0: with CUDA graphs"))


def timed(llm, asked):
    """Answers requests [(prompt, tokens of the answer)] that come at once. Returns for each the seconds when its tokens came; for each step how many requests
    decoded in it; and of the steps that computed no prompt the tokens of answers and the seconds."""
    core, scheduler, came, decoding, alone = llm.llm_engine, llm.llm_engine.engine_core.engine_core.scheduler, [[] for _ in asked], [], [0, 0.0]
    begin = now = time.monotonic()
    for i, (prompt, n) in enumerate(asked):
        core.add_request(str(i), {"prompt_token_ids": prompt}, SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False))
    while core.has_unfinished_requests():
        before = {r.request_id for r in scheduler.running if r.num_computed_tokens >= r.num_prompt_tokens}
        done, last, now = core.step(), now, time.monotonic()
        for x in done:
            at = came[int(x.request_id)]
            at += [now - begin] * (len(x.outputs[0].token_ids) - len(at))
        decoding.append(len(before))
        if before.issuperset(r.request_id for r in scheduler.running):
            alone = [alone[0] + len(before), alone[1] + now - last]
    return came, decoding, alone


def turn(budget):
    """Measures one engine; budget None: plain vLLM."""
    spent, real = [], ckvc.vllm._Compacting._compact

    def compact(*args):
        begin = time.monotonic()
        real(*args)
        spent.append(time.monotonic() - begin)

    blocks = -(-(a.tokens + a.longest) // a.block)
    options = dict(model=str(a.model), dtype=a.dtype, block_size=a.block, enforce_eager=bool(a.eager), max_model_len=blocks * a.block, max_num_seqs=64,
                   num_gpu_blocks_override=a.pool * blocks + 1, max_num_batched_tokens=2048, enable_prefix_caching=False, seed=0)
    settings = {} if budget is None else {"additional_config": {"ckvc": {"table": str(a.table), "budget": budget, "lengths": False, "fit": bool(a.fit)}}}
    with mock.patch.object(ckvc.vllm._Compacting, "_compact", compact):
        llm = LLM(**options, **settings)
        timed(llm, [(prompts[0], 4)])  # the first request pays for what is made once
        spent.clear()
        alone = [timed(llm, [(p, 16)])[0][0] for p in prompts[: a.alone]]
        compaction, busy, begin = list(spent), os.getloadavg()[0], time.monotonic()
        came, decoding, (tokens, while_decoding) = timed(llm, requests)
        seconds = time.monotonic() - begin
        llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    first = statistics.median(at[0] for at in alone)
    cost, median = statistics.median(compaction or [0.0]), statistics.median
    return {"budget": budget, "load": [busy, os.getloadavg()[0]], "ttft_alone": first, "tpot_alone": median((at[-1] - at[1]) / (len(at) - 2) for at in alone),
            "second_token": median(at[1] - at[0] for at in alone), "compaction": cost, "compaction_share": cost / first,
            "at_once_most": max(decoding), "at_once_mean": statistics.mean(n for n in decoding if n),
            "seconds": seconds, "steps": len(decoding), "requests_s": len(requests) / seconds, "tokens_s": sum(n for _, n in requests) / seconds,
            "tokens_s_decoding": tokens / while_decoding,
            "ttft": statistics.mean(at[0] for at in came), "tpot": statistics.mean((at[-1] - at[0]) / (len(at) - 1) for at in came)}


if __name__ == "__main__":
    if not a.table or not a.prompts:
        outside.skip("it needs --table and --prompts")
    rng = random.Random(3)
    prompts = [json.loads(line)["tokens"][: a.tokens] for line in a.prompts.read_text().splitlines()]
    requests = [(prompts[i % len(prompts)], rng.randrange(a.shortest, a.longest + 1)) for i in range(a.requests)]
    of = {}
    for _ in range(a.rounds):
        for budget in (None, *map(float, a.budget.split(","))):
            got = turn(budget)
            of.setdefault(budget, []).append(got)
            print(json.dumps(got), flush=True)
    names = {"at_once_most": "requests decoding at once, most", "at_once_mean": "requests decoding at once, mean", "requests_s": "requests a second",
             "tokens_s": "tokens of answers a second", "tokens_s_decoding": "tokens of answers a second, in steps that compute no prompt",
             "ttft": "seconds to the first token, all at once", "tpot": "seconds a token, all at once",
             "ttft_alone": "seconds to the first token, alone", "tpot_alone": "seconds a token, alone", "second_token": "seconds to the second token, alone",
             "compaction": "seconds that compaction takes, alone", "compaction_share": "compaction, as a share of the prefill"}
    print(f"| {len(requests)} requests, {a.tokens} tokens | whole |", *(f"{b:g} |" for b in of if b is not None))
    print("| --- |", *("--- |" for _ in of))
    for key, name in names.items():
        print(f"| {name} |", *(f"{statistics.median(x[key] for x in turns):.4g} |" for turns in of.values()))
