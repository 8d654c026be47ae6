"""Made-up secrets of real shape, built from pieces so that no scanner takes this file for a leak."""

from __future__ import annotations

from typing import NamedTuple

ALNUM = "aQ3dE5gH7jK9mN1pR2rS4tU6vW8xY0zB1bC2dF3fG4hI5jL6kM7nO8pP9qT0sV1u"
HEX = "3f8a1c9e7b2d40516e8f9a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d"
UPPER = "Q3W5E7R2T4Y6U3I5O7P2"
_SNOWFLAKE = "MTIz" + "NDU2" + "Nzg5" + "MDEy" + "MzQ1" + "Njc4"
_LONG_HEX = HEX + HEX[::-1] + HEX


class Fake(NamedTuple):
    """A secret in its context: ``public`` and ``secret`` are replaced, the rest stays."""

    kind: str
    before: str
    public: str
    secret: str
    after: str = ""

    @property
    def text(self) -> str:
        return self.before + self.public + self.secret + self.after


def _tokens(kind: str, secret: str, *prefixes: str) -> list[Fake]:
    return [Fake(kind, "", prefix, secret) for prefix in prefixes]


def _values(kind: str, secret: str, *contexts: str) -> list[Fake]:
    """Contexts with a * in place of the secret."""
    return [Fake(kind, before, "", secret, after) for before, _, after in (context.partition("*") for context in contexts)]


_JWT_TAIL = "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + ALNUM[:43]

