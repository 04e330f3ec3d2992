"""Measures which lines of real tool outputs previews keep: errors, and anomalies that are planted in copies.

    python benchmarks/previews.py FILE_OR_FOLDER... [--max-tokens 300] [--copies 5] [--verbose]

For a recorded session (``.jsonl`` with chat messages), the texts are its tool results that need a preview.

Every text is shown by buoyline, by the preview functions of peers that are installed, and in three simple ways. All get
the same number of tokens if they accept a limit. There are four measures; the first three are means over the texts
that have such lines:

- words: lines with the words of errors, at most 20 different ones. Programs, diffs and documents have these, too.
- reports: lines with which a run reports an error (`benchmarks/diagnostics.py` defines these lines), at most 20 kinds.
  Lines that differ only in numbers are of one kind, and one of them is enough.
- messages: of the reports, those that say what went wrong, without times, hosts, processes, places and the lines that
  continue them. The first 40 characters of the message itself must be shown, not those of its line.
- anomalies: one in each copy of a text: a fatal line, a failed test, a line unlike all others, a number far out of
  range, a record or a row that deviates.

A line is kept if its first 40 characters are shown, or if its number is, with the characters after a prefix that the
preview leaves out of all lines. A report is also kept if a line like it is shown with its number. An anomaly is shown
if its own characters are. Colours of a terminal do not count.

The row "bound" shows what no preview of this form exceeds unless it names lines by number: the header and the last row
of a stub, and between them the beginnings of as many messages as fit, the shortest first.

Each kind of text has a measure of its own, the mean share of what is kept: of HTML and Markdown the first headings and
paragraphs, of diffs the files and hunks, of searches the files and their first hits, of logs and tests the reports, of
JSON and CSV the planted records with another value of the same record.
"""

import argparse
import csv
import html
import io
import json
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from diagnostics import COLOUR, ERROR, LONG_LINE, diagnostics, kind_of, messages

from buoyline.offloader import StoredResult
from buoyline.offloader.protocol import view_of
from buoyline.offloader.stub import stub_of
from buoyline.previews.source import TextSource, count_lines
from buoyline.tokens import default_counter

COUNTER = default_counter()
WORD = re.compile("error|fail|fatal|panic|exception|traceback", re.IGNORECASE)
ALIKE = re.compile(r" more like it: ([\d, .]+)$", re.MULTILINE)
MARK = "7731"
MOST_ERRORS = 20
KEPT_CHARS = 40
CHARS_PER_TOKEN = 4
MANY = 30
MARGIN = 5
MOST_POINTS = 8
LEAST_LINES = 5
MOSTLY = 0.8
SENTENCE = 80
ROW = re.compile(r"^(\d+):(\d+): ", re.MULTILINE)
TAG = re.compile(r"<[^<>]*>")
HIT = re.compile(r"((?:[^\s:()\[\]]*/)?[^\s:()\[\]/]+\.[a-z]{1,5}):\d+:(?:\d+:)?(.*)")

Show = Callable[[str, int], str]


class Planted(NamedTuple):
    """A copy of a text with an anomaly, whose own characters are `MARK`."""

    kind: str
    text: str
    beside: tuple[str, ...] = ()
    """Other values of the same record."""


@dataclass
class Score:
    """How much one way of showing has kept."""

    words: list[float] = field(default_factory=list[float])
    own: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    reports: list[float] = field(default_factory=list[float])
    messages: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])
    found: dict[str, list[bool]] = field(default_factory=dict[str, list[bool]])
    seconds: float = 0.0

    def line(self, name: str) -> str:
        """Return a row of the report."""
        hits = [hit for found in self.found.values() for hit in found]
        kept = [
            f"{100 * statistics.fmean(of):5.1f} %" if of else "      -"
            for of in (self.words, self.reports, self.messages)
        ]
        share = f"{sum(hits):4}/{len(hits)} ({100 * sum(hits) / max(len(hits), 1):5.1f} %)"
        size = f"{statistics.median(self.tokens):6.0f} {max(self.tokens):6}"
        return f"{name:34} {'  '.join(kept)}  {share}  {size}  {self.seconds:6.1f} s"


def error_lines(text: str) -> list[str]:
    """Return the first twenty different lines of *text* with the words of an error."""
    lines = (line.strip() for line in text.split("\n") if len(line) < LONG_LINE and ERROR.search(line))
    return list(dict.fromkeys(lines))[:MOST_ERRORS]


