"""What `ckvc help` says, as data: the one table of verbs and options that docs/options.md, man pages and completions are made from."""
import itertools
import re
import subprocess
from dataclasses import dataclass

# How an option begins in help: "  -m, --model DIR      what it does [built-in value]". The explanation begins in column EXPLAINED_AT, on the next line if the
# option's name and value leave it less than two spaces, and goes on in lines that begin there.
EXPLAINED_AT = 37
OPTION = re.compile(r"  (-(\w), |    )--([\w-]+)")


@dataclass
class Option:
    left: str  # "-m, --model DIR"
    letter: str  # "m" or ""
    name: str  # "model"
    metavar: str  # "DIR", "auto|cpu", "" of a flag
    value: str  # built in, or ""
    said: str

    def is_path(self):
        """Whether the option takes a path, or several with commas between: its metavar then is DIR, FILE, PATH or RUN, or a file name such as T.ckvt."""
        return bool(re.fullmatch(r"DIR|FILE|PATH|RUN|[\w.]+\.[a-z0-9]+", self.metavar.removesuffix(",...")))

    def words(self):
        """The words from which the option's value is chosen: those of a metavar such as `auto|cpu`, or of the metavar NAME,... those that the explanation
        lists. An empty list if there is no such choice."""
        listed = re.split("[,;:] ", self.said) if self.metavar == "NAME,..." else self.metavar.split("|") if "|" in self.metavar else []
        found = [w for w in listed if re.fullmatch("[a-z0-9-]+", w)]
        return found if len(found) > 2 or "|" in self.metavar else []


@dataclass
class Verb:
    name: str  # "fit", "manifest build"; "" for all options that stand in every verb
    about: str
    usage: list  # lines that begin with "ckvc"
    examples: list
    prose: str  # what stands between examples and options
    groups: list  # (title, [Option]); the last one, without a title, is every verb's

    def takes_paths(self):
        """Whether the verb takes arguments that are not options. All such arguments are paths."""
        return any(re.match(rf"ckvc {self.name} (?!\[?--|\[options)\S", line) for line in self.usage)


def _options(lines):
    """Yields the Options of a block of help."""
    for i, line in enumerate(lines):
        if match := OPTION.match(line):
            beside = line[EXPLAINED_AT - 2:EXPLAINED_AT] == "  "
            left, said = (line[:EXPLAINED_AT], [line[EXPLAINED_AT:]]) if beside else (line, [])
            said += [after.strip() for after in itertools.takewhile(lambda after: after.startswith(" " * EXPLAINED_AT), lines[i + 1:])]
            text, value = re.fullmatch(r"(.*?)(?: \[([^][]*)\])?", " ".join(said)).groups()
            metavar = left[match.end():].strip()
            yield Option(left.strip(), match[2] or "", match[3], metavar, "the cores" if match[3] == "threads" else value or "", text)


def _text(ckvc, *words):
    """What `ckvc help WORDS` prints."""
    return subprocess.run([ckvc, "help", *words], check=True, capture_output=True, text=True).stdout.rstrip("\n")


def listed_verbs(ckvc):
    """[(heading, [(name, about)])], as `ckvc help` lists them."""
    blocks = _text(ckvc).split("\n\n")[2:]
    return [(block.split("\n")[0], re.findall(r"^  (\w+) +(.*)", block, re.M)) for block in blocks]


def read_verb(ckvc, name):
    """The Verb of this name, by what `ckvc help NAME all` prints."""
    title, usage, *blocks = _text(ckvc, *name.split(), "all").split("\n\n")
    verb = Verb(name, title.split(": ", 1)[1], [line[7:] for line in usage.split("\n")], [], "", [])
    for block in blocks:
        lines = block.split("\n")
        titled = not OPTION.match(lines[0])
        if OPTION.match(lines[titled:][0] if lines[titled:] else ""):
            verb.groups.append((lines[0][:-1] if titled else "", list(_options(lines))))
        elif lines[0] == "examples:":
            verb.examples = [line[2:] for line in lines[1:] if line.startswith("  ")]
            verb.prose = "\n".join(line for line in lines[1:] if not line.startswith("  "))
        else:
            verb.prose += ("\n\n" if verb.prose else "") + block
    return verb


def read_verbs(ckvc):
    """Yields the Verb of every listed verb and, behind it, those of two words (`manifest build`) that its usage names."""
    for _, names in listed_verbs(ckvc):
        for name, _ in names:
            verb = read_verb(ckvc, name)
            yield verb
            for two in dict.fromkeys(re.findall(rf"ckvc ({name} [a-z]+) ", " ".join(verb.usage))):
                yield read_verb(ckvc, two)
