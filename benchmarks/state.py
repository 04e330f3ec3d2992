"""Compares the state of the work with what a second reader finds in recorded sessions. No model is involved.

    python benchmarks/state.py SESSIONS [--family PREFIX] [--cuts 10] [--seed 15] [--wrong]

Each session in SESSIONS, ``*.jsonl``, is cut at random messages. At each cut the state, carried from cut to cut as from
summary to summary, is compared with a reader of its own, which shares no code with the extraction: it knows the tools
of the recordings by name and reads commands with `shlex`. A fact is a changed file, the last outcome of a check, a
commit, or an open item of the plan; it is right if both say it. A false pass is a check that the state calls passed
while the reader has no proof of that. Goals: 0.98 right, no false pass.
"""

import argparse
import json
import random
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from posixpath import basename, isabs, join, normpath
from typing import Any, NamedTuple

from buoyline.compression.extractive.work import work_of
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import WorkState
from buoyline.messages import Message, Text, ToolCall, ToolResult
from buoyline.messages.registry import detect

EDITORS = {"edit", "write", "multiedit", "notebookedit", "str_replace", "write_file", "editor", "create", "insert"}
SHELLS = {"bash", "run_commands", "shell", "execute_command"}
PLANNERS = {"todowrite", "write_todos"}
LEAST_MESSAGES = 6
"""No summary replaces fewer messages."""

DONE = {"completed", "complete", "done", "closed", "cancelled", "deleted"}
TESTERS = {
    "pytest",
    "tox",
    "nox",
    "mypy",
    "pyright",
    "ruff",
    "eslint",
    "tsc",
    "tsgo",
    "golangci-lint",
    "vitest",
    "jest",
}
RUNNERS = {"go", "npm", "npx", "mise", "make", "cargo", "yarn", "pnpm", "bun", "python", "python3"}
GOALS = re.compile(r"(?:^|[:._-])(?:tests?|lint|check|build|vet|typecheck|ci|e2e|validate|compile)(?:$|[:._-])")
REFUSED = re.compile(
    r"doesn't want to (?:proceed|take)|user rejected|was rejected|tool use was rejected", re.IGNORECASE
)
BROKEN = re.compile(
    r"^\s*(?:<tool_use_error>|Error\b|error:|Could not find|No changes made|File has not been read"
    r"|String to replace not)",
)
STATUS = re.compile(r"(?:exit(?:ed)?(?: with)?(?: code| status)?:?|Command exited with code) (\d+)", re.IGNORECASE)
ECHOED = re.compile(r"^(?:\[[\w:.-]+\] )?[$>] (\S.*)$", re.MULTILINE)
SILENCE = re.compile(r"^\W*(?:Tool ran without output|.*no output|.*did not produce any output)\W*$")
FAILURES = re.compile(
    r"^(?:FAIL\b|--- FAIL|FAILED |ERROR in |E   )|\b[1-9]\d* (?:failed|failing|failures?|errors?)\b|\berror TS\d+"
    r"|: error:"
    r"|^error(?:\[\w+\])?:|npm (?:ERR!|error)|Build failed|[1-9]\d* issues?\b",
    re.MULTILINE,
)
PASSES = re.compile(
    r"^ok\s+\S+|^PASS\b|\b[1-9]\d* pass(?:ed|ing)?\b|\b0 (?:issues|errors|failures)\b|^--- PASS|^test result: ok"
    r"|all (?:tests|checks) pass(?:ed)?|No issues found|Success: no issues|\b(?:DONE|Finished in) [\d.]+m?s"
    r"|built in \d",
    re.MULTILINE | re.IGNORECASE,
)
COMMITTED = re.compile(r"^\[[^\]\n]* ([0-9a-f]{7,40})\] ", re.MULTILINE)
OPENED = re.compile(r"^(?:\[File: |\(Open file: )(/[^\s()]+)", re.MULTILINE)


class Fact(NamedTuple):
    """What is said of one thing: a file, a check, a commit or an item of the plan."""

    kind: str
    subject: str
    says: str


