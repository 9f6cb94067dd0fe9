"""`python3 -m ckvc T.ckvt ...` prints a summary of each table; verbs are those of exchange.py, llama.py, render.py and, by torch, calibrate.py and score.py."""
import errno
import importlib
import os
import signal
import sys
import traceback

from . import Table
from .files import Error, plain

VERBS = {"export": "exchange", "import": "exchange", "calibrate": "calibrate", "score": "score", "compile": "score", "compact": "llama", "render": "render"}
KEEPING = ("calibrate", "score", "compile")  # what they have done, for --resume
USAGE = "usage: python3 -m ckvc T.ckvt ... | export TABLE ... | import FILE ... | calibrate, score or compile MODEL ... | compact SLOT ... | render MODEL ... (--help)"


def show(*lines: str) -> None:
    """On standard output; Error where that cannot be written."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        print(*map(plain, lines), sep="\n", flush=True)
    except OSError as why:
        sys.stdout = None  # type: ignore[assignment]  # or the interpreter tries again at its end
        raise Error(f"writing to standard output failed: {why.strerror}", 74) from None


def status_of(why: BaseException) -> int:
    """Of docs/cli.md's list."""
    if isinstance(why, OSError):
        return 73 if isinstance(why, FileExistsError) else 74 if why.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) else 66
    return why.status if isinstance(why, Error) else 71 if isinstance(why, MemoryError) else 69 if isinstance(why, ImportError) else 70


def main(words: list[str]) -> int:
    """Prints; the exit status, as docs/cli.md lists them."""
    verb = words[0] if words and words[0] in VERBS else ""
    try:
        if not words or words[0] in ("-h", "--help"):
            show(USAGE)
            return 0 if words else 64
        if verb:
            said = importlib.import_module(f".{VERBS[verb]}", __package__).main(verb, words[1:])
            show(*(said.split("\n") if verb == "compile" else [said]))
        for path in () if verb else words:
            show(*Table.read(path).info().split("\n"))
        return 0
    except KeyboardInterrupt:
        status, problem = (75, "stopped; what is published stays, --resume goes on") if verb in KEEPING else (130, "stopped; nothing was written")
    except Exception as why:
        status, problem = status_of(why), str(why)
        if isinstance(why, ImportError):
            problem = f"{f'no Python module {why.name}' if isinstance(why, ModuleNotFoundError) else why}: pip install './python[hf,exchange]'"
        elif status in (70, 71) and not isinstance(why, Error):
            at = traceback.extract_tb(why.__traceback__)[-1]
            bug = f"{type(why).__name__}: {why} ({os.path.basename(at.filename)}:{at.lineno}): a bug of ckvc, please report it with this command"
            problem = "out of memory" if status == 71 else bug
    print(plain(f"{f'ckvc {verb}'.rstrip()}: {problem}"), file=sys.stderr)
    return status


def stop(*_: object) -> None:
    """SIGTERM and SIGHUP are Ctrl-C; the second of them stops at once."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(130))
    raise KeyboardInterrupt


if __name__ == "__main__":
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:  # no file of ours gets the number of a stream that is closed
        pass
    os.close(fd)
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signal_number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(signal_number, stop)
    sys.stderr = sys.stderr or os.fdopen(2, "w")  # print(file=None) would print on standard output
    if sys.stdout:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
