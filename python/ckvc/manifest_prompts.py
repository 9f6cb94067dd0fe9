"""Reads the prompts of a manifest (formats/lines/manifest.md) as token ids, and cuts them to a length that the model can repeat, as the C program's
calib/prompt does."""
from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import struct
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

import xxhash

from .files import Error, refuse, regular
from .json_text import json_object

KEYS = ("id", "source", "document", "split", "text", "tokens", "file", "offset", "bytes", "messages", "continuation", "continuation_tokens")
ROLES = ("system", "user", "assistant")
DATE = "26 Jul 2024"  # the date that Llama 3.1's and 3.2's templates write; fixed, so that runs repeat; the C program's --chat-date by default
Taken = TypeVar("Taken")
CHUNK = 2048  # how many tokens are repeated at a time if twice the prompt does not fit the context


@dataclasses.dataclass
class Prompt:
    """T prompt tokens, and the C tokens that follow them. heldout: no fit sees this prompt. select: it is held out, and settings are chosen by it."""
    line: int
    id: str
    source: str
    document: str  # the document's name if several prompts are of it, or else empty
    split: str
    tokens: List[int]  # [T + C]
    n_tokens: int
    n_continuation: int
    cut: bool  # whether tokens were left out in the middle
    token_hash: int  # XXH64 of T, C and the ids
    heldout: bool
    select: bool


