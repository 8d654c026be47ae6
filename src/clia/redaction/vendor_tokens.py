"""Tokens that are known by their first characters, and the form of every row of the table of secrets."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

# A token starts a word, or follows a colour code, an escaped line end (`\n` in JSON) or a percent escape. The @ stands for
# the first letters of the token: to look for these first, and then at what is before them, is several times faster.
_ESCAPED = r"(?<=[0-9\[]m@)|(?<=\\[nrt]@)|(?<=%[0-9A-F]{2}@)|(?<=\\u00[0-9a-fA-F]{2}@)"
WORD_START = rf"(?:(?<![A-Za-z0-9]@)|{_ESCAPED})"  # also in a file name: backup-ghp_…, TOKEN_ghp_…
DASHED_START = rf"(?:(?<![A-Za-z0-9_-]@)|(?<=---@)|{_ESCAPED})"  # for a prefix that is an ordinary word: cache-key-
_LETTERS = re.compile(r"(?:[A-Za-z0-9_/-]|\\\.)*(?![?*+{])")


def starting(start: str, head: str) -> str:
    """The pattern ``head`` at such a start."""
    letters = _LETTERS.match(head)
    first = letters[0] if letters else ""
    return first + start.replace("@", first) + head[len(first) :]


_ALNUM, _WORD, DASHED, HEX = "A-Za-z0-9", "A-Za-z0-9_", "A-Za-z0-9_-", "a-f0-9"


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
    kind: str, hints: str, head: str, body: str, least: int, *, exact: int = 0, early: int = 1, extra: str = ""
) -> SecretPattern:
    """A prefix and a run of characters. ``early``: this many characters at the end of a chunk are treated as a token cut in two.

    The whole word around a token is replaced, so that a mark is never followed by the middle of a word.
    """
    word = f"[{DASHED if body.endswith('-') else _WORD}]*+"
    find = f"(?P<s>{starting(WORD_START, head)}(?P<b>[{body}]{{{least},}}+{word}|[{body}]{{{early},}}+){extra})"
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
# Names that are common in code and look like the start of a token.
_NPM_NAMES = r"(?!config|package|lifecycle|execpath|node_|command|global|local|token)"
_HF_NAMES = r"(?!hub|home|token|model|dataset|endpoint|inference|transfer|api|pipeline|config)"
DIGITS = "[DTjz][AEIMQUYcgk][w-z0-5]"  # with [MNO] before it three decimal digits in base64: a bot's token starts with its number

TOKENS = (
    _token("github-token", "ghp_ gho_ ghu_ ghr_", "gh[pour]_", _ALNUM, 36, exact=36),
    _token("github-token", "ghs_", "ghs_", _WORD, 24, extra=r"(?:[.-][A-Za-z0-9_-]*+)*")._replace(exact="[A-Za-z0-9]{36}"),
    _token("github-token", "github_pat_", "github_pat_", _WORD, 36, exact=82),
    _token(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct-",
        "gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-",
        DASHED,
        20,
        extra=r"(?:\.[0-9A-Za-z_-]*+){0,2}",
    ),
    _token("google-api-key", "AIza", "AIza", DASHED, 35, exact=35),
    _token("google-oauth", "ya29.", r"ya29\.", DASHED, 20),
    _token("google-oauth", "1//0", "1//0", DASHED, 30, early=_WEAK),
    _token("google-oauth", "GOCSPX-", "GOCSPX-", DASHED, 20),
    _token("slack-token", "xox", r"xox[a-z](?:\.xox[a-z])?-", "A-Za-z0-9-", 16),
    _token("slack-token", "xapp-", "xapp-", "A-Za-z0-9-", 20),
    _token("stripe-key", "k_live_ k_test_", "[sr]k_(?:live|test)_", _ALNUM, 16),
    _token("stripe-key", "whsec_", "whsec_", "A-Za-z0-9+/=", 24),
    _token("anthropic-key", "sk-ant-", "sk-ant-", DASHED, 20),
    _token("openrouter-key", "sk-or-", "sk-or-v1-", HEX, 40, exact=64),
    _token("openai-key", "sk-", "sk-(?:proj|svcacct|admin)-", DASHED, 20),
    _token("openai-key", "sk-", "sk-", _ALNUM, 32, early=_WEAK)._replace(rest=f"[{DASHED}]*+"),
    _token("huggingface-token", "hf_", f"hf_{_HF_NAMES}", _ALNUM, 30, exact=34, early=_WEAK),
    _token("groq-key", "gsk_", "gsk_", _ALNUM, 40, exact=52),
    _token("replicate-token", "r8_", "r8_", _ALNUM, 36, exact=37, early=_WEAK),
    _token("perplexity-key", "pplx-", "pplx-", _ALNUM, 40, early=_WEAK),
    _token("npm-token", "npm_", f"npm_{_NPM_NAMES}", _ALNUM, 36, exact=36, early=_WEAK),
    _token("pypi-token", "pypi-AgE", "pypi-AgE", DASHED, 50),
    _token("rubygems-token", "rubygems_", "rubygems_", HEX, 48, exact=48, early=_WEAK),
    _token("docker-token", "dckr_", "dckr_[po]at_", DASHED, 20),
    _token("digitalocean-token", "_v1_", "do[opr]_v1_", HEX, 40, exact=64),
    _token("databricks-token", "dapi", "dapi", HEX, 32, exact=32, early=_WEAK, extra="(?:-[0-9])?"),
    _token("heroku-key", "HRKU-", "HRKU-", DASHED, 30),
    _token("shopify-token", "shpat_ shpca_ shppa_ shpss_", "shp(?:at|ca|pa|ss)_", "a-fA-F0-9", 32, exact=32),
    _token("vault-token", "hvs. hvb. hvr.", r"hv[sbr]\.", DASHED, 24, early=_WEAK),
    _token("grafana-token", "glsa_ glc_", "gl(?:sa|c)_", "A-Za-z0-9_+/=", 32, early=_WEAK),
    _token("linear-key", "lin_api_", "lin_api_", _ALNUM, 32, exact=40),
    _token("notion-token", "ntn_", "ntn_", _ALNUM, 40, early=_WEAK),
    _token("figma-token", "figd_", "figd_", DASHED, 32),
    _token("newrelic-key", "NRAK-", "NRAK-", "A-Z0-9", 27, exact=27),
    _token("postman-key", "PMAK-", "PMAK-", "a-f0-9-", 50),
    _token("sentry-token", "sntry", "sntry[su]_", "A-Za-z0-9_+/=", 40),
    _token("doppler-token", "dp.", r"dp\.(?:pt|st|sa|ct|scim|audit)\.", "A-Za-z0-9._-", 40, early=_WEAK),
    _token("planetscale-token", "pscale_", "pscale_(?:tkn|pw|oauth)_", "A-Za-z0-9_.-", 32),
    _token("supabase-key", "sbp_ sb_secret_", "(?:sbp_|sb_secret_)", DASHED, 30, early=_WEAK),
    _token("atlassian-token", "ATATT3 ATBB", "(?:ATATT3|ATBB)", "A-Za-z0-9_=-", 30, early=_WEAK),
    _token("clia-token", "clia_", "clia_", DASHED, 43, exact=43)._replace(value="mixed"),  # clia_http_requests is a metric
    _token("gitlab-token", "GR1348941", "GR1348941", DASHED, 20),
    _token("aws-bedrock-key", "ABSK", "ABSK", "A-Za-z0-9+/=", 80, early=_WEAK)._replace(value="jwk"),
    _token("xai-key", "xai-", "xai-", _ALNUM, 60, exact=80, early=_WEAK),
    _token("huggingface-token", "api_org_", "api_org_", _ALNUM, 34, exact=34, early=_WEAK),
    _token("langsmith-key", "lsv2_", "lsv2_(?:pt|sk)_", "a-f0-9_", 40),
    _token("tavily-key", "tvly-", "tvly-(?:dev-|prod-)?", _ALNUM, 28, early=_WEAK),
    _token("crates-token", "cio", "cio", _ALNUM, 32, exact=32, early=_WEAK)._replace(value="jwk"),
    _token("brevo-key", "sib-", "x(?:key|smtp)sib-", "a-f0-9A-Z-", 64)._replace(rest=f"[{DASHED}]*+"),
    _token("resend-key", "re_", "re_(?=[A-Za-z0-9]{8}_|[A-Za-z0-9]{6,8}\\Z)", _WORD, 33, early=_WEAK)._replace(value="jwk"),
    _token("square-token", "EAAA", "EAAA", DASHED, 56, early=_WEAK)._replace(value="jwk"),
    _token("square-token", "sq0", "sq0(?:csp|atp|idp)-", DASHED, 22),
    _token("pulumi-token", "pul-", "pul-", HEX, 40, exact=40, early=_WEAK),
    _token("dropbox-token", "sl.", r"sl\.(?:u\.)?", DASHED, 60, early=_WEAK)._replace(value="jwk"),
    _token("1password-token", "ops_eyJ", "ops_eyJ", DASHED, 100),
    _token("tailscale-key", "tskey-", "tskey-(?:auth|client|api|scim|webhook)-", "A-Za-z0-9-", 20),
    _token("fly-token", "fm1_ fm2_", "fm[12]_", "A-Za-z0-9+/=_", 60, early=_WEAK),
    _token("buildkite-token", "bkua_", "bkua_", HEX, 40, exact=40),
    _token("circleci-token", "CCIP", "CCIP(?:AT|RJ)_", _WORD, 40),
    _token("snyk-token", "snyk_", r"snyk_[us]at\.", "A-Za-z0-9._-", 40),
    # Base64 of the first words of a PEM block with a private key.
    _token(
        "base64-key",
        "LS0tLS1CRUdJTi",
        "LS0tLS1CRUdJTi(?:BQUklWQVRF|BSU0EgU|BPUEVOU1NI|BFQyBQUk|BEU0EgU|BFTkNSWVBURU|BQR1AgUFJJ)",
        "A-Za-z0-9+/=",
        40,
    ),
    _token("age-key", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1", "A-Z0-9", 50, exact=58),
)
