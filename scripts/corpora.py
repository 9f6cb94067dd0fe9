#!/usr/bin/env python3
"""corpora.py [--newer] [--cut NAME] CKVC OUTDIR RECIPE... [KEY=VALUE...]: prompt manifests from the recipes data-manifests/RECIPE.json

Each recipe gives three files. OUTDIR/RECIPE-all.jsonl has all prompts of the cut. OUTDIR/RECIPE.jsonl has those of them that share no text with the prompts
of the recipes named by `against`, or with the recipe's own held-out prompts. OUTDIR/RECIPE-leaks.json is the record that this was checked, for the option
--leak-check. Packages that are not in build/debs are fetched by apt-get download and unpacked below build/. Nothing is installed and no root is needed. What
has been fetched is used again, so that a second run works offline.

It is an error if a package or a manifest has another SHA-256 than the recipe says. With --newer, another version of a package is taken if the recipe's cannot
be fetched, and a line says that the prompts, and so all numbers made of them, are then others. --cut names the cut of the recipes; without it, it is
ckvc-tiny-8l. KEY=VALUE replaces a value of the cut (such as prompts=200); the sum of the manifest is then not checked. The exit status is 65 if something is
not as the recipe says, 66 if there is no such recipe or model, and 69 if a package cannot be fetched."""
import glob
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zlib

import plain_text

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECIPES = os.environ.get("CORPORA_RECIPES", ROOT + "/data-manifests")
BUILD = os.environ.get("CORPORA_BUILD", ROOT + "/build")
DEBS = BUILD + "/debs"
CUT = {"model": str, "prompts": int, "retrieval": float, "min-length": int, "max-length": int, "continuation": int, "seed": int,
       "against": list, "sha256": str}
MAY = {"split-share": str, "split-rest": str, "facts": int, "whole": bool, "turns": int, "query": str}


def say(text):
    print("corpora:", text, file=sys.stderr)


def fail(code, text):
    say(text)
    sys.exit(code)


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


# ---- recipes ----
def recipe(name):
    """The recipe data-manifests/NAME.json, whose form is checked."""
    path = f"{RECIPES}/{name}.json"

    def want(value, place, kind, rule=lambda x: True, what=""):
        if not isinstance(value, kind) or not rule(value):
            fail(65, f"{path}: {place}: got {json.dumps(value)}, wanted {what or kind.__name__}; data-manifests/README.md says what stands there")
        return value

    def keys(value, place, needed, may=()):
        want(value, place, dict, lambda x: set(needed) <= set(x) <= {*needed, *may}, f"the keys {', '.join(needed)}" + (f" and perhaps {', '.join(may)}" if may else ""))

    def digest(value, place):
        want(value, place, str, lambda x: re.fullmatch("[0-9a-f]{64}", x), "64 hexadecimal digits")
    try:
        with open(path) as f:
            r = json.load(f)
    except FileNotFoundError:
        fail(66, f"{path}: no such recipe; there are {', '.join(sorted(os.path.basename(x)[:-5] for x in glob.glob(RECIPES + '/*.json')))}")
    except ValueError as e:
        fail(65, f"{path}: {e}, wanted JSON")
    keys(r, "recipe", ("about", "of", "cuts") if "of" in r else ("about", "packages", "sources", "cuts"), ("wordings",))
    others = [recipe(n) for n in want(r.get("of", []), "of", list)]
    r.update({key: [x for other in others for x in other[key]] for key in ("packages", "sources") if others})
    for i, p in enumerate(want(r["packages"], "packages", list)):
        keys(p, f"packages[{i}]", ("deb", "sha256", "licence"), ("library",))
        want(p["deb"], f"packages[{i}].deb", str, lambda x: re.fullmatch(r"[a-z0-9.+-]+_[^_/]+_[a-z0-9]+\.deb", x), "NAME_VERSION_ARCHITECTURE.deb")
        digest(p["sha256"], f"packages[{i}].sha256")
    packages = [p["deb"].split("_")[0] for p in r["packages"]]
    for i, s in enumerate(want(r["sources"], "sources", list)):
        keys(s, f"sources[{i}]", ("name", "package", "path", "what"), ("reader", "take"))
        want(s["package"], f"sources[{i}].package", str, packages.__contains__, "one of packages")
        want(s.get("reader", "bible"), f"sources[{i}].reader", str, READERS.__contains__, " or ".join(READERS))
    for i, w in enumerate(r.get("wordings", [])):
        want(w, f"wordings[{i}]", list, lambda x: len(x) == 3 and all(isinstance(t, str) for t in x), "a fact, its question and its answer")
    for cut, c in want(r["cuts"], "cuts", dict).items():
        keys(c, f"cuts.{cut}", CUT, MAY)
        for key in c:
            want(c[key], f"cuts.{cut}.{key}", {**CUT, **MAY}[key])
        want("facts" in c, f"cuts.{cut}: facts", bool, lambda x: x == ("wordings" in r) >= ("turns" in c), "facts beside wordings, and turns with them")
        want(c.get("query", "seen"), f"cuts.{cut}.query", str, ("seen", *(() if "turns" in c else ("unseen",))).__contains__, "seen or, without turns, unseen")
        digest(c["sha256"], f"cuts.{cut}.sha256")
    return r


