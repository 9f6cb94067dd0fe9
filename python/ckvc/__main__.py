"""`python3 -m ckvc T.ckvt ...` prints a summary of each table."""
import sys
from typing import List

from . import Error, Table


def main(paths: List[str]) -> int:
    """Prints; the exit status: 0, 64 (no table named), 65 (a bad table), 66 (a file that cannot be read)."""
    if not paths or paths[0] in ("-h", "--help"):
        print("usage: python3 -m ckvc T.ckvt ...")
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
