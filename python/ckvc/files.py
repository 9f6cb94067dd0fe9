"""Every file that this package makes or locks, and what it reads whole, passes through here, by the rules of docs/cli.md: an output has its name only
when it is whole, and is never overwritten without force, an input never. Folders may come from elsewhere: nothing is written through a link in them."""
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
CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")  # of a terminal, and what turns the direction of text


class Error(ValueError):
    """One line: file, place, got, wanted. status: what the program ends with."""

    def __init__(self, problem: str, status: int = 65):
        super().__init__(problem)
        self.status = status


def refuse(when: object, problem: str, kind: Type[Exception] = Error) -> None:
    """Raises a problem's kind where `when` is true. Its text is made either way: it must hold, and cost little, where nothing is wrong."""
    if when:
        raise kind(problem)


def plain(text: object) -> str:
    """Text for one line of a terminal: what a terminal obeys is a space or a question mark, as in the C program."""
    return CONTROL.sub(lambda m: " " if m[0].isspace() and m[0] < "\x1c" else "?", str(text))


def regular(name: str, flags: int) -> int:
    """`opener` of open(): a regular file, so that nothing waits for a FIFO; of one that is to be written, no link, and what stands there stays."""
    refuse(flags & os.O_CREAT and os.path.islink(name), f"{name}: is a link, which nothing is written through; give another name", FileExistsError)
    fd = os.open(name, flags | os.O_NONBLOCK | (os.O_NOFOLLOW if flags & os.O_CREAT else 0), 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return fd


def read(path: FilePath, most: int) -> bytes:
    """A regular file of at most so many bytes."""
    with open(path, "rb", opener=regular) as f:
        size = os.fstat(f.fileno()).st_size
        refuse(size > most, f"{os.fspath(path)}: {size} bytes, at most {most} are read")
        return f.read(size)


def sync(folder: str) -> None:
    fd = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check(path: FilePath, force: bool = False, inputs: Sequence[FilePath] = (), folder: bool = False) -> None:
    """FileExistsError where `begun` would not make this file (or folder), before the work whose result goes there."""
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
    """Removes what killed processes left half written in a folder, of the file of that name or of any: NAME.tmp.R, on which its maker holds a lock."""
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
    """The name of an empty file (or folder) beside `path`, which takes path's name when the block ends without an error; where path is a folder
    already its files do, one by one. inputs: files, and folders with all that is in them, which are not overwritten even with force."""
    name = os.fspath(path).rstrip("/") or "/"
    check(name, force, inputs, folder)
    sweep(*os.path.split(name))
    while True:
        made = f"{name}.tmp.{secrets.token_hex(8)}"
        os.mkdir(made) if folder else open(made, "xb").close()
        held = os.open(made, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks: nothing is swept there
            fcntl.flock(held, fcntl.LOCK_EX)
        if os.fstat(held).st_nlink:
            break
        os.close(held)  # a sweep came between the making and the lock
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
    """Without force what has appeared meanwhile stays."""
    try:
        (os.replace if force else os.link)(made, name)
    except OSError:
        check(name, force)
        os.replace(made, name)  # a file system without hard links


def put(data: Union[bytes, memoryview], *path: str) -> None:
    """A whole file, on disk, of a name that `begun` gave, or in such a folder."""
    with open(os.path.join(*path), "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def publish(path: FilePath, data: Union[bytes, memoryview], force: bool = False, inputs: Sequence[FilePath] = ()) -> None:
    """The whole file or none under its name."""
    with begun(path, force, inputs) as made:
        put(data, made)


def owned(path: FilePath, shared: bool = False) -> io.FileIO:
    """The file of that name, made where it is not there, open for reading and appending, and locked until it is closed."""
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
        f.close()  # its holder removed it meanwhile
