#!/usr/bin/env python3
"""campaign.py [--every K] [--most N] [--only NAME,...] [--kinds KIND,...] [--kills N [--seed S]] CKVC: calls below a command that fail, one at a time.

Every kind of call (fault.c) of every command below is counted, then made to fail at its first, K-th, 2K-th, ... up to the N-th call, in each way. The command has to
end with one line and an exit code of docs/cli.md, or to do its work all the same; the same command again (--resume or --force) has to end with the bytes of a run
that nothing befell, and leave nothing else behind. Two ways are `kill` (SIGKILL before the call) and `power` (that, and the disk holds what was synced alone).

--kills N: no calls, but SIGKILL at random moments, N in all over the commands. What is killed is run again, and that killed, too, until it gets through.

Prints a line for each command and kind, and one for each failure; exit 1 with one."""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = pathlib.Path(os.environ.get("MODEL", "models/ckvc-tiny-4l")).absolute()
SMALL = ["--model", MODEL, "--window", "16", "--continuation", "16", "--threads", "1", "-q"]
LOG = ["--budget", "16,0.5", "--bins", "2,2", "--min-cell", "1", "--variants", "8", "--shard-prompts", "2"]
# name: command line, and what it is run with the second time. Paths are those of the work folder.
COMMANDS = {
    "scan": (["scan", *SMALL, "--manifest", "p.jsonl", "--shard-prompts", "2", "--out", "made"], ["--resume"]),
    "calibrate": (["calibrate", "--side", "head", *SMALL, *LOG, "--manifest", "p.jsonl", "--out", "made"], ["--resume"]),
    "demand": (["calibrate", "--side", "demand", *SMALL, "--budget", "0.25", "--shard-prompts", "2", "--manifest", "p.jsonl", "--out", "made"], ["--resume"]),
    "compile": (["compile", *SMALL, "--budget", "0.25", "--manifest", "p.jsonl", "--out", "made"], ["--resume"]),
    "score": (["score", *SMALL, "--manifest", "p.jsonl", "--table", "t.ckvt", "--policy", "adakv,matched", "--out", "made.jsonl"], ["--resume"]),
    "eval": (["eval", "--model", MODEL, "--window", "16", "--threads", "1", "-q", "--tasks", "niah,copy", "--lengths", "120", "--count", "2", "--table", "t.ckvt", "--policy",
              "snapkv", "--budget", "0.25", "--out", "made.jsonl"], ["--resume"]),
    "part": (["calibrate", "--side", "demand", *SMALL, "--budget", "0.25", "--shard-prompts", "1", "--manifest", "p.jsonl", "--out", "made", "--shard", "1/2"], ["--resume"]),
    "merge": (["merge", "made", "-q"], []),
    "fit": (["fit", "run", "-q", "--out", "made.ckvt"], ["--force"]),
    "report": (["report", "t.ckvt", "run", "--scores", "s.jsonl", "-q", "--out", "made"], ["--force"]),
    "manifest": (["manifest", "build", "text.txt", "--min-length", "200", "--max-length", "300", "--continuation", "40", "--out", "made.jsonl"], ["--force"]),
    "features": (["calibrate", "--side", "score", *SMALL, "--shard-prompts", "2", "--manifest", "p.jsonl", "--out", "made"], ["--resume"]),
    "gather": (["merge", "made", "in/0", "in/1", "-q"], []),
    "join": (["merge", "made.jsonl", "-q"], []),
    "transfer": (["transfer", "t.ckvt", "--to-shape", "6,3", "--out", "made.ckvt"], ["--force"]),
    "check": (["manifest", "check", "p.jsonl", "--model", MODEL, "--against", "in/e.jsonl", "--out", "made.json", "--clean", "made.jsonl"], ["--force"]),
    "vectors": (["score", *SMALL, "--manifest", "p.jsonl", "--table", "t.ckvt", "--vectors", "made.h5", "--limit", "2"], ["--force"]),
}
KINDS = {"open": ["28", "5"], "write": ["28", "5", "4", "short", "kill", "power"], "close": ["28", "5"], "fsync": ["5", "kill", "power"],
         "rename": ["28", "kill", "power"], "unlink": ["5", "kill", "power"], "mkdir": ["28"], "mmap": ["12"], "malloc": ["12"]}
PARTS = {"merge": "part", "gather": "part", "join": "score"} # what is merged: parts of which command
NAMED = {65, 66, 69, 71, 73, 74, 75}


