"""What a part of a conversation says, in facts: each has its words and the lines where they are."""

import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from buoyline.compression.extractive.calls import PASSED, Step, name_of, steps_of
from buoyline.compression.extractive.lines import LineFinder, merged, plain, ranked, rows_of
from buoyline.compression.extractive.user import asks, bans, checklist, is_made, leads, own_words
from buoyline.compression.summary import Fact, SourceMessage, SummaryRequest
from buoyline.compression.text import CUT, Pointer, readable, sentences, width
from buoyline.tokens.counter import end_of

SO_FAR: Final = "; so far "
"""In a fact on commits, begins what later messages may change."""

_CITATION_TOKENS: Final = 15
_LINE_SHARE, _LEAST_LINE, _MOST_LINE = 40, 16, 60
_SHORT_CHARS: Final = 12
"""Of a user's message: a shorter one answers a question."""

_REPORT_WIDTH: Final = 40
_PASTED_CHARS: Final = 2_000
_READ_CHARS: Final = 20_000
_STOP = re.compile(r"[.!?;](?= )|[。\uff01\uff1f]")
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_CHECKS = re.compile(
    r"(?:^|[^a-z])(?:py|vi|je|un|no|unit)?(?:tests?|lint|check|typecheck|build|compile|verify|vet|clippy|mypy|pyright"
    r"|ruff|eslint|tsc|tsgo|jest|vitest|tox|nox|ctest|gradle|mvn)(?:$|[^a-z])",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\[\s\S])*(?:\"|\Z)|'[^']*'")
_COMMIT = re.compile(r"^\[([^\s\]]{1,120})(?: \([^)\n]{0,40}\))? ([0-9a-f]{7,40})\] (\S[^\n]{0,200})$", re.MULTILINE)
_PUSH = re.compile(r"\bgit\b[^;&|\n]{0,200}\bpush\b")
_MOST_RECORDS: Final = 12
_MOST_RECORD_CHARS: Final = 60_000


def facts_of(request: SummaryRequest) -> list[Fact]:
    """Return the facts of the messages in *request*, each with its weight."""
    reading = _Reading(request)
    signals = (
        reading.users_words,
        reading.refusals,
        reading.plan,
        reading.runs,
        reading.commits,
        reading.changes,
        reading.failed_calls,
        reading.flagged_rows,
        reading.records,
        reading.reports,
        reading.findings,
    )
    return [fact for signal in signals for fact in signal()]


