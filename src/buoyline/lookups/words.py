r"""The words of a query, and how often a text holds each of them, in any script.

Nothing here knows a language: no list of stop words (words that are everywhere weigh next to nothing anyway) and no
stemmer. Words that only begin alike count half, which finds most plurals and tenses; scripts without blanks between
words are taken in pairs of characters, as Lucene's ``CJKBigramFilter`` does.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

MAX_WORDS = 64
"""More of a query says no more about what is wanted."""

MAX_PHRASES = 16
"""Each costs a look at every passage, where single words all together cost one."""

VARIANT_WEIGHT = 0.5

# Thai to Lao, Burmese, Khmer, kana, Han, Hangul: words are not, or not reliably, parted by blanks.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}\U00020000-\U0003ffff]+")
_WORD = re.compile(r"[^\W_]+")
_COMPOUND = re.compile(r"[^\W_]+(?:[-_./:@#+]+[^\W_]+)+")
_QUOTED = re.compile("\"([^\"]{2,80})\"|(?<!\\w)'([^']{2,80})'(?!\\w)|`([^`]{2,80})`|[“«「]([^”»」]{2,80})[”»」]")
_ASCII_GAPS = {code: " " for code in range(0x80) if not chr(code).isalnum()}

_LEAST_STEM_CHARS = 3
_CHARS_PER_DROPPED = 4
_MAX_DROPPED = 3
_MAX_ADDED = 2
_MAX_REMEMBERED = 100_000


def folded(text: str) -> str:
    """Return *text* as words are compared: without case, and without what only looks different."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


class Words:
    """What a query asks for.

    Attributes:
        texts: What is looked for, folded, in order: what is quoted, identifiers such as ``order-0042``, single
            words. At most 64.
    """

    def __init__(self, query: str) -> None:
        """Take the words of *query*; there may be none."""
        text = folded(query)
        single, unspaced = _singles(text)
        self.texts = tuple(dict.fromkeys([*_phrases(text), *single, *unspaced]))[:MAX_WORDS]
        places = {word: place for place, word in enumerate(self.texts)}
        self._forms = _Forms({word: places[word] for word in single if word in places})
        self._pairs = [(word, places[word]) for word in unspaced if word in places]
        self._phrases = [(word, places[word], _standing_alone(word)) for word in _phrases(text)]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.texts)

    def count(self, text: str) -> dict[int, float]:
        """Return how often *text* holds each word that it holds, by position; other forms count half."""
        text = folded(text)
        counts: dict[int, float] = {}
        # Most passages hold nothing of what is looked for, and that is told before they are split.
        if any(map(text.__contains__, self._forms.stems)):
            for meant in map(self._forms.__getitem__, _split(text)):
                for place, weight in meant:
                    counts[place] = counts.get(place, 0) + weight
        counts.update((place, len(found)) for place, found in self._found_phrases(text) if found)
        if not text.isascii():
            counts.update((place, text.count(pair)) for pair, place in self._pairs if pair in text)
        return counts

    def _found_phrases(self, text: str) -> Iterator[tuple[int, list[str]]]:
        return ((place, pattern.findall(text)) for phrase, place, pattern in self._phrases if phrase in text)


class _Forms(dict[str, tuple[tuple[int, float], ...]]):
    """By a word of a text, the places of the words of the query that it is a form of, with what it counts.

    A text has few different words, so each is worked out once; with random ids there is no end of them.
    """

    def __init__(self, words: dict[str, int]) -> None:
        super().__init__()
        self._words = words
        self.stems: dict[str, list[str]] = {}
        for word in words:
            self.stems.setdefault(_stem(word), []).append(word)
        self._longest = max(map(len, self.stems), default=0)

    def __missing__(self, found: str) -> tuple[tuple[int, float], ...]:
        beginnings = (found[:size] for size in range(1, min(len(found), self._longest) + 1))
        meant = [word for stem in beginnings for word in self.stems.get(stem, ()) if _is_form(found, word)]
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        self[found] = tuple((self._words[word], 1 if word == found else VARIANT_WEIGHT) for word in meant)
        return self[found]


def _is_form(found: str, word: str) -> bool:
    stem = _stem(word)
    return found == word or (stem != word and len(found) <= len(word) + _MAX_ADDED)


def _stem(word: str) -> str:
    """Return what begins all forms of *word*; the whole of it where it is short, or an identifier."""
    dropped = min(len(word) // _CHARS_PER_DROPPED, _MAX_DROPPED)
    stem = word[: len(word) - dropped]
    return stem if len(stem) >= _LEAST_STEM_CHARS and word.isalpha() else word


def _split(text: str) -> Iterable[str]:
    # A table takes 4 us for 800 characters, where the pattern takes 25.
    return text.translate(_ASCII_GAPS).split() if text.isascii() else _WORD.findall(text)


def _singles(text: str) -> tuple[list[str], list[str]]:
    """Return the words of *text*, and of what has no blanks between words all pairs of characters."""
    pairs = [run[at : at + 2] for run in _UNSPACED_RUN.findall(text) for at in range(max(len(run) - 1, 1))]
    return _WORD.findall(_UNSPACED_RUN.sub(" ", text)), pairs


def _phrases(text: str) -> list[str]:
    quoted = (" ".join("".join(groups).split()) for groups in _QUOTED.findall(text))
    several = (phrase for phrase in quoted if len(_WORD.findall(phrase)) > 1)
    return list(dict.fromkeys([*several, *_COMPOUND.findall(text)]))[:MAX_PHRASES]


def _standing_alone(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])")
