#!/usr/bin/env python3
"""metrics.py LONGBENCH/LongBench/metrics.py RULER/scripts/eval/synthetic/constants.py > metrics.json: scores by the benchmarks' own functions

Needs rouge 1.0.1, fuzzywuzzy 0.18.0 (and no python-Levenshtein, as LongBench's requirements.txt has it), jieba."""
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
           "f1": best(longbench.qa_f1_score), "rouge-l": best(longbench.rouge_score), "code-similarity": best(longbench.code_sim_score),
           "classification": best(longbench.classification_score), "retrieval": best(longbench.retrieval_score), "count": best(longbench.count_score)}
rng = random.Random(17)
WORDS = "the a an theme cat sat on mat lid the. The A, an; Mat! cat-flap x_y it's 3 3.5 30 naïve ÉTÉ Straße 東京 – — “a” and... . .. end".split()
LABELS = ["Person", "Personal name", "City", "City name", "Other location", "Location", "Date", "Number", "Number of something", "name"]
cases = []


def add(metric, answer, expected, classes=()):
    if metric == "match-all":
        assert abs(METRICS[metric](answer, expected, classes) - ruler.string_match_all([answer], [expected]) / 100) < 1e-4
    cases.append({"metric": metric, "answer": answer, "expected": list(expected), "classes": list(classes), "score": METRICS[metric](answer, list(expected), list(classes))})


def words(least, most, gap=(" ", " ", " ", "\n", "  ", "\t", "\u00a0")):
    return "".join(rng.choice(WORDS) + rng.choice(gap) for _ in range(rng.randint(least, most)))


for metric in ("match-all", "match-part"):
    for answer, expected in (("It is 1234567, or ABC.", ["1234567", "abc"]), ("", ["x"]), ("nothing", ["x", "y"]), ("Ünter", ["ÜNTER", "no", "T"]), ("a b", ["a  b"])):
        add(metric, answer, expected)
for metric in ("f1", "rouge-l"):
    for answer, expected in (("", ["a b"]), ("the", ["the"]), ("The cat.", ["cat"]), ("...", ["a."]), (" . ", ["a b. c"]), ("a b c d", ["a c b d", "d"]), ("\x1cx\x85y", ["x y"]),
                             ("Same text. Same text.", ["Same text"]), ("theory an–end", ["theory end"]), ("one two three. four five", ["one three. two five four. four"])):
        add(metric, answer, expected)
    for _ in range(60):
        add(metric, words(0, 25), [words(1, 25) for _ in range(rng.randint(1, 3))])
LINES = ["    return self.value", "for i in range(n):", "x = {a: b for a, b in zip(p, q)}", "# note", "// c", "```python", "", "int main(void) { return 0; }", "    return other.value + 1"]
for answer, expected in (("", [""]), ("", ["x"]), ("\n\nx", ["x"]), ("#\n//\n`", ["y"]), ("naïve = 1", ["naive = 1"])):
    add("code-similarity", answer, expected)
for _ in range(50):
    long = rng.random() < 0.4  # difflib has another rule from 200 characters on
    gold = " ".join(rng.choice(LINES) for _ in range(rng.randint(8, 14))) if long else rng.choice(LINES)
    said = list(gold)
    for _ in range(rng.randint(0, 12)):
        at = rng.randrange(len(said) + 1)
        said[at:at + rng.randint(0, 3)] = rng.choice(["", "x", "value", "e "])
    add("code-similarity", rng.choice(["", "\n", "# so\n", "```\n"]) + "".join(said).replace("#", "").replace("//", "") + rng.choice(["", "\nrest"]), [gold, rng.choice(LINES)][:rng.randint(1, 2)])
for _ in range(60):
    classes = rng.sample(LABELS, rng.randint(2, len(LABELS)))
    add("classification", rng.choice(["", "Type: "]) + " ".join(rng.sample(LABELS, rng.randint(0, 4))), [rng.choice(classes)], classes)
for answer, expected in (("Paragraph 7", ["Paragraph 7"]), ("7 or 17 or 7", ["Paragraph 7"]), ("", ["Paragraph 7"]), ("07", ["Paragraph 7"]), ("٣ 3", ["in Paragraph 3"]), ("no. 12a12", ["Paragraph x Paragraph 12"])):
    add("retrieval", answer, expected)
for answer, expected in (("5", ["5"]), ("There are 5, 6 of them: 5.", ["5"]), ("none", ["5"]), ("15", ["5"]), ("5.5", ["5"])):
    add("count", answer, expected)
print("[" + ",\n".join(json.dumps(c) for c in cases) + "]")