# ---- packages ----
def fetch(name, version):
    """Fetches a version of a Debian package into DEBS; version "": the newest. It goes by the machine's package lists; if these do not have the package, lists
    are fetched below BUILD. Returns None, or a text that says why there is no package."""
    def apt(*words, **where):
        try:
            done = subprocess.run(words, capture_output=True, text=True, **where)
        except FileNotFoundError:
            return 1, "E: apt-get is missing"
        return done.returncode, done.stdout + done.stderr

    def reason(text):
        return next((line for line in text.splitlines() if line.startswith("E:")), "no reason given")
    options = []
    if not re.search("Candidate: [0-9]", apt("apt-cache", "policy", name)[1]):
        os.makedirs(BUILD + "/apt/lists/partial", exist_ok=True)
        os.makedirs(BUILD + "/apt/cache/archives/partial", exist_ok=True)
        options = ["-o", f"Dir::State::lists={BUILD}/apt/lists", "-o", f"Dir::Cache={BUILD}/apt/cache"]
        if not glob.glob(BUILD + "/apt/lists/*Packages*"):
            say(f"fetching package lists into {BUILD}/apt")
            code, text = apt("apt-get", *options, "-q", "-q", "update")
            if code:
                return reason(text)
    say(f"fetching {name} {version}".rstrip())
    code, text = apt("apt-get", *options, "-q", "-q", "-o", "APT::Sandbox::User=root", "download", f"{name}={version}" if version else name, cwd=DEBS)
    return reason(text) if code else None


def deb(package, where, newer):
    """The path of a recipe's package, which is fetched if it is not there, and whether it is the recipe's, byte for byte. where: the recipe, for messages.
    newer: whether another version may stand in. Ends the program with 65 if the package has another sum, and with 69 if it cannot be fetched."""
    path, (name, version, _) = f"{DEBS}/{package['deb']}", package["deb"].split("_")
    why = None if os.path.exists(path) else fetch(name, version.replace("%3a", ":"))
    if os.path.exists(path):
        got = sha256(path)
        if got != package["sha256"]:
            fail(65, f"{path}: sha256 {got}, wanted {package['sha256']} ({where}): delete the file, so that it is fetched again")
        return path, True
    if newer and not glob.glob(f"{DEBS}/{name}_*.deb"):
        why = fetch(name, "") or why
    others = sorted(glob.glob(f"{DEBS}/{name}_*.deb"))
    if not newer or not others:
        fail(69, f"{path}: missing, wanted by {where} ({why}): put it there (snapshot.debian.org keeps every version)" +
             ("" if newer else ", or take another version with --newer, which makes other prompts"))
    say(f"{others[-1]} in place of {package['deb']} ({where}; {why})")
    return others[-1], False


def unpacked(path):
    """The folder below BUILD into which a package's file is unpacked, if that was not done before."""
    folder = f"{BUILD}/unpacked/{os.path.basename(path)[:-4]}"
    if not os.path.exists(folder):
        part = tempfile.mkdtemp(dir=BUILD + "/unpacked")
        subprocess.run(["dpkg-deb", "-x", path, part], check=True)
        try:
            os.rename(part, folder)
        except OSError:  # another corpora.py has put it there meanwhile
            shutil.rmtree(part)
            if not os.path.exists(folder):
                raise
    return folder


