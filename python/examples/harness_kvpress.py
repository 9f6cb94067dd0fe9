#!/usr/bin/env python3
"""Runs kvpress's own evaluation harness with a compiled table among its presses, and with the items of `ckvc eval --items` among its data sets.

    python3 python/examples/harness_kvpress.py KVPRESS-CHECKOUT TABLE.ckvt|- ITEMS.jsonl|- \\
        [--press_name ckvc --dataset ckvc --model DIR --compression_ratio 0.75 ...]

The options are those of the checkout's evaluation/evaluate.py, which is run unchanged and needs kvpress's extra `eval`. The press `ckvc` is the table, and
the data set `ckvc` holds the items; `-` leaves one of them out. The harness's other presses and data sets have their own names; ruler and longbench come
from the Hub. Items are judged by the scorer for RULER, which knows two metrics. Items with other metrics are refused. The press does not see the question
unless --query_aware True is given."""
import json
import pathlib
import runpy
import sys
import tempfile

METRICS = {"match-all": "", "match-part": "qa_"}  # the scorer chooses its metric by the task's name

if len(sys.argv) < 4:
    sys.exit(__doc__)
folder, table, items = pathlib.Path(sys.argv[1]).resolve() / "evaluation", sys.argv[2], sys.argv[3]
sys.path[:0] = [str(folder), str(pathlib.Path(__file__).resolve().parents[1])]
import evaluate_registry  # noqa: E402  (from the checkout's folder, which was added above)

if table != "-":
    from ckvc.press import CompilerKVPress

    evaluate_registry.PRESS_REGISTRY["ckvc"] = CompilerKVPress(table)
with tempfile.TemporaryDirectory() as of_items:
    if items != "-":
        with open(items, encoding="utf-8") as source, open(f"{of_items}/test.jsonl", "w", encoding="utf-8") as out:
            for line in source:
                item = json.loads(line)
                if item["metric"] not in METRICS:
                    sys.exit(f"{items}: item {item['id']} has the metric {item['metric']}, which kvpress's scorer for RULER does not know")
                text = item["prompt"].encode()
                context, question, reply = text[: item["question_at"]], text[item["question_at"] : item["reply_at"]], text[item["reply_at"] :].removeprefix(b" ")
                out.write(json.dumps({"context": context.decode(), "question": question.decode(), "answer_prefix": reply.decode(), "answer": item["answers"],
                                      "task": METRICS[item["metric"]] + item["task"].replace("_", "-"), "max_new_tokens": item["max_new"]}) + "\n")
        evaluate_registry.DATASET_REGISTRY["ckvc"] = of_items
        evaluate_registry.SCORER_REGISTRY["ckvc"] = evaluate_registry.SCORER_REGISTRY["ruler"]
    sys.argv = [str(folder / "evaluate.py"), *sys.argv[4:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
