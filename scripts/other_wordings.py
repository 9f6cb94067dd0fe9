#!/usr/bin/env python3
"""other_wordings.py MANIFEST.jsonl [N]: retrieval prompts in wordings that `ckvc manifest build` does not have, to stdout, from the first N (12)
held-out prompts of text. Eight facts of one wording are scattered over the first nine tenths of a prompt's text, which is cut to keep its length; the
prompt ends with the question for one of them, the continuation is its answer and the other questions with theirs. Which facts, where and in which
order comes from the prompt's id alone."""
import json
import random
import sys

WORDINGS = [  # a fact, its question, its answer
    ("Remember that the locker of {a} opens with the code {n}.",
     "Which code opens the locker of {a}? The locker of {a} opens with the code", " {n}."),
    ("By the way, {a} has moved to {c} and works there as a {j}.", "Where does {a} live now, and as what? {a} has moved to",
     " {c} and works there as a {j}."),
    ("(Note for travellers: flight {f} leaves from gate {g} at {h}.)", "From where and when does flight {f} leave? It leaves from gate",
     " {g} at {h}."),
    ("{a} still owes {b} {n} crowns.", "How much does {a} owe, and whom? {a} still owes", " {b} {n} crowns."),
]
NAMES = "Alma Boris Celia Dmitri Edda Farid Greta Hugo Ingrid Jonas Katya Lorenz Mirela Nils Olga Pavel Quentin Rosa Stefan Tilda".split()
CITIES = "Lisbon Oslo Trieste Bergen Krakow Dublin Ghent Malaga Turin Bremen Lyon Porto".split()
JOBS = "baker surgeon welder notary teacher plumber pilot tailor dentist florist lawyer carpenter".split()
N_FACTS = 8


def facts(rng):
    names, cities, jobs, others = (rng.sample(x, N_FACTS) for x in (NAMES, CITIES, JOBS, NAMES))
    return [{"a": a, "c": c, "j": j, "b": b if b != a else "Ursula", "n": rng.randrange(1000, 99999), "g": f"{rng.choice('ABCDEF')}{rng.randrange(10, 99)}",
             "f": f"{rng.choice('KLMNPQ')}{rng.choice('RSTVX')}{rng.randrange(100, 999)}", "h": f"{rng.randrange(24)}:{rng.randrange(10, 60)}"}
            for a, c, j, b in zip(names, cities, jobs, others)]


def prompt(record, number):
    rng = random.Random(record["id"])
    fact, question, answer = WORDINGS[number % len(WORDINGS)]
    planted, text = facts(rng), record["text"]
    asked = rng.sample(planted, N_FACTS)
    ask = [f"\n\nQuestion: {question.format(**x)}" for x in asked]
    text = text[:text.rindex(" ", 0, len(text) - sum(len(fact.format(**x)) + 2 for x in planted) - len(ask[0]))]
    out, done = [], 0
    for place, x in zip(sorted(0.9 * rng.random() for _ in planted), planted):
        at = max(done, text.find(" ", int(place * len(text))) + 1)
        out += [text[done:at], fact.format(**x), " "]
        done = at
    answers = [answer.format(**x) for x in asked]
    return {"id": f"other-{record['id']}", "source": "other-wordings", "split": "heldout", "text": "".join(out) + text[done:] + ask[0],
            "continuation": "".join(a + q for a, q in zip(answers, ask[1:] + [""]))}


records = [r for r in map(json.loads, open(sys.argv[1])) if r["split"] == "heldout" and not r["source"].endswith("-retrieval")]
for i, r in enumerate(records[:int(sys.argv[2]) if len(sys.argv) > 2 else 12]):
    print(json.dumps(prompt(r, i)))
