"""The table of secrets: what each kind looks like.

Invariant: a row is precise (a public prefix or context, then enough secret characters), costs one substring test on text without
it, and takes linear time on any text: unlimited repetition is possessive and nothing is required after it. Only character classes
are possessive, never groups: Python before 3.11.5 matches those wrongly. ``find`` already matches the first characters of a token,
so that one cut in two is found; ``least`` or ``full`` says when it is complete, ``exact`` when it cannot get longer.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

# A token starts a word, or follows a colour code, an escaped line end (`\n` in JSON) or a percent escape.
_ESCAPED = r"(?<=[0-9\[]m)|(?<=\\[nrt])|(?<=%[0-9A-F]{2})|(?<=\\u00[0-9a-fA-F]{2})"
_BEFORE = rf"(?:(?<![A-Za-z0-9_])|{_ESCAPED})"
_BEFORE_GLUED = rf"(?:(?<![A-Za-z0-9])|{_ESCAPED})"  # for prefixes that are not words: TOKEN_ghp_
_BEFORE_DASHED = rf"(?:(?<![A-Za-z0-9_-])|(?<=---)|{_ESCAPED})"  # for prefixes that are ordinary words: task-, my-sk-learn

_ALNUM, _WORD, _DASHED, _HEX = "A-Za-z0-9", "A-Za-z0-9_", "A-Za-z0-9_-", "a-f0-9"


class SecretPattern(NamedTuple):
    """One shape of secret. In ``find`` the group ``s`` is what gets replaced, ``b`` its secret characters."""

    name: str  # unique: a stream remembers by it what it is inside of
    kind: str
    hints: tuple[str, ...]  # a match requires one of these in the text
    find: str
    rest: str  # what still belongs to the token at the start of a stream's next chunk
    least: int = 1  # secret characters of a whole token
    full: str = ""  # or its whole shape, where a length is not enough
    exact: str = ""  # the secret characters of a token that is never longer
    after_comma: str = ""  # the row that the stream is in once the rest had a comma
    value: str = ""  # how the value is judged, see `named_values.is_secret`; "" accepts all


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when first needed: the whole table would cost each start more than 10 ms."""
    return re.compile(pattern)


def _token(  # noqa: PLR0913 - a row of the table has that many columns
    kind: str, hints: str, head: str, body: str, least: int, *, exact: int = 0, early: int = 1, extra: str = "", before: str = ""
) -> SecretPattern:
    """A prefix and a run of characters. ``early``: this many characters at the end of a chunk are treated as a token cut in two.

    The whole word around a token is replaced, so that a mark is never followed by the middle of a word.
    """
    word = f"[{_DASHED if body.endswith('-') else _WORD}]*+"
    before = before or (_BEFORE_GLUED if early == 1 else _BEFORE)
    find = f"{before}(?P<s>{head}(?P<b>[{body}]{{{least},}}+{word}|[{body}]{{{early},}}+){extra})"
    return SecretPattern(
        f"{kind}:{head}",
        kind,
        tuple(hints.split()),
        find,
        f"[{body}]*+{word}{extra}",
        least,
        exact=f"[{body}]{{{exact}}}" if exact else "",
    )


# Up to five characters stay if the prefix alone says little; six or more are treated as a token cut in two.
_WEAK = 6
# Names that are common in code and only look like the start of a token.
_NPM_NAMES = r"(?!config|package|lifecycle|execpath|node_|command|global|local|token)"
_HF_NAMES = r"(?!hub|home|token|model|dataset|endpoint|inference|transfer|api|pipeline|config)"
_DIGITS = "[DTjz][AEIMQUYcgk][w-z0-5]"  # with [MNO] before it three decimal digits in base64: a bot's token starts with its number

