"""Writes a run directory (formats/run/run.md) of one demand pass with h5py. Each prompt is a shard (formats/shard/shard.md), and what is published stays."""
from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

import h5py
import numpy as np

from .files import Error, owned, publish, read, refuse, sweep, sync
from .json_text import canonical, json_object, sha256
from .table import Array

with contextlib.suppress(ImportError):  # without it columns are packed by deflate, which readers take as well
    import hdf5plugin  # noqa: F401  (tells HDF5 of the zstd filter)

PASS = "pass-01-demand"
PLAN_MAX, LINES_MAX = 16 << 20, 1 << 30  # the most bytes that are read of a plan, and of a file of lines
NONE = {  # by type, the columns that a shard must have and that are empty in a demand pass: those of the groups /baseline and /record
    "<u4": "baseline/prompt record/prompt record/n_candidates record/n_kept", "u1": "record/side record/action", "<u8": "record/set_hash",
    "<u2": "baseline/budget record/layer record/head record/budget", "<f8": "baseline/loss record/reward record/baseline record/loss"}
OF_LAYERS = "n_candidates n_kept n_kept_window n_candidates_lo n_candidates_hi"  # of /baseline, u32 [rows, L]


class Lines:
    """The JSON lines of an open file. all: the whole lines that are there. A torn last line is cut off by the next `append`, which waits until its lines are
    on disk. anew: the lines that are there are dropped."""

    def __init__(self, file: io.FileIO, anew: bool = False):
        self.path, self._file, self._ends = str(file.name), file, [0]  # where lines end, in bytes: after none, one, two ...
        self.all: List[Dict[str, Any]] = []
        refuse(os.fstat(file.fileno()).st_size > LINES_MAX, f"{self.path}: more than {LINES_MAX} bytes")
        file.seek(0)
        raws = [] if anew else file.read().splitlines(keepends=True)
        for number, raw in enumerate(raws, 1):
            try:
                self.all.append(json_object(raw if raw.endswith(b"\n") else b""))
                self._ends.append(self._ends[-1] + len(raw))
            except (ValueError, RecursionError) as why:
                ours = number > 1 or b'{"'.startswith(raw[:2].strip(b"\0"))
                refuse(number < len(raws) or not ours, f"{self.path}:{number}: a damaged line ({why}); choose another out, or begin a score anew with --force")

    def keep(self, n: int) -> None:
        """Keeps only the first n lines. The file is cut by the next `append`."""
        del self.all[n:], self._ends[n + 1 :]

    def append(self, *lines: Dict[str, Any]) -> None:
        raws = [(canonical(line) + "\n").encode() for line in lines]
        left = memoryview(b"".join(raws))
        self._file.truncate(self._ends[-1])
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())
        for line, raw in zip(lines, raws):
            self.all.append(line)
            self._ends.append(self._ends[-1] + len(raw))


