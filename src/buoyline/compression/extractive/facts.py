"""Candidates for each field of a summary, more than there is room for."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from buoyline.compression.citations import ARROW, CUT
from buoyline.compression.extractive.calls import grouped_calls, varying_argument
from buoyline.compression.extractive.checks import checks_in
from buoyline.compression.extractive.conversation import Conversation, QuotationLimits
from buoyline.compression.extractive.fact_text import ANSWERED
from buoyline.compression.extractive.files import beginning_of, edit_in, is_whole_file
from buoyline.compression.extractive.lines import Passage, merged_pointers
from buoyline.compression.extractive.phrases import (
    asks,
    chars_of,
    is_lasting,
    is_refusal,
    is_rule,
    looks_ahead,
    offers,
)
from buoyline.compression.extractive.sentence_rank import MIN_CHARS, ranked_sentences
from buoyline.compression.extractive.speech import (
    MAX_TYPED_CHARS,
    MIN_SENTENCE_CHARS,
    last_words,
    plain_text,
    remarks,
    split_closing,
    without_blocks,
    written_texts,
)
from buoyline.compression.identifiers import readable
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Fact, SourceMessage

if TYPE_CHECKING:
    from buoyline.compression.extractive.calls import Step

FACTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        # What the user wants.
        "task": 9.0,  # the first request, above all else
        "request": 2.0,
        "pasted": 0.5,
        "made by a program": -1.0,  # a user message that no person typed
        "refusal": 3.0,
        "refusal without words": 1.5,
        "prohibition": 6.0,  # never forgotten: the agent must not do it in twenty compactions either
        "lasting rule": 4.0,  # holds from now on, or lifts a prohibition
        "rule": 1.0,
        "remark": 0.0,
        # Where the work is.
        "last report": 5.0,
        "newer report": 5.0,  # the newest one, if something was done since
        "report": 2.5,
        "intent": 4.0,
        "repository": 6.0,
        "failed check": 6.5,  # precedes even the changed files
        "check": 4.5,
        "old check": 2.0,  # passed, behind the newest ones: mostly a part of what they check
        "stale check": -1.0,  # added if a file was changed since its last run
        "changed": 4.0,
        "newest edit": 2.5,  # the last one of a file
        "edit": 1.5,
        "beginning": -1.5,  # of a file that was written: said if there is room
        "read": -0.5,
        "content": 0.5,  # the result that holds a large file
        "series": 4.5,  # several similar calls: the next agent must not repeat them
        "done": 1.5,
        "lately": 0.5,  # added for work since the agent's last words: nothing else says that it is done
        "failed": 1.0,
        "looked": -1.0,
        # Errors.
        "error": 3.0,
        # What comes next.
        "question": 6.0,
        "working": 6.0,  # the user's newest request precedes everything that was planned for it
        "todo": 4.0,
        "pending": 4.0,
        "closing": 3.0,
        # Any kind.
        "note": 2.0,  # a sentence that a model or an unknown summarizer wrote
        "focus": 2.5,  # added if it matches the caller's focus, or the name of a field
    }
)
"""Weights of the facts, set by judgement and by reading summaries.

They are log odds, to which `selection.likelihood` adds count and age.
"""

SERIES_PLACES: Final = 3
"""A series names the values of calls at so many places."""

REGULAR_RUNS: Final = 3
"""A check that was run so often is how the agent checks its work, even if its output never says how it ended."""

NEWEST_CHECKS: Final = 3

LARGE_LINES: Final = 150

USUAL_CHARS: Final = 80
"""Of a request. One half as long has half the odds to matter later."""

MIN_SUBSTANCE: Final = -2.5

NEWEST: Final = 3
"""So many of the user's last messages precede older ones that say more, except for a mere "ok": the work continues from
them.
"""

_ONLY_COUNTS = re.compile(r"^\W*(?:found )?\d+ (?:failed|errors?|failures?|problems?)\b", re.IGNORECASE)
"""A line of a report that counts errors without naming them."""

_REFUSED = re.compile(
    r"\b(?:user|human|operator)\b[^.:\n]{0,40}\b(?:said|says|wrote|answered|replied|responded|feedback|comment)\b"
    r"[^:\n]{0,40}:\s*(\S.{0,2000})",
    re.IGNORECASE | re.DOTALL,
)
"""The result of a call that the user refused with words of their own."""

_EMPTY_OUTCOME = re.compile(r"\W*no output\W*|\S{0,20}[$#>%]", re.IGNORECASE)
"""Of a command: nothing, or the prompt of a shell."""

_PREPARES = re.compile(r"\s*(?:(?:cd|mkdir|sleep|export|source|set|pwd)\b[^\n;&|]*(?:&&|;|\s)*)+")
"""A command that only prepares others."""

_COMMITS = re.compile(r"\bgit (?:add|commit|push)\b")

SHOWN_COMMITS: Final = 4
SHOWN_CHANGES: Final = 3
"""So many of the newest ones are named."""

PASTED_BAN_TOKENS: Final = 400
"""Of a ban in a long message: a pasted text may have no line ends. A ban that was typed is whole."""

INTENT_TOKENS: Final = 40
"""Of the agent's last words before a call, however small the summary is: they say what it does next."""

