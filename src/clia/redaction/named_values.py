"""Values of names that denote secrets: ``password=…``, ``"api_key": "…"``, ``--token …``.

Invariant: every such value is found once, in one pass over the lower-case text; whether it is a secret is judged elsewhere.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from typing import NamedTuple

from clia.redaction.patterns import ARGUMENT, ASSIGNED, ASSIGNMENT, COLUMN
from clia.redaction.vendor_tokens import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.redaction.vendor_tokens import SecretPattern


HINTS = ("pass", "secret", "token", "key", "pwd", "_pat", "psk")
_NAME = r"(?P<name>pass(?:word|wd|phrase)?|pwd|secret|key|token|pat(?<=_pat)|psk(?<![a-z]psk))"
# Between a name and its value: an assignment; `"name": "PASSWORD", "value": "…"`; the space after a flag or in a table.
_PAIR = r"\\?[\"']?,?\s{1,40}+\\?[\"']?value\\?[\"']?[ \t]?[:=][ \t]?"
_GAP = r"[ \t]{0,8}[|│┃][ \t]{0,8}|[ \t]{1,40}"
_HEAD = re.compile(rf"{_NAME}(?:{ASSIGNMENT}|(?P<pair>{_PAIR})|(?P<gap>{_GAP}))(?P<quote>\\?[\"'`])?")
_AT_END = re.compile(rf"{_NAME}\Z")
_BEFORE_MAX = 48
_BEFORE_KEY = re.compile(
    r"(?:api|access|secret|private|auth|encryption|signing|master|account|shared|hmac|(?<![a-z])app|application)[_-]?\Z"
)
_BEFORE_TOKEN = re.compile(
    r"(?:access|auth|refresh|bearer|api|secret|bot|session|security|personal|private|deploy|oauth|git(?:hub|lab)|npm|slack)[_-]?\Z"
)
_BEFORE_PASS = re.compile(
    r"(?:ansible|become|sudo|ssh|db|database|mysql|pg|postgres|redis|mongo|rabbitmq|smtp|imap|mail|ftp|ldap|proxy|admin|root|login)_\Z"
)
_SECRET_KEYS = frozenset({"client-key-data", "_auth"})
_LETTER = re.compile(r"[a-z]\Z")
_SET = re.compile(r"(?<![a-z])(?:env|arg|setx)[ \t]+[a-z0-9_]*\Z")  # `ENV NAME value` in a Dockerfile
_IN_PAIR = re.compile(r"(?:name|key)\\?[\"']?[ \t]?[:=][ \t]?\\?[\"']?[a-z0-9_.:-]*\Z")
_FLAG = re.compile(r"--[a-z-]*\Z")
_MARK = re.compile(r"\[redacted:[a-z0-9-]*\Z")


class NamedValue(NamedTuple):
    """A value and how it was named."""

    start: int
    end: int
    row: SecretPattern
    faint: bool
    shell: bool


def lower_case(text: str) -> str:
    """Lower-case text of the same length: the one letter that becomes longer is replaced; no name contains it."""
    return text.replace("\u0130", "I").lower()


def named_values(text: str) -> Iterator[NamedValue]:
    lower = lower_case(text)
    at = 0
    for head in _HEAD.finditer(lower):
        if head.end() <= at:
            continue
        before = lower[max(0, head.start() - _BEFORE_MAX) : head.start()]
        faint = _faint(head["name"], before)
        upper = text[head.start() : head.end("name")].isupper()
        row = _row(head, before, upper=upper)
        if faint is None or row is None or _MARK.search(before):
            continue
        value = compiled(row.find).match(text, head.end())
        if value:
            at = value.end()
            shell = upper and lower[head.end("name") : head.end()] == "="
            yield NamedValue(value.start(), at, row, faint and (not shell or head["name"] == "pat"), shell)


def _row(head: re.Match[str], before: str, *, upper: bool) -> SecretPattern | None:
    """How to read the value after a name; None if the name is not followed by a value."""
    gap, quote = head["gap"], head["quote"]
    if head["pair"] and not _IN_PAIR.search(before):
        return None
    if gap and "|" not in gap and _FLAG.search(before):
        return ASSIGNED[quote[:1]] if quote else ARGUMENT
    if gap:
        column = upper and not quote and ((before.endswith("_") and gap != " ") or _SET.search(before))
        return COLUMN if column else None
    return ASSIGNED[(quote or "")[:1]]


def secret_name(key: str) -> bool | None:
    """Whether a name denotes a secret. None: no. False: yes. True: weakly, because it often denotes something else."""
    lower = lower_case(key)
    if lower in _SECRET_KEYS:
        return True
    name = _AT_END.search(lower)
    return _faint(name["name"], lower[: name.start()]) if name else None


def _faint(name: str, before: str) -> bool | None:
    if name == "key":
        return False if _BEFORE_KEY.search(before) else None
    if name == "token":
        return not _BEFORE_TOKEN.search(before)  # a lexer has tokens too
    if name in {"pass", "pwd"}:  # compass, a test's pass
        return None if _LETTER.search(before) else name == "pass" and not _BEFORE_PASS.search(before)
    return name == "pat"  # also short for pattern


SHORT = 6  # a word of fewer letters, alone in its chunk, may also be a token's middle


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A value that starts like this is a placeholder, or refers to where the secret is stored.
_STARTS = (
    "example", "your", "changeme", "change-me", "change_me", "placeholder", "dummy", "redacted", "enter ", "insert", "replace",
    "xxx", "***", "...", "sha256:", "sha512-", "http://", "https://", "process.env", "os.environ", "os.getenv", "getenv",
    "env.", "env:", "vault:", "op://", "file:", "arn:", "[redacted:", "-----begin",
)  # fmt: skip
_SIGNS = r"\$[\w{(]|<[\w/!-]|\{[\w{%$ ]|%[({sdr]|\[[a-z]|…|•|●"
_WORDS = _words(
    "none null nil true false undefined unset empty string str text bytes int bool any object optional required hidden password "
    "passwd pass pwd secret token key apikey api_key api-key access_token value test tests testing todo tbd n/a yes no on off "
    "default sample foo bar baz foobar bearer basic unknown missing invalid incorrect wrong expired valid name number boolean "
    "authentication authorization keep"
)
# Words that code and prose have after "password =" and "token:".
_CODE = _words(
    "input getpass self this request config settings environ environment process args options params user username get read load "
    "fetch generate create make await async lambda function data payload json kwargs context credentials headers response "
    "session account client crypto hash hmac base64 random secrets uuid token tokens tokenizer password passwd passphrase secret "
    "the was and not for must should can could will has have with from that your when where which are string bytes undefined new "
    "is in if or a an os re req res ctx cfg opts env str pw def func let var const return pass raise True False None"
)
# Words that manuals have after a flag.
_AFTER_FLAG = _words("argument arguments parameter parameters required optional instead protected database variable variables")
_PLACEHOLDER = re.compile(
    "|".join([*map(re.escape, _STARTS), _SIGNS, r"(?:~|\.{1,2})?/[a-z][a-z0-9._-]{0,23}(?:/|\Z)", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"]),
    re.IGNORECASE | re.ASCII,
)
_PATH_START = re.compile(r"(?:~|\.{1,2})?(?:/(?:[a-z][a-z0-9._-]{0,11})?)?")
_FILE_NAME = re.compile(r"[\w./\\:-]+\.(?:pem|key|crt|cer|json|txt|env|ya?ml|toml|ini|py|js|ts|go|rs|md|html)", re.ASCII)
_SIGN_START = re.compile(r"[$<{%\[]")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+[.:]?", re.ASCII)
_CODE_NAME = re.compile(r"[A-Za-z_.]+")
_DIGIT, _ANY_LETTER, _MIXED = re.compile("[0-9]"), re.compile("[A-Za-z]"), re.compile("[A-Z0-9]")
_SIGN = re.compile(r"[!@#$^&*+=~?%]")
_CASES = re.compile(r"[a-z][^a-z]*[A-Z]|[A-Z][^A-Z]*[a-z]")
_ORDINARY = re.compile(
    r"(?:[a-z]{1,20}|[A-Z]{1,20}|[A-Z][a-z]{1,19}|[A-Za-z]{1,12}/[0-9][0-9.]{0,7}|[0-9]{1,13}(?:[.:/,-][0-9]{1,9}){0,4}%?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+-]{4,24}Z?)[.,:;!?]{0,3}|[-+$#>*~]{1,3}"
)
_UNUSUAL = re.compile(r"[0-9!@#^*+=~?%]")


def _prefixes(words: tuple[str, ...] | frozenset[str]) -> frozenset[str]:
    return frozenset(word[:length] for word in words for length in range(1, len(word) + 1))


_BEGUN = _prefixes(_STARTS) | _prefixes(_WORDS)
_CODE_BEGUN = _prefixes(_CODE)


def is_placeholder(value: str) -> bool:
    return value.lower() in _WORDS or _PLACEHOLDER.match(value) is not None


def looks_random(value: str) -> bool:
    """The requirement for a value with a weak name."""
    return len(value) >= 16 and " " not in value and _DIGIT.search(value) is not None and _ANY_LETTER.search(value) is not None


def looks_typed(value: str) -> bool:
    """Eight characters of all kinds: a typed password, not a number, version or word."""
    kinds = (_DIGIT, _ANY_LETTER, _SIGN)
    return len(value) >= 8 and " " not in value and all(kind.search(value) for kind in kinds)


def is_ordinary(text: str, end: int) -> bool:
    """Whether ``text`` up to ``end`` is a word, a number or a date, rather than more of a token.

    At the end of the text more may come: a single character, or many digits, may be anything.
    """
    if _ORDINARY.fullmatch(text, 0, end) is None or len(text) == 1:
        return False
    return end < len(text) or end < SHORT or _DIGIT.search(text) is None


def _is_user(value: str, least: int) -> bool:
    """A token in place of a URL's user: random, unlike names and hosts."""
    if len(value) < least or not _DIGIT.search(value):
        return False
    return _CASES.search(value) is not None or (len(value) >= 20 and value.isalnum() and _ANY_LETTER.search(value) is not None)


