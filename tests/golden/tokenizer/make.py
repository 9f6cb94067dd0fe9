#!/usr/bin/env python3
"""Writes what Hugging Face tokenizers (pip install tokenizers==0.20.3) say about our own texts:

    python3 tests/golden/tokenizer/make.py MODEL_DIR > tests/golden/tokenizer/NAME.json

One object a text: hex of its bytes (some are not UTF-8), ids with special tokens, text of the ids with and without special tokens.
"""
import json, random, sys
from tokenizers import Tokenizer

TEXTS = [
    "", " ", "a", "Keep what matters, drop the rest.", "  two spaces, then\ttabs\t\tand a\r\nnew line\n\n\n  end  ",
    "I'm, you'LL, he'S, we've, 'tis, they'd, it'ſ", "x = (a[i] != NULL) ? a[i]->next : 0; /* 0x1F */", "1234567890 3.14159 1,000,000 ½ ² Ⅷ ٣ １２",
    "日本語のテキストと漢字。中文 测试 한국어 텍스트", "😀 👩‍👩‍👧‍👦 🇩🇪 ❤️ 👍🏽", "e\u0301 é A\u030a Å \u1100\u1161\u11a8 각", "Привет, мир! Ελληνικά עברית العربية हिन्दी ไทย",
    "\x00\x01\x1f\x7f\x85\u2028\u2029\ufeff\u200b\u200d", "\u00a0nbsp\u3000ideographic\u1680ogham\u180emvs\u2003em", "<|begin_of_text|>hi<|end_of_text|> <|end_of_text", "<s> hi </s><unk>",
    "<|start_story|>Once upon a time<|end_story|>", "▁lower ▁one eighth ▁", "ĠĊ letters of the byte alphabet", "a" * 700, " " * 300 + "x", "\n" * 200, " \n" * 150, "ab" * 400 + "!",
    "supercalifragilisticexpialidocious " * 8, "for(;;){}\n" * 20, "\\begin{table} & \\\\ \\hline", "http://example.org/a%20b?c=d&e=f#g", "ß ẞ ﬁ ŉ İ ı Ǆ 𝔘𝔫𝔦 𐍈",
]
BROKEN = [b"\xff\xfe", b"cut \xc3", b"a\xe2\x82b", b"\xed\xa0\x80", b"\xf0\x9f\x98 \xf4\x90\x80\x80", b"\xc0\xaf\x80"]


def mixed(seed, n):
    r = random.Random(seed)
    pool = list("abcxyz.,;!?(){}[]<>\\/'\"-_ \n\t019") + ["the ", " of", "ing", "  ", "\r\n", "'s", "é", "中", "😀", "\u0301", "\u00a0", "\x00"]
    return "".join(r.choice(pool) for _ in range(n))


def main(folder):
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    out = []
    for data in [t.encode() for t in TEXTS] + BROKEN + [mixed(s, 10 + 9 * s).encode() for s in range(40)]:
        ids = tokenizer.encode(data.decode("utf-8", "replace")).ids
        out.append({"hex": data.hex(), "ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False).encode().hex(),
                    "plain": tokenizer.decode(ids, skip_special_tokens=True).encode().hex()})
    print("[" + ",\n".join(json.dumps(o) for o in out) + "]")


main(sys.argv[1])