def run(ckvc, args, folder, **fault):
    env = {**os.environ, **fault}
    if fault:
        env.update(LD_PRELOAD=str(FAULT), FAULT_BELOW=str(folder))
    return subprocess.run([ckvc, *map(str, args)], cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")


def must(p):
    if p.returncode:
        sys.exit(f"{p.args}: exit {p.returncode}: {p.stderr}")


def inputs(ckvc, folder):
    """What the commands read, made once."""
    with open(folder / "p.jsonl", "w") as f:
        for i, split in enumerate(["fit"] * 4 + ["select", "heldout"]):
            ids = [0] + [256 + (i * 31 + t * t * 7 + t % 5 * 13) % 1200 for t in range(60)]
            f.write(f'{{"id":"p{i}","source":"made","split":"{split}","tokens":{ids}}}\n')
    (folder / "text.txt").write_text("\n\n".join(f"Paragraph {i} of a text says that {i * i} is the square of {i}, as it has to be, and goes on for a while." for i in range(40)))
    must(run(ckvc, COMMANDS["demand"][0][:-1] + ["run"], folder))
    must(run(ckvc, ["fit", "run", "-q", "--out", "t.ckvt"], folder))
    must(run(ckvc, COMMANDS["score"][0][:-1] + ["s.jsonl"], folder))
    (folder / "in").mkdir()
    (folder / "in/e.jsonl").write_text('{"text": "words that no prompt has, about nothing that one of them says, and not one of them twice"}\n')


def made(ckvc, folder):
    """Digests of what a command has made; tables by content id; journals (which hold times) and locks by name alone."""
    out = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(("p.", "t.", "s.", "text", "run/", "in/")):
            quiet = path.name.startswith(("journal", "lock"))
            if name.endswith(".ckvt"):
                table = subprocess.run([ckvc, "inspect", "--json", path], stdout=subprocess.PIPE).stdout
                out[name] = json.loads(table)["content_id"] if table else "not a table"
            else:
                out[name] = "" if quiet else hashlib.sha256(path.read_bytes()).hexdigest()
    return out


def inodes(folder):
    return {(p.stat().st_ino, p.is_dir()): ([(c.stat().st_ino, c.is_dir(), c.name) for c in p.iterdir()] if p.is_dir() else p.read_bytes()) for p in [folder, *folder.rglob("*")]}


def after_power_cut(folder, before, disk):
    """The work folder as the disk has it: names as of a folder's last sync, bytes as of a file's, else as they were before."""
    top = folder.stat().st_ino

    def names(inode):
        listing = disk / f"{inode}.names"
        if not listing.exists():
            return before.get((inode, True), [])
        lines = (line.split(" ", 2) for line in listing.read_text().splitlines())
        return [(int(i), d == "1", n) for i, d, n in lines]

    def put(inode, to):
        to.mkdir()
        for i, is_dir, name in names(inode):
            if is_dir:
                put(i, to / name)
            elif (disk / str(i)).exists():
                shutil.copy(disk / str(i), to / name)
            else:
                (to / name).write_bytes(before.get((i, False), b""))

    put(top, folder.with_suffix(".new"))
    shutil.rmtree(folder)
    folder.with_suffix(".new").rename(folder)


class Trial:
    def __init__(self, ckvc, name, start, work):
        self.ckvc, self.name, self.start, self.work = ckvc, name, start, work
        self.command, self.again = COMMANDS[name]
        self.crashed = False
        self.fresh()
        began = time.monotonic()
        must(run(ckvc, self.command, work))
        self.seconds = time.monotonic() - began
        self.wanted = made(ckvc, work)

    def fresh(self):
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.start, self.work)

    def count(self, kind):
        self.fresh()
        path = self.work.with_suffix(".count")
        path.unlink(missing_ok=True)
        must(run(self.ckvc, self.command, self.work, FAULT_CALL=kind, FAULT_COUNT=str(path)))
        return int(path.read_text()) if path.exists() else 0

    def one(self, kind, at, how):
        """None, or what is wrong."""
        self.fresh()
        disk, before, fault = self.work.with_suffix(".disk"), None, {}
        if how == "power":
            shutil.rmtree(disk, ignore_errors=True)
            disk.mkdir()
            before, fault = inodes(self.work), {"FAULT_DISK": str(disk)}
        p = run(self.ckvc, self.command, self.work, FAULT_CALL=kind, FAULT_AT=str(at), FAULT_HOW="kill" if how == "power" else how, **fault)
        if how in ("kill", "power"):
            if p.returncode != -signal.SIGKILL:
                return f"exit {p.returncode}, wanted a kill"
        elif kind == "malloc" and p.returncode == -signal.SIGSEGV and not self.crashed:
            self.crashed = True # HDF5's own, of its first file: README.md here
        elif p.returncode != 0:
            lines = [line for line in p.stderr.splitlines() if not line.startswith(("warning:", "leaks:"))]
            if p.returncode not in NAMED:
                return f"exit {p.returncode}: {p.stderr.strip()[-300:]}"
            if len(lines) != 1 or not lines[0].startswith("ckvc"):
                return f"exit {p.returncode}, {len(lines)} lines: {p.stderr.strip()[-300:]}"
        if before is not None:
            after_power_cut(self.work, before, disk)
        if p.returncode != 0:
            p = run(self.ckvc, self.command + self.again, self.work)
            if p.returncode != 0:
                return f"again: exit {p.returncode}: {p.stderr.strip()[-300:]}"
        return self.compare(how)

    def compare(self, how):
        got = made(self.ckvc, self.work)
        if how == "power": # the removal of a published shard's log need not be on disk
            got = {k: v for k, v in got.items() if not k.endswith(".log")}
        if got != self.wanted:
            return "other files: " + ", ".join(sorted(k for k in got.keys() | self.wanted.keys() if got.get(k) != self.wanted.get(k)))
        return None

    def kill_at_random(self, rng, most):
        """Kills it up to `most` times before it gets through: how many, and None or what is wrong."""
        self.fresh()
        kills, args = 0, self.command
        while True:
            began = time.monotonic()
            p = subprocess.Popen([self.ckvc, *map(str, args)], cwd=self.work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
            try:
                _, said = p.communicate(timeout=rng.uniform(0, self.seconds) if kills < most else None)
            except subprocess.TimeoutExpired:
                p.kill()
                _, said = p.communicate()
            if p.returncode == 0:
                self.seconds = (self.seconds + time.monotonic() - began) / 2 if kills == 0 else self.seconds
                return kills, self.compare("kill")
            if kills and p.returncode == 73 and "made.jsonl: exists already" in said: # killed as it ended: score and eval say so
                return kills, self.compare("kill")
            if p.returncode != -signal.SIGKILL:
                return kills, f"after {kills} kills: exit {p.returncode}: {said.strip()[-300:]}"
            kills, args = kills + 1, self.command + self.again


def main():
    global FAULT
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--most", type=int, default=200)
    p.add_argument("--only", default="")
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--kills", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("ckvc")
    a = p.parse_args()
    ckvc, failed, done = os.path.abspath(a.ckvc), 0, 0
    names, rng = a.only.split(",") if a.only else list(COMMANDS), random.Random(a.seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder).resolve()
        FAULT = folder / "fault.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", FAULT, ROOT / "tests/faults/fault.c", "-ldl"], check=True)
        start = folder / "start"
        start.mkdir()
        inputs(ckvc, start)
        for i_name, name in enumerate(names):
            of = start
            if name in PARTS: # what is there before, in parts
                of = folder / name
                shutil.copytree(start, of)
                for i in "01":
                    must(run(ckvc, [*COMMANDS[PARTS[name]][0], "--shard", i + "/2", *(["--out", "in/" + i] if name == "gather" else [])], of))
            t = Trial(ckvc, name, of, folder / "work")
            if a.kills:
                kills = trials = wrong = 0
                while kills < a.kills * (i_name + 1) // len(names) - a.kills * i_name // len(names):
                    n, why = t.kill_at_random(rng, 5)
                    kills, trials, wrong = kills + n, trials + 1, wrong + bool(why)
                    if why:
                        print(f"  FAIL {name}: {why}", flush=True)
                print(f"{name}: killed {kills} times in {trials} runs, {wrong} wrong", flush=True)
                failed, done = failed + wrong, done + kills
                continue
            for kind in a.kinds.split(","):
                n, ways = t.count(kind), KINDS[kind]
                at, wrong = range(1, min(n, a.most) + 1, a.every), 0
                for i, how in ((i, how) for i in at for how in ways):
                    if why := t.one(kind, i, how):
                        wrong += 1
                        print(f"  FAIL {name}: {kind} {i} {how}: {why}", flush=True)
                print(f"{name} {kind}: {n} calls, {len(at) * len(ways)} tried, {wrong} wrong", flush=True)
                failed, done = failed + wrong, done + len(at) * len(ways)
    print(f"{done} {'kills' if a.kills else 'faults'}, {failed} failed")
    sys.exit(failed > 0)


main()
