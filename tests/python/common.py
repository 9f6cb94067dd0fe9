"""What the tests of this folder share: where things are, what must be there, and how tests are run."""
import contextlib
import glob
import importlib.util
import os
import subprocess
import sys
import tempfile
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("CKVC", os.path.join(ROOT, "build", "release", "ckvc"))
NAME = os.path.basename(sys.argv[0]).removesuffix(".py")
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ["PYTHONPATH"] = os.path.join(ROOT, "python")


def need(*modules):
    """Where one of the modules is missing a line that says so, and the end."""
    for module in modules:
        if not importlib.util.find_spec(module):
            print(f"skipped: python {NAME}: {module} is not installed (apt-get install -y python3-{module.replace('_', '-')})")
            sys.exit(0)


def golden(name):
    return os.path.join(ROOT, "tests", "golden", "table", name + ".ckvt")


def put(path, data):
    """The path of a file with these bytes, or this text."""
    with open(path, "w" if isinstance(data, str) else "wb") as f:
        f.write(data)
    return path


@contextlib.contextmanager
def built(*options):
    """lib/policy and what it stands on as a shared library, or with more sources a program: its path."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "built")
        sources = [*glob.glob(os.path.join(ROOT, "lib", "policy", "*.c")), os.path.join(ROOT, "lib", "base", "cache_format.c")]
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-ffp-contract=off", "-I", ROOT, *options,
                        "-o", path, *sources, "-lm"], check=True)
        yield path


@contextlib.contextmanager
def policy_library():
    """lib/policy as the library that ckvc.library loads, here and in what is run: its path."""
    from ckvc import library
    with built("-shared", "-fPIC") as path, mock.patch.dict(os.environ, CKVC_LIBRARY=path):
        library.load.cache_clear()
        yield path


def run_tests(scope, *more):
    """The functions of a program's globals() that are called test_..., each with what there is more."""
    tests = [f for name, f in scope.items() if name.startswith("test_")]
    for test in tests:
        test(*more)
    print(f"python {NAME}: {len(tests)} passed")
