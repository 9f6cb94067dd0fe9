"""`python3 -m ckvc T.ckvt ...` prints a summary of each table; verbs are those of exchange.py, llama.py, and, by torch, calibrate.py and score.py."""
import importlib
import sys

from . import Error, Table
from .exchange import Usage

VERBS = {"export": "exchange", "import": "exchange", "calibrate": "calibrate", "score": "score", "compile": "score", "compact": "llama"}


def main(words: list[str]) -> int:
    """Prints; the exit status: 0, 64 (usage), 65 (bad input), 66 (a file that cannot be read), 69 (no module), 73 (a file in the way), 75 (stopped)."""
    verb = words[0] if words and words[0] in VERBS else ""
    if not words or words[0] in ("-h", "--help"):
        print("usage: python3 -m ckvc T.ckvt ... | export TABLE ... | import FILE ... | calibrate, score or compile MODEL ... | compact SLOT ... (--help)")
        return 0 if words else 64
    try:
        if verb:
            print(importlib.import_module(f".{VERBS[verb]}", __package__).main(verb, words[1:]))
        for path in () if verb else words:
            print(Table.read(path).info())
        return 0
    except KeyboardInterrupt:
        status, problem = 75, "stopped" + "; what is published stays, --resume goes on" * (verb in ("calibrate", "compile", "score"))
    except ImportError as missing:
        status, problem = 69, f"no Python module {missing.name}: pip install './python[hf,exchange]'"
    except (Usage, Error, OSError) as why:
        status, problem = 64 if isinstance(why, Usage) else 65 if isinstance(why, Error) else 73 if isinstance(why, FileExistsError) else 66, why
    print(f"{f'ckvc {verb}'.rstrip()}: {problem}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
