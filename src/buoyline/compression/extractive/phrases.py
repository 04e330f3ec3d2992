"""Sentences recognized by their wording in several languages: rules, announcements, offers, corrections.

Words belong to one language, so they only supplement forms that all languages share, and weigh more than they decide.
Each pattern takes linear time on a sentence.
"""

import re

_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

# Words of rules; rules in other languages are found in the quoted messages.
_RULE = re.compile(
    r"\b(?:must|never|always|don't|do not|only|should|shouldn't|instead|prefer|please|make sure|without|avoid|not"
    r"|cannot|can't|ensure|remember|have to|required?|when you|no"
    r"|muss|nie|immer|nicht|nur|bitte|kein\w*|soll\w*|jamais|toujours|doit|pas|nunca|siempre|debe)\b"
    r"|\u4e0d\u8981|\u5fc5\u987b|\u4e0d\u80fd|\u53ea\u80fd|\u52a1\u5fc5|\u8bf7|\u5e94\u8be5|\u7981\u6b62"
    r"|\u3057\u306a\u3044\u3067|\u5fc5\u305a|\u304f\u3060\u3055\u3044|\ubc18\ub4dc\uc2dc|\u043d\u0435\u043b\u044c\u0437\u044f",
    re.IGNORECASE,
)

# What must not be done, as a command: "I don't know" forbids nothing.
_ENGLISH_BAN = (
    r"\bnever\b(?! mind)|\b(?:must|may|should|please|(?:can|could|would|will) you) not\b"
    r"|\b(?:mustn't|shouldn't)\b|\bnot (?:allowed|permitted)\b"
    r"|\b(?:forbidden|prohibited|off[ -]limits|under no circumstances|hands off|please no)\b"
    r"|\bno (?:more )?\w{1,30}ing\b"
    r"|(?<!\bi )(?<!\bwe )(?<!\bthey )(?<!\byou )\b(?:do not|don't)\b(?! (?:you|we|they|i)\b[^?]{0,100}\?)"
)
_GERMAN_BAN = (
    r"\b(?:nie|niemals|keinesfalls|auf keinen fall|verboten|tabu)\b|\bdarf(?:st)? (?:\w{1,40} ){0,4}(?:nicht|kein\w*)\b"
    r"|\bnicht \w{1,40}en\b|\bkeine?n? (?:\w{1,40} ){1,4}\w{1,40}en\b\W*$"
    r"|^\W*(?:bitte )?\w{1,40} (?:[^.!?]{0,80} )?(?:nicht|keine?n?)\b(?= )"
)
_ROMANCE_BAN = (
    r"\b(?:ne (?:\w{1,40} ){0,3}|n'\w{1,40} )(?:jamais|pas|rien)\b|\b(?:jamais|interdit|nunca|jam\u00e1s)\b"
    r"|\b(?:prohibido|proibido|vietato)\b|^\W*no \w{1,40}(?:es|as|en|an)\b|^\W*n\u00e3o \w|\bnon \w{1,40}[aei]re\b"
)
_RUSSIAN_BAN = (
    r"\b(?:\u043d\u0435\u043b\u044c\u0437\u044f|\u043d\u0438\u043a\u043e\u0433\u0434\u0430|\u0437\u0430\u043f\u0440\u0435\u0449\w*)\b"
    r"|\b\u043d\u0435 \w{1,40}(?:\u0439|\u0442\u0435|\u0442\u044c)\b"
)
_ASIAN_BAN = (
    r"\u4e0d\u8981|\u4e0d\u5f97|\u7981\u6b62|\u5207\u52ff|\u4e0d\u8bb8|\u4e25\u7981|\u4e0d\u80fd|\u4e0d\u51c6|\u4e0d\u53ef\u4ee5"
    r"|\u522b(?=[\u3400-\u9fff])|\u306a\u3044\u3067|\u3066\u306f(?:\u3044\u3051|\u306a\u3089|\u3060\u3081)|\u7981\u3058|\u3059\u308b\u306a"
    r"|\u3055\u306a\u3044|\uc9c0 ?\ub9c8|\uae08\uc9c0|\uc548 ?\ub429\ub2c8\ub2e4|\uc548 ?\ub3fc"
)
_BANS = re.compile(f"{_ENGLISH_BAN}|{_GERMAN_BAN}|{_ROMANCE_BAN}|{_RUSSIAN_BAN}|{_ASIAN_BAN}", re.IGNORECASE)