@dataclasses.dataclass(frozen=True)
class Limits:
    """What prompts must fit, in tokens. instruction: the length of the instruction to repeat the prompt; below 0, nothing is repeated. max_tokens: the longest
    prompt; 0 allows as much as can be repeated, or read if nothing is repeated."""
    context: int
    vocabulary: int
    window: int
    continuation: int
    instruction: int
    max_tokens: int = 0
    skip_short: bool = False

    @property
    def longest(self) -> int:
        """The most tokens of a prompt: so many that its repetition fits the context behind it, whole or in chunks of CHUNK, and its continuation does, too. A
        lower max_tokens is taken instead."""
        room = self.context - self.instruction
        repeated = min(max(room - CHUNK, room // 2) if self.instruction >= 0 else self.context, self.context - self.continuation)
        return min(self.max_tokens, repeated) if self.max_tokens else repeated


def _text_of(folder: str, entry: Dict[str, Any]) -> str:
    """The text of a span of a file, which must be below the manifest's folder."""
    path = os.path.realpath(os.path.join(folder, entry["file"]))
    if os.path.isabs(entry["file"]) or not path.startswith(os.path.join(os.path.realpath(folder), "")):
        raise Error(f"\"file\" {entry['file']} is not inside the manifest's folder")
    offset, n = entry.get("offset", 0), entry.get("bytes")
    with open(path, "rb", opener=regular) as f:
        size = os.fstat(f.fileno()).st_size
        refuse(offset + (n or 0) > size or (offset and offset == size), f"bytes {offset} + {n or 0} of {path}, which has fewer")
        f.seek(offset)
        return f.read(size - offset if n is None else n).decode()


def _check(entry: Dict[str, Any]) -> None:
    """An Error if a line is not as the format requires."""
    unknown = [k for k in entry if k not in KEYS]
    refuse(unknown, f"unknown key {unknown}; there are {' '.join(KEYS)}")
    refuse(sum(k in entry for k in ("text", "tokens", "file", "messages")) != 1 or ("continuation" in entry and "continuation_tokens" in entry),
           'want exactly one of "text", "tokens", "file" and "messages", and at most one continuation')
    for k in ("id", "source", "document", "split"):
        v = entry.get(k, "" if k == "id" else "-")
        refuse(not isinstance(v, str) or not 1 <= len(v.encode()) <= 255 or any(ord(c) < 32 or ord(c) == 127 for c in v),
               f'"{k}" must be text of 1 to 255 bytes without control characters')
    said = entry.get("messages", [{"role": "user", "content": ""}])
    refuse(not isinstance(said, list) or not said or any(not isinstance(m, dict) or m.keys() != {"role", "content"} or m["role"] not in ROLES or
           not isinstance(m["content"], str) for m in said), f'"messages" must be an array, not empty, of objects with role ({", ".join(ROLES)}) and content, a string')
    for k in ("text", "file", "continuation"):
        refuse(not isinstance(entry.get(k, ""), str), f'"{k}" must be a string')
    for k in ("tokens", "continuation_tokens"):
        v = entry.get(k, [0])
        refuse(not isinstance(v, list) or not v or any(type(t) is not int or t < 0 for t in v), f'"{k}" must be an array of token ids, not empty')
    for k in ("offset", "bytes"):
        v = entry.get(k, 0)
        refuse(type(v) is not int or v < 0 or ("file" not in entry and k in entry), f'"{k}" must be a whole number from 0, beside "file"')


def plain_ids(tokenizer: Any, text: str) -> List[int]:
    """A text's ids without special tokens around it."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def prompt_ids(tokenizer: Any, entry: Dict[str, Any], text: str) -> List[int]:
    """The ids of a prompt. A text gets the special tokens that the tokenizer puts before it, but none of those behind it. A conversation gets those of its
    template."""
    if "tokens" in entry:
        return list(entry["tokens"])
    refuse(tokenizer is None, 'is text, but there is no tokenizer; give "tokens"')
    if "messages" in entry:
        refuse(not getattr(tokenizer, "chat_template", True), '"messages" need a chat template, and this model states none: render them to "text"')
        date = {"date_string": DATE} if "date_string" in str(getattr(tokenizer, "chat_template", "")) else {}
        try:
            last = entry["messages"][-1]["role"]
            text = tokenizer.apply_chat_template(entry["messages"], tokenize=False, add_generation_prompt=last != "assistant", **date)
        except Exception as why:  # a template is a program, and may raise exceptions of any kind
            raise Error(f"\"messages\": {why or type(why).__name__}; the model's chat template refuses them") from None
        ids = plain_ids(tokenizer, text)
        refuse(not ids, "\"messages\": the model's chat template writes nothing for them")
        return ids
    plain, whole = plain_ids(tokenizer, text), list(tokenizer(text, verbose=False)["input_ids"])
    front = next((whole[:i] for i in range(len(whole) + 1) if whole[i : i + len(plain)] == plain), None)
    refuse(front is None, 'the tokenizer writes the text otherwise between its special tokens than without them; give "tokens"')
    return front + plain


def continuation_ids(tokenizer: Any, entry: Dict[str, Any]) -> List[int]:
    """The token ids of a line's own continuation, without special tokens; an empty list if the line has none. An Error says that it is empty, or a text for
    which there is no tokenizer."""
    if "continuation" not in entry:
        return list(entry.get("continuation_tokens", ()))
    refuse(tokenizer is None, 'has a continuation as text, but there is no tokenizer; give "continuation_tokens"')
    own = plain_ids(tokenizer, entry["continuation"])
    refuse(not own, "the continuation is empty; leave it out or give at least one token")
    return own


def _build(tokenizer: Any, entry: Dict[str, Any], text: str, limits: Limits, line: int) -> Optional[Prompt]:
    """The Prompt of a line. None if it is too short and limits say to skip such prompts. An Error says why the prompt cannot be taken."""
    ids, own = prompt_ids(tokenizer, entry, text), continuation_ids(tokenizer, entry)
    C = min(len(own), limits.continuation) if own else limits.continuation
    T = len(ids) if own else len(ids) - C
    if T < limits.window + 1 and limits.skip_short:
        return None
    refuse(T < limits.window + 1, f"has {len(ids)} tokens, need at least {limits.window + 1 + len(ids) - T} (window {limits.window} + 1"
           f"{'' if own else ' + continuation'}); skip_short drops such prompts")
    wrong = [t for t in ids + own if t >= limits.vocabulary]
    if wrong:
        raise Error(f"token {wrong[0]}: the model's vocabulary has ids 0 to {limits.vocabulary - 1}")
    kept = min(T, limits.longest)
    head, behind = (kept + 1) // 2, (own or ids[T:])[:C]
    tokens = ids[:head] + ids[T - (kept - head) : T] + behind
    split = entry.get("split", "")
    return Prompt(line, entry["id"], entry.get("source", ""), entry.get("document", ""), split, tokens, kept, C, kept < T,
                  xxhash.xxh64_intdigest(struct.pack(f"<{2 + len(tokens)}I", kept, C, *tokens)), split in ("heldout", "select"), split == "select")


def read_lines(path: str, take: Callable[[int, bytes, Dict[str, Any], str], Taken]) -> Tuple[List[Taken], bytes]:
    """Calls `take` for each line, with its number, its bytes, its object, and its text ("" if it has none). Returns what `take` returned of each, and the
    bytes of the whole manifest. An Error of one line names the line that is wrong."""
    with open(path, "rb", opener=regular) as f:
        data = f.read()
    out: List[Taken] = []
    seen: Dict[str, int] = {}
    for line, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        named = ""
        try:
            entry = json_object(raw)
            _check(entry)
            named = f' prompt "{entry["id"]}":'
            refuse(entry["id"] in seen, f"\"id\" stands in line {seen.get(entry['id'])} already")
            seen[entry["id"]] = line
            text = entry["text"] if "text" in entry else _text_of(os.path.dirname(path) or ".", entry) if "file" in entry else ""
            out.append(take(line, raw, entry, text))
        except (ValueError, RecursionError, OSError) as why:
            raise Error(f"{path}:{line}:{named} {why}".replace("\n", " ")) from None
    return out, data


def read_prompts(path: str, tokenizer: Any, limits: Limits) -> Tuple[List[Prompt], str]:
    """All prompts, and the SHA-256 of the manifest's bytes. An Error of one line names the line that cannot be taken."""
    if limits.longest < limits.window + 1:
        raise Error(f"the model's context of {limits.context} tokens holds no prompt of more than the window of {limits.window}, and its repetition")
    taken, data = read_lines(path, lambda line, raw, entry, text: _build(tokenizer, entry, text, limits, line))
    out = [p for p in taken if p]
    shared = collections.Counter(p.document for p in out)
    for p in out:
        p.document = p.document if shared[p.document] > 1 else ""
    return out, hashlib.sha256(data).hexdigest()


def digest(prompts: List[Prompt]) -> str:
    """The SHA-256 of all prompts' ids and tokens in their order. Plans name a run's prompts by it."""
    return hashlib.sha256(b"".join(p.id.encode() + b"\0" + struct.pack("<Q", p.token_hash) for p in prompts)).hexdigest()