REPORT_LINES: Final = 24
"""A report of at most so many lines is cited whole if its quotation was cut."""


def overview(conversation: Conversation, *, without: SourceMessage | None = None) -> Iterator[Fact]:
    """Yield the user's requests in the user's words.

    *without* is a message that is quoted elsewhere; the first request is quoted here even so.
    """
    limits = conversation.limits
    typed = conversation.typed
    for source in typed:
        is_task = source is typed[0] and not conversation.has_task
        if source is without and not is_task:
            continue
        is_asked = is_task and source is typed[-1]
        if is_task:
            kind, max_tokens = "task", limits.task
            if is_asked:
                max_tokens = max(limits.task, limits.asked)
        elif _is_pasted(source):
            kind, max_tokens = "pasted", limits.line
        else:
            kind, max_tokens = "request", limits.request
        passage = conversation.quoted(source, max_tokens, with_end=is_asked)
        if ANSWERED not in passage.text and not (is_task or conversation.says_something(source.message.text)):
            continue
        if is_task:
            weight = FACTS["task"]
        elif conversation.is_made(source):
            weight = FACTS["made by a program"]
        elif kind == "pasted":
            weight = FACTS["pasted"]
        else:
            is_next = source in typed[-NEWEST:] and chars_of(source.message.text) >= MIN_SENTENCE_CHARS
            weight = FACTS["request"] + (1.0 if is_next else _substance(source.message.text))
        item = conversation.item("task_overview", kind, passage.text, source, weight=weight)
        yield _citing(item, passage.pointers)
    yield from _refusals(conversation)


def _refusals(conversation: Conversation) -> Iterator[Fact]:
    """Yield the calls that the user refused, with the user's words."""
    limits = conversation.limits
    for step in conversation.steps:
        if not step.has_failed or step.reading is None or not is_refusal(step.reading.text):
            continue
        said = _REFUSED.search(step.reading.text)
        named = step.action.command or (step.action.paths or (step.action.name,))[0]
        tool = step.action.command or f"{step.action.name} {_names(step.action.paths)}".strip()
        edit = edit_in(step.action.arguments)
        shown = limits.cut(f"{tool} {edit.clause}" if edit is not None else tool, limits.line)
        words = limits.cut(said[1], 2 * limits.line) if said is not None else ""
        text = f"“{words}” (refusing: {shown})" if words else f"Refused: {shown}"
        weight = FACTS["refusal"] if words else FACTS["refusal without words"]
        places = conversation.citations.of_result(step.reading, words or step.reading.text[:MIN_CHARS])
        pointers = step.citations_for(named, Passage("", places), conversation.citations)
        yield _fact("task_overview", "refusal", text, step.call.index, pointers, weight=weight)


def state(conversation: Conversation) -> Iterator[Fact]:
    """Yield version control, checks, files, other calls with their outcomes, and the agent's reports."""
    yield from _repository(conversation)
    yield from _checks(conversation)
    yield from _files(conversation)
    yield from _plan(conversation, "current_state", "completed", is_done=True, weight=FACTS["done"])
    yield from _operations(conversation)
    yield from _reports(conversation)