# A question that wants an answer; "can you not touch it?" and "don't touch it, ok?" are requests.
_AUXILIARY = r"(?:do|does|did|is|are|was|were|has|have|had|would|should|must|may|can|could)"
_WONDERS = re.compile(
    r"\W{0,4}(?:(?:and|but|so|well|wait|hm+|ok|okay|und|aber|et|mais|y|pero)\W{1,3}){0,2}"
    rf"(?:why|what|who|which|(?:when|where|how) {_AUXILIARY}|how come"
    rf"|{_AUXILIARY}(?:n't)? (?:i|they|it|this|that|there|the)"
    r"|(?:do|did|are|were|should|must|have)(?:n't)? (?:we|you)|(?:is|was|are|does|did|has)(?:n't)?"
    r"|warum|wieso|weshalb|wer|wie|darf|soll(?:te|ten|en)?|ist|sind|war|gibt|muss"
    r"|pourquoi|est-ce|faut-il|dois-je|por qu\u00e9|acaso"
    r"|\u043f\u043e\u0447\u0435\u043c\u0443|\u0437\u0430\u0447\u0435\u043c|\u0440\u0430\u0437\u0432\u0435)\b"
    r"|\W{0,4}(?:\u4e3a\u4ec0\u4e48|\u4e3a\u4f55|\u96be\u9053|\u662f\u4e0d\u662f|\u662f\u5426|\u306a\u305c|\u3069\u3046\u3057\u3066|\uc65c)"
    r"|.{1,200}(?<![\u597d\u884c\u4ee5\u767d])\u5417\W{0,4}$",
    re.IGNORECASE,
)

# A line of a program: a time, a level or a place comes first, or a mark of code. People write "WARNING" themselves.
_LOGGED = re.compile(
    r"\W{0,4}(?:(?:(?:\d{4}-\d\d-\d\d|[A-Z][a-z]{2} {1,2}\d{1,2})[T ])?\d\d:\d\d(?::\d\d|\])|[IWEF]\d{4} \d\d:\d\d"
    r"|(?:ERROR|FATAL|WARN|INFO|DEBUG|TRACE|WARNING(?=:\w))\b(?=\s{0,3}[][:|(-]|\s\s|\s\d)"
    r"|(?:[Ee]rror|fatal|panic|Traceback|\w{1,60}(?:Error|Exception|Warning))(?:\[\w{1,20}\]| \w{0,8}\d{1,6})?:"
    r"|npm (?:ERR!|WARN|error|warn)|[^\s:]{1,200}:\d{1,6}:)"
    r"|//|/\*|<!--|>>> |\$ "
)

_LASTS = re.compile(
    r"\b(?:from now on|from here on|going forward|in (?:the )?future|ab (?:jetzt|sofort)|von jetzt an|in zukunft"
    r"|k\u00fcnftig|d\u00e9sormais|dor\u00e9navant|a partir de ahora|de ahora en adelante)\b"
    r"|^\W*(?:please |bitte )?(?:always|only|immer|nur|toujours|siempre)\b"
    r"|\b(?:you may|you can (?:now|again)|(?:is|are) (?:now )?allowed|(?:are|is) no longer|du darfst|sie d\u00fcrfen)\b"
    r"|\u4ece\u73b0\u5728(?:\u8d77|\u5f00\u59cb)|\u4ee5\u540e|\u4eca\u540e|\u4eca\u5f8c|\u3053\u308c\u304b\u3089|\u53ef\u4ee5(?:\u4e86|\u518d)",
    re.IGNORECASE,
)

