#!/usr/bin/env python3
"""Compares `ckvc tokenize` with the tokenizers and sentencepiece packages: ids and speed, side by side in one run.

    CKVC_SHARED=... tests/outside/tokenizers_compare.py [--ckvc build/release/ckvc] [--only NAME,...] [--rounds 3]

With a Python that has `tokenizers`, and `transformers` with `tiktoken` for llama3, `sentencepiece` for tokenizer.model (below 0.2.2 for
InternLM2, whose file has a piece that holds NUL), `gguf` for tokenizers in GGUF metadata, whose ids of llama.cpp's test strings are compared
with those that it expects, too. What is missing is skipped and named.

Text: the books of $CKVC_SHARED/data/text, the long-context tasks there, this project's own source, and seeded inventions: emoji, CJK,
combining marks, control characters, runs of spaces, all of Unicode, invalid UTF-8 (which Python decodes with errors="replace"). Each
kind is compared as one text. Speed: books, code and CJK as one text, in one thread, in processor time; ckvc's is that of the whole process (printing
included) less that of one with an empty text (reading the model's files), the other package's that of its encode alone, over
the whole text and over its paragraphs, the better of the two; the minimum of the rounds each, taken in turns.
"""
import functools
import glob
import importlib
import json
import os
import random
import re
import resource
import tempfile
import unicodedata

import outside

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
tokenizers, = outside.modules("tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

ROOT = str(outside.ROOT)
SHARED = os.environ.get("CKVC_SHARED", os.path.join(ROOT, "..", "shared"))
TOKENIZERS = os.path.join(SHARED, "data", "tokenizers")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


class Missing(Exception):
    pass


# ---- text ----
def invented(rng, letters, size):
    parts, length = [], 0
    while length < size:
        word = "".join(rng.choice(letters) for _ in range(rng.randint(1, 12)))
        parts.append(word + rng.choice([" ", " ", " ", "  ", "\n", "\n\n", ", ", "", "\t"]))
        length += len(parts[-1].encode())
    return "".join(parts)


@functools.lru_cache
def texts(sep_free):
    """{kind: bytes}; sep_free: without anything that could be a special token."""
    rng = random.Random(4)
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assigned = [c for c in chars if unicodedata.category(c) not in ("Cn", "Co")]
    emoji = [c for c in assigned if 0x1F300 <= ord(c) < 0x1FB00 or 0x2600 <= ord(c) < 0x27C0]
    emoji += ["\u200d", "\ufe0f", "\U0001F3FD", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "a", "1"]
    cjk = [c for c in assigned if 0x3040 <= ord(c) < 0xA000 or 0xAC00 <= ord(c) < 0xD7A4] + ["。", "、", "ー", "Ａ", "１"] * 200
    marks = [c for c in assigned if unicodedata.combining(c)] + list("aeiouAEIOUcnszgk가각각") * 30
    space = [c for c in assigned if c.isspace() or unicodedata.category(c) in ("Zs", "Cf")] + list("ab1▁'")
    read = lambda pattern: b"\n".join(open(f, "rb").read() for f in sorted(glob.glob(pattern, recursive=True)))
    out = {
        "books": read(f"{SHARED}/data/text/books/*.txt"),
        "tasks": read(f"{SHARED}/data/text/longeval/200*.jsonl") + read(f"{SHARED}/data/text/longbench/*.jsonl")[:1000000],
        "code": b"\n".join(read(f"{ROOT}/{d}/**/*.[chp]*") for d in ("lib", "formats", "cmd", "calib", "tests/unit")),
        "emoji": invented(rng, emoji, 300000).encode(),
        "cjk": invented(rng, cjk, 600000).encode(),
        "marks": invented(rng, marks, 300000).encode(),
        "control": invented(rng, [chr(c) for c in range(33)] + ["\x7f", "\x85", "a", "B", "'s", "'S", "'ſ", "'RE"], 200000).encode(),
        "spaces": invented(rng, space, 200000).encode(),
        "runs": "".join(rng.choice(" \n\t\r01aé=-_▁") * rng.randint(1, 300) for _ in range(2000)).encode(),
        "unicode": invented(rng, assigned, 600000).encode(),
        "invalid": bytes(rng.choice((rng.randrange(256), rng.randrange(256), 0x20, 0xE2, 0x96, 0x81, 0x61)) for _ in range(300000)),
    }
    if not sep_free:
        out["specials"] = invented(rng, ["<s>", "</s>", "<unk>", "<|im_start|>", "<|eot_id|>", "<|endoftext|>", "<|plugin|>", "<0x41>",
                                         "[UNUSED_TOKEN_7]", "a", " ", "▁", "é"], 60000).encode()
    else:  # sentencepiece itself never finds control pieces in a text, Hugging Face and ckvc do
        out = {kind: re.sub(rb"<(?=/?s>|unk>|\|)", b"< ", text) for kind, text in out.items()}
    return {kind: text for kind, text in out.items() if text}


# ---- the other side ----
def link(folder, source, names):
    for name, to in names.items():
        if not os.path.exists(os.path.join(source, name)):
            raise Missing(f"{source}/{name} is not there")
        os.symlink(os.path.join(os.path.abspath(source), name), os.path.join(folder, to))
    return folder


def hf(tokenizer):
    return {"encode": lambda text: tokenizer.encode(text).ids, "package": f"tokenizers {tokenizers.__version__}", "special": True}


def from_json(source):
    path = os.path.join(source, "tokenizer.json")
    if not os.path.exists(path):
        raise Missing(f"{path} is not there")
    return hf(Tokenizer.from_file(path))


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing(f"the Python package {name} is not there")


def sentencepiece(path):
    sp = package("sentencepiece")
    try:
        model = sp.SentencePieceProcessor(model_file=path)
    except RuntimeError as e:
        raise Missing(f"sentencepiece {sp.__version__} does not read {path} ({e}); below 0.2.2 does")
    return {"encode": lambda text: model.encode(text), "package": f"sentencepiece {sp.__version__}", "special": False}


def llama3_converted():
    try:
        from transformers.convert_slow_tokenizer import TikTokenConverter
        import tiktoken  # noqa: F401, the converter reads ranks with it
    except ImportError as e:
        raise Missing(f"transformers' TikTokenConverter needs more packages ({e})")
    config = json.load(open(f"{TOKENIZERS}/llama3/tokenizer_config.json"))
    special = [v["content"] for _, v in sorted(config["added_tokens_decoder"].items(), key=lambda item: int(item[0]))]
    t = TikTokenConverter(vocab_file=f"{TOKENIZERS}/llama3/tokenizer.model", extra_special_tokens=special).converted()
    bos = config["bos_token"]
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def qwen2_built(config_name):
    merges = [tuple(line.split(" ")) for line in open(f"{TOKENIZERS}/qwen2/merges.txt", encoding="utf-8").read().split("\n") if line]
    t = Tokenizer(models.BPE(json.load(open(f"{TOKENIZERS}/qwen2/vocab.json")), merges, fuse_unk=False))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated", False),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    added = json.load(open(f"{TOKENIZERS}/qwen2/{config_name}"))["added_tokens_decoder"]
    for _, v in sorted(added.items(), key=lambda item: int(item[0])):
        content = v.pop("content")
        (t.add_special_tokens if v["special"] else t.add_tokens)([AddedToken(content, **v)])
    return t


def saved(folder, tokenizer):
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    return folder, hf(tokenizer)


def in_gguf(folder, kind, pre, *lists):
    """A file of gguf-py's own writer: tokens, types, then scores or merges by the writer's names for them."""
    w = package("gguf").GGUFWriter(path := os.path.join(folder, "vocab.gguf"), "llama")
    w.add_tokenizer_model(kind)
    w.add_tokenizer_pre(pre)
    for name, values in zip(("list", "types", "scores" if kind == "llama" else "merges"), lists):
        getattr(w, "add_token_" + name)(values)
    if kind == "llama":
        w.add_bos_token_id(1)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return path


def llama2_in_gguf(folder):
    source = f"{TOKENIZERS}/llama2/tokenizer.model"
    sp = package("sentencepiece").SentencePieceProcessor(model_file=source)
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(len(sp))]
    pieces, scores = ([of(i) for i in range(len(sp))] for of in (sp.id_to_piece, sp.get_score))
    return in_gguf(folder, "llama", "default", pieces, kinds, scores), {**sentencepiece(source), "vectors": "llama-spm"}


