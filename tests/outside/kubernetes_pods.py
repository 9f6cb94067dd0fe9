#!/usr/bin/env python3
"""kubernetes_pods.py: examples/kubernetes against the API's schema (kubernetes-validate), and its commands run as the pods would, in turn: the table is that of
one machine."""
import json
import os
import pathlib
import tempfile

import outside

kubernetes_validate, yaml = outside.modules("kubernetes_validate", "yaml")
CKVC = pathlib.Path(outside.arguments(smollm2=False).ckvc).resolve()
VERSION = kubernetes_validate.latest_version()
SMALL = ["--window", 16, "--continuation", 16, "--threads", 1] # the one thing that is not the pods': their model is larger


def pod(job, work, whole=False, **env):
    """A pod of the job, its containers one after the other, its volume at `work`; whole: in one part."""
    spec = job["spec"]["template"]["spec"]
    for c in spec["initContainers"] + spec["containers"]:
        os.environ.update({e["name"]: e["value"] for e in c.get("env", [])}, **env)
        args = [a.replace("/data", str(work)) for a in c["args"] if not (whole and a in ("--shard", "auto"))]
        outside.run(CKVC, *args, *(SMALL if args[0] == "calibrate" else []))


def main():
    jobs = {}
    for name in ("compile.yaml", "fit.yaml"):
        for d in yaml.safe_load_all((outside.ROOT / "examples/kubernetes" / name).read_text()):
            kubernetes_validate.validate(d, VERSION, strict=True)
            print(f"ok {name}: {d['kind']} {d['metadata']['name']} fits the schema of Kubernetes {VERSION}")
            jobs[d["metadata"]["name"]] = d
    parts, fit = jobs["ckvc-parts"], jobs["ckvc-fit"]
    with tempfile.TemporaryDirectory() as folder:
        tables = []
        for whole in (False, True):
            work = pathlib.Path(folder) / str(whole)
            work.mkdir()
            (work / "model").symlink_to(outside.ROOT / "models/ckvc-tiny-4l")
            with open(work / "prompts.jsonl", "w") as f:
                for i in range(40):
                    ids = [0] + [256 + (i * 31 + t * t * 7 + t % 5 * 13) % 1200 for t in range(90)]
                    f.write(json.dumps({"id": f"p{i}", "source": "made", "split": "fit", "tokens": ids}) + "\n")
            for i in [0] if whole else reversed(range(parts["spec"]["completions"])):
                pod(parts, work, whole, JOB_COMPLETION_INDEX=str(i))
            if whole: # what merge would have left
                fit["spec"]["template"]["spec"]["initContainers"] = []
            pod(fit, work)
            tables.append(json.loads(outside.run(CKVC, "inspect", work / "table.ckvt", "--json"))["content_id"])
    outside.at_most(f"tables of {parts['spec']['completions']} pods that are not one machine's", tables[0] != tables[1], 0)
    outside.done()


main()