_TOKENS = (
    _token("github-token", "ghp_ gho_ ghu_ ghr_", "gh[pour]_", _ALNUM, 36, exact=36),
    _token("github-token", "ghs_", "ghs_", _WORD, 24, extra=r"(?:[.-][A-Za-z0-9_-]*+)*")._replace(exact="[A-Za-z0-9]{36}"),
    _token("github-token", "github_pat_", "github_pat_", _WORD, 36, exact=82),
    _token(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct-",
        "gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-",
        _DASHED,
        20,
        extra=r"(?:\.[0-9A-Za-z_-]*+){0,2}",
    ),
    _token("google-api-key", "AIza", "AIza", _DASHED, 35, exact=35),
    _token("google-oauth", "ya29.", r"ya29\.", _DASHED, 20),
    _token("google-oauth", "1//0", "1//0", _DASHED, 30, early=_WEAK),
    _token("google-oauth", "GOCSPX-", "GOCSPX-", _DASHED, 20),
    _token("slack-token", "xox", r"xox[a-z](?:\.xox[a-z])?-", "A-Za-z0-9-", 16),
    _token("slack-token", "xapp-", "xapp-", "A-Za-z0-9-", 20),
    _token("stripe-key", "k_live_ k_test_", "[sr]k_(?:live|test)_", _ALNUM, 16),
    _token("stripe-key", "whsec_", "whsec_", "A-Za-z0-9+/=", 24),
    _token("anthropic-key", "sk-ant-", "sk-ant-", _DASHED, 20, before=_BEFORE_DASHED),
    _token("openrouter-key", "sk-or-", "sk-or-v1-", _HEX, 40, exact=64, before=_BEFORE_DASHED),
    _token("openai-key", "sk-", "sk-(?:proj|svcacct|admin)-", _DASHED, 20, before=_BEFORE_DASHED),
    _token("openai-key", "sk-", "sk-", _ALNUM, 32, early=_WEAK, before=_BEFORE_DASHED)._replace(rest=f"[{_DASHED}]*+"),
    _token("huggingface-token", "hf_", f"hf_{_HF_NAMES}", _ALNUM, 30, exact=34, early=_WEAK),
    _token("groq-key", "gsk_", "gsk_", _ALNUM, 40, exact=52),
    _token("replicate-token", "r8_", "r8_", _ALNUM, 36, exact=37, early=_WEAK),
    _token("perplexity-key", "pplx-", "pplx-", _ALNUM, 40, early=_WEAK),
    _token("npm-token", "npm_", f"npm_{_NPM_NAMES}", _ALNUM, 36, exact=36, early=_WEAK),
    _token("pypi-token", "pypi-AgE", "pypi-AgE", _DASHED, 50),
    _token("rubygems-token", "rubygems_", "rubygems_", _HEX, 48, exact=48, early=_WEAK),
    _token("docker-token", "dckr_", "dckr_[po]at_", _DASHED, 20),
    _token("digitalocean-token", "_v1_", "do[opr]_v1_", _HEX, 40, exact=64),
    _token("databricks-token", "dapi", "dapi", _HEX, 32, exact=32, early=_WEAK, extra="(?:-[0-9])?"),
    _token("heroku-key", "HRKU-", "HRKU-", _DASHED, 30),
    _token("shopify-token", "shpat_ shpca_ shppa_ shpss_", "shp(?:at|ca|pa|ss)_", "a-fA-F0-9", 32, exact=32),
    _token("vault-token", "hvs. hvb. hvr.", r"hv[sbr]\.", _DASHED, 24, early=_WEAK),
    _token("grafana-token", "glsa_ glc_", "gl(?:sa|c)_", "A-Za-z0-9_+/=", 32, early=_WEAK),
    _token("linear-key", "lin_api_", "lin_api_", _ALNUM, 32, exact=40),
    _token("notion-token", "ntn_", "ntn_", _ALNUM, 40, early=_WEAK),
    _token("figma-token", "figd_", "figd_", _DASHED, 32),
    _token("newrelic-key", "NRAK-", "NRAK-", "A-Z0-9", 27, exact=27),
    _token("postman-key", "PMAK-", "PMAK-", "a-f0-9-", 50),
    _token("sentry-token", "sntry", "sntry[su]_", "A-Za-z0-9_+/=", 40),
    _token("doppler-token", "dp.", r"dp\.(?:pt|st|sa|ct|scim|audit)\.", "A-Za-z0-9._-", 40, early=_WEAK),
    _token("planetscale-token", "pscale_", "pscale_(?:tkn|pw|oauth)_", "A-Za-z0-9_.-", 32),
    _token("supabase-key", "sbp_ sb_secret_", "(?:sbp_|sb_secret_)", _DASHED, 30, early=_WEAK),
    _token("atlassian-token", "ATATT3 ATBB", "(?:ATATT3|ATBB)", "A-Za-z0-9_=-", 30, early=_WEAK),
    _token("clia-token", "clia_", "clia_", _DASHED, 43, exact=43)._replace(value="mixed"),  # clia_http_requests is a metric
    _token("age-key", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1", "A-Z0-9", 50, exact=58),
)


def _run(
    name: str, hints: tuple[str, ...], before: str, body: str, least: int = 1, *, kind: str = "", head: str = "", **more: str
) -> SecretPattern:
    """Characters that are a secret because of the text before them. ``head``: their first part, which is not secret."""
    return SecretPattern(name, kind or name, hints, f"{before}(?P<s>{head}(?P<b>{body}++))", f"{body}*+", least, **more)


_DASHED_BODY = f"[{_DASHED}]"
_BASE64 = "[A-Za-z0-9+/=]"
_AWS_BODY = "[A-Za-z0-9/+]"
_JSON_VALUE = r"\\?\"\s{0,4}:\s{0,4}\\?\""

_SHAPES = (
    SecretPattern(
        "aws-access-key-id",
        "aws-access-key-id",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        rf"{_BEFORE}(?P<s>A(?:KI|SI|BI|CC)A(?P<b>[A-Z0-9]++))(?![a-z_])",
        f"[A-Z0-9]*+(?:,{_AWS_BODY}*+)?",
        full="[A-Z0-9]{20}",
        after_comma="aws-csv",
    ),
    # A line of credentials.csv: the secret stands after its id. A chunk may end between the two.
    SecretPattern(
        "aws-csv-start",
        "aws-access-key-id",
        ("AKIA", "ASIA"),
        rf"{_BEFORE}(?P<s>A[KS]IA[A-Z0-9]{{16}}(?P<b>\Z))",
        f"(?:,{_AWS_BODY}*+)?",
        after_comma="aws-csv",
    ),
    SecretPattern(
        "aws-csv",
        "aws-secret-key",
        ("AKIA", "ASIA"),
        rf"{_BEFORE}(?P<s>A[KS]IA[A-Z0-9]{{16}},(?P<b>{_AWS_BODY}*+))",
        f"{_AWS_BODY}*+",
        least=40,
        exact=f"{_AWS_BODY}{{40}}",
    ),
    SecretPattern(
        "jwt",
        "jwt",
        ("eyJ",),
        rf"{_BEFORE_DASHED}(?P<s>(?P<b>eyJ[A-Za-z0-9_-]++(?:\.(?:\Z|ey?\Z|eyJ[A-Za-z0-9_-]*+(?:\.[A-Za-z0-9_-]*+)?))?))",
        r"[A-Za-z0-9_.-]*+",
        full=r"eyJ[^.]{8,}\.eyJ[^.]{8,}\.[^.]{16,}",
    ),
    SecretPattern(
        "sendgrid-key",
        "sendgrid-key",
        ("SG.",),
        rf"{_BEFORE_DASHED}(?P<s>SG\.(?P<b>[A-Za-z0-9_-]{{6,64}}+(?:\.[A-Za-z0-9_-]*+)?))",
        r"[A-Za-z0-9_.-]*+",
        full=r"SG\.[^.]{16,64}\.[^.]{16,}",
    ),
    _run("telegram-token", (":AA",), "(?<![0-9])", _DASHED_BODY, 32, head="[0-9]{8,10}:AA", exact="[A-Za-z0-9_-]{33}"),
    SecretPattern(
        "discord-token",
        "discord-token",
        (".",),
        rf"(?P<s>(?P<b>[MNO](?<![A-Za-z0-9_-].){_DIGITS}[MNO]{_DIGITS}[A-Za-z0-9_-]*+(?:\.[A-Za-z0-9_-]*+){{0,2}}))",
        r"[A-Za-z0-9_.-]*+",
        full=r"[^.]{23,28}\.[^.]{6}\.[^.]{27,}",
    ),
    SecretPattern(
        "cloudflare-key",
        "cloudflare-key",
        ("v1.0-",),
        rf"{_BEFORE_DASHED}(?P<s>v1\.0-(?P<b>[a-f0-9]{{6,24}}+(?:-[A-Za-z0-9_-]*+)?))",
        "[A-Za-z0-9_-]*+",
        full=r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100}.*",
    ),
    _run("clia-login", ("/login?key=",), r"/login\?key=", _DASHED_BODY, 20, kind="clia-token", value="value"),
    _run("terraform-token", (".atlasv1.",), _BEFORE, _DASHED_BODY, 40, head=r"[A-Za-z0-9]{14}\.atlasv1\."),
    _run(
        "kubernetes-key",
        ("client-key-data",),
        r"client-key-data\\?[\"']?\s{0,4}:\s{0,4}\\?[\"']?",
        _BASE64,
        40,
        value="value",
    ),
    # The private members of a JSON Web Key; the one of a symmetric key only where the text says that it is one.
    _run(
        "jwk",
        tuple(f'"{name}{end}' for name in ("d", "dp", "dq", "p", "q", "qi") for end in ('"', '\\"')),
        rf"(?<![\w\\])\\?\"(?:d[pq]?|p|qi?){_JSON_VALUE}",
        _DASHED_BODY,
        40,
        value="jwk",
    ),
    _run("jwk-symmetric", ('"oct"', '"oct\\"'), rf"\"k{_JSON_VALUE}", _DASHED_BODY, 20, kind="jwk", value="jwk"),
    _run("slack-webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows|triggers)/", "[A-Za-z0-9_/-]", 24),
    _run("discord-webhook", ("/api/webhooks/",), "/api/webhooks/[0-9]{15,20}/", _DASHED_BODY, 40),
    _run("azure-key", ("AccountKey=", "SharedAccessKey="), "(?:AccountKey|SharedAccessKey)=", _BASE64, 40, value="value"),
    _run("azure-sas", ("sig=",), "[?&;]sig=", "[A-Za-z0-9%+/=_-]", 40, value="value"),
    SecretPattern(
        "azure-client-secret",
        "azure-key",
        ("7Q~", "8Q~"),
        r"(?<![A-Za-z0-9_.~\]-])(?P<s>(?P<b>[A-Za-z0-9][A-Za-z0-9_.~-]{1,3}[78]Q~[A-Za-z0-9_.~-]*+))(?!\[redacted:)",
        "[A-Za-z0-9_.~-]*+",
        full=".{34,40}",
    ),
    # Exactly 32 (nor where a mark hides that there was more): a longer one is a cache's key made of a digest.
    SecretPattern(
        "mailgun-bare",
        "mailgun-key",
        ("key-",),
        rf"{_BEFORE_DASHED}(?P<s>key-(?=[a-f]*+[0-9])(?P<b>[a-f0-9]{{6,}}+))(?![A-Za-z0-9_]|\[redacted:)",
        "[a-f0-9]*+",
        full="key-[a-f0-9]{32}",
        exact="[a-f0-9]{32}",
    ),
)