def qwen2_in_gguf(folder):
    t = qwen2_built("tokenizer_config.qwen2.json")
    model = json.loads(t.to_str())["model"]
    pieces, merges = t.get_vocab(), [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    kinds = [1 if piece in model["vocab"] else 3 for piece in sorted(pieces, key=pieces.get)]
    return in_gguf(folder, "gpt2", "qwen2", sorted(pieces, key=pieces.get), kinds, merges), {**hf(t), "vectors": "qwen2"}


def metaspace(source, scheme, split):  # Mistral v0.3's pre-tokenizer and kin over the pieces of another file
    t = Tokenizer.from_file(os.path.join(source, "tokenizer.json"))
    t.normalizer = None
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=split)
    return t


def cases(smollm2):
    """name -> function of an empty folder: (model for ckvc, the other side)"""
    llama2, mistral = f"{TOKENIZERS}/llama2", f"{TOKENIZERS}/mistral-7b-instruct-v0.2"
    qwen = lambda f, n: link(f, f"{TOKENIZERS}/qwen2", {"vocab.json": "vocab.json", "merges.txt": "merges.txt", n: "tokenizer_config.json"})
    spm = {"tokenizer.model": "tokenizer.model", "tokenizer_config.json": "tokenizer_config.json"}
    return {
        "embedded": lambda f: (f"{ROOT}/models/ckvc-tiny-8l", from_json(f"{ROOT}/models/ckvc-tiny-8l")),
        "llama3 (tiktoken file)": lambda f: (f"{TOKENIZERS}/llama3", hf(llama3_converted())),
        "llama3 (tokenizer.json)": lambda f: saved(f, llama3_converted()),
        "qwen2 (vocab, merges)": lambda f: (qwen(f, "tokenizer_config.qwen2.json"), hf(qwen2_built("tokenizer_config.qwen2.json"))),
        "qwen2.5 (vocab, merges)": lambda f: (qwen(f, "tokenizer_config.qwen2.5.json"), hf(qwen2_built("tokenizer_config.qwen2.5.json"))),
        "qwen2 (tokenizer.json)": lambda f: saved(f, qwen2_built("tokenizer_config.qwen2.json")),
        "qwen2 (GGUF)": qwen2_in_gguf,
        "smollm2 (tokenizer.json)": lambda f: (smollm2 / "bf16", from_json(smollm2 / "bf16")),
        "smollm2 (GGUF)": lambda f: (next(smollm2.glob("*.gguf")), from_json(smollm2 / "bf16")),  # of the same pieces, by scripts/convert-gguf.py
        "mistral v0.2 (tokenizer.json)": lambda f: (mistral, from_json(mistral)),
        "mistral v0.3-like (Metaspace first)": lambda f: saved(f, metaspace(mistral, "first", False)),
        "Metaspace always, split": lambda f: saved(f, metaspace(mistral, "always", True)),
        "Metaspace never, split": lambda f: saved(f, metaspace(mistral, "never", True)),
        "llama2 (tokenizer.json)": lambda f: (llama2, from_json(llama2)),
        "llama2 (tokenizer.model)": lambda f: (link(f, llama2, spm), sentencepiece(f"{llama2}/tokenizer.model")),
        "llama2 (GGUF)": llama2_in_gguf,
        "internlm2 (tokenizer.model)": lambda f: (f"{TOKENIZERS}/internlm2", sentencepiece(f"{TOKENIZERS}/internlm2/tokenizer.model")),
    }


