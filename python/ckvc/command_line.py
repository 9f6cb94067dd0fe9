"""What the command lines of all verbs share."""
import argparse
import math

from .files import Error


class Usage(Error):
    """What was asked for makes no sense."""

    def __init__(self, problem: str):
        super().__init__(problem, 64)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Usage(message)


def numbers_of(text):
    """Budgets."""
    try:
        values = [int(x) if x.isdigit() else float(x) for x in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(0 < x < 1 or (1 <= x < 2**32 and x == int(x)) for x in values):
        raise argparse.ArgumentTypeError(f"got {text}, want whole tokens from 1 on, or shares of the prompt below 1, with commas between")
    return values
