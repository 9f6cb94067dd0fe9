"""Every file that this package makes or locks, or reads as a whole, passes through here, by the rules of docs/cli.md. An output gets its name only when it is
whole. It is not overwritten without force, and an input is never overwritten. A folder may come from somebody else, so nothing is written through a link in
it."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
from typing import Iterator, Sequence, Type, Union

FilePath = Union[str, os.PathLike]
# Characters that control a terminal, or that change the direction of text.
CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Error(ValueError):
    """Something outside is not as it must be. The message is one line: the file, the place, what was got, what was wanted. status is the program's exit
    status."""

    def __init__(self, problem: str, status: int = 65):
        super().__init__(problem)
        self.status = status


def refuse(when: object, problem: str, kind: Type[Exception] = Error) -> None:
    """Raises `kind` with the problem's text if `when` is true. Callers compute the text in any case, so it must cost little and raise nothing itself."""
    if when:
        raise kind(problem)


def plain(text: object) -> str:
    """The text made safe to print on one line of a terminal: characters that a terminal obeys become spaces or question marks, as in the C program."""
    return CONTROL.sub(lambda m: " " if m[0].isspace() and m[0] < "\x1c" else "?", str(text))


def regular(name: str, flags: int) -> int:
    """An `opener` for open(), which opens regular files only, so that nothing waits for a FIFO. A file that is to be written must not be a link, and what is
    in it already stays there."""
    refuse(flags & os.O_CREAT and os.path.islink(name), f"{name}: is a link, which nothing is written through; give another name", FileExistsError)
    fd = os.open(name, flags | os.O_NONBLOCK | (os.O_NOFOLLOW if flags & os.O_CREAT else 0), 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return fd


def read(path: FilePath, most: int) -> bytes:
    """The bytes of a regular file, which may have at most `most` of them."""
    with open(path, "rb", opener=regular) as f:
        size = os.fstat(f.fileno()).st_size
        refuse(size > most, f"{os.fspath(path)}: {size} bytes, at most {most} are read")
        return f.read(size)


def sync(folder: str) -> None:
    """Waits until the names in a folder are on disk. "" is the current folder."""
    fd = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check(path: FilePath, force: bool = False, inputs: Sequence[FilePath] = (), folder: bool = False) -> None:
    """Raises FileExistsError if `begun` would refuse to make this file (or folder). Called before long work, so that its result will have a place."""
    name = os.fspath(path)
    above, there, is_folder = os.path.dirname(name) or ".", os.path.lexists(name), os.path.isdir(name)
    read_from = [x for x in inputs if os.path.exists(name) and os.path.exists(x) and (
        os.path.samefile(x, name) or os.path.realpath(name).startswith(os.path.join(os.path.realpath(x), "")))]
    for when, problem in (
            (not os.access(above, os.W_OK), f"the folder {above} is not there, or nothing can be written to it; create it first"),
            (read_from, "is an input, or in a folder that is one, and is not overwritten; give another name"),
            (is_folder and not folder, "is a folder; give a file name"),
            (there and not is_folder and (folder or os.path.islink(name) or not os.path.isfile(name)),
             f"is a link, or no {'folder' if folder else 'regular file'}; give another name"),
            (not force and (os.listdir(name) if is_folder else there), "is there already; --force overwrites it")):
        refuse(when, f"{name}: {problem}", FileExistsError)


def sweep(folder: str, of: str = "") -> None:
    """Removes files NAME.tmp.R from a folder, which processes that were killed left half written; only those of the file `of`, if it is given. A process that
    still writes such a file holds a lock on it, and its file stays."""
    for name in os.listdir(folder or "."):
        if re.fullmatch((re.escape(of) or ".+") + r"\.tmp\.[0-9a-f]{16}", name):
            at = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                fd = os.open(at, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    shutil.rmtree(at) if os.path.isdir(at) else os.unlink(at)
                finally:
                    os.close(fd)


@contextlib.contextmanager
def begun(path: FilePath, force: bool = False, inputs: Sequence[FilePath] = (), folder: bool = False) -> Iterator[str]:
    """A context manager that gives the name of an empty file (or folder) beside `path`. When the block ends without an error, this file takes path's name. If
    path is a folder that is there already, the files of the new folder move into it, one by one. inputs are files, and folders with all that is in them, which
    are not overwritten even with force."""
    name = os.fspath(path).rstrip("/") or "/"
    check(name, force, inputs, folder)
    sweep(*os.path.split(name))
    while True:
        made = f"{name}.tmp.{secrets.token_hex(8)}"
        os.mkdir(made) if folder else open(made, "xb").close()
        held = os.open(made, os.O_RDONLY)
        with contextlib.suppress(OSError):  # this file system has no locks: nothing is swept on it either
            fcntl.flock(held, fcntl.LOCK_EX)
        if os.fstat(held).st_nlink:
            break
        os.close(held)  # another process's sweep removed it before it was locked
    try:
        yield made
        os.fsync(held)
        moves = [(os.path.join(made, x), os.path.join(name, x)) for x in os.listdir(made)] if folder and os.path.isdir(name) else [(made, name)]
        for _, at in moves:
            check(at, force, inputs, folder and at == name)
        for file, at in moves:
            _rename(file, at, force or folder)
        sync(os.path.dirname(name))
    finally:
        if os.path.lexists(made):
            shutil.rmtree(made) if folder else os.unlink(made)
        os.close(held)


def _rename(made: str, name: str, force: bool) -> None:
    """Gives a finished file its name. Without force, a file that has appeared under that name meanwhile stays."""
    try:
        (os.replace if force else os.link)(made, name)
    except OSError:
        check(name, force)
        os.replace(made, name)  # this file system has no hard links


def put(data: Union[bytes, memoryview], *path: str) -> None:
    """Writes a whole file and waits until it is on disk. The path, whose parts are joined, is one that `begun` gave, or lies in a folder that it gave."""
    with open(os.path.join(*path), "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def publish(path: FilePath, data: Union[bytes, memoryview], force: bool = False, inputs: Sequence[FilePath] = ()) -> None:
    """Writes a file so that under its name there is either the whole file or none."""
    with begun(path, force, inputs) as made:
        put(data, made)


def owned(path: FilePath, shared: bool = False) -> io.FileIO:
    """Opens a file for reading and appending, makes it if it is not there, and locks it until it is closed. An Error of status 75 says who holds the lock."""
    while True:
        f = open(path, "a+b", buffering=0, opener=regular)
        try:
            fcntl.flock(f, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as why:
            f.seek(0)
            holder = f.read(32).split(b"\n")[0]
            if why.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise Error(f"{f.name}: this file system gives no lock; write to another one", 71) from None
            who = f"process {int(holder)}" if holder.isdigit() else "another process"
            raise Error(f"{f.name}: {who} is writing here; wait for it or stop it", 75) from None
        if os.fstat(f.fileno()).st_nlink:
            sync(os.path.dirname(f.name))
            return f
        f.close()  # its holder removed it before it was locked here
