"""The small project that the scripted agent repairs: a module, its mistake, and tests that find it."""

from pathlib import Path

BUOYS = 40
"""So many buoys are in a chart; so many tests fail before the mistake is corrected."""

MISTAKE = "error.pos"
CORRECTION = "error.colno"

_CHART = f'''\
"""Depths along a chain of buoys, read from JSON text."""

import json
import sys


def load(text: str) -> dict[str, float]:
    """Return the depth in metres of each buoy; a mistake in the text is named with its line and column."""
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"line {{error.lineno}}, column {{{MISTAKE}}}: {{error.msg}}") from error


if __name__ == "__main__":
    try:
        print(len(load(sys.stdin.read())), "buoys")
    except ValueError as error:
        sys.exit(f"chart: {{error}}")
'''

_TESTS = f'''\
"""Tests of chart.py in plain unittest, so that pytest runs them as well."""

import unittest

import chart

BUOYS = range(1, {BUOYS} + 1)


def text(unreadable: int = 0) -> str:
    """Return a chart with a line for each buoy; the depth of buoy number *unreadable* is a question mark."""
    depths = ("?" if number == unreadable else str(number * 1.5) for number in BUOYS)
    lines = (f'  "buoy-{{number:02}}": {{depth}}' for number, depth in zip(BUOYS, depths))
    return "{{\\n" + ",\\n".join(lines) + "\\n}}"


class TestDepth(unittest.TestCase):
    """Every buoy has its depth."""


class TestMistake(unittest.TestCase):
    """A mistake is found where it is: on the line behind the opening brace, in the column of the depth."""


def depth_test(number):
    def test(self):
        self.assertEqual(chart.load(text())[f"buoy-{{number:02}}"], number * 1.5)

    return test


def mistake_test(number):
    def test(self):
        with self.assertRaises(ValueError) as caught:
            chart.load(text(unreadable=number))
        self.assertEqual(str(caught.exception), f"line {{number + 1}}, column 14: Expecting value")

    return test


for number in BUOYS:
    setattr(TestDepth, f"test_depth_of_buoy_{{number:02}}", depth_test(number))
    setattr(TestMistake, f"test_mistake_at_buoy_{{number:02}}", mistake_test(number))
'''

# Without it, pytest would take its settings and its root from whatever project the workdir happens to lie in.
_SETTINGS = "[pytest]\naddopts = -p no:cacheprovider\n"


def create_project(directory: Path) -> None:
    """Write the project into *directory*, which must not exist, so that nobody's files are overwritten.

    Raises:
        OSError: It exists, or cannot be written.
    """
    directory.mkdir(parents=True)
    for name, content in (("chart.py", _CHART), ("test_chart.py", _TESTS), ("pytest.ini", _SETTINGS)):
        (directory / name).write_text(content, encoding="utf-8")