def _repository(conversation: Conversation) -> Iterator[Fact]:
    work, seen = conversation.work, conversation.work.repository
    if not (seen.branch or seen.commits):
        if (work.has_used_git or work.checks) and work.changed_files and seen.last_commit < 0:
            text = "Version control: nothing was committed in this session"
            yield _fact("current_state", "repository", text, work.end - 1, (), weight=FACTS["check"])
        return
    said = [f"branch `{seen.branch}`"] if seen.branch else []
    said += [f"committed `{short}` {subject}" for short, subject in seen.commits[-SHOWN_COMMITS:]]
    if seen.commits and seen.last_push >= seen.last_commit:
        said.append("all pushed")
    elif seen.last_push >= 0 and not seen.commits:
        said.append(f"`{seen.pushed}` was pushed")
    elif seen.last_push >= 0:
        said.append(f"`{seen.commits[-1][0]}` is not pushed yet")
    if seen.commits:
        names = _names(work.uncommitted)
        said.append(f"not committed yet: {names}" if names else "no file was changed since")
    last = max(seen.last_commit, seen.last_push, 0)
    text = f"Version control: {'; '.join(said)}"
    yield _fact("current_state", "repository", text, last, seen.pointers, weight=FACTS["repository"])


def _names(paths: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(path.rpartition("/")[2] for path in paths))


def _checks(conversation: Conversation) -> Iterator[Fact]:
    limits, work = conversation.limits, conversation.work
    newest = list(work.checks)[-NEWEST_CHECKS:]
    for check in work.checks.values():
        text = f"`{limits.cut(check.command, limits.line)}`"
        if check.directory and not check.directory.startswith("/") and not check.command.startswith("cd "):
            text += f" in {limits.cut(check.directory, limits.line)}"
        is_regular = check.runs >= REGULAR_RUNS
        match check.outcome:
            case "ran":
                text += f" was run {check.runs} times" if is_regular else " was run"
            case "fails":
                text += f" fails: {limits.cut(check.line, 2 * limits.line)}"
            case "passes":
                text += f" passes ({limits.cut(check.line, limits.line // 2)})" if check.line else " passes"
        if check.failed_before and check.outcome == "passes":
            text += f"; it had failed: {limits.cut(check.failed_before, limits.line)}"
            names = _names(check.changed_between)
            text += f"; changed in between: {names}" if names else ""
        ran = FACTS["check" if is_regular else "done"]
        weight = {"fails": FACTS["failed check"], "passes": FACTS["check"], "ran": ran}[check.outcome]
        if check.outcome == "passes" and check.command not in newest:
            weight = FACTS["old check"]
        if stale := [*check.changed_after, *work.changed_since(check.last)]:
            text += f"; not run since {_names(stale[-SHOWN_CHANGES:])} changed"
            weight += FACTS["stale check"]
        yield _fact("current_state", "check", text, check.last, check.pointers, weight=weight)


def _files(conversation: Conversation) -> Iterator[Fact]:
    """Yield the files, and the last edit of each in a clause."""
    limits, files = conversation.limits, conversation.work.files
    for one in files.values():
        weight = FACTS["read"] if one.operation == "read" else FACTS["changed"]
        count = max(one.changes, 1)
        yield _fact("current_state", one.operation, one.path, one.last, one.pointers, weight=weight, count=count)
        if one.edit:
            text = f"{_names([one.path])}: {limits.cut(one.edit, 2 * limits.line)}"
            yield _fact("current_state", "edit", text, one.last, one.pointers, weight=FACTS["newest edit"])
    for one in sorted(files.values(), key=lambda one: -one.last):
        if one.content is not None and one.content.end - one.content.start >= LARGE_LINES:
            place = replace(one.content, end=one.content.start)
            text = f"{_names([one.path])} as it was read"
            yield _fact("current_state", "content", text, one.last, (place,), weight=FACTS["content"])
    yield from _writings(conversation)


def _writings(conversation: Conversation) -> Iterator[Fact]:
    """Yield the beginnings of files that were written, and the earlier edits of each file."""
    limits, files = conversation.limits, conversation.work.files
    for step in conversation.steps:
        if step.action.operation != "change" or step.has_failed:
            continue
        path = step.action.paths[0]
        is_last = path in files and files[path].last == step.call.index
        name = _names([path])
        if is_whole_file(step.action.arguments):  # one that was written again has nothing of its earlier forms
            if is_last and (begin := beginning_of(step.action.arguments)):
                shown = limits.cut(" ".join(begin), 4 * limits.line)
                starts = accumulate((len(line) + 1 for line in begin), initial=0)
                cited = [name, *(line for line, start in zip(begin, starts, strict=False) if start < len(shown))]
                text = f"{name} begins: {shown}"
                pointers = conversation.citations.of(step.call, CUT.join(cited))
                yield _fact("current_state", "beginning", text, step.call.index, pointers, weight=FACTS["beginning"])
        elif not is_last and (edit := edit_in(step.action.arguments)) is not None:
            text = f"{name}: {limits.cut(edit.clause, 2 * limits.line)}"
            places = (conversation.citations.of(step.call, words) for words in (path, *edit.lines))
            pointers = merged_pointers(chain.from_iterable(places))
            yield _fact("current_state", "edit", text, step.call.index, pointers, weight=FACTS["edit"])


