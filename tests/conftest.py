"""pytest runs these tests, too: each is a program that exits 0, prints a line `skipped: ...` or fails (`pytest tests/python tests/outside/*_*.py`)."""
import subprocess
import sys

import pytest


class Program(pytest.File):
    def collect(self):
        yield Run.from_parent(self, name="run")


class Run(pytest.Item):
    def runtest(self):
        done = subprocess.run([sys.executable, str(self.path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        skipped = [line for line in done.stdout.splitlines() if line.startswith("skipped:")]
        if done.returncode:
            pytest.fail(done.stdout, pytrace=False)
        if skipped:
            pytest.skip(skipped[0])


def pytest_pycollect_makemodule(module_path, parent):
    return Program.from_parent(parent, path=module_path)
