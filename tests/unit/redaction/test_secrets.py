"""Each kind of secret, with fakes of its real shape and near misses that must stay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clia.redaction.patterns import ROWS
from clia.redaction.private_keys import PEM
from clia.redaction.secrets import START, RedactionState, redact, redact_chunk, redact_entry, redact_value, swallowed
from support.fake_secrets import ALNUM, FAKES, HEX, PEM_KEYS, UPPER, Fake

NEAR_MISSES = [
    "ghp_short",
    "ghp_" + ALNUM[:35],
    "xghp_" + ALNUM[:36],
    "github_pattern_" + ALNUM[:40],
    "glpat-tooshort",
    "AKIA" + "ABCDEFGH",
    "AKIA" + "A" * 30,
    "AIza",
    "ya29.",
    "xoxo-hugs",
    "sk_live_",
    "sk-learn",
    "sk-learn-contrib-extensions-are-many",
    "task-" + ALNUM[:40],
    "disk-" + ALNUM[:40],
    "hf_hub_download(repo_id)",
    "npm_config_registry npm_package_json",
    "pypi-server",
    "SG.short.short",
    "SK" + HEX[:32],
    "AC" + HEX[:32],
    "account_sid=AC" + HEX[:32],
    "12:AA" + ALNUM[:35],
    "M.N.O",
    "dapi" + "0123",
    "cache-key-" + HEX[:32],
    "key-" + HEX[:40],
    "key-" + "facade",
    "_ghp_" + ALNUM[:35],
    "x_github_pattern_" + ALNUM[:40],
    "is_npm_" + ALNUM[:35],
    "1//0",
    "a8Q~" + ALNUM[:20],
    "ab8Q~" + ALNUM[:60],
    "AK" + "IA" + "ABCDEFGH," + ALNUM[:40],
    "Private-Lines: many",
    "re_" + ALNUM[:40],
    "re_compile_the_pattern_of_all_names_2",
    "sl.some_name_that_is_long_enough_to_be_one_of_these_tokens_but_has_no_digit",
    "EAAA" + "A" * 60,
    "pattern." + HEX,
    "$1$2$3 and $6$ and s/a/$1$/",
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t" + ALNUM,
    "pul-request-" + HEX[:40],
    "social" + ALNUM[:32],
    "eyJhbGciOiJIUzI1NiJ9",
    "eyJhbGciOiJIUzI1NiJ9.notjson",
    "AccountKey=<key>",
    "v1.0-beta",
    "hooks.slack.com/services/",
    "-----BEGIN CERTIFICATE-----\n" + ALNUM + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + ALNUM + "\n-----END PUBLIC KEY-----",
    'if "-----BEGIN RSA PRIVATE KEY-----" in text:',
    "a file that starts with -----BEGIN PRIVATE KEY----- is a key and so on",
]

ORDINARY = [
    "commit " + HEX[:40],
    "tree " + HEX[:64],
    "index 3f2a9c1..9b1c2d3 100644",
    "sha256:" + HEX[:64],
    "secret: sha256:" + HEX[:64],
    '"integrity": "sha512-' + ALNUM + ALNUM + '=="',
    "123e4567-e89b-12d3-a456-426614174000",
    "https://example.com:8443/path?x=1&y=2#z",
    "http://localhost:3000,someone@example.com",
    "http://[::1]:8080/ and ssh://git@host:22/repo.git and git@github.com:owner/name.git",
    "https://user@example.com/x",
    "https://some-user-name-1234567@example.com/x ssh://deploy-robot-for-release-2@host/x.git",
    "https://" + ALNUM[:12] + "@example.com https://example.com/" + ALNUM[:24] + "@v2",
    "npm i https://Registry1.example.com/@scope/name-1234567890abcdef@2",
    "docker run -u 1000:1000 --user 1000:1000 image",
    "git push -u origin main:release-2024",
    "curl -u $USER:$PASS https://x; curl -u user:password https://x; curl -u 1000:1000 x",
    "curl -o out https://example.com:8443/a",
    "the machine that you login to has a password prompt",
    "machine h login u password <password>",
    '{"auth": "oauth2", "auth": "none", "auth": "bearer-token-v2"}',
    '"auth": "' + HEX[:32] + '"',
    '"auth": "aGVsbG8gd29ybGQh"',
    "curl -u [redacted:github-token] https://x",
    "Cookie: theme=dark; lang=en Set-Cookie: session=deleted; Path=/",
    "session=" + HEX[:32] + " sid=123e4567-e89b-12d3-a456-426614174000",
    "postgres://user:$PASSWORD@host/db postgres://user:${PW}@host/db postgres://user:<password>@host/db",
    "https://github.com/owner/name/blob/main/src/api_key.py",
    "Jane Doe <jane.doe+tag@example.org>",
    "/usr/lib/python3/dist-packages/secrets/token.py:12: in get",
    "password = input()",
    "password = getpass.getpass('Password: ')",
    "def get_token(self):",
    "def login(user: str, password: str = None) -> Token:",
    "connect(user=user, password=password)",
    "connect(user=user, password=user_password)",
    'password = os.environ["DB_PASSWORD_2"]',
    "const token = await getToken2(request);",
    "token = tokens[0]",
    "secret = config.secrets.v2_key",
    "self.password = hash_password(password, rounds=12)",
    'if token == "while1": next()',
    '{"token": "hello", "logprob": -0.25}',
    '{"max_tokens": 128000, "next_token": null}',
    "API_KEY=$OTHER_KEY_1",
    "PASSWORD=${PASSWORD}",
    "PASSWORD=<your password>",
    "password: xxxxxxxx",
    'password: "********"',
    'api_key = "your-api-key-1234"',
    'api_key: "example-key-1"',
    "SECRET_KEY=changeme",
    "password: None, token: null, secret: true",
    '"password": {"type": "string"}',
    '"password": "Enter your password 2 times"',
    'password: "must have 8 characters"',
    'private_key = "keys/server1.pem"',
    "PWD=/home/user1/project2",
    "primary_key=12345678901 sort_key=abc123def456 cache-key: v2-linux-0a1b2c3d",
    "public_key: " + ALNUM,
    "compass=north123456 bypass: lane123456",
    "tests: 12 pass: 11 fail: 1",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "Use Bearer authentication, or Basic authentication.",
    "the --password option, --token is better",
    "The secret: never stop. The key: work.",
    "[redacted:github-token]=abcdef123456",
    'clia_http_requests_total{route="/"} 12 clia_http_request_seconds_bucket_of_the_slowest_route_2',
    "GET /login?key=<key> and /login?key=KEY",
    "client-key-data: <base64> client-key: /etc/kubernetes/admin.key",
    "self._auth = BasicAuth(user, secret_of(user)); _auth=none; _auth = await login2(request)",
    "see v1.atlasv1.short and atlasv1",
    '{"d": "' + HEX[:40] + '", "p": "M12.5 3.25L4 5", "q": "what is 2 + 2", "k": "' + ALNUM[:22] + '"}',
    "postgres://user:<password>@host and <password>${env.PASSWORD}</password> <password></password>",
    "<password>password</password> <username>bob2</username>",
    "sshpass -p $PASSWORD ssh host; sshpass -f file1 ssh host2",
    "mysql -u root -p shop2 -h host1; mysql -P 3306 -p",
    "docker run -p 8080:80 image; docker login -u bob registry.example.org; docker ps -p2",
    "login from host1 -pid 1234",
    "tool --password required, --password optional\n--password argument",
    "DB_PASSWORD    the password of the database",
    "DB_PASSWORD\tDESCRIPTION",
    "| DB_PASSWORD | required | string |",
    "MAX_TOKEN    128000",
    "FILE_PAT=*.test.py",
    "name_pat = re.compile(r'[a-z]+2')",
    "127.0.0.1:5432:5432 and 0.0.0.0:5432:5432/tcp",
    "https://example.com/?key=value&code=404 https://example.com/?key=" + HEX[:12],
    "http -v https://example.com; redis-cli -h cache ping; mongosh -p; ldapsearch -x -W -b dc=x",
    "openssl rsa -passin env:PASSWORD -passin pass:$PASSWORD",
    "ALTER USER app PASSWORD NULL; PASSWORD 'password'",
    '{"name": "DB_PASSWORD", "value": "${DB_PASSWORD}"} {"name": "region", "value": "eu-west-1"}',
    "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: db2",
    "ENV DB_PASSWORD $PASSWORD",
    "Authorization: AWS4-HMAC-SHA256 Authorization: Negotiate",
    "psk=<key> PSK: none app_key = config.get('key2')",
    "CREDENTIALS=default GOOGLE_APPLICATION_CREDENTIALS=/etc/keys/service-account-2.json",
    "first_pass: 12 of 20, db_pass = getpass()",
    "password=[redacted:assigned] https://u:[redacted:url-password]@h",
]


@pytest.mark.parametrize("fake", FAKES, ids=lambda fake: f"{fake.kind}-{fake.before[:12]}{fake.public}")
def test_a_secret_is_replaced_by_its_kind(fake: Fake) -> None:
    redaction = redact(f"first {fake.text} last")
    assert redaction.count == 1
    assert redaction.text == f"first {fake.before}[redacted:{fake.kind}]{fake.after} last"


def test_every_row_of_the_table_has_a_fake() -> None:
    kinds = {fake.kind for fake in FAKES} | {fake.kind for fake in PEM_KEYS}
    assert kinds == {row.kind for row in ROWS.values()} | {PEM}
    assert len(kinds) >= 24


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_a_near_miss_stays(text: str) -> None:
    assert redact(text) == (text, 0)
    assert redact(f"a {text} b\n") == (f"a {text} b\n", 0)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == (text, 0)
    assert redact_chunk(text + "\n", START) == ((text + "\n", 0), START)


@pytest.mark.parametrize("before", ["\x1b[32m", "\x1b[0;31m", r"\n", r"\t", "%3D", r"\u003d", '"', "(", "/", "@", ","])
def test_colours_and_escapes_before_a_token_do_not_hide_it(before: str) -> None:
    assert redact(before + "ghp_" + ALNUM[:36] + "\x1b[0m").text == before + "[redacted:github-token]\x1b[0m"


@pytest.mark.parametrize("fake", PEM_KEYS, ids=lambda fake: fake.public[5:30].strip())
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", "\n    ", "\n+", "\n> "])
def test_a_private_key_is_one_secret_with_any_line_breaks(fake: Fake, newline: str) -> None:
    key = fake.text.replace("\n", newline)
    redaction = redact(f"cat key{newline}{key}{newline}exit 0 is fine")
    assert redaction == (f"cat key{newline}[redacted:private-key]{newline}exit 0 is fine", 1)


@pytest.mark.parametrize("fake", PEM_KEYS, ids=lambda fake: fake.public[5:30].strip())
def test_a_private_key_read_line_by_line_is_one_secret(fake: Fake) -> None:
    state, output, count = START, "", 0
    for line in ["$ cat key\n", *fake.text.splitlines(keepends=True), "\n", "exit 0 is fine\n"]:
        redaction, state = redact_chunk(line, state)
        output, count = output + redaction.text, count + redaction.count
        assert ALNUM[:20] not in "".join(state)
    assert (output, count) == ("$ cat key\n[redacted:private-key]\nexit 0 is fine\n", 1)


def test_a_private_key_without_an_end_does_not_swallow_the_text_after_it() -> None:
    key = PEM_KEYS[0].text.rsplit("\n", 1)[0]
    assert redact(f"{key}\nthis is ordinary text").text == "[redacted:private-key]this is ordinary text"
    (output, _), state = redact_chunk(f"{key}\n", START)
    assert output == "[redacted:private-key]"
    assert redact_chunk("this is ordinary text\n", state) == (("this is ordinary text\n", 0), START)


def test_a_token_within_an_assignment_has_its_own_kind() -> None:
    assert redact('api_key = "ghp_' + ALNUM[:36] + '"').text == 'api_key = "[redacted:github-token]"'
    assert (
        redact("https://oauth2:glpat-" + ALNUM[:20] + "@gitlab.com/x").text == "https://oauth2:[redacted:gitlab-token]@gitlab.com/x"
    )


def test_an_assignment_inside_a_plain_value_is_redacted() -> None:
    assert redact('api_key=abc-pwd="correct' + 'horse"').text == 'api_key=abc-pwd="[redacted:assigned]"'


def test_a_token_is_redacted_with_its_whole_word() -> None:
    assert redact("rubygems_" + HEX[:48] + "rubygems_" + HEX[:48]) == ("[redacted:rubygems-token]", 1)
    assert redact("x dop_v1_" + HEX + "_more y").text == "x [redacted:digitalocean-token] y"
    assert redact("ghp_" + ALNUM[:36] + "-linux").text == "[redacted:github-token]-linux"


def test_a_token_right_after_a_private_key_is_redacted() -> None:
    assert redact(PEM_KEYS[0].text + "sk-ant-" + ALNUM) == ("[redacted:private-key][redacted:anthropic-key]", 2)


@pytest.mark.parametrize("before", ['curl -H "A: b" \\\n  -u bob:', "machine h\nlogin bob\npassword "])
def test_the_context_of_a_secret_may_be_on_earlier_lines(before: str) -> None:
    assert redact(f"{before}s3cr3t-" + "W0rd last") == (f"{before}[redacted:assigned] last", 1)


def test_several_secrets_in_a_line_are_counted_separately() -> None:
    line = "a ghp_" + ALNUM[:36] + " b npm_" + ALNUM[:36] + " password=hun" + "ter2 c"
    assert redact(line) == ("a [redacted:github-token] b [redacted:npm-token] password=[redacted:assigned] c", 3)


def test_a_value_keeps_its_structure() -> None:
    token = "ghp_" + ALNUM[:36]
    value: dict[str, Any] = {
        "argv": ["curl", "-H", "Authorization: Bearer " + ALNUM[:30], 1, None, True, 1.5],
        token: {"deep": [[token]]},
        "password": "hun" + "ter2",
        "env": {"API_KEY": "correct horse battery", "PASSWORD": "${PASSWORD}", "TOKEN": "hello", "passwords": "x"},
        "commit": HEX[:40],
    }
    before = json.dumps(value)
    redacted, count = redact_value(value)
    assert redacted == {
        "argv": ["curl", "-H", "Authorization: Bearer [redacted:authorization]", 1, None, True, 1.5],
        "[redacted:github-token]": {"deep": [["[redacted:github-token]"]]},
        "password": "[redacted:assigned]",
        "env": {"API_KEY": "[redacted:assigned]", "PASSWORD": "${PASSWORD}", "TOKEN": "hello", "passwords": "x"},
        "commit": HEX[:40],
    }
    assert count == 5
    assert json.dumps(value) == before
    assert redact_value(redacted) == (redacted, 0)


def test_two_redacted_keys_of_an_object_stay_distinct() -> None:
    redacted, count = redact_value({"ghp_" + ALNUM[:36]: 1, "ghp_" + ALNUM[1:37]: 2})
    assert sorted(redacted.values()) == [1, 2]
    assert count == 2


def test_a_named_value_that_is_a_known_token_has_that_kind() -> None:
    assert redact_value({"token": "ghp_" + ALNUM[:36]}) == ({"token": "[redacted:github-token]"}, 1)
    assert redact_value({"private_key": PEM_KEYS[0].text + "\n"}) == ({"private_key": "[redacted:private-key]\n"}, 1)
    assert redact_value({"secret": "see ghp_" + ALNUM[:36]}) == ({"secret": "[redacted:assigned]"}, 1)


def test_the_value_after_the_name_or_flag_of_a_secret_is_redacted() -> None:
    made_up = "hun" + "ter2!"
    assert redact_value({"pass": made_up, "smtp_pass": made_up}) == (
        {"pass": "[redacted:assigned]", "smtp_pass": "[redacted:assigned]"},
        2,
    )
    assert redact_value({"password": [made_up, "xy", 1]}) == ({"password": ["[redacted:assigned]", "[redacted:assigned]", 1]}, 2)
    assert redact_value(["x", "--password", made_up, "last", "--db-password", [made_up]]) == (
        ["x", "--password", "[redacted:assigned]", "last", "--db-password", ["[redacted:assigned]"]],
        2,
    )
    assert redact_value(["--api-key", ALNUM[:24], "--token", ALNUM[:24]])[1] == 2


@pytest.mark.parametrize(
    "value",
    [
        {"pass": "11 of 12", "fail": "1"},
        {"pass": "v1.2.3-beta", "compass": "n0rth!west", "passed": "yes"},
        {"tokens": ["hello", "world2!"], "token": ["hello"], "keys": ["a"], "password": ["${PASSWORD}", "", None]},
        ["--password", "--verbose", "out.txt"],
        ["--token", "hello", "--password"],
        ["password", "is a word"],
    ],
)
def test_a_name_or_flag_similar_to_a_secret_is_ignored(value: Any) -> None:
    assert redact_value(value) == (value, 0)


@pytest.mark.parametrize("value", ["text", 1, None, True, 1.5, [], {}, [{}], {"a": []}])
def test_a_value_without_secrets_is_unchanged(value: Any) -> None:
    assert redact_value(value) == (value, 0)


def test_a_stream_emits_a_public_prefix_and_replaces_the_rest() -> None:
    first, state = redact_chunk("use gh", START)
    assert (first, state) == (("use gh", 0), RedactionState("use gh", ""))
    second, state = redact_chunk("p_" + ALNUM[:10], state)
    assert second == ("[redacted:github-token]", 1)
    third, state = redact_chunk(ALNUM[10:36] + " now", state)
    assert third == (" now", 0)
    assert state == RedactionState(" now", "")


def test_a_password_that_started_like_a_port_is_already_emitted_and_not_counted() -> None:
    _, state = redact_chunk("https://user:12345", START)
    assert redact_chunk("@example.com\n", state) == (("@example.com\n", 0), START)


def test_a_token_inside_a_password_is_redacted_to_the_end_of_the_password() -> None:
    for before, after in [("https://user:", "@example.com\n"), ('password = "', '"\n')]:
        first, state = redact_chunk(f"{before}ghp_{ALNUM[:10]}", START)
        assert first.text == f"{before}[redacted:github-token]"
        assert redact_chunk(f"{ALNUM[10:]}!-other-words{after}", state)[0] == (after, 0)


def test_a_newline_ends_every_token() -> None:
    _, state = redact_chunk("ghp_" + ALNUM[:10], START)
    assert state.inside
    assert redact_chunk("\nordinary\n", state) == (("\nordinary\n", 0), START)


def test_a_state_survives_json() -> None:
    for text in ["password=ab", "ghp_ab", "plain", PEM_KEYS[0].text[:60]]:
        _, state = redact_chunk(text, START)
        assert RedactionState(*json.loads(json.dumps(state))) == state


def test_an_unknown_state_redacts_nothing() -> None:
    assert redact_chunk("plain\n", RedactionState("", "of another version")) == (("plain\n", 0), START)


_TOKEN = "ghp_" + ALNUM[:36]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("export T=" + _TOKEN, "passed"),
        ("export T=" + _TOKEN, "v2x9 is no part of it"),
        ("export GITHUB_TOKEN=" + _TOKEN, "v2x9 is no part of it"),
        ("AK" + "IA" + UPPER[:16], "A1B2 is no part of it"),
        ("npm_" + ALNUM[:36], ALNUM[:8]),
        ("password=hun" + "ter2hunter2", "Refunds retry twice"),
        ("API_KEY=abcd" + "1234efgh", "ERROR: build failed"),
        ("API_KEY=abcd" + "1234efgh", "2026-07-01T12:00:00Z worker: done"),
        ("API_KEY=abcd" + "1234efgh", "$ ls"),
        ("API_KEY=abcd" + "1234efgh", "I think 12.5% is"),
        ("Bearer " + ALNUM[:32], "HTTP/1.1 200 OK"),
        ("glpat-" + ALNUM[:20], "404"),
        (PEM_KEYS[0].text, "ABORTED"),
        (PEM_KEYS[5].text, "ABORTED"),
    ],
)
def test_ordinary_text_after_a_complete_token_stays(first: str, second: str) -> None:
    _, state = redact_chunk(first, START)
    assert swallowed(second, state) == 0
    assert redact_chunk(second, state)[0] == (second, 0)


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [
        ("glpat-" + ALNUM[:20], ALNUM[20:27] + " more", 7),
        ("ghp_" + ALNUM[:10], "passed", 6),
        ("Authorization: Basic Ym9iOnNl" + "Y3Jl", "ld", 2),
        ('"auth": "Ym9iOnNlY3' + "JldHdv", "cm", 2),
        ("xapp-1-A0B1C2D3E4F-45678901", "234567", 6),
        ("password=hun", "ter done", 3),
        ('password = "hun' + "ter2hunter2", "horse battery", 5),
        ("Bearer " + ALNUM[:32], "a", 1),
        ("AK" + "IA" + UPPER[:16], "," + ALNUM[:40], 41),
        ("AK" + "IA" + UPPER[:9], UPPER[9:16] + "," + ALNUM[:40], 48),
        (PEM_KEYS[0].text[:60], ALNUM, len(ALNUM)),
    ],
)
def test_a_continuation_of_a_token_is_redacted(first: str, second: str, length: int) -> None:
    _, state = redact_chunk(first, START)
    assert swallowed(second, state) == length
    assert redact_chunk(second, state)[0] == (second[length:], 0)


def test_a_short_word_does_not_end_a_token_that_continues() -> None:
    output = ""
    state = START
    for chunk in ["Bearer " + ALNUM[:24], "ok", ALNUM[24:40] + " x"]:
        redaction, state = redact_chunk(chunk, state)
        output += redaction.text
    assert output == "Bearer [redacted:authorization]ok x"


def test_a_name_after_a_short_word_is_recognised() -> None:
    _, state = redact_chunk("Bearer " + ALNUM[:24], START)
    _, state = redact_chunk("pass", state)
    assert redact_chunk("word: hun" + "ter2 x", state)[0].text == "word: [redacted:assigned] x"


def test_an_entry_that_continues_a_secret_is_marked() -> None:
    entry, count, state = redact_entry("glpat-" + ALNUM[:10], None)
    assert (entry, count) == ("[redacted:gitlab-token]", 1)
    entry, count, state = redact_entry(ALNUM[10:20] + " and password=hun" + "ter2 x", list(state))
    assert (entry, count) == ("[redacted:gitlab-token] and password=[redacted:assigned] x", 2)
    assert redact_entry("passed", list(state))[:2] == ("passed", 0)


@pytest.mark.parametrize("fake", PEM_KEYS, ids=lambda fake: fake.public[5:30].strip())
def test_each_entry_with_a_line_of_a_private_key_is_marked(fake: Fake) -> None:
    state: Any = None
    for line in fake.text.splitlines():
        entry, count, state = redact_entry(line, state)
        assert (entry, count) == ("[redacted:private-key]", 1) if line.strip() else ("", 0)
    assert redact_entry("exit 0", state)[:2] == ("exit 0", 0)


_PUTTY = "PuTTY-User-Key-File-3: ssh-ed25519\nPublic-Lines: 1\nAAAA\n"
_PUTTY_KEY = f"Private-Lines: 2\n{ALNUM}\n{ALNUM[::-1]}\nPrivate-MAC: {HEX}"


def test_the_private_lines_of_a_putty_key_are_redacted() -> None:
    assert redact(f"{_PUTTY}{_PUTTY_KEY}\ndone\n") == (f"{_PUTTY}[redacted:private-key]\ndone\n", 1)
    for at in range(len(_PUTTY_KEY)):
        first, state = redact_chunk(_PUTTY_KEY[:at], START)
        second, _ = redact_chunk(_PUTTY_KEY[at:] + "\nand it is done\n", state)
        output = first.text + second.text
        assert not any(key[start : start + 6] in output for key in (ALNUM, ALNUM[::-1]) for start in range(58))
        assert output.endswith("and it is done\n")


def test_an_empty_chunk_changes_nothing() -> None:
    state = RedactionState("gh", "")
    assert redact_chunk("", state) == (("", 0), state)


def test_a_letter_that_is_longer_in_lower_case_shifts_nothing() -> None:
    assert redact("İİİ password=hun" + "ter2 x").text == "İİİ password=[redacted:assigned] x"


_HOSTILE = [
    *(
        "a",
        "ghp_",
        "ghp_-",
        "password=",
        'password="',
        "password=\"'",
        "eyJ",
        "eyJa.",
        "SG.",
        "SG.aaaaaa.",
        "://a:",
        "://",
        "b:",
        "@",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN A A A", "-", "--", "MDAw", "MDAwMDAw.", "1"),
    *("12345678:AA", "bearer ", "authorization: bearer ", "aws_secret_access_key", "aws", "twilio", "--password ", "password  "),
    *("[redacted:", "ghs_.-", "glpat-..", "\\", "\0", "xoxa.xoxa-", "://u:a@", "AKIA", "hooks.slack.com/services/", "key-", "a\n"),
    *(
        "curl ",
        "curl -u ",
        "curl a -u b:",
        "curl\\\n",
        "cookie:a=",
        "cookie: a=b; ",
        "cookie: sess",
        "machine a login b ",
        "machine ",
    ),
    *('"auth": "', "8Q~", "a8Q~", "Private-Lines: 1\n", "://aA1", "1//0", f"AKIA{UPPER[:16]},", "_ghp_"),
    *(
        "mysql ",
        "mysql -p",
        "mysql a -",
        "docker login ",
        "login -p ",
        "sshpass -p ",
        "<password>",
        "<a",
        '"d":"',
        '"oct""k":"',
        "_auth=",
    ),
    *(
        "\x1b",
        "\x1b[",
        "\x1b[m",
        "ghp_\x1b[m",
        "a\x1b[m",
        "password=\x1b[1m",
        "\x1b[1;",
        "client-key-data:",
        "A_PASSWORD  ",
        "_pat ",
    ),
    *("x:5432:", "a:5432:b:c:", "http -a ", "http -a b:", "redis-cli ", "mongosh -", "ldapadd ", "smbclient -U a%", "$6$", "$6$a"),
    *("name: password\n", "machine a\n", 'name="password" value="', "password\n", "IDENTIFIED BY ", "?key=", "CREDENTIALS="),
    *("re_", "sl.", "pat", "cio", "env a_password ", "authorization: ", "x-vault-token: ", "oracle:thin:", "-pass pass:"),
    *("password |", "_pat ", "_auth=", ".atlasv1.", f"{ALNUM[:14]}.atlasv1.", "clia_", "/login?key=", "hmac_key", "--password a"),
]


@pytest.mark.parametrize("unit", _HOSTILE)
def test_a_long_adversarial_text_is_redacted_in_linear_time(unit: str, soak: bool) -> None:
    length = 1_000_000 if soak else 200_000  # enough to notice quadratic growth
    text = unit * (length // len(unit)) + " (key="  # text after the run, and a name that activates the slower patterns
    redaction = redact(text)
    assert redact(redaction.text).text == redaction.text
    redact_chunk(f"://u:{text}", START)
    redact_chunk(f"-----BEGIN PRIVATE KEY-----\n{text}", START)


def test_private_members_of_a_json_web_key_are_redacted() -> None:
    key = {"kty": "EC", "crv": "P-256", "x": ALNUM[:43], "y": ALNUM[1:44], "d": ALNUM[2:45]}
    assert redact_value(key) == ({**key, "d": "[redacted:jwk]"}, 1)
    assert redact_value({**key, "d": "[redacted:jwk]"})[1] == 0
    assert redact_value({"kty": "oct", "k": "c2hvcnQ"})[0] == {"kty": "oct", "k": "[redacted:jwk]"}
    assert redact_value({"k": "c2hvcnQ", "d": "M12 3"}) == ({"k": "c2hvcnQ", "d": "M12 3"}, 0)


def test_the_value_of_a_member_that_another_member_names_is_redacted() -> None:
    value = [{"name": "DB_PASSWORD", "value": "s3cr3t"}, {"name": "region", "value": "eu-1"}, {"key": "ApiKey", "value": HEX[:32]}]
    redacted = [
        {"name": "DB_PASSWORD", "value": "[redacted:assigned]"},
        value[1],
        {"key": "ApiKey", "value": "[redacted:assigned]"},
    ]
    assert redact_value(value) == (redacted, 2)


def test_kubernetes_and_npm_members_are_redacted() -> None:
    value = {"client-key-data": ALNUM, "_auth": ALNUM[:24], "GITHUB_PAT": ALNUM[:40], "HMAC_KEY": "correct horse"}
    assert redact_value(value) == (dict.fromkeys(value, "[redacted:assigned]"), 4)
    assert redact_value({"_auth": "none", "file_pat": "*.py"})[1] == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"a.env:T=\x1b[01;31m\x1b[Kghp_\x1b[m\x1b[K{ALNUM[:36]} x",
            "a.env:T=\x1b[01;31m\x1b[K[redacted:github-token]\x1b[m\x1b[K x",
        ),
        (f"word\x1b[31m{_TOKEN}\x1b[0m x", "word\x1b[31m[redacted:github-token]\x1b[0m x"),
        (
            f"word\x1b[31m\x1b[Kghp_{ALNUM[:9]}\x1b[0m{ALNUM[9:36]} x",
            "word\x1b[31m\x1b[K[redacted:github-token]\x1b[0m x",
        ),
        (
            f'\x1b[34;1m"api_key"\x1b[0m\x1b[1;39m: \x1b[0m\x1b[0;32m"{HEX[:32]}"\x1b[0m',
            '\x1b[34;1m"api_key"\x1b[0m\x1b[1;39m: \x1b[0m\x1b[0;32m"[redacted:assigned]"\x1b[0m',
        ),
        ("pass\x1b[31mword\x1b[0m=hun" + "ter2\x1b[K x", "pass\x1b[31mword\x1b[0m=[redacted:assigned]\x1b[K x"),
        ("password=hun\x1b(B\x1b[m" + "ter2 x", "password=[redacted:assigned]\x1b(B\x1b[m x"),
    ],
    ids=["grep", "within a word", "twice within a word", "jq", "name", "tput"],
)
def test_colours_do_not_hide_a_secret_and_are_kept(text: str, expected: str) -> None:
    assert redact(text) == (expected, 1)
    assert redact(expected) == (expected, 0)
    assert redact_value([text])[0] == [expected]


def test_a_moved_cursor_ends_a_token() -> None:
    text = f"ghp_{ALNUM[:20]}\x1b[3;1H{ALNUM[20:36]}"
    assert redact(text) == (text, 0)


def test_an_entry_with_redacted_coloured_characters_is_marked() -> None:
    _, _, state = redact_entry("glpat-\x1b[1m" + ALNUM[:10] + "\x1b[", None)
    entry, count, state = redact_entry("0m" + ALNUM[10:20] + "\x1b[0m and", list(state))
    assert (entry, count) == ("[redacted:gitlab-token]0m\x1b[0m and", 1)
    assert redact_entry(" more", list(state))[:2] == (" more", 0)


def test_an_escape_sequence_without_end_is_text() -> None:
    text = "password=\x1b[" + "1;" * 4000
    state = START
    for start in range(0, len(text), 50):
        _, state = redact_chunk(text[start : start + 50], state)
        assert len("".join(state)) < 2000