def discoveries(conversation: Conversation) -> Iterator[Fact]:
    """Yield failed calls, the most telling sentences of the agent, and records of its tools."""
    for step in conversation.failed_calls:
        yield from _error(conversation, step)
    limits = conversation.limits
    for found, weight in ranked_sentences(conversation):
        kind = "record" if found.words else "finding"
        # A row of a table is shown without the bars around it.
        said = found.text.strip("| ") if found.text.startswith("|") else found.text
        text = limits.cut(said, (4 if found.words else 2) * limits.line)
        item = conversation.item("important_discoveries", kind, text, found.source, weight=weight, order=found.position)
        words = found.words or limits.cut(found.text, 2 * limits.line)
        if found.reading is not None:
            yield _citing(item, conversation.citations.of_result(found.reading, words))
        else:
            yield _citing(item, conversation.citations.of(found.source, words))


def _error(conversation: Conversation, step: "Step") -> Iterator[Fact]:
    """Yield the error of a failed call; nothing for a check, whose outcome is state, or for a refused call."""
    limits = conversation.limits
    if checks_in(step.action.command) or (step.reading is not None and is_refusal(step.reading.text)):
        return
    lines = [line for line in step.errors if not _ONLY_COUNTS.search(line.text)] or step.errors
    said = [limits.cut(line.text, limits.line) for line in lines]
    shown = f" {CUT} ".join(dict.fromkeys(text for text in said if text))
    text = f"{step.subject}{ARROW}{shown}" if shown else step.subject
    item = conversation.item("important_discoveries", "error", text, step.answer or step.call, weight=FACTS["error"])
    passage = Passage(shown, tuple(pointer for line in lines for pointer in line.pointers))
    yield _citing(item, step.citations_for(step.subject, passage, conversation.citations))


def preserved(conversation: Conversation) -> Iterator[Fact]:
    """Yield the user's rules and remarks by sentence."""
    limits = conversation.limits
    for source in conversation.typed:
        is_task = source is conversation.typed[0] and not conversation.has_task
        is_pasted = _is_pasted(source)
        for position, (sentence, is_forbidding) in enumerate(remarks(source.message.text)):
            if not conversation.says_something(sentence):
                continue
            if is_forbidding:
                kind, weight = "prohibition", FACTS["prohibition"] - is_pasted
                text = limits.cut(sentence, PASTED_BAN_TOKENS if is_pasted else limits.max_tokens)
            else:
                has_rule = is_rule(sentence)
                if is_pasted and not has_rule:
                    continue
                kind = "constraint"
                weight = FACTS["rule"] + is_task if has_rule or is_task else FACTS["remark"]
                if is_lasting(sentence) and not is_pasted:
                    weight = FACTS["lasting rule"]
                text = limits.cut(sentence, 2 * limits.line)
            yield conversation.item("context_to_preserve", kind, text, source, weight=weight, order=position)