_SIGN = r"[ \t]{0,8}(?:=>|:=|=(?!=)|:(?![:=]))[ \t]{0,8}"
_KEY_END = r"\\?[\"']?\]?"
ASSIGNMENT = _KEY_END + _SIGN


def _context(kind: str, hint: str, names: str, value: str, rest: str, least: int) -> SecretPattern:
    """A token that is only known by the name it is given to."""
    find = rf"(?ai:{names})[A-Za-z0-9_.-]{{0,24}}+{ASSIGNMENT}\\?[\"']?{value}"
    return SecretPattern(kind, kind, (hint,), find, rest, least, exact="[a-f0-9]{32}", value="value")


def _argument(name: str, hints: str, before: str, body: str = r"[^\s\"'\\]", value: str = "value") -> SecretPattern:
    """A password that follows a command or another word in a file."""
    return _run(name, tuple(hints.split()), rf"(?<![A-Za-z]){before}", body, kind="assigned", value=value)


_HEX_32 = "(?P<b>[a-f0-9]{32,}+[A-Za-z0-9_-]*+|[a-f0-9]{6,}+)"
_URL = r"[^\s/?#\"'<>`\\]"
_URL_REST = f"(?:{_URL}*(?=@)|{_URL}*+)"
_URL_HEAD = r"://[^\s/:@\"'<>()\[\]`,\\]{0,128}+:"

