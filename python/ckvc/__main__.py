"""The program `python3 -m ckvc`. With tables as arguments (`T.ckvt ...`) it prints a summary of each. With a verb first it calls the `main` of that verb's
module: exchange.py, llama.py or render.py, or calibrate.py or score.py, which need torch."""
import errno
import importlib
import os
import signal
import sys
import traceback

from . import Table
from .files import Error, plain

VERBS = {"export": "exchange", "import": "exchange", "calibrate": "calibrate", "score": "score", "compile": "score", "compact": "llama", "render": "render"}
# Verbs that keep what they have done when they are stopped, so that --resume goes on from it.
KEEPING = ("calibrate", "score", "compile")
USAGE = "usage: python3 -m ckvc T.ckvt ... | export TABLE ... | import FILE ... | calibrate, score or compile MODEL ... | compact SLOT ... | render MODEL ... (--help)"


def show(*lines: str) -> None:
    """Prints lines on standard output. An Error says that it cannot be written."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        print(*map(plain, lines), sep="\n", flush=True)
    except OSError as why:
        sys.stdout = None  # type: ignore[assignment]  # otherwise the interpreter tries to write again as it ends
        raise Error(f"writing to standard output failed: {why.strerror}", 74) from None


def status_of(why: BaseException) -> int:
    """The exit status for an exception, as docs/cli.md lists them."""
    if isinstance(why, OSError):
        return 73 if isinstance(why, FileExistsError) else 74 if why.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) else 66
    return why.status if isinstance(why, Error) else 71 if isinstance(why, MemoryError) else 69 if isinstance(why, ImportError) else 70


def main(words: list[str]) -> int:
    """Does what a command line's words ask for, and prints the result, or one line on stderr that says what went wrong. Returns the exit status, as docs/cli.md
    lists them."""
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
    """The handler of SIGINT, SIGTERM and SIGHUP, which all stop the program as Ctrl-C does. A second signal ends the process at once."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(130))
    raise KeyboardInterrupt


if __name__ == "__main__":
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:  # fill closed standard streams, so that no file of ours gets their numbers, 0 to 2
        pass
    os.close(fd)
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signal_number) != signal.SIG_IGN:  # nohup lets a hangup be ignored, and so it stays
            signal.signal(signal_number, stop)
    sys.stderr = sys.stderr or os.fdopen(2, "w")  # with None, print would write to standard output
    if sys.stdout:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
