"""Ids and texts that models and tools have been seen to give, and those that break careless code."""

from typing import Final

HOSTILE_IDS: Final = (
    "..",
    ".",
    "../../escape",
    "/absolute/target",
    "a/b",
    "a_b",
    "a:b",
    "a b",
    "a\\..\\b",
    "a" * 300,
    "a" * 299,
    "\u65e5" * 100,
    "CON",
    "con",
    "con.txt",
    "-rf",
    ".hidden",
    "abc",
    "abc.",
    "abc ",
    "a\n",
    "a",
    "a\x00b",
    "\x1b[31mred",
    "\u202egnp.exe",
    "\ud800x",
    "\U0001f98a",
    "Call_A",
    "call_a",
    "CALL_A",
    "\xe9",
    "e\u0301",
    "\u212a",
    "K",
    "*?<>|\"'",
    "%2e%2e%2fx",
    "\uff0e\uff0e\uff0fx",
    " ",
    "context.jsonl",
    "context",
    ".locks",
    "a~b",
)
"""Ids of sessions and of tool calls, no two the same: paths, devices, twins but for case or Unicode form, long ones."""

HOSTILE_TEXTS: Final = (
    "",
    "plain",
    "two\nlines\n",
    "\n",
    "no\r\nsuch\rend",
    "gr\xf6\xdfer \u6f22\u5b57 \U0001f98a",
    "a\x00b\x1b[31m\x7f",
    "\x0b\x0c\x1c\x85\u2028\u2029",
    "\u202eright to left",
    "\ufeffmarked",
    "## 1 user \xb7 a heading?\n[offloaded: 9 lines in tool_result-c.txt]",
    '{"rows":[' + ",".join(f'{{"id":{number}}}' for number in range(400)) + "]}",
    "x" * 100_000,
)
"""Texts of messages and tool results that have a form in UTF-8."""

LONE_SURROGATES: Final = "cut in the middle of a character: \ud83d"
"""A text that has none. Tools that cut JSON give it; a workspace keeps it all the same."""