class Reader:
    """Reads a recording from its beginning, and knows the facts at any message."""

    def __init__(self) -> None:
        """Start before the first message."""
        self.files: dict[str, str] = {}
        self.checks: dict[tuple[str, str], str] = {}
        self.commits: dict[str, None] = {}
        self.plan: dict[str, tuple[str, bool]] = {}
        self._calls: dict[str, ToolCall] = {}
        self._written: list[ToolCall] = []
        self._role = ""

    def read(self, message: Message) -> None:
        """Take in a message: results end calls."""
        if self._written and message.role == "user":
            call = self._written.pop()
            self._end(call, ToolResult(call.call_id, call.name, (Text(message.text),), is_error=False))
        if message.role == "assistant":
            if self._role != "assistant":
                self._calls.clear()  # they were given up
            self._written = [] if message.calls else list(written_calls(message.text))
        self._role = message.role
        for result in message.results:
            call = self._calls.pop(result.call_id, None)
            if call is not None:
                self._end(call, result)
        for call in message.calls:
            self._calls[call.call_id] = call

    @property
    def is_waiting(self) -> bool:
        """Whether a call has no result yet."""
        return bool(self._calls or self._written)

    def _end(self, call: ToolCall, result: ToolResult) -> None:
        try:
            arguments: dict[str, Any] = json.loads(call.arguments)
        except ValueError:
            return
        name, text = call.name.lower(), result.text
        is_refused = REFUSED.search(text[:300]) is not None
        if name in SHELLS and not is_refused:
            commands = arguments.get("command") or arguments.get("commands") or ""
            command = "\n".join(commands) if isinstance(commands, list) else str(commands)
            self._run(command, text, is_error=result.is_error)
        elif name in EDITORS and not (is_refused or result.is_error or BROKEN.match(text)):
            path = next((str(arguments[key]) for key in ("file_path", "path", "filename") if key in arguments), "")
            shown = OPENED.findall(text)
            if path or shown:
                self._name(path or shown[-1], "there", "")
        elif name in PLANNERS:
            items: list[dict[str, Any]] = arguments.get("todos") or []
            self.plan = {f"{at}": (str(item["content"]), item["status"] in DONE) for at, item in enumerate(items)}
        elif name == "taskcreate" and (number := re.search(r"#(\d+)", text)) is not None:
            self.plan[number[1]] = (str(arguments["subject"]), False)
        elif name == "taskupdate" and (item := self.plan.get(str(arguments.get("taskId")))) is not None:
            self.plan[str(arguments["taskId"])] = (item[0], arguments.get("status", "open") in DONE)

    def _run(self, command: str, text: str, *, is_error: bool) -> None:
        status = STATUS.search(text)
        has_failed = is_error or (status is not None and status[1] != "0")
        directory, place, found = "", "", list[str]()
        for words, targets in commands_of(command):
            if words[:1] == ["cd"]:
                to = words[1] if len(words) > 1 else ""
                directory = normpath(join(directory, to)) if to and to[0] not in "-~$" else ""
                continue
            if not has_failed:
                self._changes(words, targets, directory)
            if is_check(words):
                place = place if found else directory
                found.append(" ".join(words))
        is_kept_back = re.search(r"\|\s*(?:grep|awk|sed|wc|jq|sort|cut)\b", command) is not None
        self._note(found, text, place, has_failed=has_failed, is_kept_back=is_kept_back)
        if "commit" in command and (made := COMMITTED.findall(text)):
            if "--amend" in command and self.commits:
                self.commits.popitem()  # the new one replaces it
            self.commits.update(dict.fromkeys(made))

    def _note(self, checks: Sequence[str], text: str, directory: str, *, has_failed: bool, is_kept_back: bool) -> None:
        if not checks:
            return
        is_silent = not text.strip() or SILENCE.search(text) is not None
        outcome = "unknown"
        if has_failed or FAILURES.search(text):
            outcome = "fails"
        elif PASSES.search(text) or (is_silent and not is_kept_back):
            outcome = "passes"
        ran = [*checks, *ECHOED.findall(text)]
        for key, before in list(self.checks.items()):
            steps = key[1].split(" && ")
            is_again = outcome == "passes" and all(any(covers(one, step) for one in ran) for step in steps)
            if (before == "fails" and is_again) or (outcome == "fails" and key[1] in checks):
                del self.checks[key]  # a wider run has passed, or a chain with it failed
        for name in [" && ".join(checks)] if outcome == "fails" else checks:
            self.checks[directory, name] = outcome

    def _changes(self, words: Sequence[str], targets: Sequence[str], directory: str) -> None:
        for target in targets:
            self._name(target, "there", directory)
        program, *rest = words or [""]
        if program == "git" and rest[:1] in (["rm"], ["mv"]):
            program, *rest = rest
        paths = [word for word in rest if not word.startswith("-") and not re.search(r"[*?$`{}()\\]", word)]
        if program in {"rm", "unlink"}:
            for path in paths:
                self._name(path, "gone", directory)
        elif program == "mv" and len(paths) == 2:  # noqa: PLR2004 - from and to
            self._name(paths[0], "gone", directory)
            self._name(paths[1], "there", directory)
        elif program == "cp" and len(paths) == 2:  # noqa: PLR2004 - from and to
            self._name(paths[1], "there", directory)
        elif program in {"touch", "tee"}:
            for path in paths:
                self._name(path, "there", directory)
        elif program == "sed" and any(word.startswith("-i") for word in rest) and paths:
            self._name(paths[-1], "there", directory)

    def _name(self, path: str, state: str, directory: str) -> None:
        if path.startswith("/dev/"):
            return
        spelled = normpath(join(directory, path))
        known = [name for name in self.files if name == spelled or name.endswith(f"/{spelled}")]
        short = [name for name in self.files if not isabs(name) and spelled.endswith(f"/{name}")]
        for name in short:
            del self.files[name]
        self.files[known[0] if known else spelled] = state

    def facts(self) -> set[Fact]:
        """Return what is known now."""
        return {
            *(Fact("file", path, state) for path, state in self.files.items()),
            *(Fact("check", f"{where}\0{squeezed(name)}", outcome) for (where, name), outcome in self.checks.items()),
            *(Fact("commit", name, "") for name in self.commits),
            *(Fact("item", text, "open") for text, is_done in self.plan.values() if not is_done),
        }


