"""``clia behaviour``, comparing versions: diff, lineage, replay; and how versions and rates are shown.

Invariant: a rate is always shown with its interval and the number of observations, and never as certain if it is not.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from clia.behaviours.model import CURRENT, FOREIGN, FORMER, PROPOSED, RETIRED, TRIAL
from clia.cli.command import ASCII, Answer, arg, command, opt
from clia.cli.output import console, one_line, write
from clia.cli.rendering import (
    facts_table,
    json_text,
    line_of,
    only_ascii,
    progress_bar,
    short,
    show_block,
    show_line,
    show_patch,
    show_rows,
    styled,
)
from clia.errors import InvalidInput, NotFound
from clia.sessions.model import CANCELLED, FINISHED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from rich.text import Text

    from clia.behaviours.model import BehaviourVersion, KnownBehaviour, Rate, Replayed, ReplayStep
    from clia.cli.rendering import ProgressUpdate
    from clia.facade.space import Space

_MAX_DEPTH = 8  # levels of indentation; deeper versions start at the left again
_STATE_STYLES = {CURRENT: "green", TRIAL: "cyan", FORMER: "cyan", PROPOSED: "yellow", RETIRED: "bright_black", FOREIGN: "magenta"}


def measure_option(text: str) -> Any:
    return opt("M", f"{text}: finished, approved, merged, passed or kept")


def find_behaviour(space: Space, name: str) -> KnownBehaviour | None:
    try:
        return space.behaviours.get(name)
    except NotFound:
        return None


def show_version_line(version: BehaviourVersion, text: str) -> None:
    show_line((one_line(version.name), "bold"), " ", (short(version.cid), "yellow"), f"  {one_line(text)}")


def state_text(state: str | None) -> Text:
    return styled(state or "unknown", _STATE_STYLES.get(state or "", ""))


def person(by: str) -> str:
    """A name without the e-mail address."""
    return by.partition(" <")[0]


def rate_text(rate: Rate | None) -> str:
    """``67 % (30 to 90), n=6``."""
    if rate is None or rate.rate is None:
        return "never observed"
    from clia.behaviours.suggesting import percentage

    return f"{percentage(rate.rate)} % ({percentage(rate.low)} to {percentage(rate.high)}), n={rate.n}"


def rate_by(rates: Sequence[Rate], measure: str) -> Rate | None:
    return next((rate for rate in rates if rate.measure == measure), None)


def some_ids(cids: Sequence[str], most: int = 3) -> str:
    """The first ids, and how many more there are."""
    rest = len(cids) - most
    return ", ".join(short(cid) for cid in cids[:most]) + (f" and {rest} more" if rest > 0 else "")


def reading(*, hidden: bool) -> AbstractContextManager[ProgressUpdate | None]:
    return progress_bar("Reading the record", hidden=hidden)


def note_gaps(gaps: int) -> None:
    if gaps:
        note = "note: this clone has only part of the record, and the rest is not counted"
        write(f"{note}; fetch it (git fetch --unshallow, and the refs of all agents), then run this again\n", sys.stderr)


class VersionDifference(NamedTuple):
    before: str  # id of one version
    after: str  # id of the other
    patch: str  # the changes


@command("behaviour diff")
def behaviour_diff(
    space: Space,
    names: list[str] = arg(
        "NAME|CID",
        "two versions, each by its id, the start of it, a name (its current version) or PEER/NAME; a name before them: both must "
        "belong to it. One id: compare it with its parent. One name: compare its current version with the newest proposal, or "
        "with its parent if nothing is proposed",
        nargs="+",
    ),
) -> Answer[VersionDifference]:
    """Show what changed between two versions.

    A terminal gets the patch with colours; a pipe or a file gets it unchanged.
    """
    before, after = _version_pair(space, names)
    patch = space.behaviours.diff(before, after)

    def show() -> None:
        if patch:
            show_patch(patch)
        else:
            write("note: the versions are identical\n", sys.stderr)

    return Answer(VersionDifference(before, after, patch), show)


def _version_pair(space: Space, names: Sequence[str]) -> tuple[str, str]:
    """The ids of the versions to compare."""
    if len(names) == 1:
        behaviour = find_behaviour(space, names[0])
        return _pair_of_behaviour(behaviour) if behaviour else _pair_with_parent(space.behaviours.version(names[0]))
    if len(names) > 3:
        raise InvalidInput("diff compares two versions", code="too-much", fields={"field": "what"})
    versions = [space.behaviours.version(name) for name in names[-2:]]
    if len(names) == 3:
        owner = space.behaviours.get(names[0]).name
        for version, name in zip(versions, names[1:], strict=True):
            if version.name != owner:
                message = f"{name!r} is a version of {version.name!r}, not of {owner!r}"
                fields = {"cid": version.cid, "behaviour": owner}
                raise InvalidInput(message, code="another-behaviour", hints=[f"clia behaviour show {owner}"], fields=fields)
    return versions[0].cid, versions[1].cid


def _pair_of_behaviour(behaviour: KnownBehaviour) -> tuple[str, str]:
    proposed = [version for version in behaviour.versions if version.state == PROPOSED]
    if proposed and behaviour.current:
        return behaviour.current, proposed[-1].cid
    current = [version for version in behaviour.versions if version.cid == behaviour.current]
    return _pair_with_parent((proposed or current or behaviour.versions)[-1])


def _pair_with_parent(version: BehaviourVersion) -> tuple[str, str]:
    if version.parent is None:
        message = f"{version.cid[:12]} of {version.name!r} has no parent version: name the version to compare it with"
        hints = [f"list its versions with: clia behaviour show {version.name}"]
        fields = {"cid": version.cid, "behaviour": version.name}
        raise InvalidInput(message, code="nothing-to-compare", hints=hints, fields=fields)
    return version.parent, version.cid


class VersionNode(NamedTuple):
    """A version in the tree of a behaviour."""

    cid: str  # version id
    state: str  # as in BehaviourVersion
    parent: str | None  # the version that it derives from
    children: list[str]  # versions that derive from it
    by: str  # who added it first
    at: int  # seconds since the epoch
    why: str  # reason that was given
    rate: Rate | None  # its success rate; null: never observed


class VersionTree(NamedTuple):
    name: str  # the behaviour
    kind: str  # `session-flow` or `prompt`
    current: str | None  # the current version
    measure: str  # what the rates measure
    versions: list[VersionNode]  # oldest first
    gaps: int  # parts of the record that this clone lacks, which are not counted


@command("behaviour lineage")
def behaviour_lineage(
    space: Space,
    json_output: bool,
    name: str = arg("NAME", "behaviour name"),
    measure: str | None = measure_option("rate to show (default: finished for a flow, merged for a prompt)"),
    ascii_only: bool = ASCII,
) -> Answer[VersionTree]:
    """Draw which version is derived from which, with their rates."""
    from clia.behaviours.measures import check_measure, usual_measure

    with reading(hidden=json_output) as progress:
        behaviour = space.behaviours.get(name)
        measure = check_measure(measure) if measure else usual_measure(behaviour.kind)
        rates = {stats.cid: rate_by(stats.rates, measure) for stats in space.behaviours.stats(name, progress=progress)}
        gaps = space.behaviours.gaps()
    children: dict[str, list[str]] = {version.cid: [] for version in behaviour.versions}
    for version in behaviour.versions:
        if version.parent is not None and version.parent in children:
            children[version.parent].append(version.cid)

    def show() -> None:
        show_line((one_line(behaviour.name), "bold"), f"  {behaviour.kind}, by {measure}")
        show_lineage(behaviour, rates, children, ascii_only=ascii_only or only_ascii())
        note_gaps(gaps)

    versions = []
    for version in behaviour.versions:
        origin = version.cid, version.state, version.parent, children[version.cid], version.by, version.at, version.why
        versions.append(VersionNode(*origin, rates.get(version.cid)))
    return Answer(VersionTree(behaviour.name, behaviour.kind, behaviour.current, measure, versions, gaps), show)


def split_deep_branches(versions: Iterable[str], children: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The children up to the maximum depth, and the parent of each version that starts at the left again."""
    pieces = {cid: list(below) for cid, below in children.items()}
    restarted: dict[str, str] = {}
    descendants = {child for below in children.values() for child in below}
    stack = [(cid, 0) for cid in versions if cid not in descendants]
    while stack:  # a cycle is never reached, and stays as it is
        cid, depth = stack.pop()
        if depth == _MAX_DEPTH:
            restarted |= dict.fromkeys(pieces[cid], cid)
            pieces[cid] = []
        stack += [(child, 0 if child in restarted else depth + 1) for child in children[cid]]
    return pieces, restarted


