"""``clia why``: what the record shows about lines and commits."""

from __future__ import annotations

import re
from contextlib import contextmanager

from clia.cli.command import PATH, STORE, Answer, arg, command
from clia.cli.history import has_worktree, path_in_commit
from clia.cli.inputs import invalid_option
from clia.cli.output import console, counted, one_line, write
from clia.cli.rendering import facts_table, json_text, line_of, moment, short, show_line
from clia.errors import NotFound
from clia.provenance.model import FAILED, FILE, LINE, REVIEW, UNCHECKED, UNSIGNED, VERIFIED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.provenance.model import AgentOfCommit, CommitStory, ExplainedLines, LineApproval, LineReason, ShownTrace
    from clia.provenance.service import ProvenanceService

_PLACE = re.compile(r"(.+):([0-9]{1,9})(?:-([0-9]{1,9}))?", re.DOTALL)
_SHOWN_LINES, _WIDTH, _LABEL = 5, 160, 11
_MATCHED = {LINE: "with this text", FILE: "that name the file"}
_STATES = {
    "unsigned": "not signed",
    "older": "not signed: it is older than the keys of the space",
    "person": "not by clia",
    "no-keys": "unknown: this clone has no keys",
}


@contextmanager
def provenance(path: str, settings: Settings) -> Iterator[tuple[ProvenanceService, Space | None]]:
    """The service, of an open space or of a plain clone."""
    from clia.facade.setup import is_plain_clone

    if is_plain_clone(path):
        from clia.facade.clones import provenance_of_clone

        with provenance_of_clone(path, settings) as service:
            yield service, None
        return
    from clia.facade.opening import open_space

    with open_space(path, settings=settings) as space:
        yield space.provenance, space


