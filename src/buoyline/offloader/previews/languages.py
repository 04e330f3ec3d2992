"""Languages of source text: how each is known, and what stands in its outline.

All patterns are RE2's and look at one line. A pattern for the outline has three groups: what stands before the word
(its indentation, and whether it is visible outside), the word, and the name.
"""

from dataclasses import dataclass

from buoyline.offloader.previews.matching import Linear


@dataclass(frozen=True, slots=True)
class Language:
    """A language.

    Attributes:
        name: As people write it.
        marks: Finds lines that hardly any other language has.
        outline: Finds what stands in an outline.
        visible: Words before a name that make it the more important.
        least_share: So much of the lines of a text must bear marks.
    """

    name: str
    marks: Linear
    outline: Linear
    visible: tuple[str, ...] = ()
    least_share: float = 0.02


def _language(name: str, marks: str, outline: str, *visible: str, least_share: float = 0.02) -> Language:
    return Language(name, Linear(marks), Linear(outline), visible, least_share)


_I = r"[ \t]*"
_MODIFIERS = (
    r"(?:public|private|protected|internal|static|final|abstract|sealed|synchronized|async|override|virtual|partial"
    r"|readonly|default|native|unsafe|extern|open|data|inline|suspend|export|declare)"
)

# The more particular ones first: of two that have as many marks the first is taken.
LANGUAGES = (
    _language(
        "Go",
        r"^package \w+$|^func (?:\(\w* ?\*?\w+(?:\[[^\]]*\])?\) )?\w+(?:\[[^\]]*\])?\(|^type \w+ (?:struct"
        r"|interface|func)\b"
        r"|^\t+(?:if err != nil \{|\w+(?:, \w+)* := )|^\t+defer |^import \($",
        r"^()(func|type|var|const) ((?:\(\w* ?\*?\w+(?:\[[^\]]*\])?\) )?\w+)",
    ),
    _language(
        "Rust",
        r"^\s*(?:pub(?:\(\w+\))? )?(?:fn \w+|impl\b.*\{|use (?:crate|std|super|self)::|mod \w+;|struct \w+"
        r"|enum \w+ \{|trait \w+)"
        r"|^\s*#!?\[\w+|^\s*let mut |\bOk\(\(\)\)|^\s*match .* \{$",
        r"^([ \t]*(?:pub(?:\([^)]*\))? )?(?:(?:async|unsafe|const|extern \"C\") )*)"
        r"(fn|struct|enum|trait|mod|type|union|macro_rules!|static"
        r"|impl)(?:<[^>]*>)? ([\w:]+(?:<[^>]*>)?(?: for [\w:]+)?)",
        "pub",
    ),
    _language(
        "PHP",
        r"^<\?php|^\s*\$\w+ ?=[^=>]|^\s*(?:public|private|protected) (?:static )?function "
        r"|^use [A-Z]\w*\\|^namespace [A-Z][\w\\]*;|\$this->",
        rf"^({_I}(?:(?:abstract|final|public|private|protected|static) )*)(function|class|interface|trait|enum"
        rf"|namespace) &?([\w\\]+)",
        "public",
        "final",
        "abstract",
    ),
    _language(
        "C#",
        r"^using (?:static )?[A-Z][\w.]*;|^\s*namespace [A-Z][\w.]*(?:;|\s*\{?)$|\{ get; |^\s*public (?:async"
        r"|override|sealed|partial|readonly) "
        r"|\bvar \w+ = (?:new|await) |^\s*(?:public|internal|private) .*(?: : I?[A-Z]\w+)$|\bout [A-Z]?\w+ \w+"
        r"|^\s*\[(?:Http|Guid|Com|Dll|Serial|Fact|Test|Json)\w*",
        rf"^({_I}(?:{_MODIFIERS} )+)(?:(class|interface|struct|record|enum) (\w+)|[\w<>\[\],.?]+ (\w+(?:<\w+>)?) ?\()",
        "public",
    ),
    _language(
        "Java",
        r"^package [\w.]+;|^import (?:static )?[\w.]+\*?;|^\s*@(?:Override|Test|Autowired|Deprecated|Nullable"
        r"|SuppressWarnings)\b"
        r"|^\s*(?:public|private|protected) (?:static |final |abstract )*(?:class|interface|enum|record|void"
        r"|[A-Z][\w<>, ]*) \w+"
        r"|^\s*public static void main",
        rf"^({_I}(?:{_MODIFIERS} )*)(?:(class|interface|enum|record|@interface) (\w+)"
        rf"|{_MODIFIERS} (?:{_MODIFIERS} )*(?:<[^>]*> )?[\w<>\[\],.? ]+ (\w+) ?\()",
        "public",
    ),
    _language(
        "Kotlin",
        r"^\s*(?:(?:private|internal|override|suspend|inline|public) )*fun (?:<[^>]*> )?[\w.`]+\(|^\s*data class "
        r"|^\s*(?:private )?va[lr] \w+(?:: ?\w+|\s=)|^import [\w.]+$",
        rf"^({_I}(?:{_MODIFIERS} )*)(fun|class|interface|object|enum class|typealias) (?:<[^>]*> )?([\w.`]+)",
        least_share=0.06,
    ),
    _language(
        "Swift",
        r"^\s*(?:(?:public|private|open|internal|static|override|fileprivate) )*func \w+(?:<[^>]*>)?\("
        r"|^import [A-Z]\w+$|\bguard let |\bif let |^\s*@(?:State|objc|Published)\b",
        rf"^({_I}(?:{_MODIFIERS} )*)(func|class|struct|enum|protocol|extension|actor) (\w+)",
        "public",
        "open",
        least_share=0.04,
    ),
    _language(
        "TypeScript",
        r"^(?:export )?(?:declare )?(?:interface|type|enum|namespace) \w+(?:<[^>]*>)? ?[={]|^import type "
        r"|^import .* from ['\"]"
        r"|^\s*(?:private|public|protected|readonly) (?:readonly |static |async )*\w+[(:?]|\): (?:Promise<|void"
        r"|string|boolean|number)"
        r"|^\s*(?:export )?(?:const|let) \w+: |\bas (?:const|any|unknown|string)\b",
        rf"^({_I}(?:export )?(?:default )?(?:declare )?(?:abstract )?(?:async )?)"
        r"(?:(function\*?|class|interface|type|enum|namespace|const|let|var|describe\(|it\("
        r"|test\() ?['\"]?([\w$][\w$ .-]*)"
        r"|(?:(?:public|private|protected|static|async|get|set"
        r"|override) )*(\w+)(?:<[^>]*>)?\([^;]*\)(?:: [^;=]+)? \{$)",
        "export",
        least_share=0.03,
    ),
    _language(
        "JavaScript",
        r"^\s*(?:export )?(?:default )?(?:async )?function\*? ?\w*\(|\brequire\(['\"]|^import .* from ['\"]"
        r"|^\s*(?:const|let|var) [\w{\[][^=]* = "
        r"|^module\.exports|^exports\.\w+ ?=|=> [{(]|^\s*\}\)[;,]?$|^['\"]use strict",
        rf"^({_I}(?:export )?(?:default )?(?:async )?)"
        r"(?:(function\*?|class|const|let|var|exports\.|module\.exports|describe\(|it\(|test\() ?['\"]?([\w$][\w$ .-]*)"
        r"|(?:(?:static|async|get|set) )*(\w+)\([^;]*\) \{$)",
        "export",
        least_share=0.04,
    ),
    _language(
        "C++",
        r"^\s*(?:using )?namespace [\w:]+|^template ?<|\bstd::|^#include <(?:iostream|string|vector|map|memory"
        r"|algorithm|utility|functional)>"
        r"|^\s*(?:public|private|protected):|^\s*class \w+[^;]*\{?$|\bnullptr\b|\bstatic_cast<",
        rf"^(|{_I}(?:class|struct|namespace|enum)[ \t])?(?:(?:typedef )?(class|struct|enum(?: class)?|union"
        rf"|namespace)? ?([A-Z]\w+)(?: final)?(?: ?:[^:;].*)?(?: ?\{{)?$"
        r"|(?:[A-Za-z_][\w:<>,*& \t]*[ \t*&])?([A-Za-z_][\w:~]+) ?\((?:[^;.]*[){,][ \t]*(?:const)?)$)",
        least_share=0.03,
    ),
    _language(
        "C",
        r"^#(?:include [<\"]|define \w+|ifn?def \w+|endif|if defined)|^(?:static |extern |inline |const "
        r"|unsigned )*(?:void|int|char|bool|size_t|struct \w+|u?int\d+_t) \*?\w+\("
        r"|^typedef |^\s*struct \w+ \{?$|->\w+|^\s*(?:int|char|void|size_t|u?int\d+_t) \*?\w+(?: =.*)?;",
        r"^()(?:(?:typedef )?(struct|enum|union) (\w+) ?\{?$|#(define) (\w+)\("
        r"|(?:[A-Za-z_][\w* \t]*[ \t*])?([A-Za-z_]\w+) ?\([^;.]*[){,][ \t]*$)",
        least_share=0.05,
    ),
    _language(
        "Python",
        r"^\s*(?:async )?def \w+\(|^\s*class \w+(?:\(.*\))?:|^(?:from [\w.]+ import "
        r"|import [\w.]+(?: as \w+)?(?:, \w+)*$)|^\s*(?:elif .*|except\b.*|else|try|finally):$"
        r"|^\s*(?:if|for|with|while) .*:$|\bself\.\w+|^if __name__ ==|^\s*@\w+[\w.]*(?:\(.*\))?$|^\s*\"\"\"",
        rf"^({_I}(?:async )?)(def|class) (\w+)",
        least_share=0.06,
    ),
    _language(
        "Ruby",
        r"^\s*def (?:self\.)?\w+[?!=]?|^\s*end$|^require(?:_relative)? ['\"]|^\s*(?:attr_\w+|include|extend) [:A-Z]"
        r"|\bdo (?:\|.*\|)?$|^\s*module [A-Z]\w*$|^\s*class [A-Z]\w*(?: < [A-Z][\w:]*)?$",
        rf"^({_I})(def|class|module|describe|context) ['\"]?([\w.:?!=]+)",
        least_share=0.08,
    ),
    _language(
        "shell",
        r"^#!.*\b(?:ba|z|k|da)?sh\b|^\s*(?:fi|done|esac|then|do)$|^\s*(?:if|while|elif) (?:\[|!|\w).*; ?(?:then"
        r"|do)$|^\s*(?:local|export|readonly|declare) \w+="
        r"|^\s*echo |\$\{?\w+\}?|^set -[eux]|^\s*[A-Z_]+=\S*$",
        rf"^({_I})(function )?([\w:.-]+) ?\(\) ?\{{?",
        least_share=0.15,
    ),
    _language(
        "SQL",
        r"(?i)^\s*(?:create (?:or replace )?(?:temp(?:orary)? |unique |materialized )*(?:table|view|index|function"
        r"|procedure|trigger|type|schema|database|extension|sequence)"
        r"|insert into|alter table|drop (?:table|view|index)|select\b|from \w+|where\b|primary key|foreign key"
        r"|update \w+ set|delete from)\b",
        r"(?i)^([ \t]*(?:create|alter|drop) (?:or replace )?(?:temp(?:orary)? |unique |materialized )*)"
        r"(table|view|index|function|procedure|trigger|type|schema|database"
        r"|sequence) (?:concurrently )?(?:if (?:not )?exists )?(?:only )?([\w.\"`\[\]]+)",
        "create",
        "CREATE",
        least_share=0.06,
    ),
    _language(
        "CSS",
        r"^\s*[-\w]+: ?[^;{}]+;$|^[.#@&:\w*][^;={}()]*\{$",
        r"^()([.#@]?)([\w*:][^{};=]*?) ?\{$",
        least_share=0.6,
    ),
)

SCRIPT = Linear(r"\bfunction ?\w* ?\(|=>|\b(?:var|let|const) \w+=|\breturn\b|!0\b|\bvoid 0")
"""What stands in a script all over, also in one that was made small."""

MINIFIED = Linear(
    r"\bfunction ([A-Za-z_$][\w$]{3,60})\(|\bclass ([A-Z][\w$]{3,60})(?:\{| extends )|\b(?:module\.exports|exports"
    r"|window|globalThis|self)\.([A-Za-z_$][\w$]{2,60}) ?=[^=]"
)
"""What has a name even in a script that was made small."""