def show_lineage(
    behaviour: KnownBehaviour, rates: Mapping[str, Rate | None], children: Mapping[str, list[str]], *, ascii_only: bool
) -> None:
    """Print a behaviour's versions as a tree."""
    from clia.cli.graph_drawing import tree_lines

    versions = {version.cid: version for version in behaviour.versions}
    pieces, restarted = split_deep_branches(versions, children)

    def label(cid: str) -> Text:
        version = versions[cid]
        who = f"{person(version.by)}: {version.why.partition(chr(10))[0]}" if version.why else person(version.by)
        parent = f"from {short(restarted[cid])}: " if cid in restarted else ""
        head = (parent, "dim"), (short(cid), "yellow"), " ", state_text(version.state)
        return line_of(*head, f"  {rate_text(rates.get(cid))}", (f"  {one_line(who)}", "dim"))

    terminal = console()
    for line in tree_lines(versions, pieces, label, ascii=ascii_only):
        line.truncate(terminal.width, overflow="ellipsis")
        terminal.print(line, soft_wrap=True)


@command("behaviour replay")
def behaviour_replay(
    space: Space,
    session: str = opt("AGENT[/ID]", "session to replay (default: the agent's last one)", required=True),
    with_version: str = opt(
        "CID|NAME", "version to try: its id, the start of it, or a name for its current version", "--with", required=True
    ),
) -> Answer[Replayed]:
    """Replay a past session with another version of its flow; nothing is written."""
    agent, _, session_id = session.partition("/")
    replayed = space.behaviours.replay(agent, with_version, session_id or None)
    return Answer(replayed, lambda: _show_replay(replayed))


