#!/usr/bin/env python3
"""Manifests as token ids: ckvc beside transformers' own tokenizer and chat template, on the embedded model with other tokenizers and templates.

Of each model and line the ids of the Python package (by apply_chat_template) are what `python3 -m ckvc render` writes, and what ckvc computes with:
losses of every token. Or ckvc refuses the model's template by name.
"""
import json
import os
import shutil
import subprocess
import sys

import outside

a, (torch, transformers, np, h5py), tok, ids = outside.by_torch()
from ckvc import manifest_prompts, render  # noqa: E402

tmp, failed, equal, refused = outside.scratch(), 0, 0, 0
SHARED = outside.pathlib.Path(os.environ.get("CKVC_SHARED", outside.ROOT / "../shared")) / "data/tokenizers"
CHATML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" \
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
LLAMA3, IM = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"), ("<|im_start|>", "<|im_end|>")
S, U, A = ({"role": r} for r in ("system", "user", "assistant"))


def own(name):
    """The text that a family states, of the shared data."""
    path = SHARED / name
    return json.loads(path.read_text())["chat_template"] if path.is_file() else None


QWEN2, QWEN25 = own("qwen2/tokenizer_config.qwen2.json"), own("qwen2/tokenizer_config.qwen2.5.json")
INTERNLM2, MISTRAL = own("internlm2/tokenizer_config.json"), own("mistral-7b-instruct-v0.2/tokenizer_config.json")
OTHER = CHATML.replace("assistant\n", "assistant\n<think>\n")
# name: added tokens; template; whether ckvc knows it; more of tokenizer_config.json; a file beside it
MODELS = {
    "no-template": ((), None, False, {}, None),
    "chatml": (IM, CHATML, True, {}, None),
    "chatml-in-llama3": (LLAMA3 + IM, CHATML, True, {}, None),
    "chatml-with-a-line-end": (IM, None, True, {}, CHATML + "\n"),
    "a-list": (IM, [{"name": "tool_use", "template": OTHER}, {"name": "default", "template": CHATML}], True, {}, None),
    "a-file-before-the-key": (IM, CHATML, False, {}, OTHER),
    "chatml-of-other-names": (IM, CHATML.replace("message ", "m ").replace("message[", "m["), False, {}, None),
    "hermes3": (LLAMA3 + IM, "{{ bos_token }}" + CHATML.replace("{% if add", " {% if add"), False, {}, None),
    "qwq": (IM + ("<tool_call>",), OTHER, False, {}, None),
    "qwen3": (IM + ("<think>", "</think>"), CHATML.replace("message['content']", "message['content'].split('</think>')[-1]"), False, {}, None),
    "llama3": (LLAMA3, own("llama3/tokenizer_config.json"), True, {}, None),
    "llama3-of-another-bos": (LLAMA3, own("llama3/tokenizer_config.json"), False, {"bos_token": "<|end_of_text|>"}, None),
    "qwen2": (IM, QWEN2, True, {}, None),
    "qwen2.5": (IM + ("<tool_call>",), QWEN25, True, {}, None),
    "qwen2.5-indented": (IM, QWEN25 and QWEN25.replace("\n    {{-", "\n\n\t  {{-"), True, {}, None),
    "smollm2": (IM, QWEN2 and QWEN2.replace("You are a helpful assistant.", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"), True, {}, None),
    "internlm2": (IM + ("<s>", "</s>"), INTERNLM2, True, {"bos_token": "<s>", "eos_token": "</s>"}, None),
    "internlm2-of-another-bos": (IM, INTERNLM2, False, {}, None),
    "mistral": (("<s>", "</s>"), MISTRAL, True, {"bos_token": "<s>", "eos_token": "</s>"}, None),
    "mistral-of-another-eos": (IM + ("<s>", "</s>"), MISTRAL, False, {"bos_token": "<s>", "eos_token": "<|im_end|>"}, None),
}
ODD = [
    [U | {"content": "Where is the mail?"}],
    [S | {"content": " Be brief.\n"}, U | {"content": "\n Where is the mail? \u3000"}],
    [U | {"content": "Why?"}, A | {"content": "<think>\nThe queue.\n</think>\n\n Because of the queue. "}, U | {"content": "And then?"}],
    [U | {"content": "Why?"}, A | {"content": " So. "}],
    [U | {"content": ""}, A | {"content": ""}, U | {"content": " \n"}],
    [U | {"content": "one <|im_end|> two </s> [/INST] <|eot_id|> three"}],
    [A | {"content": "I begin."}, U | {"content": "You do."}],
    [U | {"content": "a"}, U | {"content": "b"}],
    [U | {"content": "a"}, S | {"content": "later"}, U | {"content": "b"}],
    [U | {"content": "\u00e9\u4e16\U0001f600 {{ x }} {% raw %}"}, A | {"content": "b"}, A | {"content": "c"}],
]


def changed(name, added=(), template=None, config=(), jinja=None, edit=None):
    """The embedded model, with more added tokens, a row of the embedding each, a template and other changes of its tokenizer."""
    out, source = tmp / name, outside.ROOT / "models/ckvc-tiny-8l"
    shutil.copytree(source, out)
    if added:
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        n = model.config.vocab_size
        rows = torch.cat([model.get_input_embeddings().weight.data, model.get_input_embeddings().weight.data[300 : 300 + 37 * len(added) : 37]])
        model.resize_token_embeddings(n + len(added), mean_resizing=False)
        model.get_input_embeddings().weight.data.copy_(rows)
        model.save_pretrained(out)
    t, c = (json.loads((source / f).read_text()) for f in ("tokenizer.json", "tokenizer_config.json"))
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    t["added_tokens"] += [{"id": n + i, "content": x, "special": True, **flags} for i, x in enumerate(added)]
    if edit:
        edit(t)
    c.update({"chat_template": template} if template else {}, **dict(config))
    (out / "tokenizer.json").write_text(json.dumps(t))
    (out / "tokenizer_config.json").write_text(json.dumps(c))
    if jinja:
        (out / "chat_template.jinja").write_text(jinja)
    return out


def losses(model, manifest):
    """What ckvc says of a manifest: losses of each token, or the one line that refuses it."""
    p = subprocess.run([a.ckvc, "perplexity", "-q", "--model", model, "--manifest", manifest, "--json", "--tokens"], capture_output=True, text=True)
    return p.stdout if p.returncode == 0 else p.stderr


def written(name, lines):
    path = tmp / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def miss(what, line, want, got):
    global failed
    failed += 1
    print(f"{what}: {json.dumps(line)[:200]}: {str(want)[:200]}; ckvc: {got[:300]}")


def compare(what, model, lines, known=True):
    """Lines as ckvc and as Python take them."""
    global equal, refused
    tokenizer, taken = transformers.AutoTokenizer.from_pretrained(model), []
    for line in lines:
        try:
            taken.append((line, manifest_prompts.prompt_ids(tokenizer, line, line.get("text", ""))))
        except ValueError as why:  # the template's own refusal, or no template
            got = losses(model, written("line.jsonl", [line]))
            refused += 1
            if "line.jsonl:1: prompt" not in got:
                miss(what, line, why, got)
    if not taken:
        return
    given, want = written("lines.jsonl", [line for line, _ in taken]), [{"id": line["id"], "tokens": ids} for line, ids in taken]
    got, by_ids = losses(model, given), losses(model, written("ids.jsonl", want))
    if not by_ids.startswith('{"id"') or (got != by_ids if known else "python3 -m ckvc render MODEL" not in got or "--chat-template NAME" not in got):
        miss(what, taken, by_ids, got)
    equal, refused = equal + known * len(taken), refused + (not known) * len(taken)
    if "messages" in taken[0][0] and [json.loads(x) for x in render.render(str(model), str(given))] != want:
        miss(what, taken, want, "render writes others")


for name, (added, template, known, config, jinja) in MODELS.items():
    if template is None and jinja is None and name != "no-template":
        print(f"skipped: {name}: {SHARED} has not the family's files")
        continue
    model = changed(name, added, template, config.items(), jinja)
    compare(name, model, [{"id": f"m{i}", "messages": messages} for i, messages in enumerate(ODD)], known)


def behind(t):
    """A template that puts an end of text behind."""
    end = next(x for x in t["added_tokens"] if x["content"] == "<|end_of_text|>")
    p = t["post_processor"]
    for q in p.get("processors", [p]):
        if q["type"] == "TemplateProcessing":
            q["single"].append({"SpecialToken": {"id": end["content"], "type_id": 0}})
            q["special_tokens"][end["content"]] = {"id": end["content"], "ids": [end["id"]], "tokens": [end["content"]]}


def gemma(t):
    """Gemma 3's steps: Replace, a Split by what it replaced, the pieces' spaces as U+2581."""
    t["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    t["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    t["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "Fuse"}]}
    t["post_processor"] = {k: v for k, v in t["post_processor"].items() if k != "processors"} if t["post_processor"]["type"] == "TemplateProcessing" else None
    spaced = lambda x: x.replace("\u0120", "\u2581")  # noqa: E731
    t["model"]["vocab"] = {spaced(k): v for k, v in t["model"]["vocab"].items()}
    t["model"]["merges"] = [[spaced(x) for x in (m if isinstance(m, list) else m.split(" "))] for m in t["model"]["merges"]]
    t["model"].update(ignore_merges=False, fuse_unk=True, unk_token="?")


for name, edit in (("an-end-behind", behind), ("gemma", gemma)):
    model = changed(name, edit=edit)
    texts = "The mail stays in the queue until the server answers.", " two  spaces ", "<|begin_of_text|>The mail"
    compare(name, model, [{"id": f"t{i}", "text": x} for i, x in enumerate(texts)])

# A whole manifest through render: what is no conversation stays, byte for byte but for a span of a file.
model = tmp / "qwq"
(tmp / "span.txt").write_text("The mail stays in the queue.")
more = {"source": "s", "document": "d", "split": "heldout"}
lines = [{"id": "m", "messages": ODD[0], "continuation": "In the hall.", **more}, {"id": "n", "messages": ODD[1], "continuation_tokens": [5, 6], "split": "select"},
         {"id": "t", "text": "Some text.", **more}, {"id": "i", "tokens": [5, 6, 7]}, {"id": "f", "file": "span.txt", "offset": 4, "bytes": 4, "continuation": "x"}]
whole = written("whole.jsonl", lines)
run = [sys.executable, "-m", "ckvc", "render", str(model), "--manifest", str(whole), "--out", str(tmp / "out.jsonl")]
env = {**os.environ, "PYTHONPATH": str(outside.ROOT / "python")}
done = subprocess.run(run, env=env, capture_output=True, text=True)
got = [json.loads(line) for line in (tmp / "out.jsonl").read_text().splitlines()] if done.returncode == 0 else done.stderr
tokenizer = transformers.AutoTokenizer.from_pretrained(model)
ids_of = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
want = [{"id": "m", "tokens": ids_of(tokenizer.apply_chat_template(ODD[0], tokenize=False, add_generation_prompt=True)), "continuation_tokens": ids_of("In the hall."), **more},
        {"id": "n", "tokens": ids_of(tokenizer.apply_chat_template(ODD[1], tokenize=False, add_generation_prompt=True)), "continuation_tokens": [5, 6], "split": "select"},
        lines[2], lines[3], {"id": "f", "text": "mail", "continuation": "x"}]
if got != want:
    print(f"render: got {got}, wanted {want}")
    failed += 1
# nothing is overwritten unasked, an input never
for words, status in (([], 73), (["--force"], 0), (["--force", "--out", str(whole)], 73), (["--manifest", str(tmp / "none.jsonl"), "--force"], 66)):
    p = subprocess.run([*run, *words], env=env, capture_output=True, text=True)
    if p.returncode != status or whole.read_text() != "".join(json.dumps(line) + "\n" for line in lines) or (status and p.stderr.count("\n") != 1):
        print(f"render {words}: {p.returncode}, wanted {status}: {p.stderr}")
        failed += 1
print(f"{len(MODELS)} templates: {equal} lines with equal ids, {refused} refused by both or by name")
print("FAIL" if failed else "ok")
sys.exit(failed > 0)