_USER = "[A-Za-z0-9_~%-]"  # no dot: the text before a dot is a host
_GAP = r"[ \t]++(?:\\\n[ \t]*+)?"
_CURL_USER = r"(?:-[A-Za-z]{0,8}u|--(?:proxy-)?user)[ \t=]{0,4}[\"']?"

_XML_HINTS = ("ssword>", "SSWORD>", "ssphrase>", "ssPhrase>", "sswd>")
_XML = r"(?ai:<[a-z0-9:._-]{0,32}(?:password|passphrase|passwd)>)(?![@/:])(?P<s>(?P<b>[^<>\s]{1,1024}+))"
_XML_REST = r"[^<>\s]*+"
_LOGIN = "(?P<s>(?P<b>[A-Za-z0-9+/]{4,}+=*+))"  # base64 of user:password

_CONTEXTS = (
    _context("twilio-key", "SK", "twilio|api_?key|sid|auth|user", f"(?P<s>SK{_HEX_32})", "[a-f0-9]*+", 32),
    _context("mailgun-key", "key-", "mailgun|api", f"(?P<s>key-{_HEX_32})", "[a-f0-9]*+", 32),
    _run(
        "aws-secret-key",
        ("aws", "AWS", "Aws"),
        rf"(?ai:aws[_.-]?secret(?:[_.-]?access)?[_.-]?key){ASSIGNMENT}\\?[\"']?",
        "[A-Za-z0-9/+=]",
        40,
        exact="[A-Za-z0-9/+=]{40}",
        value="value",
    ),
    _run(
        "authorization",
        ("uthorization", "UTHORIZATION"),
        rf"(?ai:authorization){_KEY_END}[ \t]{{0,4}}[:=,][ \t]{{0,4}}\\?[\"']?(?ai:bearer|basic|token|apikey)[ \t]{{1,4}}",
        "[A-Za-z0-9._~+/=:-]",
        6,
        value="credential",
    ),
    SecretPattern(
        "bearer",
        "authorization",
        ("earer ",),
        r"(?<![A-Za-z])[Bb]earer[ \t]{1,4}(?P<s>(?P<b>[A-Za-z0-9._~+/=-]{6,}+))",
        "[A-Za-z0-9._~+/=-]*+",
        least=20,
        value="bearer",
    ),
    SecretPattern(
        "url-password", "url-password", ("://",), rf"{_URL_HEAD}(?P<s>(?P<b>{_URL}{{1,1024}}))@", f"{_URL}*+", value="url"
    ),
    # At the end of a chunk it is unknown whether an @ follows. The last @ of the next chunk ends the password.
    SecretPattern(
        "url-start",
        "url-password",
        ("://",),
        rf"{_URL_HEAD}(?P<s>(?P<b>(?![0-9]{{1,5}}\Z){_URL}{{1,1024}}+))\Z",
        _URL_REST,
        least=2000,
        value="url",
    ),
    SecretPattern("url-token", "url-password", ("://",), rf"://(?P<s>(?P<b>{_USER}{{16,1024}}+))@", f"{_URL}*+", value="user"),
    SecretPattern(
        "url-token-start", "url-password", ("://",), rf"://(?P<s>(?P<b>{_USER}{{6,1024}}+))\Z", _URL_REST, 2000, value="user"
    ),
    _argument("netrc", "machine", r"machine\s{1,8}\S{1,255}+\s{1,8}login\s{1,8}\S{1,255}+\s{1,8}password\s{1,8}", r"\S"),
    _argument(
        "curl-user",
        "curl",
        rf"curl(?:{_GAP}(?!{_CURL_USER}|curl)\S++){{0,32}}{_GAP}{_CURL_USER}[^\s:\"'/@\[]{{0,128}}+:",
        value="login",
    ),
    # Passwords in arguments of commands: `-p` means something else to most other commands.
    _argument("sshpass", "sshpass", rf"sshpass{_GAP}-p[ \t]{{0,4}}[\"']?"),
    _argument(
        "mysql-password",
        "mysql mariadb",
        rf"(?:mysql|mariadb)[a-z-]{{0,16}}+(?:{_GAP}(?!-p|mysql|mariadb)\S++){{0,32}}{_GAP}-p[\"']?",
    ),
    _argument("login-password", "login", rf"login(?:{_GAP}(?!-p[ \t=]|login)\S++){{0,32}}{_GAP}-p[ \t=]{{1,4}}[\"']?"),
    SecretPattern("xml-password", "assigned", _XML_HINTS, rf"{_XML}<(?:/|\Z)", _XML_REST, value="value"),
    # Where a chunk ends, the closing tag may still come.
    SecretPattern("xml-start", "assigned", _XML_HINTS, rf"{_XML}\Z", _XML_REST, 2000, value="value"),
    SecretPattern(
        "npm-auth",
        "npm-auth",
        ("_auth",),
        rf"(?<![A-Za-z0-9])_auth{ASSIGNMENT}\\?[\"']?{_LOGIN}",
        f"{_BASE64}*+",
        8,
        value="basic",
    ),
    SecretPattern(
        "docker-auth", "docker-auth", ('auth"', 'auth\\"'), rf"\"auth{_JSON_VALUE}{_LOGIN}", f"{_BASE64}*+", 8, value="basic"
    ),
    _run(
        "cookie",
        ("ookie",),
        r"[Cc]ookie\\?[\"']?[ \t]{0,4}:[ \t]{0,4}\\?[\"']?(?:[^=;\s\"']{1,64}+=[^;\s\"']{0,512}+;[ \t]{0,2}){0,16}"
        r"(?ai:[a-z0-9_.-]{0,24}?(?:session|sess|sid)(?:[_.-]?id)?)=",
        r"[^;,\s\"'\\]",
        16,
        value="random",
    ),
)

