"""What the command lines of all verbs share: how options are parsed, and the error that means a command line is wrong."""
import argparse
import math

from .files import Error


class Usage(Error):
    """The command line, or what it asks for, makes no sense. The program ends with status 64."""

    def __init__(self, problem: str):
        super().__init__(problem, 64)


class Parser(argparse.ArgumentParser):
    """argparse's parser, which raises Usage instead of printing its usage and ending the process."""

    def error(self, message):
        raise Usage(message)


def numbers_of(text):
    """The budgets that an option lists, separated by commas: whole tokens from 1 up are int, shares of the prompt below 1 are float."""
    try:
        values = [int(x) if x.isdigit() else float(x) for x in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(0 < x < 1 or (1 <= x < 2**32 and x == int(x)) for x in values):
        raise argparse.ArgumentTypeError(f"got {text}, want whole tokens from 1 on, or shares of the prompt below 1, with commas between")
    return values