def written_calls(text: str) -> Iterator[ToolCall]:
    """Yield the call that a message ends with, in a fence or in tags: a command of the shell, or of an editor."""
    found = re.search(r"(?:```\w*\n(.*)\n```|<command>\s*(.*?)\s*</command>)\s*$", text, re.DOTALL)
    if found is None:
        return
    command = found[1] or found[2]
    program, _, rest = command.partition("\n")[0].partition(" ")
    if program in EDITORS:
        path = "" if ":" in rest else rest.split(" ")[0]
        yield ToolCall("written", program, json.dumps({"path": path} if path else {}))
    else:
        yield ToolCall("written", "shell", json.dumps({"command": command}))


def commands_of(command: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of each command, without here-documents, and the files that its output goes to."""
    text = re.sub(r"<<-?\s*['\"]?(\w+)['\"]?(.*?)\n.*?^\s*\1\b", r"\2", command, flags=re.DOTALL | re.MULTILINE)
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words, targets = list[str](), list[str]()
    try:
        tokens = list(lexer)
    except ValueError:
        return
    skip = False
    for at, token in enumerate(tokens):
        if skip:
            skip = False
        elif token in {">", ">>", "&>", ">&"}:
            skip = True
            if at + 1 < len(tokens) and tokens[at + 1] not in {"1", "2"} and tokens[at - 1] != "2":
                targets.append(tokens[at + 1])
            if words and words[-1] in {"1", "2"}:
                words.pop()
        elif token and set(token) <= set("&|;"):
            if words:
                yield words, targets
            words, targets = [], []
        else:
            words.append(token)
    if words:
        yield words, targets


def is_check(words: Sequence[str]) -> bool:
    """Return whether a command tests, builds or lints."""
    program = basename(words[0])
    if program in TESTERS:
        return True
    goals = [word for word in words[1:4] if not word.startswith("-")]
    return program in RUNNERS and any(GOALS.search(word) or word in TESTERS for word in goals)


def covers(command: str, other: str) -> bool:
    """Return whether *command* has no word that *other* lacks, except for the mark of all packages."""
    return set(command.split()) - {"./...", "-v", "-race"} <= set(other.split())


def squeezed(command: str) -> str:
    """Return a command without what two readers may write differently: quotes, blanks and numbers of streams."""
    return re.sub(r"2>&1|['\"\s\\]", "", command)


def said_by(state: WorkState) -> set[Fact]:
    """Return what a state says, in the reader's terms."""
    outcomes = {"passes": "passes", "fails": "fails", "ran": "unknown"}
    return {
        *(
            Fact("file", one.path, "gone" if one.operation in {"deleted", "moved"} else "there")
            for one in state.changed_files
        ),
        *(
            Fact("check", f"{one.directory}\0{squeezed(one.command)}", outcomes[one.outcome])
            for one in state.checks.values()
        ),
        *(Fact("commit", name, "") for name, _ in state.repository.commits),
        *(Fact("item", item.text, "open") for item in state.plan if not item.is_done and state.has_tool_plan),
    }


class Compared(NamedTuple):
    """The facts of one cut."""

    family: str
    right: list[Fact]
    missing: list[Fact]
    wrong: list[Fact]
    false_passes: list[Fact]


def compared(family: str, said: set[Fact], read: set[Fact]) -> Compared:
    """Match what the state says with what was read; a file is one under all spellings."""
    right, missing = list[Fact](), list[Fact]()
    left = set(said)
    for fact in sorted(read):
        same = next((one for one in sorted(left) if one[::2] == fact[::2] and is_same(one, fact)), None)
        left.discard(same) if same is not None else None
        (right if same is not None else missing).append(fact)
    return Compared(family, right, missing, sorted(left), [one for one in sorted(left) if one.says == "passes"])


def is_same(one: Fact, other: Fact) -> bool:
    """Return whether two facts are about one thing."""
    if one.kind == "check":
        (mine, command), (theirs, other_command) = one.subject.split("\0"), other.subject.split("\0")
        return command == other_command and (mine == theirs or not mine or not theirs)
    if one.kind != "file":
        return one.subject == other.subject
    mine, theirs = normpath(one.subject), normpath(other.subject)
    return mine == theirs or mine.endswith(f"/{theirs}") or theirs.endswith(f"/{mine}")


def judged(path: Path, cuts: int, seed: int) -> Iterator[Compared]:
    """Yield the comparisons of one session, at *cuts* random messages."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    views = [detect(line).view(line) for line in lines]
    family = path.stem.partition("_")[0]
    chosen = set(random.Random(f"{seed} {path.stem}").sample(range(1, len(views) + 1), min(cuts, len(views))))  # noqa: S311
    reader, carried, done = Reader(), WorkState(), 0
    for end, view in enumerate(views, 1):
        reader.read(view)
        if not chosen or end < min(chosen) or (reader.is_waiting and end < len(views)):
            continue
        chosen = {cut for cut in chosen if cut > end}
        state = work_of([SourceMessage(at, views[at]) for at in range(done, end)], carried)
        if end - done >= LEAST_MESSAGES:
            carried, done = state, end
        yield compared(family, said_by(state), reader.facts())


def report(found: Iterable[Compared], *, wrong: bool) -> None:
    """Print the figures by family and kind of fact."""
    groups: defaultdict[str, list[Compared]] = defaultdict(list)
    for one in found:
        groups[one.family].append(one)
        groups["all"].append(one)
    for name, members in groups.items():
        row = [f"{name:12}"]
        for kind in ("file", "check", "commit", "item", ""):
            right = sum(fact.kind.startswith(kind) for one in members for fact in one.right)
            others = sum(fact.kind.startswith(kind) for one in members for fact in (*one.missing, *one.wrong))
            share = f"{right / (right + others):.3f}" if right + others else "    -"
            row.append(f"{kind or 'all'} {share} of {right + others:5}")
        false = sum(len(one.false_passes) for one in members)
        print("  ".join(row), f" {len(members)} cuts, {false} false passes")
    for one in groups["all"] if wrong else ():
        for label, facts in (("missing", one.missing), ("wrong", one.wrong)):
            for fact in facts:
                print(f"{one.family} {label} {fact.kind} {fact.says}: {fact.subject[:160]}")


def main() -> None:
    """Read the arguments, compare all sessions, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path, help="directory of recorded sessions, *.jsonl")
    parser.add_argument("--family", default="", help="only sessions whose name begins so")
    parser.add_argument("--cuts", type=int, default=10, help="random cuts of each session")
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--wrong", action="store_true", help="print each fact that only one of the two says")
    options = parser.parse_args()
    paths = sorted(options.sessions.glob(f"{options.family}*.jsonl"))
    report([one for path in paths for one in judged(path, options.cuts, options.seed)], wrong=options.wrong)


if __name__ == "__main__":
    main()