# ---- texts that are in no text file: a folder of them ----
def bible(path, take, folder, packages, whole):
    """Writes the text of bible-kjv-text into a folder: a file for each chapter or, with `whole`, for each book. The package's own program prints its text,
    which is packed in a way of its own, with a verse in each line ("Ge1:3 And God said"). path: the folder of the packed text. take: names of books.
    packages: a function that gives the folder of an unpacked package by its name, and those of the recipe's libraries by `library`."""
    def run(verses, libraries=""):
        return subprocess.run([packages("bible-kjv") + "/usr/bin/bible", "-f", "-p", path + "/", verses], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": libraries})
    libraries = ""
    if run("Genesis 1:1").returncode:  # a slim system has no readline
        libraries = ":".join(sorted({os.path.dirname(x) for p in packages("library") for x in glob.glob(p + "/**/*.so.*", recursive=True)}))
    for book in take:
        verses = (re.fullmatch(r"([0-9]?[A-Za-z]+[0-9]+):\d+ (.*)", line) for line in run(f"{book} 1:1-{book} 150:200", libraries).stdout.splitlines())
        chapters = {chapter: textwrap.fill(" ".join(word for m in lines for word in m[2].split()), 72, break_long_words=False, break_on_hyphens=False)
                    for chapter, lines in itertools.groupby(filter(None, verses), lambda m: m[1])}
        for name, text in {book: "\n\n".join(chapters.values())}.items() if whole else chapters.items():
            with open(f"{folder}/{name}.txt", "w") as f:
                f.write(text)


def r_strings(path, take, folder, packages, whole):
    """Writes books of an R package's data into a folder: a file for each chapter or, with `whole`, for each book. A book is a vector of strings, of which the
    first is the title and the others are lines. take: titles. packages is not used."""
    with open(path, "rb") as f:
        data = f.read()
    while data:  # length (4 bytes), then zlib of an XDR serialisation
        stream = zlib.decompressobj()
        x, data = stream.decompress(data[4:]), stream.unused_data
        at = 18 + int.from_bytes(x[14:18], "big") + 4  # behind the header, the name of the encoding, and the vector's type
        lines, n = [], int.from_bytes(x[at:at + 4], "big")
        at += 4
        for _ in range(n):
            size = int.from_bytes(x[at + 4:at + 8], "big")
            lines.append(x[at + 8:at + 8 + size].decode())
            at += 8 + size
        if lines[0] in take:
            starts = [i for i, line in enumerate(lines) if line.lower().startswith("chapter ")][:1 if whole else n] + [n]
            for k, (begin, end) in enumerate(itertools.pairwise(starts)):
                with open(f"{folder}/{lines[0].replace(' ', '-')}-{k + 1:02}.txt", "w") as f:
                    f.write("\n".join(lines[begin + 1:end]))


COMMENTS = {".c": ("/* {} */", r"\s*/\*.*?\*/"), ".go": ("// {}", r"\s*(//[^\n]*\n)+"), ".py": ("# {}", r"\s*(#[^\n]*\n)+")}  # how one is written, and found


def taken(path, take):
    """The names below a path that the patterns `take` match, except those that a pattern behind ! matches."""
    found = {t: set(glob.glob(t.lstrip("!"), root_dir=path, recursive=True)) for t in take}
    return set().union(*(found[t] for t in take if t[0] != "!")).difference(*(found[t] for t in take if t[0] == "!"))


def files(path, take, folder, packages, whole):
    """Writes sources that the patterns `take` match into a folder. Those of one folder and ending become one file, in which a comment with its path stands
    before each source. The comment of the licence at the top of a source is left out, and so are sources that say that they are generated. packages and whole
    are not used."""
    for (where, ending), names in itertools.groupby(sorted(taken(path, take), key=lambda x: (os.path.dirname(x), os.path.splitext(x)[1], x)),
                                                    lambda x: (os.path.dirname(x), os.path.splitext(x)[1])):
        with open(f"{folder}/{(where or os.path.basename(path)).replace('/', '-')}{ending}", "w") as f:
            for name in names:
                with open(f"{path}/{name}", encoding="utf-8") as g:
                    text = g.read()
                at = top = 0
                while m := re.compile(COMMENTS[ending][1], re.S).match(text, at):
                    at = m.end()
                    top = at if re.search("copyright|licen[cs]e", m[0], re.I) else top
                if not re.search("(?i)(code|automatically) generated|generated (automatically|by)|do not edit", text[:2000]):
                    f.write(f"{COMMENTS[ending][0].format(name)}\n{text[top:].strip()}\n\n")


READERS = {"bible": bible, "files": files, "r-strings": r_strings}

# ---- retrieval in a recipe's own wordings ----
NAMES = "Alma Boris Celia Dmitri Edda Farid Greta Hugo Ingrid Jonas Katya Lorenz Mirela Nils Olga Pavel Quentin Rosa Stefan Tilda".split()
CITIES = "Lisbon Oslo Trieste Bergen Krakow Dublin Ghent Malaga Turin Bremen Lyon Porto".split()
JOBS = "baker surgeon welder notary teacher plumber pilot tailor dentist florist lawyer carpenter".split()


def scattered(prompt, fact, n, behind):
    """Returns a prompt's text with n facts put into its first nine tenths, and the facts in the order in which they are asked for. Each fact is a dict of
    what the wording `fact` is filled in with. behind: a function that gives, for the facts, how many characters will follow the text; the text is cut by so
    many, so that the prompt keeps its length. The prompt's id alone decides which facts there are, where they stand, and in which order they are asked
    for."""
    rng = random.Random(prompt["id"])
    names, cities, jobs, others = (rng.sample(x, n) for x in (NAMES, CITIES, JOBS, NAMES))
    planted = [{"a": a, "c": c, "j": j, "b": b if b != a else "Ursula", "n": rng.randrange(1000, 99999), "g": f"{rng.choice('ABCDEF')}{rng.randrange(10, 99)}",
                "f": f"{rng.choice('KLMNPQ')}{rng.choice('RSTVX')}{rng.randrange(100, 999)}", "h": f"{rng.randrange(24)}:{rng.randrange(10, 60)}"}
               for a, c, j, b in zip(names, cities, jobs, others)]
    asked, text = rng.sample(planted, n), prompt["text"]
    room = len(text) - sum(len(fact.format(**x)) + 2 for x in planted) - behind(asked)
    spaces = [m.start() for m in re.finditer(r"\s", text[:room])]
    text = text[:spaces[-1]]
    out, done = [], 0
    for place, x in zip(sorted(0.9 * rng.random() for _ in planted), planted):
        at = max(done, next((i + 1 for i in spaces if i >= place * len(text)), 0))
        out += [text[done:at], fact.format(**x), " "]
        done = at
    return "".join(out) + text[done:], asked


def asking(prompt, wording, n, source, unseen):
    """The manifest line of a prompt that hides n facts and asks for them. It ends with the question for one fact or, with `unseen`, before this question. Its
    continuation has the answers, and the questions that the prompt does not have. wording: the texts of a fact, of its question and of its answer."""
    fact, question, answer = wording

    def ask(x):
        return f"\n\nQuestion: {question.format(**x)}"
    text, asked = scattered(prompt, fact, n, lambda facts: 0 if unseen else len(ask(facts[0])))
    first, *others = map(ask, asked)
    return {**prompt, "id": "asking-" + prompt["id"], "source": source, "text": text if unseen else text + first,
            "continuation": (first if unseen else "") + "".join(answer.format(**x) + q for x, q in zip(asked, [*others, ""]))}


# ---- conversations ----
def quoting(text, begin, end, rng):
    """A question that asks to quote a passage, which it names by its first and its last words, and the passage. The passage has 60 to 110 words, begins and
    ends with a line or a sentence, and lies between the places begin and end of the text. rng chooses among those that there are. None if there is none."""
    starts = [m.end() for m in re.finditer(r"\A|\n|[.!?;] ", text) if begin <= m.end() < end]
    for at in rng.sample(starts, len(starts)):
        first = re.match(r"\S+(?: +\S+){2,7}", text[at:])
        passage = re.match(r"(?s)(?:\S+\s+){59,109}?\S+(?=\n|\Z|(?<=[.!?;]) )", text[at:])
        if first and passage and at + passage.end() <= end and text.count(first[0]) == 1:
            last = re.search(r"\S+(?: +\S+){0,2}\Z", passage[0])
            return f'Quote the text above from "{first[0]}" to "{last[0]}", word for word.', passage[0]
    return None


def conversing(prompt, wording, n, turns, facts_last, room):
    """A conversation of so many turns about a prompt's text, as a line of `ckvc manifest build --chat`. Turns that ask for facts alternate with turns that
    ask to quote a passage; facts_last says of which kind the last one is. The n facts are shared out among the former. Text and turns together are `room`
    characters shorter than the prompt. None if the text has no passage that can be asked for."""
    fact, question, answer = wording
    asks = [(turns - k) % 2 == facts_last for k in range(turns)]  # for facts

    def listing(facts):
        both = [question.format(**x).split("? ", 1) for x in facts]
        return ("\n".join(["Questions:", *(f"- {q}?" for q, _ in both), "Answer line by line."]),
                "\n".join(f"- {start}{answer.format(**x)}" for (_, start), x in zip(both, facts)))

    def shared(facts):
        return [listing(facts[k::sum(asks)]) for k in range(sum(asks))]

    def behind(facts):  # without the last answer
        return room + sum(len("".join(pair)) for pair in shared(facts)) + 650 * asks.count(False) - (len(shared(facts)[-1][1]) if asks[-1] else 550)
    text, asked = scattered(prompt, fact, n if any(asks) else 0, behind)
    rng, parts = random.Random(prompt["id"]), [len(text) * k // max(1, asks.count(False)) for k in range(turns + 1)]
    lists, passages = iter(shared(asked)), (quoting(text, begin, end, rng) for begin, end in itertools.pairwise(parts))
    pairs = [next(lists if a else passages) for a in asks]
    if None in pairs:
        return None
    pairs[0] = (f"{text.rstrip()}\n\n{pairs[0][0]}", pairs[0][1])
    return {"document": prompt["document"], "messages": [{"role": role, "content": said} for pair in pairs for role, said in zip(("user", "assistant"), pair)]}


# ---- manifests ----
def build(ckvc, name, r, cut, newer, out):
    """Makes out + "-all.jsonl", all prompts of a recipe. name, r: the recipe and its name. cut: the cut with its values. newer: as for `deb`. Returns whether
    all packages are the recipe's, byte for byte."""
    model, exact, where = os.path.join(ROOT, cut["model"]), True, f"data-manifests/{name}.json"
    if not os.path.exists(model):
        fail(66, f"{model}: no such model, wanted by {where}" +
             (f": make model-{cut['model'].split('/')[2]} fetches it" if cut["model"].startswith("build/models/") else ""))
    folders = {}
    for p in r["packages"]:
        if "library" not in p:
            path, same = deb(p, where, newer)
            folders[p["deb"].split("_")[0]], exact = unpacked(path), exact and same

    def packages(which):
        return [unpacked(deb(p, where, newer)[0]) for p in r["packages"] if "library" in p] if which == "library" else folders[which]
    own = "wordings" in r
    given = {key: cut[key] for key in cut if key not in ("against", "sha256", "retrieval", "facts", "whole", "turns", *(["query"] if own or not cut["retrieval"] else []))} | {"model": model}

    def manifest_build(path, what, **changes):
        options = [f"--{key}={value}" for key, value in (given | changes).items() if value is not None]
        done = subprocess.run([ckvc, "manifest", "build", "--force", *options, "--out", path, *what])
        if done.returncode:
            sys.exit(done.returncode)
        with open(path) as f:
            return [json.loads(line) for line in f]
    with tempfile.TemporaryDirectory() as scratch:
        paths = []
        for i, s in enumerate(r["sources"]):
            path = f"{folders[s['package']]}/{s['path']}"
            folder = f"{scratch}/{i}"
            if "reader" in s:
                os.mkdir(folder)
                READERS[s["reader"]](path, s["take"], folder, packages, cut.get("whole"))
            elif os.path.isdir(path):
                plain_text.convert_all(path, folder)
            elif os.path.exists(path):
                os.mkdir(folder)
                folder += "/" + os.path.basename(path)
                plain_text.convert_all(path, folder)
            else:
                folder = path  # ckvc says that it is missing
            path = folder
            paths.append(f"{s['name']}={path}")
        room = (cut["max-length"] - cut["min-length"]) * 3 // 8 if "turns" in cut else 0  # tokens for the template, and that questions have more of them than text
        prompts = manifest_build(out + "-all.jsonl", paths, **{"retrieval": 0 if own else cut["retrieval"], "retrieval-source": name + "-retrieval",
                                                               "min-length": cut["min-length"] + room})
        n = round(cut["retrieval"] * len(prompts))  # of the first, as their order is drawn
        asked = [(p, r["wordings"][i % len(r["wordings"])], cut["facts"], i < n) for i, p in enumerate(prompts)] if own else []
        if "turns" in cut:  # a conversation keeps its text's split
            chats = {}
            for p, wording, facts, for_facts in asked:
                said = conversing(p, wording, facts, cut["turns"], for_facts, 3 * room)
                chats.setdefault(p["split"], {}).setdefault(f"{name}-{'facts' if for_facts else 'quote'}", []).append(json.dumps(said) + "\n" if said else "")
            prompts = []
            for split, kinds in chats.items():
                for kind, lines in kinds.items():
                    with open(f"{scratch}/{kind}", "w") as f:
                        f.writelines(lines)
                prompts += manifest_build(f"{scratch}/built", ["--chat", *(f"{kind}={scratch}/{kind}" for kind in kinds)],
                                          **{"prompts": 0, "split-share": None, "split-rest": split})
            prompts.sort(key=lambda p: p["id"][-12:])
        elif own:
            prompts = [asking(p, wording, facts, name + "-retrieval", cut.get("query") == "unseen") if for_facts else p for p, wording, facts, for_facts in asked]
    if own:
        with open(out + "-all.jsonl", "w") as f:
            f.writelines(json.dumps(p, sort_keys=True, separators=(",", ":")) + "\n" for p in prompts)
    return exact


def main(arguments):
    newer, which, values, words = False, "ckvc-tiny-8l", {}, []
    while arguments:
        a = arguments.pop(0)
        key, _, value = a.partition("=")
        if a == "--newer":
            newer = True
        elif a == "--cut" and arguments:
            which = arguments.pop(0)
        elif key in {**CUT, **MAY} and value:
            kind = {**CUT, **MAY}[key]
            try:
                values[key] = value.split(",") if kind is list else kind(value)
            except ValueError:
                fail(64, f"{key}: got {value}, wanted {kind.__name__}")
        else:
            words.append(a)
    if len(words) < 3 or any(w.startswith("-") for w in words):
        fail(64, (__doc__ or "").splitlines()[0])
    ckvc, out, names = os.path.realpath(words[0]), words[1], words[2:]
    for folder in (DEBS, BUILD + "/unpacked", out):
        os.makedirs(folder, exist_ok=True)
    recipes, cuts = {}, {}

    def load(name):
        recipes[name] = recipe(name)
        if which not in recipes[name]["cuts"]:
            fail(65, f"data-manifests/{name}.json: cuts: no {which}, there are {', '.join(recipes[name]['cuts'])}")
        cuts[name] = recipes[name]["cuts"][which] | values
        return cuts[name]["against"]
    for name in {other: None for n in names for other in [n, *load(n)]}:
        load(name)
    exact = all([build(ckvc, name, recipes[name], cuts[name], newer, f"{out}/{name}") for name in recipes])

    def check(name, kind, *options):  # exit 1: something was shared
        against = ",".join(f"{out}/{n}{kind if n in names else '-all'}.jsonl" for n in cuts[name]["against"])
        code = subprocess.run([ckvc, "manifest", "check", "--force", f"{out}/{name}{kind}.jsonl", "--against", against, *options], stdout=subprocess.DEVNULL).returncode
        if code > 1:
            sys.exit(code)
    for name in names:
        check(name, "-all", "--clean", f"{out}/{name}.jsonl")
    for name in names:
        check(name, "", "--out", f"{out}/{name}-leaks.json")
        got, wanted = sha256(f"{out}/{name}.jsonl"), cuts[name]["sha256"]
        if exact and not values and got != wanted:
            fail(65, f"{out}/{name}.jsonl: sha256 {got}, wanted {wanted} (data-manifests/{name}.json, cut {which}): the packages are the recipe's, so what cuts them has "
                 "changed; where that is meant, put the new one into the recipe")
        say(f"{out}/{name}.jsonl: " + (f"as in its recipe, {got}" if got == wanted else "other packages than its recipe's: all numbers made of it are others than those in "
            "the README" if not exact else "compared with nothing, as its cut is another"))


if __name__ == "__main__":
    main(sys.argv[1:])
