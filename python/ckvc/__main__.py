"""`python3 -m ckvc T.ckvt ...` prints a summary of each table; `export` and `import` are exchange.py's, `calibrate`, `score` and `compile` need torch."""
import importlib
import sys
from typing import List

from . import Error, Table

BY_TORCH = {"calibrate": "calibrate", "score": "score", "compile": "score"}


def exchange(verb: str, words: List[str]) -> int:
    from . import exchange as e

    try:
        if verb in BY_TORCH:
            try:
                module = importlib.import_module(f".{BY_TORCH[verb]}", __package__)
            except ImportError as missing:
                print(f"ckvc {verb}: no Python module {missing.name}: pip install './python[hf,exchange]'", file=sys.stderr)
                return 69
            print(module.main(verb, words))
        else:
            print(e.main(verb, words))
        return 0
    except KeyboardInterrupt:
        print(f"ckvc {verb}: stopped; what is published stays, --resume goes on", file=sys.stderr)
        return 75
    except (e.Usage, Error, OSError) as problem:
        print(f"ckvc {verb}: {problem}", file=sys.stderr)
        return 64 if isinstance(problem, e.Usage) else 65 if isinstance(problem, Error) else 73 if isinstance(problem, FileExistsError) else 66


def main(paths: List[str]) -> int:
    """Prints; the exit status: 0, 64 (usage), 65 (a bad table), 66 (a file that cannot be read), 73 (one that is in the way)."""
    if paths and paths[0] in ("export", "import", *BY_TORCH):
        return exchange(paths[0], paths[1:])
    if not paths or paths[0] in ("-h", "--help"):
        print("usage: python3 -m ckvc T.ckvt ... | export TABLE ... | import FILE ... | calibrate, score or compile MODEL ... (--help)")
        return 0 if paths else 64
    for path in paths:
        try:
            print(Table.read(path).info())
        except (OSError, Error) as problem:
            print(f"ckvc: {problem}", file=sys.stderr)
            return 65 if isinstance(problem, Error) else 66
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
