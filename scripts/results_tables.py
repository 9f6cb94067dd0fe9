#!/usr/bin/env python3
"""Markdown tables of docs/results.md from what scripts/results.sh made: results_tables.py CKVC OUTDIR [FILE.jsonl ...]

With files: only the means of those. Every number is a mean over held-out prompts of a paired difference of losses, in nats per token, positive is
better, with its 95% t interval; "equal tokens" compares a table with identity under the one threshold that keeps as many tokens (the policy
`matched`). Python's standard library; for the rollouts behind each probe h5py, with the filter that is built beside CKVC.

    results_tables.py CKVC OUTDIR --head-rollouts RUN

prints the rollouts that a head pass of RUN made a prompt, rounded: the --variants under which epsilon-greedy, which uses it up, makes as many.
"""
import collections
import glob
import json
import math
import os
import statistics
import subprocess
import sys


def t975(df):
    """97.5% point of Student's t: the normal's, expanded (Abramowitz and Stegun 26.7.5)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2) + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)


def interval(values):
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:+.4f}"
    half = t975(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.4f} ({mean - half:+.4f} … {mean + half:+.4f})"


def load(path):
    """{(policy, table or None, budget): {prompt: row}} of a score file."""
    rows = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)
            if r["reward"] is not None:
                rows[r["policy"], r["table"], r["budget"]][r["id"]] = r
    return rows


def paired(a, b, source=None):
    """Differences of rewards over the prompts that both have. source: 'retrieval' or 'text' alone."""
    def wanted(r):
        is_retrieval = (r["source"] or "").endswith("retrieval")
        return source is None or is_retrieval == (source == "retrieval")
    return [a[i]["reward"] - b[i]["reward"] for i in a if i in b and wanted(a[i])]


def kept(rows):
    return statistics.fmean(statistics.fmean(r["n_kept"]) for r in rows.values())


def content_id(ckvc, path):
    return json.loads(subprocess.run([ckvc, "inspect", path, "--json"], check=True, capture_output=True, text=True).stdout)["content_id"]


def tables_of(ckvc, out, names):
    """{content id: name}; equal tables share a line."""
    found = {}
    for name, path in names:
        path = os.path.join(out, path)
        if os.path.exists(path):
            key = content_id(ckvc, path)
            found[key] = f"{found[key]}; {name}" if key in found else name
    return found


def distinct_sets(path):
    """(prompts, rollouts) of a shard: what its records name beside the baseline's set, each once a prompt, budget, side and layer."""
    import h5py
    with h5py.File(path, "r") as f:
        baseline = dict(zip(zip(f["baseline/prompt"][()], f["baseline/budget"][()]), f["baseline/loss"][()]))
        r = {k: f["record/" + k][()] for k in ("prompt", "budget", "side", "layer", "loss", "set_hash")}
        rows = zip(r["prompt"], r["budget"], r["side"], r["layer"], r["loss"], r["set_hash"])
        return len(f["prompt/id"]), len({(p, b, s, l, h) for p, b, s, l, loss, h in rows if loss != baseline[p, b]})


def rollouts(ckvc, run):
    """{pass: rollouts a prompt} of a run, in order. Grid search: one for each action of its grids."""
    os.environ.setdefault("HDF5_PLUGIN_PATH", os.path.dirname(os.path.abspath(ckvc)))  # before HDF5 is loaded
    counts = collections.defaultdict(list)
    for path in sorted(glob.glob(os.path.join(run, "pass-*", "shard-*.h5"))):
        counts[os.path.basename(os.path.dirname(path))].append(distinct_sets(path))
    for path in sorted(glob.glob(os.path.join(run, "grid", "pass-*.jsonl"))):
        with open(path, encoding="utf-8") as f:
            counts[os.path.basename(path)[: len("pass-00-head")]] += [(1, sum(map(len, json.loads(line)["reward"]))) for line in f]
    return {k: sum(r for _, r in counts[k]) / sum(p for p, _ in counts[k]) for k in sorted(counts)}


def rollouts_of(ckvc, out, probes):
    """{name: text} for (name, table, run, passes or None for all)."""
    text = {}
    for name, _, run, passes in probes:
        each = list(rollouts(ckvc, os.path.join(out, run)).values())[:passes]
        text[name] = f"{sum(each):.0f} in {len(each)}"
    return text


def compare(rows, names, behind=None):
    """behind: {name: rollouts a prompt and passes}, of all names or none."""
    print(f"| table |{' rollouts a prompt, passes |' if behind else ''} B | tokens kept | over identity | over identity at equal tokens | over top-k | prompts |")
    print("| --- | --- | --- | --- | --- | --- | --- |" + (" --- |" if behind else ""))
    for (policy, table, budget), mine in rows.items():
        if policy != "table" or table not in names:
            continue
        identity, matched = rows["identity", None, budget], rows.get(("matched", table, budget))
        top_k = rows.get(("top-k", None, budget))
        equal, full = (interval(paired(mine, r)) if r else "" for r in (matched, top_k))
        cost = f" {'; '.join(behind[n] for n in names[table].split('; '))} |" if behind else ""
        print(f"| {names[table]} |{cost} {budget:g} | {kept(mine):.1f} | {interval(paired(mine, identity))} | {equal} | {full} | {len(mine)} |")
    print()