def reports(text: str) -> list[list[str]]:
    """Return the first twenty kinds of lines of *text* that report an error, each with all its lines."""
    kinds: dict[str, list[str]] = {}
    for line in diagnostics(text):
        kinds.setdefault(kind_of(line), []).append(line)
    return list(kinds.values())[:MOST_ERRORS]


def messages_of(text: str) -> list[dict[str, str]]:
    """Return the first twenty kinds of messages of *text*, each with all its messages and their lines."""
    kinds: dict[str, dict[str, str]] = {}
    for message, line in messages(text).items():
        kinds.setdefault(kind_of(message), {})[message] = line
    return list(kinds.values())[:MOST_ERRORS]


def named_in(shown: str, text: str) -> set[str]:
    """Return the lines of *text* that *shown* names by number, because they are like a line that it shows."""
    lines = text.split("\n")
    numbers = [int(number) for rest in ALIKE.findall(shown) for number in re.findall(r"\d+", rest)]
    return {lines[number - 1].strip() for number in numbers if number <= len(lines)}


def expanded(shown: str, text: str) -> str:
    """Return *shown* with the beginnings of the lines that it shows without the prefix of all lines."""
    lines = text.split("\n")
    return ROW.sub(
        lambda row: f"{lines[int(row[1]) - 1][: int(row[2]) - 1]}" if int(row[1]) <= len(lines) else "", shown
    )


def plain(text: str) -> str:
    """Return *text* without mark-up, entities and repeated blanks."""
    return " ".join(html.unescape(TAG.sub(" ", text)).split())