# ---- comparing ----
def compare(o, model, other):
    total, bad = 0, 0
    for kind, data in texts(not other["special"]).items():
        text = data.decode("utf-8", errors="replace")
        got = outside.tokens_of(o, model, data, *([] if other["special"] else ["--no-special"]))
        want = other["encode"](text)
        total += len(data)
        if got != want:
            at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
            bad += 1
            print(f"    DIFFERENT {kind}: id {at}: ckvc {got[max(0, at - 3):at + 6]}, {other['package']} {want[max(0, at - 3):at + 6]}"
                  f" ({len(got)} and {len(want)} ids)")
    if "vectors" in other:
        texts_of, ids_of = (open(f"{TOKENIZERS}/vectors/ggml-vocab-{other['vectors']}.gguf.{x}", newline="").read() for x in ("inp", "out"))
        pairs = list(zip(texts_of.split("\n__ggml_vocab_test__\n"), ids_of.splitlines()))
        wrong = [text for text, ids in pairs if outside.tokens_of(o, model, text, "--no-special") != [int(i) for i in ids.split()]]
        print(f"    llama.cpp's test strings: {len(wrong)} of {len(pairs)} have other ids {wrong[:3]}")
        bad += bool(wrong)
    return total, bad


def clock(work, who=resource.RUSAGE_SELF):  # processor time: one thread each, and the machine may be busy
    used = lambda: sum(resource.getrusage(who)[:2])
    start = used()
    work()
    return used() - start


def speed(ckvc, model, other, rounds):
    kinds = texts(True)
    data = b"\n".join(kinds[k] for k in ("books", "code", "cjk") if k in kinds)
    text = data.decode("utf-8", errors="replace")
    paragraphs = [p for p in re.split(r"(?<=\n)\n+", text) if p]
    process = lambda what: clock(lambda: outside.run(ckvc, "tokenize", "--model", model, stdin=what), resource.RUSAGE_CHILDREN)
    times = [(process(data), process(b""), clock(lambda: other["encode"](text)), clock(lambda: [other["encode"](p) for p in paragraphs]))
             for _ in range(rounds)]
    full, empty, whole, parts = map(min, zip(*times))
    ours, mib = full - empty, len(data) / 2**20
    print(f"    speed over {mib:.1f} MiB: ckvc {mib / ours:.1f} MiB/s (start {empty:.2f} s left out), {other['package']} "
          f"{mib / whole:.1f} MiB/s whole, {mib / parts:.1f} MiB/s by paragraphs: {min(whole, parts) / ours:.1f} times")


def main():
    o = outside.arguments(smollm2=False, only=(str, "", "names, or parts of them"), rounds=(int, 3, "of which the fastest counts"))
    if not os.path.isdir(f"{SHARED}/data/text"):
        outside.skip(f"{SHARED}/data is not there (CKVC_SHARED)")
    failed = skipped = 0
    for name, made in cases(o.models).items():
        if not any(w in name for w in o.only.split(",")):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                model, other = made(folder)
            except Missing as e:
                print(f"{name}: skipped: {e}")
                skipped += 1
                continue
            total, bad = compare(o, model, other)
            print(f"{name}: {total / 2**20:.1f} MiB against {other['package']}: {'identical ids' if not bad else f'{bad} kinds differ'}", flush=True)
            failed += bad > 0
            speed(o.ckvc, model, other, o.rounds)
    print(f"{skipped} skipped")
    outside.at_most("tokenizers that differ", failed, 0)
    outside.done()


main()
