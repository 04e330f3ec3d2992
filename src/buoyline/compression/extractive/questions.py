"""The agent's questions to the user, with their options, and the answers resolved with the option's line."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.extractive.calls import Step, list_in
from buoyline.compression.extractive.lines import LineFinder, merged_pointers
from buoyline.compression.extractive.phrases import asks, leads_in
from buoyline.compression.extractive.speech import closing_question, is_made_by_machine, plain_text
from buoyline.compression.identifiers import readable, sentences
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import MAX_OPTIONS, MAX_QUESTIONS, MAX_TEXT_CHARS, QuestionState
from buoyline.messages.jsonl import is_object

MAX_ANSWER_CHARS: Final = 2_000
"""A longer message of a user was pasted and answers nothing by itself."""

MAX_ORDINAL_CHARS: Final = 60
"""A longer answer may count something else."""

MAX_AGE: Final = 20
"""Of an answer, in messages: later words correct something else."""

MAX_END_LINES: Final = 40
"""Options are at the end of a message."""

_ASKING: Final = frozenset({"ask", "question", "questions", "clarify", "clarification", "clarifications"})
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+")
_OPTION = re.compile(
    r"^\s{0,8}(?:[-*+]\s+)?[*_]{0,2}(?:option\s+|variante\s+|\u9009\u9879\s?)?\(?([A-Za-z]|\d{1,2})[*_]{0,2}"
    r"[).:\u3001\uff0e\uff1a\uff09][*_]{0,2}\s*(\S.*)$",
    re.IGNORECASE,
)
_WHICH = re.compile(
    r"\b(?:which|what|either|option|prefer\w*|approach|welche\w*|lieber|quelle?s?|cu\u00e1l\w*)\b|\u54ea|\u3069\u306e|\u3069\u3061\u3089|\u3069\u308c",
    re.IGNORECASE,
)
_LEAD: Final = (
    r"(?:ok(?:ay)?|yes|option|variante|choose|(?:let's )?(?:go with|use|take)|\u9009\u62e9?|\u7528"
    r"|i(?:'d| would)? (?:take|prefer|say|go with)|ich (?:meine|meinte|nehme)"
    r"|sorry|no|nein|actually|wait|i (?:meant?|changed my mind))"
)
"""Words before the letter or the number of an option."""

_NAMES = re.compile(
    rf"^\W{{0,4}}(?:{_LEAD}[ ,:]{{0,2}}){{0,3}}\(?([A-Za-z]|\d{{1,2}})[*_]{{0,2}}"
    r"(?:[).:,\u3001\u3002\uff0c\uff0e\u5427]|\s*$|\?$"
    r"|\s+(?:and|und|but|aber|please|bitte|with|mit|instead|then|&|\+)(?:\W|$))",
    re.IGNORECASE | re.MULTILINE,
)
_ORDINAL = re.compile(
    rf"^\W{{0,4}}(?:{_LEAD}[ ,:]{{1,2}}){{0,3}}(?:the |der |die |das |den )?"
    r"(?:(first|1st|erste\w?|\u7b2c[\u4e001])|(second|2nd|zweite\w?|\u7b2c[\u4e8c2])|(third|3rd|dritte\w?|\u7b2c[\u4e093]))"
    r"\u4e2a?(?: (?:one|option|choice|variante))?(?=\W*$|[,.;:]\s|\uff0c| (?:please|bitte|but|aber|and|und|then)\b)",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    rf"^\W{{0,4}}(?:sorry|no|nein|actually|wait|i (?:meant?|changed my mind)|ich (?:meine|meinte))[ ,:]{{1,2}}"
    rf"(?:{_LEAD}[ ,:]{{1,2}}){{0,3}}(?:\(?(?:[A-Za-z]|\d{{1,2}})\)?|the \w{{3,6}}(?: one)?)"
    r"(?:,? (?:please|bitte|instead|then))?(?:[.!]\s|\W{0,3}$)",
    re.IGNORECASE,
)
"""Words that only change what was chosen: a number behind "no" may also count something else."""

_BACK = re.compile(
    r"\W{0,4}(?:(?:q|and|but|so|oh|ok(?:ay)?|hm+|wait|sorry|und|aber|also|genuine question)\W{1,3}){0,3}"
    r"(?:(?:what|how)(?! about)|why(?! not)|which|who(?:m|se)?|where|when|is|are|was|were|do|does|did|has|have"
    r"|was|welche\w*|we[rnm]|wo|wann|warum|wieso|wie|ist|sind|hat|gibt"
    r"|que(?:l\w*)?|qui|o\u00f9|quand|pourquoi|comment|est-ce|qu\u00e9|cu\u00e1l\w*|qui\u00e9n\w*|d\u00f3nde)(?:'s|'re)?\b",
    re.IGNORECASE,
)
_BACK_WORDS = re.compile(
    r"[\u54ea\u8c01\u4f55]|\u4ec0\u4e48|\u600e\u4e48|\u4e3a\u4ec0\u4e48|\u5417[?\uff1f]"
    r"|\u3069[\u306e\u308c\u3046]|\u306a\u305c|\u3044\u3064"
)
"""Words of questions; a request such as "can you ...?" and a proposal such as "what about ...?" ask nothing."""


def _question_of_options(lines: Sequence[str], at: int, options: Sequence[str]) -> str:
    """Return the line that asks for one of *options*, which begin at line *at*; empty if the list is no choice.

    Letters offer a choice, numbers also count other things: then the question is right above, or asks which.
    """
    before = [line.strip() for line in lines[:at] if line.strip()][-3:]
    after = [line.strip() for line in lines[at:] if line.strip() and not _OPTION.match(line)][-2:]
    labels = [found[1] for found in map(_OPTION.match, options) if found is not None]
    if len(labels) < len(options) or not all(map(str.isalpha, labels)):
        return next((line for line in (*before[-1:], *filter(_WHICH.search, after)) if asks(line)), "")
    asked = next((line for line in (*reversed(before), *after) if asks(line)), "")
    return asked or next((line for line in before[-1:] if leads_in(line)), "")


def asked_by(step: Step, citations: LineFinder) -> list[QuestionState]:
    """Return the questions that a call asks, with the answer that its result holds; empty if it asks none.

    Its arguments hold one text with options, or a list of them.
    """
    arguments = step.action.arguments
    words = {word.lower() for word in _NAME_WORD.findall(step.action.name)}
    if words.isdisjoint(_ASKING) or step.action.paths or step.action.command:
        return []
    found: list[QuestionState] = []
    for entry in list_in(arguments.get("questions")) or [arguments]:
        asked, options = entry, tuple[str, ...]()
        if is_object(entry):
            asked = next((entry[key] for key in ("question", "prompt", "text", "message") if entry.get(key)), None)
            options = _offered(entry.get("options") or entry.get("choices"))
        if isinstance(asked, str):
            text = _short(asked)
            question = QuestionState(text, step.call.index, options, pointers=citations.of(step.call, text), key=text)
            found.append(_answered_by(question, step))
    return found


def asked_in(source: SourceMessage, citations: LineFinder) -> list[QuestionState]:
    """Return the question that a message of the agent ends with, with its options, as a list of at most one."""
    text = plain_text(source.message.text)
    lines = text.rstrip().splitlines()[-MAX_END_LINES:]
    options, at = _options(lines)
    asked = _question_of_options(lines, at, options) if options else ""
    if not asked:
        asked, options = closing_question(text), ()
    if not asked:
        return []
    asked = _short(asked)
    places = (pointer for words in (asked, *options) for pointer in citations.of(source, words))
    return [QuestionState(asked, source.index, options, pointers=merged_pointers(places))]


def asks_back(source: SourceMessage) -> bool:
    """Return whether a message of the user holds nothing but questions: it answers none."""
    said = list(sentences(source.message.text))
    return bool(said) and all(asks(one) and (_BACK.match(one) or _BACK_WORDS.search(one)) is not None for one in said)


def answered(questions: Sequence[QuestionState], source: SourceMessage, citations: LineFinder) -> list[QuestionState]:
    """Return *questions*, of which the user's message answers the open ones."""
    text = source.message.text.strip()
    if not text or is_made_by_machine(text) or asks_back(source):
        return list(questions)
    if questions and all(one.answer for one in questions):
        return [*questions[:-1], _corrected(questions[-1], source, citations)]
    said = text if len(text) <= MAX_ANSWER_CHARS else text[:MAX_TEXT_CHARS]
    answer, places = _short(said), citations.of(source, _short(said))
    found: list[QuestionState] = []
    for one in questions:
        if not one.answer:
            chosen, pointers = _chosen(one.options, said), merged_pointers((*one.pointers, *places))
            one = replace(one, last=source.index, answer=answer, chosen=chosen, pointers=pointers)  # noqa: PLW2901
        found.append(one)
    return found[-MAX_QUESTIONS:]