def _is_login(value: str) -> bool:
    """Base64 of ``user:password``, or so far of its start."""
    try:
        return a2b_base64(value[: len(value) // 4 * 4]).decode("ascii").isprintable()
    except ValueError:
        return False


class SecretCandidate(NamedTuple):
    """A value in the place of a secret."""

    text: str
    judged: str  # the column ``value`` of its row
    after: str = ""  # the character that follows it
    faint: bool = False  # its name often does not denote a secret
    shell: bool = False  # NAME=value: always a value, never a variable's name


_JUDGES = {
    "user": lambda text: _is_user(text, 16),
    "login": lambda text: len(text) >= 4 and not text.isdigit(),
    "jwk": lambda text: _DIGIT.search(text) is not None and _CASES.search(text) is not None,
    "mixed": lambda text: _CASES.search(text) is not None,
    "basic": lambda text: _is_login(text) and b":" in a2b_base64(text[: len(text) // 4 * 4]),
    "random": looks_random,
}


def is_secret(value: SecretCandidate) -> bool:
    """Whether the whole value, with what follows it, is a secret."""
    text, judged = value.text, value.judged
    if is_placeholder(text):
        return False
    if judged == "url":
        return not re.match(r"[0-9]{1,5}[,;)\]}|]", text)
    if judged == "credential":
        return not (text.islower() and text.isalpha())
    if judged == "bearer":
        return _DIGIT.search(text) is not None
    if judged in _JUDGES:
        return _JUDGES[judged](text)
    if judged not in {"quoted", "plain", "argument", "column"}:
        return True
    if _FILE_NAME.fullmatch(text) or (value.faint and not looks_random(text)):
        return False
    if judged == "quoted":
        return len(text) >= 4 and value.after not in {" ", "\t"}  # words in quotes are prose
    if value.shell:
        return len(text) >= 4
    if judged == "argument" and len(text) >= 8 and text.isalpha() and value.after in {"", "\n", "\r"}:
        return text.lower() not in _AFTER_FLAG
    code = value.after in {"(", "[", "{"} or _DOTTED.fullmatch(text)
    return len(text) >= 6 and not code and _UNUSUAL.search(text) is not None


def is_secret_so_far(value: SecretCandidate) -> bool:
    """Whether the fragment at the end of a chunk must be treated as the start of a secret."""
    text = value.text
    if is_placeholder(text) or _PATH_START.fullmatch(text) or _SIGN_START.fullmatch(text):
        return False
    if value.judged in {"bearer", "mixed"}:
        return _MIXED.search(text) is not None
    if value.judged == "column":
        return _UNUSUAL.search(text) is not None
    if value.judged in {"user", "jwk"}:
        return len(text) >= 6 and _CASES.search(text) is not None and _DIGIT.search(text) is not None
    if value.judged == "basic":
        return _is_login(text)
    if value.judged == "login" and text.isdigit():
        return False
    if value.judged in {"plain", "argument"} and not value.shell and _may_be_code(text):
        return False
    return text.lower() not in _BEGUN and not (value.faint and len(text) < 6)


def _may_be_code(value: str) -> bool:
    first = re.split(r"[._]", value, maxsplit=1)[0]
    return value in _CODE_BEGUN or (len(value) <= 32 and _CODE_NAME.fullmatch(value) is not None and first in _CODE)
