"""What the command lines of all verbs share: how options are parsed, and the error that means a command line is wrong."""
import argparse
import math
import sys

from .files import Error


class Usage(Error):
    """The command line, or what it asks for, makes no sense. The program ends with status 64."""

    def __init__(self, problem: str):
        super().__init__(problem, 64)


class Parser(argparse.ArgumentParser):
    """argparse's parser, which raises Usage instead of printing its usage and ending the process. It also takes the spellings of the last release, with a line
    on stderr that says the new one: add_argument(..., was="--c-min") for an option, word_was=("shared", "uniform") for a word among its choices."""

    def __init__(self, **of):
        self._was = {}
        super().__init__(**of)

    def add_argument(self, *names, was=None, word_was=None, **of):
        if was:
            self._was[was] = names[-1]
        if word_was:
            of["type"] = lambda word: _renamed({word_was[0]: word_was[1]}, word, f"{names[-1]}: ")
        return super().add_argument(*names, **of)

    def parse_args(self, words):
        renamed = []
        for word in words:
            name, equals, value = word.partition("=")
            renamed.append(_renamed(self._was, name) + equals + value)
        return super().parse_args(renamed)

    def error(self, message):
        raise Usage(message)


def _renamed(was, word, where=""):
    """The new spelling of a word, which is told to whoever wrote the old one; any other word as it is. was: new spellings by old ones."""
    if word in was:
        print(f"warning: {where}{word} is called {was[word]} now", file=sys.stderr)
    return was.get(word, word)


def numbers_of(text):
    """The budgets that an option lists, separated by commas: whole tokens from 1 up are int, shares of the prompt below 1 are float."""
    try:
        values = [int(x) if x.isdigit() else float(x) for x in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(0 < x < 1 or (1 <= x < 2**32 and x == int(x)) for x in values):
        raise argparse.ArgumentTypeError(f"got {text}, want whole tokens from 1 on, or shares of the prompt below 1, with commas between")
    return values