def _corrected(question: QuestionState, source: SourceMessage, citations: LineFinder) -> QuestionState:
    """Return *question* with the option that the user's message names in the place of the one that was chosen."""
    said = source.message.text.strip()
    if source.index - question.last > MAX_AGE or not question.chosen or _CORRECTION.match(said) is None:
        return question
    chosen = _chosen(question.options, said)
    if not chosen:
        return question
    pointers = merged_pointers((*question.pointers, *citations.of(source, _short(said))))
    return replace(question, last=source.index, answer=_short(said), chosen=chosen, pointers=pointers)


def _answered_by(question: QuestionState, step: Step) -> QuestionState:
    """Return *question* with the answer in the result of its call; a result may only repeat it."""
    if step.reading is None or step.has_failed:
        return question
    text = step.reading.text.strip()
    quoted = re.search(rf'"?{re.escape(question.text)}"?\s*[=:]\s*"([^"]{{1,600}})"', text)
    if quoted is None and (question.text[:40] in text or len(text) > MAX_TEXT_CHARS or not text):
        return question
    answer = quoted[1] if quoted is not None else text
    return replace(question, answer=answer, chosen=_chosen(question.options, answer))


def _chosen(options: Sequence[str], answer: str) -> tuple[str, ...]:
    """Return the options that *answer* names by letter or number, or word for word."""
    named = set[str]()
    if len(answer) <= MAX_TEXT_CHARS:
        named = {found[1].lower() for found in _NAMES.finditer(answer)}
    if not named and len(answer) <= MAX_ORDINAL_CHARS and (ordinal := _ORDINAL.match(answer)) is not None:
        place = next(number for number, said in enumerate(ordinal.groups()) if said)
        return tuple(options[place : place + 1])
    labelled = [(match[1].lower() if (match := _OPTION.match(option)) else "", option) for option in options]
    found = tuple(option for label, option in labelled if label and label in named)
    said = readable(answer).lower().strip(" .")
    return found or tuple(
        option
        for _, option in labelled
        if said and readable(option.partition(" \u2014 ")[0]).lower().strip(" .") == said
    )


def _options(lines: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Return the last run of options, whose labels follow each other, and the position of its first line."""
    run: list[str] = []
    first = last = 0
    best: tuple[tuple[str, ...], int] = ((), 0)
    for position, line in enumerate(lines):
        found = _OPTION.match(line)
        if found is None:
            continue
        label = found[1].lower()
        order = int(label) if label.isdigit() else ord(label) - ord("a") + 1
        if order == 1:
            run, first = [], position
        elif not run or order != last + 1:
            run = []
            continue
        run.append(_short(line.strip()))
        last = order
        if len(run) > 1:
            best = (tuple(run[:MAX_OPTIONS]), first)
    return best


def _offered(options: object) -> tuple[str, ...]:
    """Return the options in the arguments of a call: texts, or objects with a label."""
    found: list[str] = []
    for option in list_in(options):
        if isinstance(option, str):
            found.append(_short(option))
        elif is_object(option):
            texts = [str(option[key]) for key in ("label", "title", "value", "description") if option.get(key)]
            found.append(_short(" \u2014 ".join(texts[:2])))
    return tuple(option for option in found if option)[:MAX_OPTIONS]


def _short(text: str) -> str:
    return text.strip()[:MAX_TEXT_CHARS]
