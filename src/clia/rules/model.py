"""Rules of guardrails: what a guardrail enforces, parsed from its ``rules``.

Invariant: a rule that does not parse is kept with its problem, and asks a person about everything it could be about: a typing
error never loosens a guardrail.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

TOOL, COMMAND, EFFECT, COMMIT, LAND, PUSH = "tool", "command", "effect", "commit", "land", "push"
ALLOW, DENY, ASK, REQUIRE = "allow", "deny", "ask", "require"
DECISION, TESTS, TRACE, SIGNATURE = "decision", "tests", "trace", "signature"

KEYS: Mapping[str, tuple[str, ...]] = {
    TOOL: ("tool", "command", "paths"),
    COMMAND: ("program", "command"),
    EFFECT: ("effect",),
    COMMIT: ("paths", "kind"),
    LAND: ("paths", "branch"),
    PUSH: ("paths", "branch"),
}
"""The actions that a rule can be about (``on``), and the keys of ``match`` for each."""
RECORDED = (COMMIT, LAND, PUSH)
"""Actions on the record, for which ``require`` names what must be there."""
OUTCOMES = (ALLOW, DENY, ASK, REQUIRE)
NEEDS = (DECISION, TESTS, TRACE, SIGNATURE)
RISKS = ("low", "medium", "high")
_FIELDS = ("on", "match", "do", "need", "risk")
_DISABLED = ("disabled", "off", "none")
_TEXTS = ("title", "label", "name", "text", "summary", "statement", "slug", "identifier", "key", "id")


SHELLS = frozenset(
    ("sh", "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "oksh", "rbash", "tcsh", "xonsh", "yash", "zsh")
)
INTERPRETERS = frozenset(
    ("awk", "bun", "deno", "expect", "gawk", "julia", "lua", "mawk", "node", "nodejs", "osascript", "perl", "php", "pwsh",
     "powershell", "python", "rscript", "ruby", "sed", "tclsh", "vim", "nvim", "vi", "ex", "emacs", "ed", "make", "gmake", "gdb")
)  # fmt: skip
"""Programs that run a program text; a version may follow the name."""
WRAPPERS = frozenset(
    ("asdf", "builtin", "bundle", "bunx", "busybox", "bwrap", "caffeinate", "chronic", "chroot", "chrt", "command", "concurrently",
     "conda", "coproc", "cross-env", "dbus-run-session", "direnv", "docker", "doas", "entr", "env", "eval", "exec", "fakeroot",
     "find", "firejail", "flatpak", "flock", "git-bash", "gosu", "hatch", "hyperfine", "ionice", "kubectl", "ltrace", "mamba",
     "mise", "nerdctl", "nice", "nix", "nix-shell", "nodemon", "nohup", "npm", "npx", "nsenter", "numactl", "parallel", "pdm",
     "perf", "pipenv", "pipx", "pkexec", "pnpm", "podman", "poetry", "proot", "rlwrap", "run0", "runuser", "rye", "screen",
     "script", "setarch", "setpriv", "setsid", "sg", "source", "ssh", "start-stop-daemon", "stdbuf", "strace", "su", "su-exec",
     "sudo", "systemd-run", "taskset", "time", "timeout", "tini", "tmux", "torsocks", "toybox", "trap", "unbuffer", "unshare",
     "uv", "uvx", "valgrind", "watch", "watchexec", "wsl", "xargs", "xvfb-run", "yarn", ".")
)  # fmt: skip
"""Programs that run another one, named in their arguments."""
RUNS_OTHERS = SHELLS | INTERPRETERS | WRAPPERS
READS_COMMANDS = frozenset(("at", "batch", "crontab"))
"""Programs that run commands later, which they read."""


class RuleMatch(NamedTuple):
    """What a rule is about: every key that is given must match, by one of its patterns."""

    tool: tuple[str, ...] = ()  # names of tools, as the coding tool reports them; `Bash` also matches the shells of other tools
    command: tuple[str, ...] = ()  # command lines: `deploy *`
    paths: tuple[str, ...] = ()  # files: `infra/**`
    program: tuple[str, ...] = ()  # programs of the worker's list
    effect: tuple[str, ...] = ()  # kinds of requests to workers
    branch: tuple[str, ...] = ()  # target branches
    kind: tuple[str, ...] = ()  # kinds of commits


class GuardrailRule(NamedTuple):
    """One rule of a guardrail, and where it is written."""

    on: tuple[str, ...]  # `tool`, `command`, `effect`, `commit`, `land` or `push`
    do: str  # `allow`, `deny`, `ask` or `require`
    match: RuleMatch  # what it is about; empty: everything
    need: tuple[str, ...]  # of `require`: `decision`, `tests`, `trace`, `signature`
    risk: str | None  # `low`, `medium` or `high`
    text: str  # the guardrail's text
    path: str  # the file
    pointer: str  # JSON pointer into the file
    problem: str = ""  # why it does not parse; it then asks a person


class RuleProblem(Exception):
    """A problem with a rule, and where it is below the rule; never leaves this module."""

    def __init__(self, message: str, at: str = "") -> None:
        super().__init__(message)
        self.at = at


def rules_of_guardrail(item: Any, path: str, pointer: str) -> Iterator[GuardrailRule]:
    """The rules of a guardrail and of the items below it. A guardrail with the level `disabled` has none."""
    if not isinstance(item, dict) or str(item.get("level") or "").strip().lower() in _DISABLED:
        return
    rules = item.get("rules")
    if rules is not None and not isinstance(rules, list):
        yield _unreadable(item, path, f"{pointer}/rules", "must be an array of rules")
    for number, rule in enumerate(rules if isinstance(rules, list) else ()):
        yield parse_rule(rule, guardrail_text(item), path, f"{pointer}/rules/{number}")
    children = item.get("items")
    for number, child in enumerate(children if isinstance(children, list) else ()):
        yield from rules_of_guardrail(child, path, f"{pointer}/items/{number}")


def guardrail_text(item: Mapping[str, Any]) -> str:
    """The text of a guardrail, or its label."""
    texts = (item.get(key) for key in ("text", *_TEXTS))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def parse_rule(rule: Any, text: str, path: str, pointer: str) -> GuardrailRule:
    """A rule; if it does not parse, one that asks about all that it could be about."""
    try:
        on, do, match, need, risk = _parse(rule)
    except RuleProblem as problem:
        actions = rule.get("on") if isinstance(rule, dict) else None
        names = tuple(
            name for name in (actions if isinstance(actions, list) else [actions]) if isinstance(name, str) and name in KEYS
        )
        return GuardrailRule(names or tuple(KEYS), ASK, RuleMatch(), (), None, text, path, pointer + problem.at, str(problem))
    return GuardrailRule(on, do, match, need, risk, text, path, pointer)


def _unreadable(item: Mapping[str, Any], path: str, pointer: str, problem: str) -> GuardrailRule:
    return GuardrailRule(tuple(KEYS), ASK, RuleMatch(), (), None, guardrail_text(item), path, pointer, problem)


def _parse(rule: Any) -> tuple[tuple[str, ...], str, RuleMatch, tuple[str, ...], str | None]:
    if not isinstance(rule, dict):
        raise RuleProblem("must be an object with `on` and `do`")
    _check_keys(rule, _FIELDS, "")
    on = _names(rule.get("on"), tuple(KEYS), "/on")
    do = _name(rule.get("do"), OUTCOMES, "/do")
    match = _parse_match(rule.get("match"), on)
    need = _names(rule.get("need"), NEEDS, "/need") if do == REQUIRE or rule.get("need") is not None else ()
    if need and do != REQUIRE:
        raise RuleProblem(f"is only for `require`, not for `{do}`", "/need")
    wrong = [name for name in on if name not in RECORDED] if do == REQUIRE else []
    if wrong:
        raise RuleProblem(f"`require` is only for {', '.join(RECORDED)}, not for `{wrong[0]}`; use `ask`", "/do")
    risk = None if rule.get("risk") is None else _name(rule["risk"], RISKS, "/risk")
    return on, do, match, need, risk


def _parse_match(value: Any, on: Sequence[str]) -> RuleMatch:
    if value is None:
        return RuleMatch()
    if not isinstance(value, dict):
        raise RuleProblem("must be an object", "/match")
    _check_keys(value, RuleMatch._fields, "/match")
    for key in value:
        misplaced = [name for name in on if key not in KEYS[name]]
        if misplaced:
            allowed = ", ".join(KEYS[misplaced[0]])
            raise RuleProblem(f"does not apply to `{misplaced[0]}`, which has {allowed}", f"/match/{key}")
    return RuleMatch(**{key: _patterns(patterns, f"/match/{key}") for key, patterns in value.items()})


def _patterns(value: Any, at: str) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    for pattern in listed:
        if not isinstance(pattern, str) or not pattern.strip() or "\0" in pattern:
            raise RuleProblem("must be a non-empty text, or a list of them", at)
    if not listed:
        raise RuleProblem("must not be an empty list", at)
    return tuple(listed)


def _check_keys(value: Mapping[str, Any], allowed: Sequence[str], at: str) -> None:
    for key in value:
        if key not in allowed:
            raise RuleProblem(f"has the unknown key {key!r}; known keys: {', '.join(allowed)}", at)


def _names(value: Any, allowed: Sequence[str], at: str) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    if not listed:
        raise RuleProblem(f"must be one of {', '.join(allowed)}, or a list of them", at)
    return tuple(dict.fromkeys(_name(name, allowed, at) for name in listed))


def _name(value: Any, allowed: Sequence[str], at: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise RuleProblem(f"must be one of {', '.join(allowed)}", at)
    return value