def _operations(conversation: Conversation) -> Iterator[Fact]:
    """Yield each distinct call with its newest outcome; calls that differ in one argument are one fact."""
    limits = conversation.limits
    words = conversation.spoken("assistant")[-1:]
    said = words[0].index if words else -1
    newest: dict[str, Step] = {}
    for step in conversation.steps:
        if _is_operation(step):
            spoken = readable(step.action.spoken())
            newest.pop(spoken, None)
            newest[spoken] = step
    looks = [step for step in newest.values() if step.action.command and step.action.is_harmless]
    yield from _looks(conversation, looks)
    together, apart = grouped_calls(step for step in newest.values() if step not in looks)
    for made in together:
        is_news = made[-1].call.index >= said and made[0].action.operation != "look"
        yield _series(conversation, made, FACTS["series"] if is_news else FACTS["done"])
    for step in apart:
        spoken = readable(step.action.spoken())
        outcome = limits.cut(step.outcome.text, limits.line if step.has_failed else limits.line // 2)
        text = limits.cut(f"$ {spoken}" if step.action.command else spoken, limits.line)
        weight = FACTS["failed"] if step.has_failed else FACTS["looked"] if step.action.is_harmless else FACTS["done"]
        weight += FACTS["lately"] if weight == FACTS["done"] and step.call.index >= said else 0
        shown = f"{text}{ARROW}{outcome}" if outcome and not _EMPTY_OUTCOME.fullmatch(outcome) else text
        item = conversation.item("current_state", "done", shown, step.call, weight=weight)
        yield _citing(item, step.citations_for(text.removeprefix("$ "), step.outcome, conversation.citations))


def _is_operation(step: "Step") -> bool:
    """Return whether a call is a fact of its own: errors, checks and commits are others, and a thought is no fact."""
    action = step.action
    if step.errors or checks_in(action.command) or _COMMITS.search(action.command):
        return False
    if action.operation == "look" and not action.command:
        return not action.paths and not any(written_texts(action))
    if _PREPARES.fullmatch(action.command):
        return False
    return action.operation in {"run", "act"} and not (step.has_failed and action.is_harmless)


def _looks(conversation: Conversation, made: Sequence["Step"]) -> Iterator[Fact]:
    """Yield one fact for the commands that only looked at something, the newest ones."""
    limits = conversation.limits
    newest = ((step, f"`{limits.cut(step.action.command, limits.line // 2)}`") for step in reversed(made))
    shown, pointers = _as_fit(newest, limits, is_newest_first=True)
    if shown:
        yield _fact("current_state", "looked", ", ".join(shown), made[-1].call.index, pointers, weight=FACTS["looked"])


def _series(conversation: Conversation, made: Sequence["Step"], weight: float) -> Fact:
    """Return one fact for calls that differ in one argument: the tool and the newest values."""
    key, values = varying_argument(made)
    newest = zip(reversed(made), reversed(values), strict=True)
    shown, pointers = _as_fit(newest, conversation.limits, is_newest_first=False)
    text = f"{made[0].action.name}: {key} {', '.join(shown)}"
    return _citing(conversation.item("current_state", "done", text, made[-1].call, weight=weight), pointers)


def _as_fit(
    newest: Iterable[tuple["Step", str]], limits: QuotationLimits, *, is_newest_first: bool
) -> tuple[list[str], tuple[Pointer, ...]]:
    """Return the words of as many calls as fit two quoted lines and few places, and these places; at least one call.

    *newest* are calls with their words, the newest first; *is_newest_first* is the order in which the words are said.
    """
    pointers: tuple[Pointer, ...] = ()
    kept: list[str] = []
    for step, words in newest:
        more = merged_pointers((*([step.call.pointer] if step.call.pointer else []), *pointers))
        longer = [*kept, words] if is_newest_first else [words, *kept]
        if kept and (len(more) > SERIES_PLACES or limits.counter.exceeds(", ".join(longer), 2 * limits.line)):
            break
        pointers, kept = more, longer
    return kept, pointers


def _reports(conversation: Conversation) -> Iterator[Fact]:
    """Yield what the agent told the user at the end of its turns, and its last words."""
    limits = conversation.limits
    agents = conversation.spoken("assistant")
    reports = [source for source in agents if not source.message.calls]
    newest = next((s for s in reversed(reports) if chars_of(s.message.text) >= MIN_SENTENCE_CHARS), None)
    for source in agents:
        if source.message.calls:
            if source is agents[-1] and all(asked.index < source.index for asked in conversation.typed[-1:]):
                text = limits.cut(last_words(source.message.text), max(limits.report // 2, INTENT_TOKENS))
                yield conversation.item("next_steps", "intent", text, source, weight=FACTS["intent"])
            continue
        is_newest = source is newest
        if not (is_newest or source is agents[-1] or len(source.message.text) < MIN_CHARS):
            continue  # its sentences compete as findings
        is_last = source is agents[-1] and source.index > conversation.last_operation
        text = plain_text(source.message.text)
        text = split_closing(text)[0] if is_last else text
        shown = limits.cut(without_blocks(text), limits.report)
        if shown and not (is_last and chars_of(shown) < MIN_SENTENCE_CHARS and text is not source.message.text):
            weight = FACTS["report"] + _substance(text)
            weight = FACTS["last report"] if is_last else max(weight, FACTS["newer report"]) if is_newest else weight
            item, whole = conversation.item("current_state", "report", shown, source, weight=weight), source.pointer
            if shown.endswith(CUT) and item.pointer is not None and whole is not None and not item.also:
                # The lines of the whole message hold what was cut.
                is_short = whole.end - item.pointer.start <= REPORT_LINES
                item = replace(item, pointer=replace(whole, start=item.pointer.start)) if is_short else item
            yield item


def _substance(text: str) -> float:
    """Return the worth of a message among others of its kind: "go on" and "hello" say less than a sentence.

    An ideograph says as much as three letters.
    """
    words = math.log2((chars_of(text[:MAX_TYPED_CHARS]) + 1) / USUAL_CHARS)
    return max(MIN_SUBSTANCE, min(words, 0.0))


def _is_pasted(source: SourceMessage) -> bool:
    return len(source.message.text) > MAX_TYPED_CHARS


def _fact(
    field: str,
    kind: str,
    text: str,
    last_seen: int,
    pointers: Sequence[Pointer],
    *,
    weight: float,
    count: int = 1,
    order: int = 0,
) -> Fact:
    """Return a fact with the lines that back it."""
    return _citing(Fact(field, kind, text, None, last_seen, count, weight, order), pointers)


def _citing(item: Fact, pointers: Sequence[Pointer]) -> Fact:
    return replace(item, pointer=pointers[0], also=tuple(pointers[1:])) if pointers else item


FIELD: Final = "next_steps"


def next_steps(conversation: Conversation) -> Iterator[Fact]:
    """Yield open work: the newest plan, calls without a result, the user's newest request, the agent's question."""
    limits = conversation.limits
    yield from _plan(conversation, FIELD, "todo", is_done=False, weight=FACTS["todo"])
    for step in conversation.steps:
        if step.answer is None and step.call.index == conversation.end - 1:
            text = limits.cut(step.action.spoken(), limits.line)
            yield conversation.item(FIELD, "pending", text, step.call, weight=FACTS["pending"])
    for source in conversation.typed[-1:]:
        is_in_overview = source is conversation.typed[0] and not conversation.has_task
        passage = conversation.quoted(source, limits.line if is_in_overview else limits.asked, with_end=True)
        is_begun = _is_begun(conversation, source)
        if not is_begun or source is newest_request(conversation):
            kind = "working" if is_begun else "question"
            weight = FACTS["working"] if is_begun else FACTS["question"]
            item = conversation.item(FIELD, kind, passage.text, source, weight=weight)
            yield _citing(item, passage.pointers)
    yield from _awaited(conversation)


def newest_request(conversation: Conversation) -> SourceMessage | None:
    """Return the user's newest message if it is open: nobody has answered it, or the agent works on it.

    The first request is in the overview instead, and all work serves it.
    """
    source = next(reversed(conversation.typed), None)
    if source is None or (source is conversation.typed[0] and not conversation.has_task):
        return None
    last = conversation.sources[-1].message
    return source if last.calls or last.results or not _is_begun(conversation, source) else None


def _is_begun(conversation: Conversation, source: SourceMessage) -> bool:
    return any(
        later.message.role == "assistant" for later in reversed(conversation.sources) if later.index > source.index
    )


def _plan(conversation: Conversation, field: str, kind: str, *, is_done: bool, weight: float) -> Iterator[Fact]:
    limits = conversation.limits
    for position, item in enumerate(conversation.work.plan):
        if item.is_done == is_done:
            text = f"({readable(item.status)}) {limits.cut(item.text, limits.line)}"
            yield _fact(field, kind, text, item.last, item.pointers, weight=weight, order=position)


def _awaited(conversation: Conversation) -> Iterator[Fact]:
    """Yield the end of the agent's last message if nothing was done since: the next step, or a question."""
    limits = conversation.limits
    for source in conversation.spoken("assistant")[-1:]:
        if not source.message.calls and source.index > conversation.last_operation:
            closing = split_closing(plain_text(source.message.text))[1]
            for position, sentence in enumerate(closing):
                if not asks(sentence) and (offers(sentence) or not looks_ahead(sentence)):
                    continue
                text = limits.cut(sentence, max(limits.report // 2, INTENT_TOKENS))
                yield conversation.item(FIELD, "closing", text, source, weight=FACTS["closing"], order=position)