_INTENDS = re.compile(
    r"\W{0,4}(?:(?:but|and|so|now|next|first|then|also|finally|ok|okay|good|great|perfect|sure|yes)\W{1,3}){0,3}"
    r"(?:let me|let's|(?:i|we)(?:'ll| will|'m going to|'re going to| am going to)"
    r"|(?:i|we)(?: also| now| still| just| first)? (?:need to|have to|want to|should(?: attempt to| now| first))"
    r"|ich werde|je vais|voy a)\b|\u6211\u6765|\u8ba9\u6211|\u73b0\u5728\u6211",
    re.IGNORECASE,
)
_OFFERS = re.compile(
    r"\b(?:let me know|feel free|(?:would|do) you (?:like|want|prefer)|want me to|is there anything"
    r"|anything else i can|if you (?:have|need|want|would|'d|prefer)|once (?:you|i have)|(?:i'm |am )?happy to"
    r"|need(?:ed)? (?:further )?assistance|how can i (?:help|assist)|please (?:confirm|provide|specify|tell)"
    r"|can i|ready for the|ready when|m\u00f6chten sie|soll ich|gerne|sag(?:en sie)? (?:mir|bescheid)"
    r"|n'h\u00e9sitez pas|si vous|si quieres)\b"
    r"|\u8bf7\u544a\u8bc9|\u5982\u6709|\u9700\u8981\u6211|\u662f\u5426\u9700\u8981|\u304a\u77e5\u3089\u305b",
    re.IGNORECASE,
)
_AHEAD = re.compile(
    r"\b(?:next|then|remaining|left to|still|todo|to do|open|pending|waiting|wait for|ready|after (?:that|this)|until"
    r"|should|can|could|will|need|if you|let me know|when you|n\u00e4chste\w*|danach|offen|prochain\w*|siguiente)\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"(?:\[[^\]\n]{1,200}\][^\n:]{0,20}:\s{1,3}|\{[^{}]{0,60}\"message\": ?)?"
    r"\W{0,4}(?:(?:tool_use_)?error\W{1,4})?(?:the )?(?:user|human operator|human|operator)(?: has| explicitly){0,2} "
    r"(?:rejected|denied|refused|declined|cancel+ed|(?:does not|doesn't|did not|didn't) (?:want|allow|approve))"
    r"(?=[^\w ]|$|(?: [a-z]{1,20}){0,4} (?:tool|call|operation|action|command|request|edit|change|execution"
    r"|proceed|continue|this|it)\b)",
    re.IGNORECASE,
)
"""The beginning of the result of a call that never ran: a text that was read may speak of a refusal anywhere."""

_LEADS_IN = re.compile(r"[:\uff1a][*_`]{0,3}$")
_ASKS = re.compile(r"[?\uff1f][*_`\"')\u201d\u300d]{0,3}$")


def chars_of(text: str) -> int:
    """Count characters; an ideograph counts as three, since it says as much as three letters."""
    return len(text) + 2 * len(_IDEOGRAPH.findall(text))


def is_rule(sentence: str) -> bool:
    """Return whether a sentence is worded as a rule."""
    return _RULE.search(sentence) is not None


def forbids(sentence: str) -> bool:
    """Return whether a sentence of the user forbids something; a question does not, unless it requests something."""
    return _BANS.search(sentence) is not None and not (asks(sentence) and _WONDERS.match(sentence))


def is_logged(line: str) -> bool:
    """Return whether a line in a user's message is one of a log, of an error or of code."""
    return _LOGGED.match(line.lstrip()) is not None


def is_lasting(sentence: str) -> bool:
    """Return whether a sentence of the user says how all that follows is to be done, or allows what was forbidden."""
    return _LASTS.search(sentence) is not None


def leads_in(sentence: str) -> bool:
    """Return whether a sentence only introduces the list or the code behind it."""
    return _LEADS_IN.search(sentence) is not None


def asks(sentence: str) -> bool:
    """Return whether a sentence is a question."""
    return _ASKS.search(sentence) is not None


def announces(sentence: str) -> bool:
    """Return whether a sentence announces an action."""
    return _INTENDS.match(sentence) is not None


def offers(sentence: str) -> bool:
    """Return whether a sentence is a courtesy: an offer, or a request to say more."""
    return _OFFERS.search(sentence) is not None


def looks_ahead(sentence: str) -> bool:
    """Return whether a sentence may say what comes next; in a script other than ASCII each may."""
    return announces(sentence) or _AHEAD.search(sentence) is not None or not sentence.isascii()


def is_refusal(text: str) -> bool:
    """Return whether the result of a call says that the user refused the call."""
    return _REFUSAL.match(text) is not None