def kind_of_text(text: str) -> str:
    """Return the kind of a text by simple signs; empty for one that has no measure of its own."""
    lines = [line for line in text.split("\n") if line.strip()]
    head = "\n".join(lines[:30])
    if re.search(r"<(?:!doctype html|html)[\s>]", head[:3_000], re.IGNORECASE):
        return "HTML"
    if len(re.findall(r"^@@ -\d", text, re.MULTILINE)) > 1 and re.search(r"^(?:diff |--- )", text, re.MULTILINE):
        return "diff"
    if (
        len(lines) >= LEAST_LINES
        and not is_table(text)
        and sum(HIT.match(line) is not None for line in lines) > MOSTLY * len(lines)
    ):
        return "search"
    if (
        len(re.findall(r"^#{1,4} \S", text, re.MULTILINE)) >= LEAST_LINES
        and re.search(r"^#{2,4} \S", text, re.MULTILINE)
        and (len(re.findall(r"^#{1,4} \S.{0,80}$\n\n", text, re.MULTILINE)) >= LEAST_LINES // 2)
    ):
        return "Markdown"
    return "run" if reports(text) else ""


class Points(NamedTuple):
    """What a preview should show: at least *needed* of them; each has several spellings."""

    needed: int
    spellings: list[list[str]]

    def share(self, shown: str) -> float:
        """Return the share of the needed points that *shown* has."""
        words = plain(shown)
        kept = sum(any(one in shown or plain(one) in words for one in point) for point in self.spellings)
        return min(kept / min(self.needed, len(self.spellings)), 1.0)


def own_points(text: str) -> list[Points]:
    """Return what a preview of a text of its kind must show."""
    kind, found = kind_of_text(text), list[Points]()
    if kind == "HTML":
        body = re.sub(r"(?is)<(script|style|svg|noscript|template)\b.*?</\1\s*>|<!--.*?-->", " ", text)
        headings = [
            plain(TAG.sub("", found)).removesuffix("[edit]")
            for found in re.findall(r"(?is)<h[1-3]\b[^>]*>(.*?)</h[1-3]>", body)
        ]
        article = re.search(r"(?i)<(?:article|main)\b", body)
        paragraphs = re.findall(r"(?is)<p\b[^>]*>(.*?)</p>", body[article.start() if article else 0 :])
        texts = [words for words in (plain(TAG.sub("", one)) for one in paragraphs) if len(words) > SENTENCE]
        found.append(Points(MOST_POINTS, [[one[:KEPT_CHARS]] for one in headings if one]))
        found.append(Points(2, [[one[:KEPT_CHARS]] for one in texts[:2]]))
    elif kind == "Markdown":
        body = re.sub(r"(?ms)^ {0,3}```.*?^ {0,3}```", "", text)
        headings = re.findall(r"^#{1,4} (\S.*)$", body, re.MULTILINE)
        first = [line for line in body.split("\n") if len(line) > SENTENCE and line[:1].isalpha()]
        found.append(Points(MOST_POINTS, [[one.strip()[:KEPT_CHARS]] for one in headings]))
        found.append(Points(1, [[one[:KEPT_CHARS]] for one in first[:1]]))
    elif kind == "diff":
        files = re.findall(r"^\+\+\+ (?:b/)?([^\t\n]+)", text, re.MULTILINE)
        hunks = [found.start() for found in re.finditer(r"^@@ -\d", text, re.MULTILINE)]
        numbers = [text.count("\n", 0, start) + 1 for start in hunks]
        found.append(Points(MOST_POINTS, [[file.rpartition("/")[2]] for file in files if file != "/dev/null"]))
        found.append(
            Points(
                MOST_POINTS,
                [
                    [f"\n{n}: @@", f":{n},", f":{n}\n", f":{n};", text[start : start + 16]]
                    for n, start in zip(numbers, hunks, strict=True)
                ],
            )
        )
    elif kind == "search":
        hits = [hit for hit in map(HIT.match, text.split("\n")) if hit is not None]
        found.append(Points(MOST_POINTS, [[path.rpartition("/")[2]] for path in dict.fromkeys(hit[1] for hit in hits)]))
        found.append(
            Points(
                MOST_POINTS,
                [[one.strip()[:KEPT_CHARS]] for one in dict.fromkeys(hit[2] for hit in hits) if one.strip()],
            )
        )
    return [points for points in found if points.spellings]


def texts_of(file: Path, max_tokens: int) -> Iterator[tuple[str, str]]:
    """Yield the text of *file*, or the tool results of a recorded session that take more than *max_tokens*; named."""
    whole = file.read_bytes().decode("utf-8", "replace")
    lines = whole.splitlines() if file.suffix == ".jsonl" else []
    messages = [parsed(line) for line in lines]
    if not any(isinstance(message, dict) and "role" in message for message in messages):
        yield file.name, whole
    for number, message in enumerate(messages, 1):
        for place, text in enumerate(results_in(message)):
            if COUNTER.exceeds(text, max_tokens):
                yield f"{file.stem}:{number}:{place}", text


def results_in(message: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of the tool results in a message of OpenAI's or Anthropic's form."""
    content = message.get("content")
    if message.get("role") in {"tool", "function"} and isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_result":
            yield from results_in({"role": "tool", "content": block.get("content")})
        elif message.get("role") in {"tool", "function"} and block.get("type") == "text":
            yield block["text"]


def planted(text: str, rng: random.Random) -> Iterator[Planted]:
    """Yield copies of *text* with one anomaly each, of all kinds that fit it."""
    document = parsed(text)
    if document is not None:
        yield from planted_records(text, rng)
    elif is_table(text):
        yield from planted_rows(text, rng)
    if document is None or text.count("\n") > MANY:
        yield from planted_lines(text.split("\n"), rng)


def parsed(text: str) -> Any:
    """Return the JSON document in *text*; None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def is_table(text: str) -> bool:
    """Return whether the first lines of *text* are rows with the same number of fields."""
    rows = list(csv.reader(line.replace("\r", "").replace("\0", "") for line in text[:100_000].split("\n")[:20]))
    return len(rows) > MARGIN and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1


def planted_lines(lines: list[str], rng: random.Random) -> Iterator[Planted]:
    """Yield copies with an extra line, and one with a number that jumps."""
    for kind, line in (
        ("fatal line", f"2026-02-01 03:04:05 FATAL storage: volume vol-{MARK} went read-only"),
        ("failed test", f"--- FAIL: TestPlantedCase{MARK} (0.03s)"),
        ("odd line", f"%% zyxwv qrstu plonk :: {MARK} %%"),
        ("quiet line", f"the quota of volume seven went down to {MARK} of 512"),
    ):
        place = rng.randrange(len(lines) // 10, max(len(lines) * 9 // 10, 1))
        yield Planted(kind, "\n".join([*lines[:place], line, *lines[place:]]))
    yield from jumped(lines, rng)


def jumped(lines: list[str], rng: random.Random) -> Iterator[Planted]:
    """Yield a copy with a number a thousand times larger, in one of many lines that differ only in digits."""
    kinds: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        if len(line) < LONG_LINE and re.search(r"\d", line) and re.search("[a-z]", line):
            kinds.setdefault(re.sub(r"\d", "", line), []).append(place)
    most = max(kinds.values(), key=len, default=[])
    if len(most) >= MANY:
        place = rng.choice(most[MARGIN:-MARGIN])
        *_, number = re.finditer(r"\d+", lines[place])
        changed = f"{lines[place][: number.start()]}{MARK}5577{lines[place][number.end() :]}"
        yield Planted("number", "\n".join([*lines[:place], changed, *lines[place + 1 :]]))


def record_lists(value: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield the lists of many objects in a document; the values of an object count as a list, too."""
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if len(children) > MANY and all(isinstance(child, dict) for child in children):
        yield children
    for child in children:
        yield from record_lists(child)


def planted_records(text: str, rng: random.Random) -> Iterator[Planted]:
    """Yield copies of a document with one record that deviates."""
    for kind, value in (
        ("record: type", {"planted": f"zz{MARK}zz"}),
        ("record: text", f"zz{MARK}zz"),
        ("record: number", int(f"{MARK}5577000")),
        ("record: key", None),
    ):
        document = parsed(text)
        records = max(record_lists(document), key=len, default=[])
        if not records:
            return
        record = records[rng.randrange(MARGIN, len(records) - MARGIN)]
        record = next((child for child in record.values() if isinstance(child, dict) and len(child) > MARGIN), record)
        numbers = [key for key, child in record.items() if isinstance(child, int | float)]
        if kind in {"record: text", "record: number"} and not numbers:
            continue
        record["planted_" + MARK if value is None else rng.choice(numbers or list(record))] = value or 1
        indent = 2 if text.count("\n") > LONG_LINE else None
        beside = tuple(
            str(child) for child in record.values() if isinstance(child, str | float) and len(str(child)) > MARGIN
        )
        yield Planted(kind, json.dumps(document, indent=indent), beside)


def planted_rows(text: str, rng: random.Random) -> Iterator[Planted]:
    """Yield copies of a table with one row that deviates."""
    for kind in ("row: text", "row: number", "row: short", "row: empty"):
        rows = list(csv.reader(line.rstrip("\r") for line in text.split("\n")))
        row = rows[rng.randrange(MARGIN, len(rows) - MARGIN)]
        if kind in {"row: text", "row: number"}:
            row[-1] = f"zz{MARK}zz" if kind == "row: text" else f"{MARK}5.5"
        else:
            row[0] = f"zz{MARK}zz"
            row[-1:] = [""] if kind == "row: empty" else []
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(rows)
        yield Planted(kind, written.getvalue(), tuple(cell for cell in row if MARK not in cell and len(cell) > MARGIN))


def buoyline(text: str, max_tokens: int) -> str:
    """Show the stub of a workspace, with its paths."""
    path = "/workspace/sessions/s1/tool_result-call_1"
    view = view_of(text)
    name, shown = "" if view is None else f"{path}.view.txt", text if view is None else view
    stored = StoredResult(f"{path}.txt", "tool_result-call_1.txt", name, count_lines(shown))
    return stub_of(TextSource(shown), stored, max_tokens, COUNTER)


def preview_command(text: str, max_tokens: int) -> str:
    """Show the output of `buoyline preview`: a file with its own line numbers."""
    stored = StoredResult("/somewhere/output.txt", "output.txt", "", count_lines(text))
    return stub_of(TextSource(text), stored, max_tokens, COUNTER)


def first_characters(text: str, max_tokens: int) -> str:
    """Show the beginning, four characters a token."""
    return text[: CHARS_PER_TOKEN * max_tokens]


def head_and_tail(text: str, max_tokens: int) -> str:
    """Show beginning and end, half each."""
    half = CHARS_PER_TOKEN * max_tokens // 2
    return f"{text[:half]}\n...\n{text[-half:]}"


def error_words(text: str, max_tokens: int) -> str:
    """Show the different lines with an error word, as many as fit."""
    kept: list[str] = []
    for line in dict.fromkeys(line[:160] for line in text.split("\n") if WORD.search(line)):
        if COUNTER.count("\n".join([*kept, line])) > max_tokens:
            break
        kept.append(line)
    return "\n".join(kept)


def head_errors_tail(text: str, max_tokens: int) -> str:
    """Show the head, the lines with error words and the tail: a third each, whole lines of at most 160 characters."""
    lines = [f"{number}: {line[:160]}" for number, line in enumerate(text.split("\n"), 1)]
    errors = [line for line in dict.fromkeys(lines) if WORD.search(line)]
    kept = [*_as_fits(lines, max_tokens // 3), *_as_fits(errors, max_tokens // 3)]
    return "\n".join([*kept, *reversed(_as_fits(lines[:-400:-1], max_tokens - COUNTER.count("\n".join(kept)) - 1))])


def most_messages(text: str, max_tokens: int) -> str:
    """Show what a preview could that knows the messages: the beginnings of the shortest ones in the frame of a stub."""
    lines = [line.strip() for line in text.split("\n")]
    frame = [*buoyline(text, max_tokens).partition("\n\n")[0].split("\n"), "", f"[{len(lines):,} lines not shown]"]
    places = dict(zip(reversed(lines), range(len(lines), 0, -1), strict=True))
    rows = [
        min((f"{places[line]}: {one[:KEPT_CHARS].strip()}" for one, line in kind.items()), key=COUNTER.count)
        for kind in messages_of(text)
    ]
    return "\n".join([*frame, *_as_fits(sorted(rows, key=COUNTER.count), max_tokens - COUNTER.count("\n".join(frame)))])


def _as_fits(lines: list[str], max_tokens: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        max_tokens -= COUNTER.count(f"{line}\n")
        if max_tokens < 0:
            break
        kept.append(line)
    return kept


def deepagents(text: str, _: int) -> str:
    """Show the preview of deepagents: ten lines, however long they are."""
    preview: str = import_module("deepagents.middleware._message_eviction")._create_content_preview(text).text  # noqa: SLF001 - the peer's own preview
    return preview


def harness(text: str, max_tokens: int) -> str:
    """Show the preview of pydantic-ai-harness: the shape of a document, head and tail."""
    limits = import_module("pydantic_ai_harness.tool_output_limits._capability")
    sketch = limits.json_sketch(parsed(text))
    return f"{sketch}\n{limits._head_tail_preview(text, CHARS_PER_TOKEN * max_tokens)}"  # noqa: SLF001 - as above


def strands_offloader(text: str, max_tokens: int) -> str:
    """Show the preview of the offloader of Strands: the beginning."""
    plugin = import_module("strands.vended_plugins.context_offloader").ContextOffloader
    made = plugin(max_result_tokens=max_tokens + 1, preview_tokens=max_tokens)
    return str(made._slice_preview(text))  # noqa: SLF001 - as above


def strands_manager(text: str, max_tokens: int) -> str:
    """Show the preview of the context manager of Strands: three fifths from the head, two from the tail."""
    truncate = import_module("strands._context_manager.methods.truncate")
    return str(truncate._build_preview(text, 1, {"preview_tokens": max_tokens}))  # noqa: SLF001 - as above


def agentscope(text: str, max_tokens: int) -> str:
    """Show the first tokens, as AgentScope's agent cuts a result."""
    return COUNTER.head(text, max_tokens)


SHOWS: dict[str, tuple[Show, str]] = {
    "buoyline": (buoyline, "buoyline"),
    "buoyline preview": (preview_command, "buoyline"),
    "deepagents (10 lines)": (deepagents, "deepagents"),
    "pydantic-ai-harness": (harness, "pydantic_ai_harness"),
    "strands, offloader": (strands_offloader, "strands"),
    "strands, context manager": (strands_manager, "strands"),
    "agentscope (the first tokens)": (agentscope, "buoyline"),
    "the first characters": (first_characters, "buoyline"),
    "head and tail": (head_and_tail, "buoyline"),
    "lines with error words": (error_words, "buoyline"),
    "head, error words, tail": (head_errors_tail, "buoyline"),
    "bound": (most_messages, "buoyline"),
}


def scored(name: str, show: Show, texts: dict[str, str], copies: list[tuple[str, Planted]], args: Any) -> Score:
    """Show all texts in one way, and count what is kept."""
    score, began = Score(), time.perf_counter()
    for file, text in texts.items():
        shown = show(text, args.max_tokens)
        score.tokens.append(COUNTER.count(shown))
        points = own_points(text)
        if points:
            shares = [one.share(shown) for one in points]
            score.own.setdefault(kind_of_text(text), []).append(statistics.fmean(shares))
            if args.verbose:
                print(f"  {name} shows of {file}: {kind_of_text(text)} {shares}")
        for line in score_errors(score, shown, text):
            if args.verbose:
                print(f"  {name} omits from {file}: {line}")
    for file, plant in copies:
        shown = show(plant.text, args.max_tokens)
        score.found.setdefault(plant.kind, []).append(MARK in shown)
        if plant.beside:
            names = any(f"{MARK}" in row and any(value in row for value in plant.beside) for row in shown.split("\n"))
            score.own.setdefault("record", []).append(float(names))
        if MARK not in shown and args.verbose:
            print(f"  {name} does not show in {file}: {plant.kind}")
    score.seconds = time.perf_counter() - began
    return score


def score_errors(score: Score, shown: str, text: str) -> list[str]:
    """Add the shares of error lines and reports in *shown*; return those that it omits."""
    short, shown, text = (COLOUR.sub("", part) for part in (shown, expanded(shown, text), text))
    errors = error_lines(text)
    lost = [line for line in errors if line[:KEPT_CHARS].strip() not in shown]
    if errors:
        score.words.append(1 - len(lost) / len(errors))
    kinds = reports(text)
    named = named_in(shown, text)
    missed = [kind for kind in kinds if not any(line[:KEPT_CHARS].strip() in shown or line in named for line in kind)]
    if kinds:
        score.reports.append(1 - len(missed) / len(kinds))
        if kind_of_text(text) == "run":
            score.own.setdefault("run", []).append(score.reports[-1])
    said = messages_of(text)
    unsaid = [
        kind
        for kind in said
        if not any(one[:KEPT_CHARS].strip() in short or line in named for one, line in kind.items())
    ]
    if said:
        score.messages.append(1 - len(unsaid) / len(said))
    words = [f"words: {line[: 2 * KEPT_CHARS]}" for line in lost]
    said_not = [f"message: {next(iter(kind))[: 2 * KEPT_CHARS]}" for kind in unsaid]
    return [*words, *(f"report: {kind[0][: 2 * KEPT_CHARS]}" for kind in missed), *said_not]


def main() -> None:
    """Show all files in all ways, and print how much each way keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--max-tokens", type=int, default=300, help="tokens of a preview")
    parser.add_argument("--copies", type=int, default=3, help="copies of each file for each kind of anomaly")
    parser.add_argument("--only", action="append", help="measure only this way of showing; may be repeated")
    parser.add_argument("--verbose", action="store_true", help="name each anomaly that is not shown")
    args = parser.parse_args()
    files = [one for file in args.files for one in (sorted(file.rglob("*")) if file.is_dir() else [file])]
    texts = {name: text for file in files if file.is_file() for name, text in texts_of(file, args.max_tokens)}
    texts = {name: text for name, text in texts.items() if COUNTER.exceeds(text, args.max_tokens)}
    copies = [
        (file, plant)
        for file, text in texts.items()
        for copy in range(args.copies)
        for plant in planted(text, random.Random(f"{file} {copy}"))  # noqa: S311 - no secret is drawn
    ]
    print(f"{len(texts)} texts, {len(copies)} copies with one anomaly each, {args.max_tokens} tokens a preview\n")
    print(f"{'':34}   words  reports messages  anomalies           tokens: median, most")
    for name, (show, package) in SHOWS.items():
        if find_spec(package) is None:
            print(f"{name:34} not installed")
        elif args.only is None or name in args.only:
            score = scored(name, show, texts, copies, args)
            print(score.line(name), flush=True)
            own = (f"{kind} {100 * statistics.fmean(of):.1f} % of {len(of)}" for kind, of in sorted(score.own.items()))
            print(f"    own measures: {', '.join(own)}")
            if name.startswith("buoyline"):
                for kind, hits in sorted(score.found.items()):
                    print(f"    {kind:16} {sum(hits)}/{len(hits)}")


if __name__ == "__main__":
    main()