# Values of a secret name (see `named_values`): the characters of a value, by the sign that opens it.
_BODIES = {
    "": ("plain", r"(?:[^\s\"'`,;()\[\]{}<>|&\\=]++|=(?![\"'`\\]))"),
    '"': ("double", r'(?:\\.|[^"\\\s]++)'),
    "'": ("single", r"(?:\\.|[^'\\\s]++)"),
    "`": ("back", r"(?:[^`\\\s]++)"),
    "\\": ("escaped", r"(?:[^\"'`\\\s]++)"),
}
ASSIGNED = {
    opening: SecretPattern(f"assigned-{name}", "assigned", (), f"{body}+", f"{body}*", value="quoted" if opening else "plain")
    for opening, (name, body) in _BODIES.items()
}
ARGUMENT, COLUMN = (
    SecretPattern(f"assigned-{judge}", "assigned", (), f"{_BODIES[''][1]}+", f"{_BODIES[''][1]}*", value=judge)
    for judge in ("argument", "column")
)
"""The value after a flag (``--password VALUE``), or next to a name in a table (``DB_PASSWORD    VALUE``)."""


def _by_hint(rows: tuple[SecretPattern, ...]) -> tuple[tuple[str, tuple[SecretPattern, ...]], ...]:
    hints: dict[str, tuple[SecretPattern, ...]] = {}
    for row in rows:
        for hint in row.hints:
            hints[hint] = (*hints.get(hint, ()), row)
    return tuple(hints.items())


# In order: of two rows for one place the first names the kind.
ROWS = {row.name: row for row in (*_TOKENS, *_SHAPES, *_CONTEXTS, *ASSIGNED.values(), ARGUMENT, COLUMN)}
HINTS = _by_hint((*_TOKENS, *_SHAPES, *_CONTEXTS))
TOKEN_HEAD = "|".join([*(row.name.partition(":")[2] for row in _TOKENS), "A(?:KI|SI|BI|CC)A", "eyJ", r"SG\.", r"v1\.0-"])
"""The prefixes of tokens that are recognized by their first characters."""
