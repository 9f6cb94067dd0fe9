#!/usr/bin/env python3
"""Lines of a manifest that the package refuses, each in one line that names the place, and at once: no large file is read and no FIFO is waited for."""
import importlib.util
import json
import os
import signal
import sys
import tempfile
import types

from common import need, put, run_tests

need("numpy")
if not importlib.util.find_spec("xxhash"):  # it makes a hash of each prompt, which no test here looks at
    sys.modules["xxhash"] = types.SimpleNamespace(xxh64_intdigest=lambda data: 0)
from ckvc import Error, manifest_prompts  # noqa: E402

LIMITS = manifest_prompts.Limits(context=4096, vocabulary=256, window=0, continuation=1, instruction=-1)


class Tokenizer:
    """A byte is an id; around a text stand what `special` makes of its ids."""

    chat_template = None

    def __init__(self, special=lambda ids: [1, *ids]):
        self.special = special

    def __call__(self, text, add_special_tokens=True, verbose=True):
        ids = list(text.encode())
        return {"input_ids": self.special(ids) if add_special_tokens else ids}


def refused(words, entry, tokenizer=None):
    """The line is an Error of one line with these words."""
    path = put("manifest.jsonl", json.dumps({"id": "good", "text": "a prompt"}) + "\n" + json.dumps({"id": "bad", **entry}) + "\n")
    try:
        manifest_prompts.read_prompts(path, tokenizer or Tokenizer(), LIMITS)
    except Error as why:
        assert str(why).startswith("manifest.jsonl:2:") and words in str(why) and "\n" not in str(why), why
        return
    raise AssertionError((words, "was taken"))


def test_taken():
    path = put("manifest.jsonl", json.dumps({"id": "good", "file": "text", "offset": 1, "bytes": 3}))
    put("text", "abcdef")
    (p,), _ = manifest_prompts.read_prompts(path, Tokenizer(lambda ids: [1, *ids, 2]), LIMITS)
    assert p.tokens == [1, *b"bcd"] and p.n_tokens == 3, p


def test_special_tokens():
    """A tokenizer that writes a text otherwise between special tokens, such as one that cuts it or begins it with a space: where it begins is not known."""
    for special in (lambda ids: [1], lambda ids: [1, *ids[1:]], lambda ids: [x for i in ids for x in (i, 1)]):
        def whole(ids, special=special):
            return special(ids) if ids != list(b"a prompt") else ids
        refused('prompt "bad": the tokenizer', {"text": "another"}, Tokenizer(whole))


def test_a_large_span():
    put("text", "abcdef")
    for span in ({"bytes": 2**40}, {"bytes": 2**62, "offset": 1}, {"offset": 2**40}, {"bytes": 7}):
        refused(", which has fewer", {"file": "text", **span})


def test_a_fifo():
    os.mkfifo("fifo")
    refused("not a regular file", {"file": "fifo"})
    refused("not a regular file", {"file": "fifo", "bytes": 4})


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    signal.alarm(20)  # what waits for a FIFO, or reads 2**40 bytes, is killed
    run_tests(globals())
    os.chdir("/")