FAKES = [
    *_tokens("github-token", ALNUM[:36], "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    Fake("github-token", "", "ghs_", "1234567_" + "ey" + "J" + _JWT_TAIL),
    *_tokens("github-token", ALNUM[:22] + "_" + ALNUM[:59], "github_pat_"),
    Fake("github-token", "TOKEN_", "ghp_", ALNUM[:36]),
    Fake("github-token", "x_", "github_pat_", ALNUM[:22] + "_" + ALNUM[:59]),
    Fake("stripe-key", "my_", "sk_live_", ALNUM[:24]),
    *_tokens("gitlab-token", ALNUM[:20], "glpat-", "gldt-", "glrt-", "glptt-"),
    Fake("gitlab-token", "", "glpat-", ALNUM[1:28] + ".01.0z1y2x3w4"),
    *_tokens("aws-access-key-id", UPPER[:16], "AKIA", "ASIA"),
    *_tokens("google-api-key", ALNUM[:20] + "-_" + ALNUM[20:33], "AIza"),
    *_tokens("google-oauth", ALNUM[:28], "ya29.", "GOCSPX-"),
    *_tokens("google-oauth", ALNUM[:50] + "-" + ALNUM[:40], "1/" + "/0"),
    *_tokens("slack-token", "2345678901-3456789012-" + ALNUM[:24], "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe.xoxp-"),
    *_tokens("slack-token", HEX, "xapp-1-A0B1C2D3E4F-4567890123456-"),
    *_values("slack-webhook", "T0A1B2C3D/B4E5F6G7H/" + ALNUM[:24], "https://hooks.slack.com/services/*"),
    *_tokens("stripe-key", ALNUM[:24], "sk_live_", "rk_live_", "sk_test_", "whsec_"),
    *_tokens("anthropic-key", "api03-" + ALNUM + "-" + ALNUM[:28], "sk-ant-"),
    *_tokens("openai-key", ALNUM[:48], "sk-", "sk-proj-", "sk-svcacct-"),
    *_tokens("openrouter-key", HEX, "sk-or-v1-"),
    *_tokens("huggingface-token", ALNUM[:34], "hf_"),
    *_tokens("groq-key", ALNUM[:52], "gsk_"),
    *_tokens("replicate-token", ALNUM[:37], "r8_"),
    *_tokens("perplexity-key", ALNUM[:48], "pplx-"),
    *_tokens("npm-token", ALNUM[:36], "npm_"),
    *_tokens("pypi-token", "IcHlwaS5vcmc" + ALNUM + ALNUM, "pypi-" + "AgE"),
    *_tokens("rubygems-token", HEX[:48], "rubygems_"),
    *_tokens("docker-token", ALNUM[:27], "dckr_pat_", "dckr_oat_"),
    *_tokens("sendgrid-key", ALNUM[:22] + "." + ALNUM[11:54], "SG."),
    *_tokens("telegram-token", ALNUM[:33], "123456789:" + "AA"),
    Fake("telegram-token", "https://api.telegram.org/bot", "123456789:" + "AA", ALNUM[:33], "/getMe"),
    *_tokens("discord-token", ".G1a2B3." + ALNUM[:38], _SNOWFLAKE),
    *_values("discord-webhook", ALNUM + "-_ab", "https://discord.com/api/webhooks/123456789012345678/*"),
    *_tokens("digitalocean-token", HEX, "dop_v1_", "doo_v1_", "dor_v1_"),
    *_tokens("databricks-token", HEX[:32], "dapi"),
    *_tokens("heroku-key", "AA" + ALNUM[:58], "HRKU-"),
    *_tokens("shopify-token", HEX[:32], "shpat_", "shpss_"),
    *_tokens("vault-token", "CAESI" + ALNUM, "hvs."),
    *_tokens("grafana-token", ALNUM[:32] + "_0a1b2c3d", "glsa_"),
    *_tokens("linear-key", ALNUM[:40], "lin_api_"),
    *_tokens("notion-token", ALNUM[:46], "ntn_"),
    *_tokens("figma-token", ALNUM[:40], "figd_"),
    *_tokens("newrelic-key", UPPER + "ABCDEF2", "NRAK-"),
    *_tokens("postman-key", HEX[:24] + "-" + HEX[:34], "PMAK-"),
    *_tokens("sentry-token", HEX, "sntryu_"),
    *_tokens("doppler-token", ALNUM[:43], "dp.pt.", "dp.st."),
    *_tokens("planetscale-token", ALNUM[:43], "pscale_tkn_"),
    *_tokens("supabase-key", HEX[:40], "sbp_"),
    *_tokens("atlassian-token", "xFfGF0" + ALNUM + ALNUM, "ATATT3"),
    *_tokens("gitlab-token", ALNUM[:20], "GR1348941"),
    *_tokens("aws-bedrock-key", ALNUM + ALNUM[:40], "ABSK"),
    *_tokens("xai-key", ALNUM + ALNUM[:16], "xai-"),
    *_tokens("huggingface-token", ALNUM[:34], "api_org_"),
    *_tokens("langsmith-key", HEX[:32] + "_" + HEX[:10], "lsv2_pt_"),
    *_tokens("tavily-key", ALNUM[:32], "tvly-dev-"),
    *_tokens("crates-token", ALNUM[:32], "cio"),
    *_tokens("brevo-key", HEX + "-" + UPPER[:16], "xkeysib-"),
    *_tokens("resend-key", ALNUM[:8] + "_" + ALNUM[8:32], "re_"),
    *_tokens("square-token", ALNUM[:60], "EAAA"),
    *_tokens("square-token", ALNUM[:43], "sq0csp-"),
    *_tokens("pulumi-token", HEX[:40], "pul-"),
    *_tokens("dropbox-token", ALNUM + ALNUM, "sl."),
    *_tokens("1password-token", ALNUM + ALNUM, "ops_" + "eyJ"),
    *_tokens("tailscale-key", ALNUM[:12] + "CNTRL-" + ALNUM[12:44], "tskey-auth-"),
    *_tokens("fly-token", ALNUM + ALNUM, "fm2_"),
    *_tokens("buildkite-token", HEX[:40], "bkua_"),
    *_tokens("circleci-token", ALNUM[:22] + "_" + HEX[:40], "CCIPAT_"),
    *_tokens("snyk-token", HEX[:8] + "." + ALNUM, "snyk_uat."),
    *_tokens("base64-key", ALNUM + ALNUM, "LS0tLS1CRUdJTiBQUklWQVRF"),
    *_tokens("airtable-token", HEX, "pat" + ALNUM[:14] + "."),
    *_values("password-hash", ALNUM[9:17] + "$" + ALNUM[:22], "bob:$apr1$*"),
    *_values("teams-webhook", HEX[:32], "https://a.webhook.office.com/webhookb2/x/IncomingWebhook/*/y"),
    *_values("signed-url", HEX, "https://b.example.org/k?X-Amz-Expires=60&X-Amz-Signature=*"),
    *_tokens("age-key", UPPER + UPPER + UPPER[:18], "AGE-SECRET-" + "KEY-1"),
    *_tokens("cloudflare-key", HEX[:24] + "-" + _LONG_HEX[9:155], "v1.0-"),
    Fake("twilio-key", "TWILIO_API_KEY=", "SK", HEX[:32]),
    Fake("twilio-key", 'twilio_key_sid: "', "SK", HEX[:32], '"'),
    Fake("mailgun-key", "MAILGUN_API_KEY=", "key-", HEX[:32]),
    Fake("mailgun-key", "curl -u api:", "key-", HEX[:32]),
    Fake("mailgun-key", "", "key-", HEX[:32]),
    *_tokens("azure-key", ALNUM[:34], "aB3" + "8Q~", "a~.7" + "Q~"),
    *_values("azure-key", ALNUM + ALNUM[:22] + "==", "AccountName=a;AccountKey=*;EndpointSuffix=core"),
    *_values("azure-sas", ALNUM[:43] + "%3D", "https://a.blob.core.windows.net/c?sv=2022&sig=*&se=2030"),
    *_values("aws-secret-key", ALNUM[:18] + "/+" + ALNUM[20:40], "aws_secret_access_key=*", '"AWS_SECRET_ACCESS_KEY": "*"'),
    Fake("aws-access-key-id", "", "AK" + "IA" + UPPER[:16] + ",", ALNUM[:18] + "/+" + ALNUM[20:40]),
    Fake("jwt", "", "eyJ", _JWT_TAIL),
    Fake("jwt", "Authorization: Bearer ", "eyJ", _JWT_TAIL),
    *_values("authorization", ALNUM[:32], "Authorization: Bearer *", '-H "authorization: token *"', "Bearer *"),
    *_values("authorization", "Ym9iOn" + "NlY3JldHdvcmQ=", "Authorization: Basic *", '"Authorization": "Basic *"'),
    *_values("url-password", "s3cr3t-W0rd", "https://user:*@example.com/x", "postgres://app:*@db:5432/main", "redis://:*@cache"),
    *_values("url-password", ALNUM[:24], "https://*@example.com/x.git", "git clone https://*@host"),
    *_values("url-password", "p@ss" + "W0rd!9", "amqp://me:*@queue/v"),
    *_values(
        "assigned", "hun" + "ter2", "password=*", '"password": "*"', "password: '*'", '{\\"password\\": \\"*\\"}', "PASSWORD=*"
    ),
    *_values("assigned", "Tr0ub4dor&3", 'db_password = "*"', "dbPassword: `*`", 'config["password"] = "*"', "'passphrase' => '*'"),
    *_values(
        "assigned", "s3cr3t-W0rd", "machine host.example login bob password *", "curl -u bob:*", "curl -sS --user 'bob:*' https://x"
    ),
    *_values("docker-auth", "Ym9iOnNlY3" + "JldHdvcmQ=", '"auth": "*"', '{\\"auth\\":\\"*\\"}'),
    *_values(
        "cookie", ALNUM[:32], "Cookie: session=*; a=b", "Set-Cookie: sessionid=*; Path=/", "cookie: a=b; theme=dark; connect.sid=*"
    ),
    *_values("assigned", "correcthorse", "DB_PASSWORD=*", 'pwd="*"'),
    *_values("assigned", HEX[:32], "X-Api-Key: *", 'apiKey: "*"', "client_secret=*&x=1", "--api-key *", "export APP_SECRET=*"),
    *_tokens("clia-token", ALNUM[:20] + "-_" + ALNUM[20:41], "clia_"),
    *_values("clia-token", ALNUM[:20] + "-_" + ALNUM[20:41], "http://127.0.0.1:8337/login?key=*"),
    *_values("kubernetes-key", "LS0tLS1" + ALNUM + ALNUM[:40] + "==", "client-key-data: *", '"client-key-data": "*"'),
    *_values("npm-auth", "Ym9iOnNlY3" + "JldHdvcmQ=", "_auth=*", "//registry.example.org/:_auth=*", '_auth = "*"'),
    *_tokens("terraform-token", ALNUM[:67], "a1B2c3D4e5F6g7.atl" + "asv1."),
    *_values("jwk", ALNUM[:43], '{"kty":"OKP","crv":"Ed25519","x":"AA","d":"*"}', '"d": "*"', '{\\"dp\\":\\"*\\"}'),
    *_values("jwk", ALNUM[:22], '{"kty":"oct","k":"*"}'),
    *_values("assigned", "s3cr3t-W0rd", "<password>*</password>", "<db.password>*</db.password>"),
    *_values("assigned", "s3cr3t-W0rd", "sshpass -p * ssh host", "sshpass -p '*' ssh host", "mysql -u root -p* shop"),
    *_values("assigned", "s3cr3t-W0rd", "mysqldump --host=db -u root -p'*' shop", "docker login -u bob -p * registry.example.org"),
    *_values("assigned", "s3cr3t-W0rd", "tool --password * --verbose", "tool --db-password '*'"),
    *_values("assigned", "s3cr3t-W0rd", "DB_PASSWORD    *", "DB_PASSWORD\t*", "| API_SECRET | * |"),
    *_values("assigned", ALNUM[:40], "GITHUB_PAT=*", "AZURE_DEVOPS_EXT_PAT: *", "HMAC_KEY=*", '"hmac_key": "*"'),
    *_values("assigned", ALNUM[:24], 'token = "*"', "csrf_token: *", "?access_token=*&x=1", "--auth-token=*"),
]


def _pem(label: str, headers: str = "") -> Fake:
    lines = "\n".join(ALNUM[shift:] + ALNUM[:shift] for shift in range(12))
    edge = "-" * 5
    return Fake("private-key", "", f"{edge}BEGIN {label}{edge}\n{headers}", f"{lines}\nq8Zz==\n{edge}END {label}{edge}")


PEM_KEYS = [
    _pem("PRIVATE KEY"),
    _pem("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B2C3D4E5F60718293A4B5C6D7E8F9\n\n"),
    _pem("OPENSSH PRIVATE KEY"),
    _pem("EC PRIVATE KEY"),
    _pem("ENCRYPTED PRIVATE KEY"),
    _pem("PGP PRIVATE KEY BLOCK", "Version: GnuPG v2 for all\nComment: a key of mine\n\n"),
]
