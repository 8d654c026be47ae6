"""The table of secrets: what each kind looks like.

Invariant: a row is precise (a public prefix or context, then enough secret characters), costs one substring test on text without
it, and takes linear time on any text: unlimited repetition is possessive and nothing is required after it. Only character classes
are possessive, never groups: Python before 3.11.5 matches those wrongly. ``find`` already matches the first characters of a token,
so that one cut in two is found; ``least`` or ``full`` says when it is complete, ``exact`` when it cannot get longer.
"""

from __future__ import annotations

from clia.redaction.vendor_tokens import DASHED, DASHED_START, DIGITS, HEX, TOKENS, WORD_START, SecretPattern, starting


def _run(
    name: str, hints: tuple[str, ...], before: str, body: str, least: int = 1, *, kind: str = "", head: str = "", **more: str
) -> SecretPattern:
    """Characters that are a secret because of the text before them. ``head``: their first part, which is not secret."""
    return SecretPattern(name, kind or name, hints, f"{before}(?P<s>{head}(?P<b>{body}++))", f"{body}*+", least, **more)


_JWT = starting(WORD_START, "eyJ")
_SENDGRID, _CLOUDFLARE = starting(WORD_START, r"SG\."), starting(WORD_START, r"v1\.0-")
_DASHED_BODY = f"[{DASHED}]"
_BASE64 = "[A-Za-z0-9+/=]"
_AWS_BODY = "[A-Za-z0-9/+]"
_JSON_VALUE = r"\\?\"\s{0,4}:\s{0,4}\\?\""

_SHAPES = (
    SecretPattern(
        "aws-access-key-id",
        "aws-access-key-id",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        rf"(?P<s>{starting(WORD_START, 'A')}(?:KI|SI|BI|CC)A(?P<b>[A-Z0-9]++))(?![a-z_])",
        f"[A-Z0-9]*+(?:,{_AWS_BODY}*+)?",
        full="[A-Z0-9]{20}",
        after_comma="aws-csv",
    ),
    # A line of credentials.csv: the secret stands after its id. A chunk may end between the two.
    SecretPattern(
        "aws-csv-start",
        "aws-access-key-id",
        ("AKIA", "ASIA"),
        rf"(?P<s>{starting(WORD_START, 'A')}[KS]IA[A-Z0-9]{{16}}(?P<b>\Z))",
        f"(?:,{_AWS_BODY}*+)?",
        after_comma="aws-csv",
    ),
    SecretPattern(
        "aws-csv",
        "aws-secret-key",
        ("AKIA", "ASIA"),
        rf"(?P<s>{starting(WORD_START, 'A')}[KS]IA[A-Z0-9]{{16}},(?P<b>{_AWS_BODY}*+))",
        f"{_AWS_BODY}*+",
        least=40,
        exact=f"{_AWS_BODY}{{40}}",
    ),
    SecretPattern(
        "jwt",
        "jwt",
        ("eyJ",),
        rf"(?P<s>(?P<b>{_JWT}[A-Za-z0-9_-]++(?:\.(?:\Z|ey?\Z|eyJ[A-Za-z0-9_-]*+(?:\.[A-Za-z0-9_-]*+)?))?))",
        r"[A-Za-z0-9_.-]*+",
        full=r"eyJ[^.]{8,}\.eyJ[^.]{8,}\.[^.]{16,}",
    ),
    SecretPattern(
        "sendgrid-key",
        "sendgrid-key",
        ("SG.",),
        rf"(?P<s>{_SENDGRID}(?P<b>[A-Za-z0-9_-]{{6,64}}+(?:\.[A-Za-z0-9_-]*+)?))",
        r"[A-Za-z0-9_.-]*+",
        full=r"SG\.[^.]{16,64}\.[^.]{16,}",
    ),
    _run("telegram-token", (":AA",), "(?<![0-9])", _DASHED_BODY, 32, head="[0-9]{8,10}:AA", exact="[A-Za-z0-9_-]{33}"),
    SecretPattern(
        "discord-token",
        "discord-token",
        (".",),
        rf"(?P<s>(?P<b>[MNO](?<![A-Za-z0-9].){DIGITS}[MNO]{DIGITS}[A-Za-z0-9_-]*+(?:\.[A-Za-z0-9_-]*+){{0,2}}))",
        r"[A-Za-z0-9_.-]*+",
        full=r"[^.]{23,28}\.[^.]{6}\.[^.]{27,}",
    ),
    SecretPattern(
        "cloudflare-key",
        "cloudflare-key",
        ("v1.0-",),
        rf"(?P<s>{_CLOUDFLARE}(?P<b>[a-f0-9]{{6,24}}+(?:-[A-Za-z0-9_-]*+)?))",
        "[A-Za-z0-9_-]*+",
        full=r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100}.*",
    ),
    _run("clia-login", ("/login?key=",), r"/login\?key=", _DASHED_BODY, 20, kind="clia-token", value="value"),
    _run("terraform-token", (".atlasv1.",), starting(WORD_START, ""), _DASHED_BODY, 40, head=r"[A-Za-z0-9]{14}\.atlasv1\."),
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
    _run("teams-webhook", ("/IncomingWebhook/",), "/IncomingWebhook/", f"[{HEX}]", 32),
    _run("signed-url", ("-Signature=",), "X-(?:Amz|Goog)-Signature=", f"[{HEX}]", 40),
    _run(
        "airtable-token",
        ("pat",),
        "",
        f"[{HEX}]",
        64,
        head=starting(WORD_START, r"pat[A-Za-z0-9]{14}\."),
        exact=f"[{HEX}]{{64}}",
    ),
    SecretPattern(
        "password-hash",
        "password-hash",
        ("$apr1$", "$1$", "$5$", "$6$", "$y$", "$2a$", "$2b$", "$2x$", "$2y$"),
        r"\$(?:apr1|[156y]|2[abxy]\$[0-9]{2})\$(?P<s>(?P<b>[A-Za-z0-9./$=]{6,}+))",
        "[A-Za-z0-9./$=]*+",
        22,
        value="jwk",
    ),
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
        rf"(?P<s>{starting(DASHED_START, 'key-')}(?=[a-f]*+[0-9])(?P<b>[a-f0-9]{{6,}}+))(?![A-Za-z0-9_]|\[redacted:)",
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
    return _run(name, tuple(hints.split()), starting("(?<![A-Za-z]@)", before), body, kind="assigned", value=value)


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