@command("why", store=STORE)
def why(
    settings: Settings,
    place: str = arg("FILE:LINE[-LINE]", "the line or lines; the file is relative to the current directory"),
    revision: str | None = arg("REV", "commit to look at, or an agent for its head (default: the worktree)", nargs="?"),
    path: str = PATH,
) -> Answer[ExplainedLines]:
    """Explain a line: who wrote it, for which briefing, who approved it, and whether it verifies.

    It follows lines through renames, landings and commits of people, and works in a plain clone without a store. Exit code 1 if
    something does not verify.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        hints = ["name a line: clia why FILE:LINE, or lines: clia why FILE:LINE-LINE", "all lines of a file: clia blame"]
        raise invalid_option(f"{place!r} does not name a line", hints, field="place")
    file, start, end = match[1], int(match[2]), None if match[3] is None else int(match[3])
    with provenance(path, settings) as (service, space):
        inside = path_in_commit(path, file)
        try:
            if revision is None and has_worktree(path):
                running = () if space is None else space.captures.running_turns(inside)
                explained = service.why_here(inside, start, end, running)
            else:
                explained = service.why(inside, start, revision or "HEAD", end=end)
        except NotFound as err:
            if err.code == "no-such-path":
                err.hints = ("a path is relative to the current directory",)
            raise
    failed = any(reason.result == FAILED for reason in explained.reasons)
    return Answer(explained, lambda: _show(explained, plain_clone=space is None), exit_code=1 if failed else 0)


def _show(explained: ExplainedLines, *, plain_clone: bool) -> None:
    for number, reason in enumerate(explained.reasons):
        if number:
            write("\n")
        _show_reason(explained, reason)
    if plain_clone and explained.root is None:
        from clia.facade.clones import FETCH_HINT

        write(f"\n{FETCH_HINT}\n")


def _show_reason(explained: ExplainedLines, reason: LineReason) -> None:
    lines = f"{reason.start}" if len(reason.lines) == 1 else f"{reason.start}-{reason.end}"
    show_line((f"{one_line(explained.path)}:{lines}", "bold"))
    for text in reason.lines[:_SHOWN_LINES]:
        show_line(("  | ", "dim"), _cut(text))
    if len(reason.lines) > _SHOWN_LINES:
        show_line(("  | ", "dim"), (f"… {counted(len(reason.lines) - _SHOWN_LINES, 'more line')}", "dim"))
    _show_facts(_facts(reason, explained.path))
    if reason.trace is not None:
        _show_trace(reason.trace, reason.origin)
    approvals = [("approved" if not approval.before else "decided", _approval(approval)) for approval in reason.approvals]
    _show_facts([*approvals, ("verifies", _verdict(reason) if reason.committed else None)])


def _show_facts(facts: Iterable[tuple[str, object]]) -> None:
    console().print(facts_table([(name.ljust(_LABEL), value) for name, value in facts]))


def _facts(reason: LineReason, path: str) -> Iterator[tuple[str, object]]:
    agent, origin, via = reason.agent, reason.origin, reason.via
    yield "written by", f"agent {agent.name}" if agent else "unknown" if reason.by == "unknown" else reason.author
    if agent is not None:
        yield from _agent_facts(agent)
    if origin is None:
        yield "commit", "not committed yet"
        return
    kind = f"{origin.kind}  " if origin.kind else ""
    yield "commit", f"{short(origin.commit)}  {moment(origin.at)}  {kind}{_cut(origin.subject)}"
    if reason.path != path:
        yield "as", reason.path
    if agent is not None:
        yield "accountable", origin.accountable
    if agent is not None or origin.signer:
        yield "signed", _signed(origin)
    if via is not None:
        yield "here by", f"{short(via.commit)}  {moment(via.at)}  {_cut(via.subject)} ({via.accountable})"


def _agent_facts(agent: AgentOfCommit) -> Iterator[tuple[str, object]]:
    yield "identity", agent.identity
    yield "program", " ".join(filter(None, (agent.program, agent.model)))
    yield "briefing", f"{agent.title or ''}  {short(agent.briefing)}".strip() if agent.briefing else None
    yield "behaviour", agent.behaviour


def _signed(story: CommitStory) -> str:
    if story.signer is None and story.key is None:
        return _STATES.get(story.state, "not signed")
    return f"by {story.signer or 'an unknown key'} ({story.key})"


def _show_trace(trace: ShownTrace, origin: CommitStory | None) -> None:
    which = _MATCHED.get(trace.matched, "at the end")
    of = f"{counted(len(trace.shown), 'entry', 'entries')} {which}, of {trace.entries}"
    named = "" if trace.digest else "; the commit does not name its digest"
    more = f"; all of it: clia trace show {short(origin.commit)}" if origin is not None else ""
    _show_facts([("trace", f"{of}{named}{more}")])
    for entry in trace.shown:
        text = _cut(str(entry.get("text", "")).strip())
        show_line(("    ", ""), (one_line(entry.get("kind", "")), "cyan"), "  ", text)


def _approval(approval: LineApproval) -> str:
    if approval.kind == REVIEW:
        return f"reviewed by agent {approval.by}"
    at = "" if approval.at is None else f"  {moment(approval.at)}"
    end = f"{at}  {short(approval.commit)}  ({approval.strength})"
    if approval.onto is not None or approval.kind == "landing":
        return f"landed{f' on {approval.onto}' if approval.onto else ''} by {approval.by}{end}"
    question = f" to {_cut(approval.question)!r}" if approval.question else ""
    reason = f", {_cut(approval.reason)!r}" if approval.reason else ""
    note = ", before it was written" if approval.before else "" if approval.covers else ", on another version of the file"
    return f"{approval.by}: {json_text(approval.answer)}{question}{reason}{note}{end}"


def _verdict(reason: LineReason) -> object:
    if reason.result == VERIFIED:
        proofs = [approval.strength for approval in reason.approvals if approval.strength and not approval.findings]
        attested = " (attested: this machine vouches for the login)" if proofs and set(proofs) == {"attested"} else ""
        return line_of(("yes", "green"), f": signed, logged, and the trace is the one that the commit names{attested}")
    if reason.result == FAILED:
        findings = _findings(reason)
        return line_of(("no", "bold red"), ": " + "; ".join(one_line(finding) for finding in findings))
    if reason.result == UNSIGNED:
        return line_of(("unsigned", "yellow"), ": nothing shows that the record was not changed")
    if reason.result == UNCHECKED:
        return line_of(("unknown", "yellow"), ": the keys of the record are not in this clone")
    return "a person wrote it with plain git, which clia does not sign"


def _findings(reason: LineReason) -> list[str]:
    stories: Sequence[CommitStory | LineApproval | None] = (reason.origin, reason.via, *reason.approvals)
    problems = [f"{finding.code}: {finding.message}" for story in stories if story is not None for finding in story.findings]
    return list(dict.fromkeys(problems))


def _cut(text: str | None) -> str:
    line = one_line(text or "").rstrip()
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