def references(rows, names):
    print("| policy | B | tokens kept | reward | table − policy | on text | on retrieval |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    table = next(((p, t, b), r) for (p, t, b), r in rows.items() if p == "table")
    for (policy, of, budget), mine in rows.items():
        base = rows["table", table[0][1], budget]
        reward = statistics.fmean(r["reward"] for r in mine.values())
        parts = [paired(base, mine, s) for s in (None, "text", "retrieval")]
        print(f"| {policy} | {budget:g} | {kept(mine):.1f} | {reward:+.4f} | " + " | ".join(interval(p) if p and policy != "table" else "" for p in parts) + " |")
    print()


def main():
    ckvc, out, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    corpora = ("technical", "narrative")
    if files[:1] == ["--head-rollouts"]:
        print(round(statistics.fmean(n for name, n in rollouts(ckvc, files[1]).items() if name.endswith("head"))))
        return
    if files:
        for path in files:
            print(f"### {os.path.basename(path)}\n")
            rows = load(path)
            ids = sorted({t for _, t, _ in rows if t})
            compare(rows, {t: t[:8] for t in ids})
        return
    loops = ("gate-only", "no-utility", "mean-gate", "mean-pool", "grid-search", "epsilon-greedy", "alpha-0")
    probes = [("joint", "joint/table", "joint", None), ("head-only", "joint/tables/pass-01", "joint", 1),
              ("independent", "joint/tables/pass-02", "joint", 2), *((p, f"{p}/table", p, None) for p in loops),
              *((f"no-threshold, {w} weights{n}", f"full-{w}/{t}", f"full-{w}", k) for w in ("paper", "wide")
                for n, t, k in ((", one pass", "tables/pass-01", 1), ("", "table", None)))]
    probes = [(f"{t} {name}", f"{t}-{table}.ckvt", f"{t}-{run}", n) for t in corpora for name, table, run, n in probes]
    behind = rollouts_of(ckvc, out, probes)
    for c in corpora:
        print(f"### Probes of the loop, {c} prompts\n")
        compare(load(f"{out}/probes-{c}.jsonl"), tables_of(ckvc, out, [p[:2] for p in probes]), behind)
    for c in corpora:
        print(f"### References at the table's tokens, and controls, {c} prompts\n")
        references(load(f"{out}/controls-{c}.jsonl"), {})
    names = [(f"{t} {b} {v}", f"{t}-{b}-{v}.ckvt") for t in corpora for b in ("uniform", "balanced")
             for v in ("a0", "a0.1", "a0.25", "a0.5", "a0.75", "a1", "a2", "a5", "raw", "adamw", "shrunk")]
    for c in corpora:
        print(f"### Settings of the fit, {c} prompts\n")
        compare(load(f"{out}/sweeps-{c}.jsonl"), tables_of(ckvc, out, names))
    print("### Which score: identity's reward under each, then its table\n")
    for c in corpora:
        for s in ("paper", "visible", "keep-window"):
            if not os.path.exists(f"{out}/kind-{s}-{c}.jsonl"):
                continue
            rows = load(f"{out}/kind-{s}-{c}.jsonl")
            base = load(f"{out}/kind-paper-{c}.jsonl")
            for (policy, _, budget), mine in rows.items():
                if policy in ("identity", "top-k"):
                    against = base[policy, None, budget]
                    print(f"- {c}, {s}, B = {budget:g}: {policy} over the paper's {interval(paired(mine, against))}; on text {interval(paired(mine, against, 'text'))};"
                          f" on retrieval {interval(paired(mine, against, 'retrieval'))}; kept {kept(mine):.1f}")
                elif policy == "table":
                    print(f"- {c}, {s}, B = {budget:g}: table over its identity {interval(paired(mine, rows['identity', None, budget]))}; at equal tokens"
                          f" {interval(paired(mine, next(r for k, r in rows.items() if k[0] == 'matched' and k[2] == budget)))}; over 4 sinks + recent"
                          f" {interval(paired(mine, rows['sink-recent', None, budget]))}")
    print("\n### Depth transfer\n")
    heads = ("index", "rank", "signature")
    for c in corpora:
        for size in ("small", "big"):
            own = f"{c}-small/tables/pass-02.ckvt" if size == "small" else f"{c}-joint/tables/pass-02.ckvt"
            names = tables_of(ckvc, out, [("compiled for the target", own)] + [(f"transferred, {h}", f"{c}-to-{size}-{h}.ckvt") for h in heads])
            rows = load(f"{out}/transfer-{size}-{c}.jsonl")
            print(f"{c} prompts, to the {size} model:\n")
            compare(rows, names)
            by_name = {names[t]: r for (p, t, _), r in rows.items() if p == "table"}
            for name, mine in by_name.items():
                if name.startswith("transferred"):
                    print(f"- {name} − compiled:", interval(paired(mine, by_name["compiled for the target"])))
            print()
        path = f"{out}/transfer-smollm2-{c}.jsonl"
        if os.path.exists(path):
            found = [f for f in sorted(os.listdir(out)) if f.startswith("smollm2-") and f.endswith(f"-{c}.ckvt")]
            print(f"{c} prompts, from SmolLM2 to the big model:\n")
            compare(load(path), tables_of(ckvc, out, [(f[len("smollm2-"):-len(".ckvt")], f) for f in found]))


if __name__ == "__main__":
    main()
