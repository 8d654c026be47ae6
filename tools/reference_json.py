"""The reference page of JSON shapes: real output on a small tree that is made for it.

Invariant: a key that is printed and not described here, or the other way round, stops the generation.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
import reference_json_behaviours
import reference_json_forge
import reference_json_sessions
import reference_json_space
from clia import errors
from clia.identities import checks
from clia.identities.journal import Note
from clia.identities.writing import WriteLocation, journal
from reference_markdown import code, fenced, page, table

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

_ENTRY = {
    "chain[].prefix": "short name: the first part of its files' names",
    "chain[].path": "the directory that holds `.clia`; where a link leads to the agent, `link` and `realPath` stand beside it",
    "chain[].reasons": "why it is in: `ancestor`, `submodule-root`, `symlink`, `root-chain`, `local`",
    "chain[].documents": "the file picked for each kind, or null",
}
_PLACE = {
    "path": "the file",
    "pointer": "where in that file",
    "sha256": "of the whole file",
    "value": "what it says there",
}
_AGENTS = {"path": "the working path", "agents": "the agents that were looked at", "agents[].slug": "the agent"}
_FINDINGS = {"findings": "what is wrong: [diagnostics](#diagnostic), sorted", "summary": "how many of each severity"}
TOLD: dict[str, dict[str, str]] = {
    "Context": {
        "slug": "the agent",
        "path": "the working path, links resolved",
        "mode": "`default`, `explicit` or `hybrid`",
        "default": "the contexts by containment, outermost first; entries as in `chain`",
        "chain": "the contexts that count, outermost first; the local one is last",
        **_ENTRY,
        "injected": "contexts that a root chain named; entries as in `chain`",
        "excluded": "what was met and left out",
        "excluded[].path": "the directory or file",
        "excluded[].reason": "`not-containing`, `not-in-root-chain`, `no-documents`, `symlink-outside` or `untrusted-owner`",
        "diagnostics": "what reading met: [diagnostics](#diagnostic)",
    },
    "Diagnostic": {
        "code": "one of the [codes](diagnostics.md)",
        "severity": "`error`, `warning` or `info`",
        "path": "the file or directory it is about, or null",
        "pointer": "JSON pointer into that file; null where all of it is meant",
        "message": "one sentence for a person",
        "hint": "what to do",
    },
    "Merged document": {
        "contextChain": "with `--root-chain`: the contexts it was merged from",
        "contextChain[].prefix": "short name of the context",
        "contextChain[].path": "its directory",
        "origins": "with `--show-origin`: JSON pointer of each leaf, and its origin: `path` and `pointer` of the winner (null "
        "where no file gave it, then with a `note`), the `rule`, and all `contributors`",
    },
    "Explanation": {
        "pointer": "what was asked for",
        "value": "the merged value",
        "valueSha256": "of a string's text, or of any other value's canonical JSON",
        "rule": "the [rule](merging.md) that was used",
        "story": "the rule in words",
        "winner": "the place that decided; null where several share it, or none gave it",
        **{f"winner.{key}": meaning for key, meaning in _PLACE.items()},
        "contributors": "every place that gave the value or a part of it; as `winner`",
        "shadowed": "what other files say there; as `winner`, with a `note` on why it does not count",
        "note": "why no file gave it; empty where one did",
    },
    "List": {
        **_AGENTS,
        "agents[].title": "merged title",
        "agents[].role": "merged role",
        "agents[].status": "merged status",
        "agents[].badge": "`extensions.x-badge`",
        "agents[].emoji": "`extensions.x-emoji`, else `emoji`",
        "agents[].contexts": "how many contexts it has",
        "agents[].directory": "the innermost directory that has it",
        "diagnostics": "what reading met: [diagnostics](#diagnostic)",
    },
    "Lint": {
        **_AGENTS,
        "agents[].directory": "the innermost directory that has it",
        "agents[].active": "false: it was left alone",
        **_FINDINGS,
    },
    "Smoke": {
        **_AGENTS,
        "agents[].directory": "the innermost directory that has it",
        "agents[].contexts": "how many contexts it has",
        "agents[].ok": "whether it resolves, the same way twice, each value with an origin",
        **_FINDINGS,
    },
    "Journal": {
        "path": "the agency file",
        "entry": "the entry as it stands there",
        "sha256": "of the entry's canonical JSON: what a waiver names an approval by",
        "appended": "false: an entry with that idempotency key was there already",
        "created": "whether the file is new",
    },
    "Error": {
        "error": "what stopped the command; on standard error",
        "error.code": "one of the [codes](errors.md#codes)",
        "error.message": "one sentence for a person",
        "error.hints": "what to do",
        "error.fields": "the facts, for a program",
    },
}
# What stands in these is described elsewhere, or names itself.
_CLOSED = {"default", "injected", "diagnostics", "findings", "documents", "summary", "origins", "contributors", "shadowed"}
_CLOSED |= {"entry", "fields"}


def json_page() -> str:
    return page(
        "# JSON shapes",
        "What `--json` prints, as it is: first the [commands on lineage](#context), then those [on a space](#init), then those "
        "[on sessions](#flow-define), then those [on behaviours](#behaviour-add), then those [of the forge](#user-add).",
        "A merged document has the [fields of its kind](documents.md), and these two on demand.",
        *_sections(_examples(), TOLD, _CLOSED),
        *_sections(reference_json_space.examples(), reference_json_space.TOLD, reference_json_space.CLOSED),
        *_sections(reference_json_sessions.examples(), reference_json_sessions.TOLD, reference_json_sessions.CLOSED),
        *_sections(reference_json_behaviours.examples(), reference_json_behaviours.TOLD, reference_json_behaviours.CLOSED),
        *_sections(reference_json_forge.examples(), reference_json_forge.TOLD, reference_json_forge.CLOSED),
    )


def _sections(
    examples: Iterable[tuple[str, str, Any]], told: Mapping[str, Mapping[str, str]], closed: Container[str]
) -> Iterator[str]:
    for title, command, value in examples:
        rows = _described(title, value, told[title], closed)
        yield page(f"## {title}", f"`{command}`" if command else "", table(("key", "meaning"), rows) if rows else "")
        yield fenced("json", json.dumps(value, indent=2, ensure_ascii=False))


def _described(title: str, value: Any, told: Mapping[str, str], closed: Container[str]) -> list[tuple[str, str]]:
    found = list(dict.fromkeys(_keys(value, "", closed))) if told else []  # without a word: its keys are the answer
    if set(found) != set(told):
        raise SystemExit(f"reference: {title} has keys that are not described, or the other way round: {set(found) ^ set(told)}")
    return [(code(key), told[key]) for key in found]


def _keys(value: Any, at: str, closed: Container[str]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield f"{at}{key}"
            if key not in closed:
                yield from _keys(child, f"{at}{key}{'[]' if isinstance(child, list) else ''}.", closed)
    elif isinstance(value, list):
        for each in value:
            yield from _keys(each, at, closed)


def _examples() -> list[tuple[str, str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory).resolve()
        found = _made(_plant(top / "acme"))
        shown = json.dumps(found, ensure_ascii=False).replace(f"{top}/", "/")
    loaded: list[tuple[str, str, Any]] = json.loads(shown)
    return loaded


def _plant(root: Path) -> Path:
    """A repository with one agent, and a submodule that adds to it."""
    inner = root / "payments"
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(["git", "init", "--quiet", str(root)], env=plain, check=True)
    subprocess.run(["git", "init", "--quiet", str(inner)], env=plain, check=True)
    (root / ".gitmodules").write_text('[submodule "payments"]\n\tpath = payments\n[submodule "ledger"]\n\tpath = ledger\n')
    outer = {"slug": "scout", "title": "Scout", "role": "Explorer", "guardrails": ["Never commit secrets."]}
    local = {"slug": "scout", "role": "Payments explorer", "inherits": ["missing.json"]}
    for where, document in ((root, outer), (inner, local)):
        home = where / ".clia" / "agents" / "scout"
        home.mkdir(parents=True)
        (home / f"scout@{where.name}.agent.triad.json").write_text(json.dumps(document, indent=2) + "\n")
    return inner


def _made(inner: Path) -> list[tuple[str, str, Any]]:
    """(title, command, what it prints); the journal comes last, since it writes."""
    ceiling = inner.parent
    scout = clia.lineage(inner, "scout", ceiling=ceiling)
    report = scout.context().to_json()
    whole = scout.profile().to_json(root_chain=True, show_origin=True)
    marked = {"contextChain": whole["contextChain"], "origins": {at: whole["origins"][at] for at in ("/role", "/guardrails/0")}}
    linted = checks.lint(inner, environment=os.environ, ceiling=ceiling).to_json()
    smoked = checks.smoke(inner, environment=os.environ, ceiling=ceiling).to_json()
    return [
        ("Context", "clia agents context --slug scout --json", report),
        ("Diagnostic", "", report["diagnostics"][0]),
        ("Merged document", "clia agents profile --slug scout --root-chain --show-origin --json", marked),
        ("Explanation", "clia agents explain /role --slug scout --json", scout.explain("/role").to_json()),
        ("List", "clia agents list --json", checks.roster(inner, ceiling=ceiling).to_json()),
        ("Lint", "clia agents lint --json", linted),
        ("Smoke", "clia agents smoke --json", smoked),
        ("Error", "clia agents profile --slug nobody --json", _refusal(inner, ceiling)),
        ("Journal", 'clia agents journal --slug scout --note "Read the build." --json', _journaled(inner)),
    ]


def _refusal(inner: Path, ceiling: Path) -> dict[str, Any]:
    try:
        clia.lineage(inner, "nobody", ceiling=ceiling)
    except errors.CliaError as error:
        return {"error": error.to_json()}
    raise SystemExit("reference: an unknown agent must be an error")


def _journaled(inner: Path) -> dict[str, Any]:
    done, _ = journal("scout", Note("Read the build."), WriteLocation(inner), clock=lambda: datetime(2026, 1, 31, 9, tzinfo=UTC))
    return done.to_json()
