"""Write examples/recorded.jsonl: a coding session of our own invention, in the form of OpenAI's chat messages.

python scripts/record_example.py

The session is made, not recorded, so that it can be shipped and stays the same. The agent finds out why the tide tables
of one harbour are an hour off: it runs the tests, searches a log of the service, and repairs one line.
"""

import json
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).parents[1] / "examples" / "recorded.jsonl"
SUMMER = range(4, 10)
WARNED_AT = 131  # the request before the warning that a summary has to lead to
HARBOURS = ("Aldsund", "Brenna", "Corvik", "Dunmere", "Eskhaven", "Falmora", "Greywick", "Holmen")
SOURCE = '''\
"""Tide tables: the times of high and low water of a harbour, in its local time."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

OFFSETS = {"Aldsund": 0, "Brenna": 0, "Corvik": 1, "Dunmere": 0, "Eskhaven": 1, "Falmora": 0, "Greywick": 0}
OFFSETS["Holmen"] = 1  # since it moved to the new quay


@dataclass(frozen=True)
class Tide:
    """One high or low water."""

    harbour: str
    at: datetime
    height_m: float


def local(harbour: str, at: datetime, summer: bool) -> datetime:
    """Return *at*, which is in UTC, in the time that the harbour's clocks show."""
    hours = OFFSETS[harbour] + (1 if summer else 0)
    return at.astimezone(timezone(timedelta(hours=hours)))


def row(tide: Tide, summer: bool) -> str:
    """Return one row of a printed table."""
    at = local(tide.harbour, tide.at, summer)
    return f"{tide.harbour:10} {at:%Y-%m-%d %H:%M} {tide.height_m:5.2f} m"


def table(tides: list[Tide], summer: bool) -> str:
    """Return the rows of all tides, the earliest first."""
    return "\\n".join(row(tide, summer) for tide in sorted(tides, key=lambda tide: tide.at))
'''


def tests(*, fails: bool) -> str:
    """What pytest prints: 96 tests, of which those of Eskhaven in summer fail."""
    lines = [
        "============================= test session starts =============================",
        "collected 96 items",
        "",
    ]
    failed = list[str]()
    for number, harbour in enumerate(HARBOURS):
        for month in range(1, 13):
            name = f"tests/test_table.py::test_row[{harbour}-{month:02}]"
            is_wrong = fails and harbour == "Eskhaven" and month in SUMMER
            place = number * 12 + month
            lines.append(f"{name:60} {'FAILED' if is_wrong else 'PASSED'} [{place * 100 // 96:3}%]")
            if is_wrong:
                failed.append(f"{name} - AssertionError: 'Eskhaven   2026-{month:02}-14 09:12'")
    if failed:
        lines += ["", "================================== FAILURES ==================================="]
    for name in failed:
        month = int(name.partition("-")[2][:2])
        lines += [
            f"________________________ test_row[Eskhaven-{month:02}] ________________________",
            "    def test_row(harbour, month):",
            "        tide = Tide(harbour, datetime(2026, month, 14, 7, 12, tzinfo=UTC), 2.31)",
            ">       assert row(tide, summer=4 <= month <= 9) == EXPECTED[harbour, month]",
            f"E       AssertionError: assert 'Eskhaven   2026-{month:02}-14 09:12  2.31 m'",
            f"E        == 'Eskhaven   2026-{month:02}-14 08:12  2.31 m'",
            "tests/test_table.py:31: AssertionError",
        ]
    verdict = f"{len(failed)} failed, {96 - len(failed)} passed" if failed else "96 passed"
    lines += [f"FAILED {name}" for name in failed]
    return "\n".join([*lines, f"=============== {verdict} in 1.84s ==============="])


def log() -> str:
    """A log of the service: 190 requests, one of which warns of the harbour's clocks."""
    lines = list[str]()
    for number in range(190):
        harbour, second = HARBOURS[number * 5 % 8], number * 37
        time = f"2026-06-14T{6 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
        lines.append(f"{time} INFO  request {4100 + number} GET /tides/{harbour.lower()} 200 {7 + number * 11 % 23} ms")
        if number == WARNED_AT:
            lines.append(f"{time} WARN  clocks: Eskhaven has kept UTC+1 all year since 2025-10-26 (notice NM-2025/318)")
    return "\n".join(lines)


def packages() -> str:
    """What `pip list` prints."""
    names = ("attrs", "certifi", "charset-normalizer", "idna", "iniconfig", "packaging", "pluggy", "pytest", "tzdata")
    return "\n".join(f"{name:20} {number + 1}.{number * 3 % 10}.{number * 7 % 10}" for number, name in enumerate(names))


def readings() -> str:
    """A table of the gauge's readings."""
    rows = (f"2026-06-14T{n // 6:02}:{n % 6 * 10:02}Z,{2.3 + (n * 29 % 61 - 30) / 25:.2f},ok" for n in range(144))
    return "\n".join(["time,height_m,state", *rows])


def patched() -> str:
    """The diff of the repair."""
    return (
        "-def local(harbour: str, at: datetime, summer: bool) -> datetime:\n"
        '+ALL_YEAR = {"Eskhaven"}  # keeps UTC+1 since 2025-10-26: NM-2025/318\n+\n+\n'
        "+def local(harbour: str, at: datetime, summer: bool) -> datetime:\n"
        "-    hours = OFFSETS[harbour] + (1 if summer else 0)\n"
        "+    hours = OFFSETS[harbour] + (1 if summer and harbour not in ALL_YEAR else 0)"
    )


STEPS = (
    ("I run the tests first.", "python -m pytest -v", tests(fails=True)),
    ("Six tests of Eskhaven fail, from April to September, an hour late. I read the code.", "cat tides.py", SOURCE),
    ("The offset is taken from OFFSETS. I look for what changed.", "git log --oneline -5 -- tides.py",
     "b81f2c0 Sort the rows of a table by time\n4d0e9a7 Add Holmen\n91c3e55 Add Greywick and its gauge"),
    ("Nothing in the code. The service may know more: I read its log.", "cat var/service.log", log()),
    ("The log warns once: Eskhaven has kept UTC+1 all year since 2025-10-26, notice NM-2025/318.",
     "grep -rn 'NM-2025/318' docs", "docs/notices.md:88: NM-2025/318: Eskhaven stops changing its clocks."),
    ("Decision D-1: Eskhaven gets no summer hour. Does its gauge send UTC?", "cat data/eskhaven.csv", readings()),
    ("The gauge sends UTC. Is there a package that knows the zones?", "pip list", packages()),
    ("tzdata has no such harbours, so the table stays ours. I make the change.", "git diff", patched()),
    ("The same tests again.", "python -m pytest -v", tests(fails=False)),
)  # fmt: skip


def session() -> list[dict[str, Any]]:
    """Return the messages of the session."""
    task = (
        "Our tide table for Eskhaven is an hour late in summer. Find out why, and repair it. Do not change the tests."
    )
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful programmer. You work in a shell."},
        {"role": "user", "content": task},
    ]
    for number, (said, command, output) in enumerate(STEPS, 1):
        function = {"name": "shell", "arguments": json.dumps({"command": command})}
        call = {"id": f"call_{number:02}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": said, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    answer = "All 96 tests pass. Eskhaven keeps UTC+1 all year (NM-2025/318), so D-1 gives it no summer hour."
    question = "Which request did the service answer just before it warned of the clocks?"
    return [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": question}]


if __name__ == "__main__":
    RECORDING.write_text("".join(f"{json.dumps(message)}\n" for message in session()), "utf-8")