_SCHEMES = "bearer|basic|token|api-?key|splunk|key|ghost"

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
        rf"(?ai:authorization){_KEY_END}[ \t]{{0,4}}[:=,][ \t]{{0,4}}\\?[\"']?(?ai:{_SCHEMES})[ \t]{{1,4}}",
        "[A-Za-z0-9._~+/=:-]",
        6,
        value="credential",
    ),
    SecretPattern(
        "authorization-plain",
        "authorization",
        ("uthorization", "UTHORIZATION"),
        rf"(?ai:authorization){_KEY_END}[ \t]{{0,4}}[:=][ \t]{{0,4}}\\?[\"']?(?P<s>(?P<b>[A-Za-z0-9_~+/=-]{{6,}}+))(?![.(\[])",
        "[A-Za-z0-9._~+/=-]*+",
        16,
        value="user",
    ),
    _run("credentials", ("CREDENTIALS",), rf"CREDENTIALS{ASSIGNMENT}[\"']?", "[A-Za-z0-9_~+/-]", 16, kind="assigned", value="user"),
    _run(
        "vault-header",
        ("ault-",),
        r"(?ai:x-vault-token)[\"']?[ \t]{0,4}[:=,][ \t]{0,4}[\"']?",
        "[A-Za-z0-9._-]",
        16,
        kind="vault-token",
        value="value",
    ),
    # A key or code among the parameters of a URL.
    SecretPattern(
        "query-key",
        "assigned",
        ("?key=", "&key=", "?code=", "&code="),
        r"[?&](?:key|code)=(?P<s>(?P<b>[A-Za-z0-9_~%-]{6,}+))",
        "[A-Za-z0-9_~%-]*+",
        16,
        value="user",
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
    _argument("pgpass", ":5432:", r"(?<!\S)[^\s:]{1,128}+:5432:[^\s:]{1,63}+:[^\s:]{1,63}+:(?!:)", r"[^\s\"'\\:]"),
    _argument("oracle-password", "oracle:", r"oracle:(?:thin|oci8?):[^\s/:@]{1,64}+/", r"[^\s\"'\\@]"),
    _argument("httpie-user", "http", rf"https?{_GAP}(?:-a|--auth)[ \t=]{{1,4}}[\"']?[^\s:\"'/@\[]{{1,128}}+:", value="login"),
    _argument("redis-password", "redis-cli", rf"redis-cli(?:{_GAP}(?!-a|redis-cli)\S++){{0,32}}{_GAP}-a[ \t]{{1,4}}[\"']?"),
    _argument("mongo-password", "mongo", rf"mongo[a-z]{{0,8}}+(?:{_GAP}(?!-p[ \t]|mongo)\S++){{0,32}}{_GAP}-p[ \t]{{1,4}}[\"']?"),
    _argument("ldap-password", "ldap", rf"ldap[a-z]{{3,8}}+(?:{_GAP}(?!-w[ \t]|ldap)\S++){{0,32}}{_GAP}-w[ \t]{{1,4}}[\"']?"),
    _argument(
        "samba-password",
        "smbclient rpcclient",
        rf"(?:smb|rpc)client(?:{_GAP}(?!-U|smbclient|rpcclient)\S++){{0,32}}{_GAP}-U[ \t]{{0,4}}[\"']?[^\s%\"']{{1,64}}+%",
    ),
    _argument("openssl-password", "pass:", r"-pass(?:in|out)?[ \t=]{1,4}[\"']?pass:"),
    _argument(
        "sql-password",
        "PASSWORD IDENTIFIED identified",
        r"(?:PASSWORD|(?ai:identified(?:[ \t]{1,4}with[ \t]{1,4}[\w\"'`]{1,40}+)?[ \t]{1,4}by))[ \t]{1,4}'",
        r"[^\s'\\]",
    ),
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


_GATES = "$?_-./:"


def _by_hint(rows: tuple[SecretPattern, ...]) -> tuple[tuple[str, tuple[tuple[str, tuple[SecretPattern, ...]], ...]], ...]:
    """Rows by hint, and hints by a sign that they contain: a line without the sign costs one test for all of them."""
    gates: dict[str, dict[str, tuple[SecretPattern, ...]]] = {}
    for row in rows:
        for hint in row.hints:
            hints = gates.setdefault(next((gate for gate in _GATES if gate in hint), ""), {})
            hints[hint] = (*hints.get(hint, ()), row)
    return tuple((gate, tuple(hints.items())) for gate, hints in gates.items())


# In order: of two rows for one place the first names the kind.
ROWS = {row.name: row for row in (*TOKENS, *_SHAPES, *_CONTEXTS, *ASSIGNED.values(), ARGUMENT, COLUMN)}
HINTS = _by_hint((*TOKENS, *_SHAPES, *_CONTEXTS))
TOKEN_HEAD = "|".join([*(row.name.partition(":")[2] for row in TOKENS), "A(?:KI|SI|BI|CC)A", "eyJ", r"SG\.", r"v1\.0-"])
"""The prefixes of tokens that are recognized by their first characters."""
