"""What the comparisons share: where things are, running ckvc, and leaving politely when something is missing."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def skip(why):
    print(f"skipped: {pathlib.Path(sys.argv[0]).name}: {why}")
    sys.exit(0)


def modules(*names):
    """The modules, or a skip that names the missing one."""
    out = []
    for n in names:
        try:
            out.append(__import__(n))
        except ImportError:
            skip(f"no Python module {n}: see tests/outside/README.md")
    return out


def arguments(smollm2=True, **more):
    p = argparse.ArgumentParser()
    p.add_argument("--ckvc", default=os.environ.get("CKVC", ROOT / "build/release/ckvc"))
    p.add_argument("--models", type=pathlib.Path, default=ROOT / "build/models/smollm2", help="what `make model-smollm2` made")
    p.add_argument("--text", type=pathlib.Path, help="a book; default: one of $CKVC_SHARED/data/text/books")
    for name, (kind, default, text) in more.items():
        p.add_argument("--" + name, type=kind, default=default, help=text)
    a = p.parse_args()
    if not smollm2:
        return a
    if a.text is None:
        a.text = pathlib.Path(os.environ.get("CKVC_SHARED", ROOT / "../shared")) / "data/text/books/pride-and-prejudice-1342.txt"
    if not a.text.is_file():
        skip(f"{a.text} is not there (set CKVC_SHARED, or give --text)")
    a.gguf = a.models / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not a.gguf.is_file():
        skip(f"{a.gguf} is not there: make model-smollm2")
    return a


def run(ckvc, *args, stdin=None):
    p = subprocess.run([str(ckvc), *map(str, args)], input=stdin, capture_output=True)
    if p.returncode:
        sys.exit(f"ckvc {' '.join(map(str, args))}: exit {p.returncode}: {p.stderr.decode()}")
    return p.stdout


def example(name, *args):
    """1 where a program of python/examples fails."""
    p = subprocess.run([sys.executable, str(ROOT / "python/examples" / name), *map(str, args)], env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                       capture_output=True, text=True)
    print(p.stdout.strip() if p.returncode == 0 else p.stderr)
    return int(p.returncode != 0)


def manifest(entries):
    f = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    for e in entries:
        f.write(json.dumps(e) + "\n")
    f.flush()
    return f


class Checks:
    """Prints each comparison and exits 1 at the end when one failed."""

    def __init__(self):
        self.failed = 0

    def at_most(self, what, got, limit):
        ok = got <= limit
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {what}: {got:.3g} (at most {limit:.3g})")

    def done(self):
        sys.exit(1 if self.failed else 0)
