#!/usr/bin/env python3
"""The recipes of data-manifests and what scripts/corpora.py makes of them. A recipe of a package made here is built, then with other bytes, versions and cuts; the demo's
and the fresh ones are built, and compared with their SHA-256, where build/debs holds their packages (`make demo` fetches those of the demo). Nothing is fetched."""
import gzip
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

from common import PROGRAM, ROOT, put

SCRIPT = f"{ROOT}/scripts/corpora.py"
spec = importlib.util.spec_from_file_location("corpora", SCRIPT)
corpora = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
sys.path.insert(0, f"{ROOT}/scripts")
import plain_text  # noqa: E402  (its folder was added above)
spec.loader.exec_module(corpora)


def run(folder, *arguments):
    """Exit code and last line of standard error of corpora.py over folder's recipes and packages; apt-get is not on its PATH."""
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{folder}/bin", "CORPORA_RECIPES": f"{folder}/recipes", "CORPORA_BUILD": f"{folder}/build"})
    return done.returncode, done.stderr.splitlines()[-1]


def package(folder, version, texts):
    """A .deb of texts, in folder/build/debs; its name and SHA-256."""
    tree, name = f"{folder}/tree", f"toy-doc_{version}_all.deb"
    os.makedirs(f"{tree}/DEBIAN", exist_ok=True)
    os.makedirs(f"{tree}/usr/share/doc/toy", exist_ok=True)
    put(f"{tree}/DEBIAN/control", f"Package: toy-doc\nVersion: {version}\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: a text\n")
    for i, text in enumerate(texts):
        put(f"{tree}/usr/share/doc/toy/{i}.txt", text)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, f"{folder}/build/debs/{name}"], check=True, stdout=subprocess.DEVNULL)
    return name, corpora.sha256(f"{folder}/build/debs/{name}")


def toy(folder):
    def write(**changes):
        put(f"{folder}/recipes/toy.json", json.dumps({**recipe, **changes}))
    for part in ("recipes", "build/debs", "bin", "out"):
        os.makedirs(f"{folder}/{part}")
    for tool in ("dpkg-deb", "tar", "xz", "rm", "gzip", "zstd"):
        if shutil.which(tool):
            os.symlink(shutil.which(tool), f"{folder}/bin/{tool}")
    words = "river stone window garden letter winter market bridge candle forest".split()
    rng = random.Random(1)
    texts = ["\n\n".join(" ".join(rng.choices(words, k=60)) + "." for _ in range(12)) for _ in range(7)]
    name, sha = package(folder, "1.0", texts[:6])
    cut = {"model": f"{ROOT}/models/ckvc-tiny-8l", "prompts": 6, "retrieval": 0.5, "facts": 2, "min-length": 320, "max-length": 400, "continuation": 32,
           "split-share": "heldout=0.5", "seed": 1, "against": ["toy"], "sha256": "0" * 64}
    recipe = {"about": "a test", "packages": [{"deb": name, "sha256": sha, "licence": "none"}],
              "sources": [{"name": "toy", "package": "toy-doc", "path": "usr/share/doc/toy", "what": "a text"}],
              "wordings": [["{a} is in {c}.", "Where is {a}? {a} is in", " {c}."]], "cuts": {"ckvc-tiny-8l": cut}}
    build = [PROGRAM, f"{folder}/out", "toy"]
    write()
    code, line = run(folder, *build)
    assert code == 65 and "wanted " + "0" * 64 in line and "put the new one into the recipe" in line, line
    cut["sha256"] = got = corpora.sha256(f"{folder}/out/toy.jsonl")
    write()
    assert run(folder, *build) == (0, f"corpora: {folder}/out/toy.jsonl: as in its recipe, {got}")
    prompts = [json.loads(line) for line in open(f"{folder}/out/toy.jsonl")]
    asking = [p for p in prompts if p["source"] == "toy-retrieval"]
    assert len(prompts) == 6 and len(asking) == 3
    for p in asking:  # the fact that is asked for stands in the text, and the continuation begins with its answer
        who = re.search(r"Question: Where is (\w+)\? \1 is in$", p["text"])[1]
        assert f"{who} is in{p['continuation'].split('.')[0]}." in p["text"], p
    assert run(folder, *build, "query=unseen")[0] == 0  # the same questions for the same facts, but none of them in the prompt
    for line in open(f"{folder}/out/toy.jsonl"):
        p = json.loads(line)
        who = p["source"] == "toy-retrieval" and re.match(r"\n\nQuestion: Where is (\w+)\? \1 is in ", p["continuation"])[1]
        assert not who or "Question" not in p["text"] and f"{who} is in{p['continuation'].split('.')[0].rsplit(' is in', 1)[1]}." in p["text"], p
    assert run(folder, *build, "prompts=4")[1].endswith("compared with nothing, as its cut is another")
    others(folder, recipe, cut, {p["document"]: p["split"] for p in prompts})
    # what the recipe says, and what it is held against
    write(packages=[{**recipe["packages"][0], "sha256": "1" * 64}])
    for newer in ([], ["--newer"]):
        code, line = run(folder, *newer, *build)
        assert code == 65 and f"{name}: sha256 {sha}, wanted {'1' * 64}" in line and "delete the file" in line, line
    write()
    os.remove(f"{folder}/build/debs/{name}")
    package(folder, "1.1", texts[1:])
    code, line = run(folder, *build)
    assert code == 69 and f"{name}: missing" in line and "--newer" in line, line
    code, line = run(folder, "--newer", *build)
    assert code == 0 and "other packages than its recipe's" in line, line
    for changes, what in (({"packages": [{"deb": name, "sha256": "12", "licence": ""}]}, "packages[0].sha256"), ({"sources": [{"name": "x"}]}, "sources[0]"),
                          ({"wordings": [["one"]]}, "wordings[0]"), ({"cuts": {"ckvc-tiny-8l": {**cut, "prompts": "6"}}}, "cuts.ckvc-tiny-8l.prompts"),
                          ({"cuts": {"other": cut}}, "cuts: no ckvc-tiny-8l, there are other")):
        write(**changes)
        code, line = run(folder, *build)
        assert code == 65 and what in line and "toy.json" in line, (what, line)
    assert run(folder, *build[:2], "no-such")[0] == 66
    assert run(folder, *build, "prompts=six") == (64, "corpora: prompts: got six, wanted int")


CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")  # the plain one, which ckvc knows


def others(folder, recipe, cut, splits):
    """A recipe of another's texts, and conversations about them: a document has the other's split."""
    model = f"{folder}/model"  # ckvc-tiny-8l with two of its pieces turned into ChatML's markers
    shutil.copytree(cut["model"], model)
    with open(f"{model}/tokenizer.json") as f:
        tokenizer = json.load(f)
    pieces = {i: piece for piece, i in tokenizer["model"]["vocab"].items()}
    for i, marker in ((1500, "<|im_start|>"), (1501, "<|im_end|>")):
        tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"] if pieces[i] not in (m if isinstance(m, list) else m.split()) and
                                        "".join(m).replace(" ", "") != pieces[i]]
        del tokenizer["model"]["vocab"][pieces[i]]
        tokenizer["added_tokens"].append({"id": i, "content": marker, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    put(f"{model}/tokenizer.json", json.dumps(tokenizer))
    with open(f"{model}/tokenizer_config.json") as f:
        stated = json.load(f)
    stated["chat_template"] = CHATML
    put(f"{model}/tokenizer_config.json", json.dumps(stated))
    chat = {**cut, "model": model, "turns": 2, "min-length": 320, "max-length": 900, "continuation": 8, "against": ["other"], "sha256": "0" * 64}
    other = {"about": "a test", "of": ["toy"], "wordings": recipe["wordings"], "cuts": {"ckvc-tiny-8l": {**cut, "against": ["other"]}, "chat": chat}}
    put(f"{folder}/recipes/other.json", json.dumps(other))
    for arguments, n in ((["other", "seed=1"], 6), (["--cut", "chat", "other", "seed=1"], 6)):
        code, line = run(folder, PROGRAM, f"{folder}/out", *arguments)
        assert code == 0 and line.endswith("compared with nothing, as its cut is another"), line
        prompts = [json.loads(line) for line in open(f"{folder}/out/other-all.jsonl")]
        assert len(prompts) == n
        for p in prompts:
            assert "messages" in p or splits[p["document"]] == p["split"], (p, splits)
    assert {p["source"] for p in prompts} == {"other-facts", "other-quote"} and {p["split"] for p in prompts} == {"heldout", "fit"}
    for p in prompts:
        text, answer, question = (m["content"] for m in p["messages"])
        for quoted, said in (((question, p["continuation"]),) if p["source"] == "other-quote" else ((text, answer),)):
            first, last = re.search('\nQuote the text above from "(.*)" to "(.*)", word for word.$', "\n" + quoted).groups()
            assert said in text and said.startswith(first) and said.endswith(last), p
        asked, said = (question, p["continuation"]) if p["source"] == "other-facts" else (text, answer)
        for who, line in zip(re.findall(r"- Where is (\w+)\?", asked), said.split("\n"), strict=True):  # each fact that is asked for stands in the text
            assert line.startswith(f"- {who} is in ") and line[2:] in text, p
    other["cuts"]["chat"].pop("facts")
    put(f"{folder}/recipes/other.json", json.dumps(other))
    code, line = run(folder, PROGRAM, f"{folder}/out", "--cut", "chat", "other")
    assert code == 65 and "facts beside wordings, and turns with them" in line, line


def readers(folder):
    """Sources without licences and what is generated, a file a folder; novels in chapters or whole."""
    for name, text in {"top.py": '#!/usr/bin/python3\n# Copyright: none\n"""What it is."""\n', "in/b.c": "/* Licence: none */\n/* what it is */\n#include <x.h>\n/* licence of nothing */\n",
                       "in/a.c": "int a;\n", "in/made.c": "/* generated by hand */\nint b;\n", "in/a.go": "// The license\n\n// Package a.\npackage a\n", "tests/a.py": "x\n"}.items():
        os.makedirs(os.path.dirname(f"{folder}/code/{name}"), exist_ok=True)
        put(f"{folder}/code/{name}", text)
    chapters = ["NOVEL", "", "Chapter 1", "one", "Chapter 2", "two"]
    packed = zlib.compress(b"X\n" + bytes(12) + (5).to_bytes(4, "big") + b"UTF-8" + bytes(4) + len(chapters).to_bytes(4, "big") +
                           b"".join(bytes(4) + len(x).to_bytes(4, "big") + x.encode() for x in chapters))
    put(f"{folder}/novels", bytes(4) + packed)
    for read, path, take, whole, want in (
        (corpora.files, "code", ["**/*.[cp]*", "*/*.go", "!tests/*"], False, {"code.py": '# top.py\n"""What it is."""\n\n', "in.go": "// in/a.go\n// Package a.\npackage a\n\n",
                                                                         "in.c": "/* in/a.c */\nint a;\n\n/* in/b.c */\n/* what it is */\n#include <x.h>\n/* licence of nothing */\n\n"}),
        (corpora.r_strings, "novels", ["NOVEL"], False, {"NOVEL-01.txt": "one", "NOVEL-02.txt": "two"}),
        (corpora.r_strings, "novels", ["NOVEL"], True, {"NOVEL-01.txt": "one\nChapter 2\ntwo"}),
    ):
        with tempfile.TemporaryDirectory() as out:
            read(f"{folder}/{path}", take, out, None, whole)
            got = {name: open(f"{out}/{name}").read() for name in os.listdir(out)}
        assert got == want, got


def all_recipes():
    """Their form; the fresh ones share no package with the others or with what the embedded models were trained on."""
    names = [x[:-5] for x in sorted(os.listdir(f"{ROOT}/data-manifests")) if x.endswith(".json")]
    with open(f"{ROOT}/data-manifests/compilerkv-paper.json") as f:
        paper = json.load(f)
    names.remove("compilerkv-paper")
    assert all(set(c) == {"name", "what"} for c in paper["corpora"]) and paper["not-named"]
    recipes = {name: corpora.recipe(name) for name in names}
    with open(f"{ROOT}/models/recipe/corpus.py") as f:
        trained = set(re.findall(r"[a-z0-9.-]+", f.read().split('"""')[1]))
    seen = {}
    for name, r in recipes.items():
        for p in r["packages"] if "of" not in r else []:
            package_name = p["deb"].split("_")[0]
            assert package_name not in trained and package_name not in seen, (name, package_name, seen.get(package_name))
            seen[package_name] = name
    wordings = [w[0] for r in recipes.values() for w in r.get("wordings", [])]
    assert len(set(wordings)) == len(wordings) == 20
    return recipes


def there(recipes, names):
    return all(os.path.exists(f"{corpora.DEBS}/{p['deb']}") for n in names for p in recipes[n]["packages"] if "library" not in p)


def plain(folder):
    """HTML, man and info to text, before ckvc tidies it; a folder with its links left out, .gz packed again, and what is none of these as it is."""
    for read, text, want in (
        (plain_text.html, b"<html><head><title>t</title></head><body><h1>Top</h1><p>one &amp; <b>two</b>\n three &#x41;&lt;&rsquo;</p><!-- no > --><table><tr><td>cell<table></table></td></tr></table>"
         b"<ul><li>x<li>y</ul><pre>a\n  b</pre><script>if(a<b)</script>end", b"\n\nTop\n\none & two three A<'\n\nx\ny\n\na\n  b\n\nend"),
        (plain_text.html, b"a &bogus; &#0; &#xD800; &", b"a &bogus; &#0; &#xD800; &"), (plain_text.html, b"cut <b", b"cut "), (plain_text.html, b"cut <!-- never closed", b"cut "),
        (plain_text.html, b"<head>never closed", b""), (plain_text.html, b"\xe9 &eacute; &#233;", b"\xe9 &eacute; &#233;"), (plain_text.html, b"&#233;", b"\xc3\xa9"),
        (plain_text.man, b'.\\" c\n.TH X 1\n.de XX\nrubbish\n..\n.SH "THE NAME"\nx \\- does \\fBbold\\fP and \\(lqq\\(rq\n.BR foo " (1)"\n.PP\nnext \\e',
         b'\n\nTHE NAME\nx - does bold and "q"\nfoo  (1)\n\nnext \\\n'),
        (plain_text.info, b"top\n\x1f\nFile: a.info,  Node: B,  Up: A\n\nText *note Title: Node, and *note Other::.\n\n* Menu:\n\n* X::  x\n\nafter\n\x1f\nTag Table:\nNode: A\n",
         b"top\n\n\nText see Title, and see Other.\n\nafter\n"),
    ):
        assert read(text) == want, (read.__name__, read(text), want)
    for name, text, read in (("a/b.HTML", b"", "html"), ("guile.info-3", b"", "info"), ("x.3tcl", b"x\n.SH NAME\n", "man"), ("x.3ncurses", b"x\n.SH NAME\n", "man"), ("x.txt", b"plain", None), ("x.rst", b"<html", None)):
        got = plain_text.reader(name, text)
        assert (got and got.__name__) == read, name
    noise, bits = random.Random(5), [b"<", b">", b"</", b"<pre", b"&", b"&#", b";", b"\x1f\n", b"*note ", b"* Menu:", b".de", b"..", b"\\f", b"\\(", b"\\s+", b"\b", b"\n", b" ", b"::", b"\xe2\x80", b"x", b"<!--", b'.SH "', b"'"]
    for _ in range(2000):
        for read in (plain_text.html, plain_text.man, plain_text.info):
            read(b"".join(noise.choices(bits, k=30)))
    os.makedirs(f"{folder}/from/in")
    for name, data in (("in/p.html.gz", gzip.compress(b"<p>one")), ("in/c.c", b"int x;\n"), ("broken.html.gz", b"\x1f\x8bbroken")):
        put(f"{folder}/from/{name}", data)
    os.symlink("in", f"{folder}/from/link")
    done = subprocess.run([sys.executable, f"{ROOT}/scripts/plain_text.py", f"{folder}/from", f"{folder}/to"], capture_output=True, text=True)
    assert done.returncode == 0 and sorted(os.listdir(f"{folder}/to")) == ["broken.html.gz", "in"], done
    with open(f"{folder}/to/in/p.html.gz", "rb") as f, open(f"{folder}/to/in/c.c", "rb") as g, open(f"{folder}/to/broken.html.gz", "rb") as h:
        assert (gzip.decompress(f.read()), g.read(), h.read()) == (b"\n\none", b"int x;\n", b"\x1f\x8bbroken")
    done = subprocess.run([sys.executable, f"{ROOT}/scripts/plain_text.py", f"{folder}/none", f"{folder}/there"], capture_output=True, text=True)
    assert done.returncode and "No such file" in done.stderr and len(done.stderr.splitlines()) == 1, done


recipes = all_recipes()
with tempfile.TemporaryDirectory() as scratch:
    plain(scratch)
with tempfile.TemporaryDirectory() as scratch:
    readers(scratch)
with tempfile.TemporaryDirectory() as scratch:
    toy(scratch)
    demo, fresh = ["technical", "narrative"], ["fresh-technical", "fresh-narrative"]
    for names, needed in ((demo, demo), (fresh, demo + fresh)):
        if not there(recipes, needed):
            continue  # offline: `make demo`, and results-budgets.sh with PARTS=fresh, fetch them, and compare as they build
        done = subprocess.run([sys.executable, SCRIPT, PROGRAM, scratch, *names], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr.count("as in its recipe") == 2, done.stderr