class _Reading:
    """The messages, and what several signals ask of them."""

    def __init__(self, request: SummaryRequest) -> None:
        self.request, self.sources, self.counter = request, request.sources, request.counter
        self.budget = request.max_tokens
        self.line = max(_LEAST_LINE, min(self.budget // _LINE_SHARE, _MOST_LINE))
        self.finder = LineFinder()
        self.steps = steps_of(request.sources)
        self.answered = [step for step in self.steps if step.result is not None]
        users = [one for one in self.sources if one.message.role == "user" and not one.message.results]
        spoken = [(one, own_words(one.message.text)) for one in users]
        self.typed = [(one, text) for one, text in spoken if not is_made(text)]
        if not self.typed:  # a conversation that only programs lead: their messages are the task
            self.typed = [(one, one.message.text) for one in users if one.message.text.strip()]
        self.agent = [one for one in self.sources if one.message.role == "assistant" and one.message.text.strip()]

    @cached_property
    def changed(self) -> dict[str, list[Step]]:
        """The changes of each file, the files in the order of their first; one path may end with another's spelling."""
        files: dict[str, list[Step]] = {}
        for step in self.answered:
            for path in dict.fromkeys(step.paths) if step.changes and not step.failed else ():
                same = (name for name in files if name.endswith(f"/{path}") or path.endswith(f"/{name}"))
                files.setdefault(path if path in files else next(same, path), []).append(step)
        return files

    def changed_since(self, step: Step) -> list[str]:
        """Return the names of files that were changed after *step*."""
        return [name_of(path) for path, steps in self.changed.items() if steps[-1].source.index > step.source.index]

    # What all signals need: a quotation that fits, and its lines.

    def cut(self, text: str, tokens: int, *, with_end: bool = False) -> str:
        """Return *text* on one line within about *tokens*; a cut is marked, at the end of a sentence if one is near."""
        shown = readable(text[:_READ_CHARS])
        if not self.counter.exceeds(shown, tokens):
            return shown
        end = ""
        if with_end:
            end = end_of(shown, min(tokens // 3, 80), self.counter).partition(" ")[2]
            tokens -= self.counter.count(end)
        head = self.counter.head(shown, max(tokens - 2, 0))
        stop = max((match.end() for match in _STOP.finditer(head)), default=0)
        stop = stop if stop > 0.6 * len(head) else head.rfind(" ")
        return f"{head[: stop if stop > 0 else len(head)].rstrip()} {CUT} {end}".rstrip()

    def fact(
        self,
        field: str,
        kind: str,
        text: str,
        source: SourceMessage,
        weight: float,
        *,
        words: str = "",
        pointers: Sequence[Pointer] | None = None,
        order: int = 0,
        subject: str = "",
    ) -> Fact:
        """Return a fact of a message; its lines are those that hold *words*, or else the text."""
        found = self.finder.of(source, words or text) if pointers is None else pointers
        return Fact(field, kind, text, tuple(found), source.index, weight, order, subject)

    def lines_of(self, step: Step, words: str) -> tuple[Pointer, ...]:
        """Return the lines in the result of *step* that hold *words*."""
        return self.finder.of_result(step.answer, step.excerpt, words)

    # The signals.

    def users_words(self) -> Iterator[Fact]:
        """The task, later requests and corrections, what the user forbids, and the rest of what the user said."""
        budget, has_task = self.budget, self.request.previous is not None
        for at, (source, text) in enumerate(self.typed):
            is_first, is_last = at == 0 and not has_task, at == len(self.typed) - 1
            question = self._question_before(source) if len(text) < _SHORT_CHARS else None
            if question is not None:
                said = f"“{self.cut(question[1], 2 * self.line)}” \u2013 “{text}”"
                pointers = merged((*self.finder.of(*question), *self.finder.of(source, text)))
                yield self.fact("task_overview", "user", said, source, 4, pointers=pointers)
            if question is not None or len(text) < _SHORT_CHARS - 4:
                continue
            if is_first:  # beside its citation, however small the budget is
                tokens = max(24, min(budget // 8, 600), min(budget // 2, 300) if is_last else 0)
                tokens = min(tokens, max(budget - _CITATION_TOKENS, 6))
            elif is_last:
                tokens = max(24, min(budget // 2, 300))
            else:
                tokens = 2 * self.line if len(text) > _PASTED_CHARS else max(24, min(budget // 12, 200))
            said = self.cut(text, tokens, with_end=is_first or is_last)
            if is_last and not is_first and not self._is_answered(source):
                yield self.fact("next_steps", "last", f"Last request: “{said}”", source, 8, words=said, subject="last")
            else:
                kind, weight = ("task", 9) if is_first else ("user", 8 if is_last else 5)
                yield self.fact("task_overview", kind, f"“{said}”", source, weight, words=said)
            for order, sentence in enumerate(bans(text)):
                weight = 7 if len(text) > _PASTED_CHARS else 9
                ban = f"User: “{sentence}”"
                yield self.fact("context_to_preserve", "ban", ban, source, weight, words=sentence, order=order)
            yield from self._rest(source, text, said)

    def _question_before(self, source: SourceMessage) -> tuple[SourceMessage, str] | None:
        """Return the last question of the agent before a message, and where; None if there is none."""
        before = next((one for one in reversed(self.agent) if one.index < source.index), None)
        questions = [*filter(asks, sentences(before.message.text))] if before else []
        return (before, questions[-1]) if before and questions else None

    def _is_answered(self, source: SourceMessage) -> bool:
        return any(one.index > source.index and not one.message.calls for one in self.agent)

    def _rest(self, source: SourceMessage, text: str, said: str) -> Iterator[Fact]:
        if len(text) <= len(said) + 20:
            return
        weight = 1.0 if len(text) > _PASTED_CHARS else 2.2
        for order, sentence in enumerate(sentences(text[:_READ_CHARS])):
            if len(sentence) >= 25 and sentence not in said and not leads(sentence):  # noqa: PLR2004 - else no rule
                rule = f"User: “{self.cut(sentence, 2 * self.line)}”"
                yield self.fact("context_to_preserve", "rule", rule, source, weight, words=sentence, order=order)

    def refusals(self) -> Iterator[Fact]:
        """Calls that the user refused, with what the user said."""
        for step in self.answered:
            if step.refused:
                clause = f"{step.call.name} {step.file} {step.edit()[0]}" if step.changes else step.said
                shown, said = self.cut(clause, self.line), self.cut(step.feedback, 2 * self.line)
                text = f"“{said}” (refusing: {shown})" if said else f"Refused: {shown}"
                pointers = merged((*self.finder.of(step.source, clause), *self.lines_of(step, said or step.text[:60])))
                yield self.fact("task_overview", "user", text, step.answer, 5 if said else 2, pointers=pointers)

    def plan(self) -> Iterator[Fact]:
        """The newest checklist."""
        for order, item in enumerate(checklist(self.steps, self.sources)):
            field, weight = ("current_state", 2) if item.is_done else ("next_steps", 6)
            text = f"({item.state}) {self.cut(item.text, self.line)}"
            yield self.fact(field, "plan", text, item.source, weight, words=item.text, order=order, subject="plan")

    def runs(self) -> Iterator[Fact]:
        """The last outcome of each command that did more than read; of several in one call, of all together."""
        runs: dict[str, tuple[str, Step]] = {}
        for step in self.answered:
            commands = [] if step.only_reads or step.refused else step.commands()
            for command in commands[-1:] if step.failed else commands:  # which of several failed is not known
                runs.pop(command[:200], None)
            if commands:
                runs[commands[-1][:200]] = " && ".join(commands), step
        for key, (command, step) in runs.items():
            yield self._outcome(key, command, step)

    def _outcome(self, key: str, command: str, step: Step) -> Fact:
        is_check = _CHECKS.search(_QUOTED.sub("", command)[:200]) is not None
        shown, lines = self.cut(command, self.line), step.text.splitlines()
        if step.failed:
            errors = [row for _, row in step.flagged[:2]] or [readable(step.text[:300])]
            words, text = CUT.join(errors), f"`{shown}` failed: {self.cut(' / '.join(errors), 2 * self.line)}"
        elif is_check:
            words = next((line for line in map(readable, reversed(lines)) if PASSED.search(line)), "")
            text = f"`{shown}` passed ({self.cut(words, self.line // 2)})" if words else f"`{shown}` was run"
        else:
            spoken = (line for line in map(readable, reversed(lines)) if any(map(str.isalnum, line)) and line[0] != "<")
            words = next(spoken, "")
            text = f"Ran `{shown}`" + (f" → {self.cut(words, self.line // 2)}" if words else "")
        if is_check and (changed := self.changed_since(step)):
            text += f"; before the changes of {', '.join(changed[-3:])}"
        pointers = merged((*self.finder.of(step.source, key), *(self.lines_of(step, words) if words else ())))
        kind = "check" if is_check or step.failed else "done"
        weight = (6.5 if step.failed else 4.5) if is_check else (3 if step.failed else 1.5)
        return self.fact("current_state", kind, text, step.source, weight, pointers=pointers, subject=f"run {key}")

    def commits(self) -> Iterator[Fact]:
        """What was committed last, and what has changed since."""
        found = [(match, step) for step in self.answered if step.command for match in _COMMIT.finditer(step.text)]
        if found:
            last = found[-1][1]
            said = "; ".join(f"`{match[2]}` {self.cut(match[3], self.line)}" for match, _ in found[-4:])
            pushed = [step for step in self.answered if _PUSH.search(step.command) and not step.failed]
            is_pushed = bool(pushed) and pushed[-1].source.index >= last.source.index
            since = ", ".join(self.changed_since(last)) or "nothing"
            text = f"Branch `{found[-1][0][1]}`; committed {said}"
            text += f"{SO_FAR}{'pushed' if is_pushed else 'not pushed'}, and {since} changed since"
            pointers = merged(one for match, step in found[-4:] for one in self.lines_of(step, match[0]))
            yield self.fact("current_state", "git", text, last.answer, 6, pointers=pointers, subject="commits")
        elif self.changed and any("git " in step.command for step in self.answered):
            newest = [(name_of(path), steps[-1]) for path, steps in self.changed.items()][-3:]
            text = f"Not committed so far: the changes of {', '.join(name for name, _ in newest)}"
            pointers = merged(one for name, step in newest for one in self.finder.of(step.source, name))
            yield self.fact("current_state", "git", text, newest[-1][1].source, 4.5, pointers=pointers, subject="open")

    def changes(self) -> Iterator[Fact]:
        """The files that were changed, each edit in a clause, and the beginnings of new ones."""
        for path, steps in self.changed.items():
            name, last = name_of(path), steps[-1]
            text = path + (f" \u00d7{len(steps)}" if len(steps) > 1 else "")
            pointers = merged(one for step in steps[-2:] for one in self.finder.of(step.source, name))
            yield self.fact("current_state", "file", text, last.source, 4, pointers=pointers, subject=f"file {path}")
            if begins := last.beginning():
                shown = self.cut(" ".join(begins), 4 * self.line)
                words = CUT.join(line for line in begins if line in shown) or shown
                text = f"{name} begins: {shown}"
                yield self.fact("current_state", "beginning", text, last.source, -1.5, words=words)
            for step in steps:
                clause, words = step.edit()
                if clause:
                    shown, weight = f"{name}: {self.cut(clause, 2 * self.line)}", 2.5 if step is last else 1.5
                    yield self.fact("current_state", "edit", shown, step.source, weight, words=words)

    def failed_calls(self) -> Iterator[Fact]:
        """Failed calls that are no commands, the newest of equal ones."""
        failed: dict[tuple[str, str], tuple[str, Step]] = {}
        for step in self.answered:
            if step.failed and not step.refused and not (step.command and not step.only_reads):
                said = next((line for line in map(readable, step.text.splitlines()) if line), "")
                failed[step.call.name, said[:80]] = said, step
        for said, step in failed.values():
            text = f"{step.call.name} {step.file}".rstrip() + f" failed: {self.cut(said, 2 * self.line)}"
            pointers = self.lines_of(step, said)
            yield self.fact("important_discoveries", "error", text, step.answer, 3, pointers=pointers)

    def flagged_rows(self) -> Iterator[Fact]:
        """What a preview flagged as an error, cited in the result's file, the newest of equal rows."""
        rows: dict[str, tuple[int, Step]] = {}
        for step in self.answered:
            for number, row in step.flagged if step.excerpt is not None else ():
                rows[row] = number, step
        for row, (number, step) in rows.items():
            text = f"{self.cut(step.said, self.line // 2)} → {self.cut(row, 2 * self.line)}"
            path = step.excerpt.path if step.excerpt else ""
            pointers = [Pointer(path, number, number)] if path else None
            yield self.fact("important_discoveries", "row", text, step.answer, 3, words=row, pointers=pointers)

    def records(self) -> Iterator[Fact]:
        """What answers in JSON say, the newest row for each first value."""
        records: dict[str, tuple[str, Step]] = {}
        for step in self.answered:
            if step.command or step.failed or step.excerpt is not None:
                continue
            for row in list(rows_of(step.text[:_MOST_RECORD_CHARS]))[:_MOST_RECORDS]:
                key = f"{step.call.name} {row.partition(',')[0]}"
                records.pop(key, None)
                records[key] = row, step
        for key, (row, step) in records.items():
            pointers = self.lines_of(step, row.partition(",")[0].partition(" ")[2])
            text = f"{step.call.name}: {row}"
            yield self.fact(
                "important_discoveries", "record", text, step.answer, 2, pointers=pointers, subject=f"record {key}"
            )

    def reports(self) -> Iterator[Fact]:
        """What the agent said last: its report, its words before the next call, or its question."""
        reports = [one for one in self.agent if not one.message.calls and width(one.message.text) > _REPORT_WIDTH]
        for source in reports[-1:]:
            report = _FENCED.sub(CUT, plain(source.message.text[:_READ_CHARS]))
            said = self.cut(report, max(24, min(self.budget // 12, 400)))
            text = f"Last report: “{said}”"
            yield self.fact("current_state", "report", text, source, 5.5, words=said, subject="report")
        if not self.agent or (self.typed and self.agent[-1].index < self.typed[-1][0].index):
            return
        last, words = self.agent[-1], list(sentences(self.agent[-1].message.text))[-3:]
        questions = [sentence for sentence in words if asks(sentence)]
        if last.message.calls and words:
            said = " ".join(f"“{self.cut(sentence, 30)}”" for sentence in words)
            text = f"Last words before the cut: {said}"
            yield self.fact("current_state", "intent", text, last, 4, words=CUT.join(words))
        elif questions:
            text = f"The agent asked: “{self.cut(questions[-1], 60)}”"
            yield self.fact("current_state", "asked", text, last, 5, words=questions[-1])

    def findings(self) -> Iterator[Fact]:
        """The agent's sentences, by what they add."""
        for sentence, worth in ranked(self.sources):
            weight = math.log(max(worth, 1e-6)) + 2.2
            text = self.cut(sentence.text.strip("| "), 3 * self.line)
            yield self.fact(
                "important_discoveries", "finding", text, sentence.source, weight,
                words=sentence.text, order=sentence.position,
            )  # fmt: skip
