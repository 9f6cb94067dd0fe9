"""What the comparisons share: the columns of `ckvc-bench`, its rows, and rows of our own in the same form."""
import argparse
import csv
import os
import statistics
import subprocess
import sys

COLUMNS = ["program", "stage", "shape", "work", "unit", "runs", "seconds_median", "seconds_min", "rate", "gflop", "share", "note"]


def arguments(doc, **more):
    """A comparison's: of every one, and more as name=(type, default)."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--ckvc-model", help="the same weights as ckvc takes them, if not --model (a GGUF file)")
    parser.add_argument("--ckvc", default="build/release/ckvc")
    for name, (kind, default) in {"window": (int, 64), "threads": (int, os.cpu_count()), **more}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=kind, default=default, required=default is None)
    args = parser.parse_args()
    args.ckvc_model = args.ckvc_model or args.model
    return args


def other_side(args, attention):
    """torch, transformers, and the model in float32 on so many threads."""
    warn_if_busy()
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation=attention).eval()
    return torch, transformers, model, f"torch {torch.__version__}; transformers {transformers.__version__}"


def warn_if_busy():
    """torch's threads wait for each other by spinning: beside other work it loses far more than its share, and the comparison its meaning."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"load average {load:.1f}: other work is running, these numbers are worth nothing", file=sys.stderr)


def ckvc_rows(command):
    """Rows of a `ckvc-bench` command, and the kernel that its comment line names."""
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    kernel = lines[0].removeprefix("# kernel ").rsplit(",", 1)[0]
    return [dict(row, program="ckvc") for row in csv.DictReader(lines[1:])], kernel


def row(program, stage, shape, work, unit, seconds, note="", gflop="", scale=1.0, fixed=0.0):
    """seconds: of each run; scale and fixed: what stands for the whole is seconds / scale + fixed."""
    whole = [s / scale + fixed for s in seconds]
    median = statistics.median_high(whole)  # as ckvc-bench has it
    numbers = {"seconds_median": median, "seconds_min": min(whole), "rate": work / median}
    return {"program": program, "stage": stage, "shape": shape, "work": work, "unit": unit, "runs": len(seconds), "gflop": gflop,
            "share": "", "note": note, **{k: f"{v:.6g}" for k, v in numbers.items()}}


def write(out, rows, columns=COLUMNS):
    writer = csv.DictWriter(out, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
