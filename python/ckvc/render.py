"""Turns a manifest's conversations into token ids, with transformers and the model's own chat template: `python3 -m ckvc render MODEL --manifest chat.jsonl
--out tokens.jsonl`. The C program writes the templates that it knows itself, and sends users of others here."""
from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from transformers import AutoTokenizer

from .command_line import Parser
from .files import Error, check, publish
from .manifest_prompts import continuation_ids, prompt_ids, read_lines


def render(model: str, manifest: str) -> List[bytes]:
    """The manifest's lines, with "tokens" in place of "messages" and "continuation_tokens" in place of their continuation. model is a Hugging Face directory
    or a GGUF file, whose tokenizer makes them. A span of a file becomes "text", because the new lines may lie elsewhere. Other lines stay byte for byte."""
    folder, name = os.path.split(model) if model.endswith(".gguf") else (model, None)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder or ".", **({"gguf_file": name} if name else {}))
    except (OSError, ValueError, ImportError, RuntimeError) as why:
        raise Error(f"{model}: {' '.join(str(why).split())[:300]}") from None

    def line(_: int, raw: bytes, entry: Dict[str, Any], text: str) -> bytes:
        if "file" in entry:
            entry = {k: v for k, v in entry.items() if k not in ("file", "offset", "bytes")} | {"text": text}
        elif "messages" in entry:
            own = continuation_ids(tokenizer, entry)
            entry = {k: v for k, v in entry.items() if k not in ("messages", "continuation")} | {"tokens": prompt_ids(tokenizer, entry, text)}
            entry |= {"continuation_tokens": own} if own else {}
        else:
            return raw
        return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    return read_lines(manifest, line)[0]


def main(verb: str, words: List[str]) -> str:
    p = Parser(prog=f"python3 -m ckvc {verb}", description=__doc__)
    p.add_argument("model", metavar="MODEL", help="Take the chat template and tokenizer of this Hugging Face model directory or GGUF file.")
    p.add_argument("--manifest", metavar="FILE", required=True, help="Read prompts from this file, one JSON object a line; lines without messages stay as they are.")
    p.add_argument("--out", "-o", metavar="FILE", required=True, help="Write the same prompts to this file, as token ids.")
    p.add_argument("--force", "-f", action="store_true", help="Overwrite the output.")
    a = p.parse_args(words)
    check(a.out, a.force, [a.model, a.manifest])
    lines = render(a.model, a.manifest)
    publish(a.out, b"".join(line + b"\n" for line in lines), a.force, [a.model, a.manifest])
    return f"{a.out}: {len(lines)} prompts"
