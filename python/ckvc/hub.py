"""Tables by name. In the place of a table's file may stand the name of one that comes with this package (`ckvc tables` lists them), or that of a model hub's
repository, `org/name` or `org/name@revision`. The repository's file table.ckvt is fetched and kept by huggingface_hub, which is imported when it is needed
(docs/publishing.md)."""
from __future__ import annotations

import errno
import glob
import json
import os
import re
import sys
from typing import Any, Dict, List

from .files import Error, FilePath, plain, read, refuse

FILE, FILE_MAX = "table.ckvt", 64 << 20  # the bound is that of the tables that come with the C program
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables")  # of the tables that come with this package
NAME = re.compile(r"(?!.*\.ckvt$)(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)
PROBLEMS = {  # by the names of huggingface_hub's errors
    "GatedRepoError": "its owner wants terms to be accepted: do so on its page, then run hf auth login",
    "RepositoryNotFoundError": "is no file here, and no repository of the hub; check the name, or run hf auth login if it is private",
    "RevisionNotFoundError": "the repository has no such revision; after @ give a branch, a tag or a commit that it has",
    "RemoteEntryNotFoundError": f"the repository has no {FILE} in this revision; give another one, or the path of a table",
    "LocalEntryNotFoundError": "is no file here, the hub is not reached, and no copy is in the cache; connect to the network, or give the path of a table",
}


def descriptions() -> List[Dict[str, Any]]:
    """What FOLDER's tables.json says of each table that comes with this package (docs/results/README.md explains its members). An empty list if there is no
    such file."""
    path = os.path.join(FOLDER, "tables.json")
    return json.loads(read(path, 1 << 20)) if os.path.exists(path) else []


def without_attention(content_id: str) -> str:
    """What to do where an engine shows no attention and the table with this content id reads it: names the table of the same model that comes with this package
    for such engines, if the other one does, too."""
    known = descriptions()
    model = next((entry["made_from"] for entry in known if entry["content_id"] == content_id), None)
    name = next((entry["name"] for entry in known if entry["made_from"] == model and entry["serves"].startswith("vLLM")), "")
    return f"{f'take {name}, which comes with ckvc, or ' if name else ''}compile a table with --features 2 --mode lengths --classes 2"


def _download(name: str, repo: str, revision: str, **more: Any) -> Any:
    """What hf_hub_download returns. An Error of one line if it fails, by whichever exception of the library or of what it connects by."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise Error(f"{name}: is no file here, and a table of a hub needs the package huggingface_hub: pip install huggingface_hub", 69) from None
    try:
        return hf_hub_download(repo, FILE, revision=revision, **more)
    except Exception as why:
        known = next((PROBLEMS[kind.__name__] for kind in type(why).__mro__ if kind.__name__ in PROBLEMS), None)
        raise Error(f"{name}: {known or f'cannot be fetched: {plain(why)}; try again later, or give the path of a table'}", 69) from None


def table_file(table: FilePath) -> FilePath:
    """The file of a table. What exists, or has not the form of a name, is returned as it is; of a name without a /, the file of the package's own table, if it
    is one. Of a repository's name table.ckvt is fetched, and returned as the path in huggingface_hub's cache. A line on stderr says at which commit it is,
    unless a commit was asked for. Nothing of more than FILE_MAX bytes is fetched. An Error of one line says why there is no table, or names the one that a
    folder holds; a FileNotFoundError names the tables that come with the package, where a name without a / is none of them."""
    found, inside = NAME.fullmatch(name := os.fsdecode(table)), os.path.join(os.fsdecode(table), FILE)
    own = os.path.join(FOLDER, inside)
    if os.path.lexists(table):
        if os.path.isfile(inside):
            raise Error(f"{name}: is a folder, want a table's file; did you mean {inside}?", 66)
        return table
    if not found:
        if name == os.path.basename(name) and not os.path.isfile(own):
            names = sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob(os.path.join(FOLDER, "*", FILE)))
            raise FileNotFoundError(errno.ENOENT, f"No such file here, and no table of this name comes with ckvc ({', '.join(names)})", name)
        return own if name == os.path.basename(name) else table
    repo, revision = found[1], found[2] or "main"
    about = _download(name, repo, revision, dry_run=True)
    refuse(about.file_size is None or about.file_size > FILE_MAX,
           f"{name}: {FILE} has {about.file_size or 'an unknown number of'} bytes, at most {FILE_MAX} are fetched; give the path of a table that you trust")
    path = _download(name, repo, revision)  # by the revision's own name, under which the cache finds it again without a network
    refuse(os.path.dirname(path) != os.path.dirname(about.local_path) or os.path.getsize(path) > FILE_MAX,
           f"{name}: changed while it was fetched; try again, or name a commit: {repo}@{about.commit_hash}")
    if revision != about.commit_hash:
        print(f"ckvc: takes {repo} as of commit {about.commit_hash}; {repo}@{about.commit_hash} stays with it", file=sys.stderr)
    return path