def shard_image(header: Dict[str, Any], columns: Dict[str, Array]) -> bytes:
    """The bytes of a shard. header: its attributes, which are text or numpy values. columns: those of /prompt, [rows, ...], and of other groups by
    "group/name"."""
    packed = dict(compression=32015, compression_opts=(3,)) if h5py.h5z.filter_avail(32015) else dict(compression="gzip")
    image = io.BytesIO()
    with h5py.File(image, "w", libver=("v110", "v110")) as f:
        for name, value in header.items():
            if isinstance(value, str):
                data = value.encode() or b"\0"
                f.attrs.create(name, np.bytes_(data), dtype=h5py.string_dtype("utf-8", len(data)))
            else:
                f.attrs[name] = value
        none = {k: np.zeros(0, t) for t, names in NONE.items() for k in names.split()}
        none.update((f"baseline/{k}", np.zeros((0, int(header["n_layers"])), "<u4")) for k in OF_LAYERS.split())
        for name, data in {**{k if "/" in k else f"prompt/{k}": v for k, v in columns.items()}, **none}.items():
            chunk = [max(1, min(65536, len(data)) if data.ndim == 1 else 65536 // math.prod(data.shape[1:])), *data.shape[1:]]
            while math.prod(chunk) * data.itemsize > 32 << 20:  # readers refuse chunks of more than 64 MiB
                widest = chunk.index(max(chunk))
                chunk[widest] = (chunk[widest] + 1) // 2
            kind = h5py.string_dtype("utf-8", 255) if data.dtype.kind == "S" else data.dtype
            f.create_dataset(name, data=data.astype(kind), chunks=tuple(chunk), maxshape=(max(len(data), chunk[0]), *data.shape[1:]), shuffle=True,
                             fletcher32=True, **packed)
    return image.getvalue()


class Run:
    """The run directory `out`, open and locked for one process, or for one of several that share the prompts. part (i, n): this process takes every n-th
    prompt from the i-th on.

    header: the attributes of the shards, except the plan's hash. empty: their columns of /prompt without rows, [0, ...]. backend: the arithmetic that makes
    the records; a run has only one. n_ours: how many prompts this part has. todo: the numbers of those that are not done.

    An Error of one line says that the folder belongs to another run, is in use, or is damaged. `publish` also says that it cannot write; what is published
    stays."""

    def __init__(self, out: str, plan: Dict[str, Any], header: Dict[str, Any], empty: Dict[str, Array], n_prompts: int, backend: str,
                 part: Optional[Tuple[int, int]] = None, resume: bool = False):
        self.out, self.part, self.backend, self.bytes, self._n = out.rstrip("/") or "/", part, backend, 0, n_prompts
        end = f"-{part[0]}-of-{part[1]}" if part else ""
        self._journal, self._folder = os.path.join(self.out, f"journal{end}.jsonl"), os.path.join(self.out, PASS)
        self._locks: List[io.FileIO] = []
        self.header = {**header, "plan": sha256(canonical(plan))}
        said = {k: v.tolist() if isinstance(v, (np.generic, np.ndarray)) else v for k, v in self.header.items() if k not in ("ckvc_version", "sketch")}
        try:
            self._open(plan, end, resume)
            self._read_journal()
            self._begin({"pass": PASS, "n_prompts": n_prompts, "shard_prompts": 1, "backend": backend, "header": sha256(canonical(said))})
            for i in sorted(self._skipped() - self._published()):  # a process was killed before it wrote the empty shard of a prompt without records
                self._shard(i, empty)
        except OSError as why:
            self.close()
            raise Error(f"{self.out}: cannot be written: {why}", 73) from None
        except Error:
            if part and len(self._locks) == 2 and not os.path.exists(self._journal):
                os.unlink(self._locks[1].name)  # the lock file alone would stand in the way of a run with another number of parts
            self.close()
            raise
        ours, done = [i for i in range(n_prompts) if part is None or i % part[1] == part[0]], self._published()
        self.n_ours, self.todo = len(ours), [i for i in ours if i not in done]

    def close(self) -> None:
        while self._locks:
            self._locks.pop().close()

    def _skipped(self) -> Set[int]:
        return {line["prompt"] for line in self._log.all if "prompt" in line}

    def _published(self) -> Set[int]:
        return {line["shard"] for line in self._log.all if "sha256" in line}

    def _lock(self, name: str, shared: bool) -> None:
        f = owned(os.path.join(self.out, name), shared)
        self._locks.append(f)
        f.seek(0)
        if not re.fullmatch(rb"\d*\n?", f.read(32)):
            raise Error(f"{f.name}: is no lock of a run, which has a process's number; move it elsewhere", 73)
        if not shared:
            f.truncate(0)
            f.write(b"%d\n" % os.getpid())

    def _open(self, plan: Dict[str, Any], end: str, resume: bool) -> None:
        """Makes or takes the folder, its locks and its plan, which must be the same as that of a run that is there."""
        file, whole = os.path.join(self.out, "run.json"), os.path.join(self.out, "journal.jsonl")
        fresh = not os.path.isdir(self.out) or all(name.startswith(("lock", "run.json.tmp.", "plan-")) for name in os.listdir(self.out))
        if (os.path.exists(self._journal) if self.part else not fresh) and not resume:
            raise Error(f"{self._journal if self.part else self.out}: exists and is not empty; go on with resume, or choose another out", 73)
        refuse(not fresh and not os.path.exists(file), f"{self.out}: is not empty and no run (it has no run.json); choose another out")
        os.makedirs(self.out, exist_ok=True)
        sync(os.path.dirname(os.path.abspath(self.out)))
        self._lock("lock", shared=self.part is not None)
        if self.part:
            self._lock("lock" + end, shared=False)
        parts = {int(m[1]) for name in os.listdir(self.out) if (m := re.fullmatch(r"(?:journal|lock)-\d+-of-(\d+)(?:\.jsonl)?", name))}
        refuse(self.part and os.path.exists(whole), f"{self.out}: is a run in one piece, not in parts; go on without parts, or choose another out")
        if not os.path.exists(whole) and (others := parts - {self.part[1] if self.part else 0}):
            raise Error(f"{self.out}: is a run in {max(others)} parts; go on with as many, or choose another out")
        sweep(self.out)
        if not os.path.exists(file):
            with contextlib.suppress(FileExistsError):  # another part wrote it meanwhile; whether it is the same is checked below
                publish(file, (canonical(plan) + "\n").encode())
        try:
            was, now = json_object(read(file, PLAN_MAX)), json.loads(canonical(plan))
            different = [f"{k}: {canonical(was.get(k))[:60]} there, {canonical(now.get(k))[:60]} now" for k in sorted({*was, *now}) if was.get(k) != now.get(k)]
        except (ValueError, RecursionError) as why:
            raise Error(f"{file}: no plan of a run ({type(why).__name__}: {why}); choose another out") from None
        refuse(different, f"{file}: another plan: {'; '.join(different[:6])}; use that run's options, or another out")

    def _read_journal(self) -> None:
        self._locks.append(owned(self._journal))
        self._log = Lines(self._locks[-1])
        seen: Set[int] = set()
        for number, line in enumerate(self._log.all, 1):
            at, k, n = f"{self._journal}:{number}", line.get("shard", line.get("prompt")), line.get("bytes", 0)
            refuse(line.get("pass") != PASS, f"{at}: a line of another pass than {PASS}; choose another out")
            refuse((number == 1) != ("n_prompts" in line), f"{at}: the pass is not begun here, or twice; choose another out")
            refuse(number > 1 and not (type(k) is int and 0 <= k < self._n and type(n) is int), f"{at}: shard or prompt {k} of {self._n}; choose another out")
            if "sha256" in line:
                path = self._path(k)
                refuse(k in seen, f"{at}: shard {k} is there twice; choose another out")
                seen.add(k)
                if not os.path.exists(path) or os.path.getsize(path) != n:
                    raise Error(f"{path}: the journal (line {number}) says that it has {n} bytes, and it is not there or has others")
                self.bytes += n

    def _begin(self, line: Dict[str, Any]) -> None:
        os.makedirs(self._folder, exist_ok=True)
        refuse(os.path.islink(self._folder), f"{self._folder}: is a link, which nothing is written through; choose another out", FileExistsError)
        sweep(self._folder)
        if not self._log.all:
            return self._log.append(line)
        for k, v in line.items():
            if (was := self._log.all[0].get(k)) != v:
                raise Error(f"{self._journal}: {PASS} was begun with {k} {str(was)[:40]}, now it is {str(v)[:40]}: go on as before, or choose another out")

    def _path(self, k: int) -> str:
        return os.path.join(self._folder, f"shard-{k:05}.h5")

    def _shard(self, i: int, rows: Dict[str, Array]) -> None:
        data = shard_image(self.header, rows)
        publish(self._path(i), data, force=True)
        self._log.append({"pass": PASS, "shard": i, "prompts": len(rows["id"]), "rows": 0, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                      "backend": self.backend})
        self.bytes += len(data)

    def publish(self, i: int, rows: Dict[str, Array], prompt_id: str, bad: Optional[str]) -> int:
        """Publishes the columns [1, ...] of prompt i. bad: why it leaves no records, or None. Returns how many prompts left none so far."""
        try:
            if bad is not None:
                self._log.append({"pass": PASS, "prompt": i, "id": prompt_id, "reason": bad})
            self._shard(i, {k: v[:0] for k, v in rows.items()} if bad is not None else rows)
        except OSError as why:
            raise Error(f"{self._path(i)}: cannot be written: {why}; what is published stays, make room and resume", 74) from None
        return len(self._skipped())

    def say(self, done: int, rate: float, last: bool) -> None:
        """Prints progress on stderr: prompts, rate and time left. On a terminal the next line overwrites it."""
        at_terminal, left = sys.stderr.isatty(), (self.n_ours - done) / rate if rate else 0.0
        print(f"{PASS}: {done} of {self.n_ours} prompts, {rate:.3g} prompts/s, {left // 3600:.0f}:{left // 60 % 60:02.0f}:{left % 60:02.0f} left, "
              f"{self.bytes / 1e6:.1f} MB written", file=sys.stderr, end="\r" if at_terminal and not last else "\n", flush=True)
