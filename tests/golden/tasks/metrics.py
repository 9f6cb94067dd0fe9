#!/usr/bin/env python3
"""metrics.py LONGBENCH/LongBench/metrics.py RULER/scripts/eval/synthetic/constants.py > metrics.json: scores by the benchmarks' own functions

LongBench's file imports rouge, fuzzywuzzy and jieba."""
import importlib.util
import json
import random
import sys
import warnings

warnings.simplefilter("ignore")


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


longbench, ruler = load(sys.argv[1], "metrics"), load(sys.argv[2], "constants")
best = lambda f: lambda answer, expected, classes: max(f(answer, e, all_classes=classes) for e in expected)
METRICS = {"match-all": lambda a, e, c: sum(r.lower() in a.lower() for r in e) / len(e),  # constants.py's, before it rounds to 0.01 %
           "match-part": lambda a, e, c: ruler.string_match_part([a], [e]) / 100,
           "classification": best(longbench.classification_score)}
rng = random.Random(17)
LABELS = ["Person", "Personal name", "City", "City name", "Other location", "Location", "Date", "Number", "Number of something", "name"]
cases = []


def add(metric, answer, expected, classes=()):
    if metric == "match-all":
        assert abs(METRICS[metric](answer, expected, classes) - ruler.string_match_all([answer], [expected]) / 100) < 1e-4
    cases.append({"metric": metric, "answer": answer, "expected": list(expected), "classes": list(classes), "score": METRICS[metric](answer, list(expected), list(classes))})


for metric in ("match-all", "match-part"):
    for answer, expected in (("It is 1234567, or ABC.", ["1234567", "abc"]), ("", ["x"]), ("nothing", ["x", "y"]), ("Ünter", ["ÜNTER", "no", "T"]), ("a b", ["a  b"])):
        add(metric, answer, expected)
for _ in range(60):
    classes = rng.sample(LABELS, rng.randint(2, len(LABELS)))
    add("classification", rng.choice(["", "Type: "]) + " ".join(rng.sample(LABELS, rng.randint(0, 4))), [rng.choice(classes)], classes)
print("[" + ",\n".join(json.dumps(c) for c in cases) + "]")