def _show_replay(replayed: Replayed) -> None:
    session = (one_line(replayed.agent), "bold"), f"  session {one_line(replayed.session)}, which ran "
    versions = (short(replayed.flow), "yellow"), ", with ", (short(replayed.with_), "yellow")
    show_line(*session, *versions, ("; nothing is written", "dim"))
    if replayed.steps:
        console().print()
        rows = [_step_row(number, step, replayed) for number, step in enumerate(replayed.steps, 1)]
        show_rows(("#", "asks for", "with", "recorded", "answer"), rows, cut=("asks for", "with", "answer"), right=("#",))
    if replayed.printed:
        write("\nit printed:\n")
        show_block(replayed.printed, "dim")
    console().print()
    console().print(facts_table(_replay_facts(replayed), indent=0))


def _step_row(number: int, step: ReplayStep, replayed: Replayed) -> tuple[object, ...]:
    request = f"{step.kind} {step.tag}" if step.tag else step.kind
    original = replayed.recorded[number - 1] if number <= len(replayed.recorded) else None
    # The recorded session may have made this request too, without an answer so far.
    also_waits = original is not None and not original.answered and original[:3] == step[:3]
    recorded = f"as {step.recorded}" if step.recorded else f"as {number}" if also_waits else "no"
    departs = ", departs here" if number == replayed.departs_at else ""
    answer = "" if not step.answered else f"error: {step.error}" if step.error is not None else json_text(step.value)
    return number, request, json_text(step.payload), recorded + departs, answer


def _replay_facts(replayed: Replayed) -> list[tuple[str, object]]:
    """Where the replay departs, and how it ends compared with the recording."""
    lost = "the store has lost this session; replayed up to its last commit in git" if replayed.in_part else ""
    facts: list[tuple[str, object]] = [("note", lost), ("departs", _departure(replayed)), _recorded_end(replayed)]
    if replayed.ended:
        facts.append(("it ends", _end(replayed.result, replayed.failure)))
    else:
        facts.append(("it stops", "it waits for an answer that was never given"))
    if replayed.unasked:
        numbers = ", ".join(map(str, replayed.unasked))
        facts.append(("never asked", f"the recorded request{'s' if len(replayed.unasked) > 1 else ''} {numbers}"))
    return [*facts, ("in all", "the same course" if replayed.same else "another course")]


def _recorded_end(replayed: Replayed) -> tuple[str, str]:
    if replayed.recorded_status == CANCELLED:
        return "it ended", "it was cancelled"
    # If the store has lost the session, git has it up to its last commit: a request without an answer was still waiting.
    if replayed.recorded_status == FINISHED or all(step.answered for step in replayed.recorded):
        return "it ended", _end(replayed.recorded_result, replayed.recorded_failure)
    return "so far", "it waits for an answer"


def _departure(replayed: Replayed) -> str:
    number = replayed.departs_at
    if number is None:
        return "nowhere: the same requests in the same order"
    recorded, replay = (
        one_line(f"{steps[number - 1].kind} {json_text(steps[number - 1].payload)}") if number <= len(steps) else ""
        for steps in (replayed.recorded, replayed.steps)
    )
    nothing = "the replay fails before it" if replayed.failure is not None else "the replay makes none"
    return f"at request {number}: {f'it asks for {replay}' if replay else nothing}; recorded was {recorded or 'none'}"


def _end(result: Any, failure: Mapping[str, Any] | None) -> str:
    if failure is not None:
        return one_line(f"failed: {failure.get('message') or failure.get('reason')}")
    return one_line(f"finished with {json_text(result)}")
