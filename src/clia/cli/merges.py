"""Commands that bring work together: merge, resolve, land, publish."""

from __future__ import annotations

import os
import stat
from collections import Counter
from typing import NamedTuple

from clia.cli.command import AGENT, MESSAGE, META, Answer, arg, command, flag, many, opt
from clia.cli.inputs import file_content, invalid_option, message_text, meta_fields, path_pairs
from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.rendering import short, show_line, show_lines, show_table, styled
from clia.errors import FileError, InvalidInput
from clia.space.model import Conflicts, Landed, UpToDate
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.space import Space
    from clia.git.records import Pushed
    from clia.space.model import Content, Merged

INTO = arg("INTO", "agent that receives the work")
FROM = arg("FROM", "agent whose work is merged; PEER/AGENT: an agent of a peer")
_PUSH_STYLES = {"new": "green", "moved": "green", "same": "dim", "refused": "red"}
_MOST_PUSHED = 100
_ATOMIC = "atomic push failed"  # git's reason for the refs that are refused only because another one is


@json_form(outcome=EMBED)
class MergeAnswer(NamedTuple):
    """The result of a merge."""

    result: str  # `merged`, `up-to-date` or `conflicts`
    outcome: Merged | UpToDate | Conflicts


@command("merge")
def merge(space: Space, into: str = INTO, from_: str = FROM, message: str = MESSAGE, meta: list[str] = META) -> Answer[MergeAnswer]:
    """Merge an agent's work into another agent.

    Exit code 1 on conflicts.
    """
    result = space.merge(into, from_, message=message_text(message), meta=meta_fields(meta))
    if isinstance(result, Conflicts):

        def show() -> None:
            show_conflicts(result)
            write(f"nothing was committed; resolve the conflicts with: {resolve_hint(result.into, result.from_)}\n")

        return Answer(MergeAnswer("conflicts", result), show, exit_code=1)
    if isinstance(result, UpToDate):
        text = f"{into} already has all work of {from_}, at {short(result.head)}"
        return Answer(MergeAnswer("up-to-date", result), text)
    return Answer(MergeAnswer("merged", result), f"merged {from_} into {into}: {result.cid}")


def resolve_hint(into: str, from_: str) -> str:
    return f"clia resolve {one_line(into)} {one_line(from_)} --file PATH=FILE, --remove PATH, or --take ours|theirs for the rest"


def show_conflicts(conflicts: Conflicts) -> None:
    """Print the conflicting paths, and the change of each side."""
    count = counted(len(conflicts.paths), "conflict")
    sides = f"{conflicts.into} at {short(conflicts.ours)}, {conflicts.from_} at {short(conflicts.theirs)}"
    write(one_line(f"{count}: {sides}") + "\n")
    rows = [(path.path, _change(path.base, path.ours), _change(path.base, path.theirs)) for path in conflicts.paths]
    show_table(("path", conflicts.into, conflicts.from_), rows)


def _change(base: Content | None, side: Content | None) -> str:
    if side is None:
        return "no such file" if base is None else "deleted"
    return "added" if base is None else "unchanged" if side == base else "changed"


@command("resolve")
def resolve(
    space: Space,
    json_output: bool,
    into: str = INTO,
    from_: str = FROM,
    files: list[str] = many("PATH=FILE", "content of a path (repeatable)", "--file"),
    remove: list[str] = many("PATH", "remove a path (repeatable)"),
    take: str | None = opt(None, "use INTO's (ours) or FROM's (theirs) version of all other conflicts", choices=("ours", "theirs")),
    directory: str | None = opt("DIR", "take the whole result from a directory, including files that git ignores", "--dir"),
    ours: str | None = opt("COMMIT", "INTO's head (default: as of the last refused merge)"),
    theirs: str | None = opt("COMMIT", "FROM's head (default: as of the last refused merge)"),
    message: str = MESSAGE,
    meta: list[str] = META,
) -> Answer[MergeAnswer]:
    """Finish a merge that had conflicts.

    The resolution applies to the two heads of the refused merge; it is refused if one of them has moved.
    """
    by_path = bool(files or remove or take)
    if directory is not None and by_path:
        raise invalid_option("--dir excludes --file, --remove and --take")
    if directory is None and not by_path:
        raise _unresolved(space, into, from_, json_output=json_output)
    our_head, their_head = _merge_heads(space, into, from_, ours, theirs)
    merged = space.resolve(
        into,
        from_,
        None if directory is None else _directory_content(directory),
        ours=our_head,
        theirs=their_head,
        changes=_resolutions(space, into, from_, files, remove, take) if by_path else None,
        message=message_text(message),
        meta=meta_fields(meta),
    )
    return Answer(MergeAnswer("merged", merged), f"merged {from_} into {into}: {merged.cid}")


def _unresolved(space: Space, into: str, from_: str, *, json_output: bool) -> InvalidInput:
    """Print the conflicts; return the error that asks for resolutions."""
    conflicts = space.history.conflicts(into, from_)
    if conflicts is None:
        return InvalidInput(f"{into} and {from_} have no conflict", code="no-conflict", hints=[f"clia merge {into} {from_}"])
    if json_output:
        emit_json(MergeAnswer("conflicts", conflicts))
    else:
        show_conflicts(conflicts)
    fields = {"paths": [conflict.path for conflict in conflicts.paths]}
    return InvalidInput("every conflict needs a resolution", code="unresolved", hints=[resolve_hint(into, from_)], fields=fields)


def _merge_heads(space: Space, into: str, from_: str, ours: str | None, theirs: str | None) -> tuple[str, str]:
    """Both heads of the merge: the given ones, else those of the last refused merge."""
    refused = space.history.last_refused(into, from_) or (None, None)
    our_head = refused[0] if ours is None else space.find(ours)
    their_head = refused[1] if theirs is None else space.find(theirs)
    if our_head is None or their_head is None:
        space.history.conflicts(into, from_)  # report an unknown agent first
        hints = [f"try the merge first: clia merge {into} {from_}", "or name both heads: --ours COMMIT --theirs COMMIT"]
        raise InvalidInput(f"no merge of {from_} into {into} was refused", code="no-refused-merge", hints=hints)
    return our_head, their_head


def _resolutions(
    space: Space, into: str, from_: str, files: list[str], removed: list[str], take: str | None
) -> dict[str, Content | None]:
    contents = dict(path_pairs(files, "--file"))
    both = sorted(contents.keys() & set(removed))
    if both:
        raise invalid_option(f"path {both[0]!r} is given to both --file and --remove")
    conflicts = space.history.conflicts(into, from_) if take else None
    paths = conflicts.paths if conflicts else ()
    changes: dict[str, Content | None] = {path.path: getattr(path, str(take)) for path in paths}
    return changes | {path: file_content(file) for path, file in contents.items()} | dict.fromkeys(removed)


def _directory_content(top: str) -> dict[str, Content]:
    """Every file below a directory."""
    if not os.path.isdir(top):
        raise InvalidInput(f"{top} is not a directory", code="not-a-directory", fields={"path": top})
    contents: dict[str, Content] = {}
    for folder, folders, names in os.walk(top, onerror=_raise_file_error):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        inner = folder != top and ".git" in (*folders, *names)
        if inner or (folder == top and ".gitmodules" in names):  # a submodule would be lost silently
            hints = ["resolve the conflicts one by one instead: --file, --remove, --take"]
            raise InvalidInput(f"{folder} contains another repository", code="submodules", hints=hints, fields={"path": folder})
        for name in (*links, *names):
            if name != ".git":
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
                    raise InvalidInput(f"{path} is neither a file nor a link", code="invalid-content", fields={"path": path})
                contents[os.path.relpath(path, top)] = file_content(path)
        folders[:] = sorted(name for name in folders if name != ".git")
    return contents


def _raise_file_error(err: OSError) -> None:
    raise FileError(f"{err.filename}: {err.strerror}", fields={"path": err.filename, "reason": err.strerror}) from None


@json_form(outcome=EMBED)
class LandAnswer(NamedTuple):
    result: str  # `landed`, `up-to-date` or `conflicts`
    outcome: Landed | UpToDate | Conflicts


@command("land")
def land(
    space: Space,
    agent: str = AGENT,
    onto: str | None = opt("BRANCH", "branch that receives the work (default: the one that is checked out, else main)"),
    squash: bool = flag("land everything as one commit (default, unless clia.land is set in git's configuration)", one_of="how"),
    no_ff: bool = flag("create a merge commit with the agent's commits behind it", one_of="how"),
    fast_forward: bool = flag("move the branch to the agent's last commit; a merge if that is not possible", "--ff", one_of="how"),
    done: bool = flag("mark the item of the agenda that the agent was spawned for as done, in a commit that lands too"),
    message: str = MESSAGE,
) -> Answer[LandAnswer]:
    """Land an agent's work on a branch.

    Exit code 1 on conflicts.
    """
    if done:
        space.agents.finish(agent)
    branch = onto or space.local.default_branch()
    how = "squash" if squash else "merge" if no_ff else "fast-forward" if fast_forward else None
    result = space.land(agent, branch, how=how, message=message_text(message))
    word = "landed" if isinstance(result, Landed) else "up-to-date" if isinstance(result, UpToDate) else "conflicts"
    exit_code = 1 if isinstance(result, Conflicts) else 0
    return Answer(LandAnswer(word, result), lambda: _show_landing(agent, branch, result), exit_code)


def _show_landing(agent: str, onto: str, result: Landed | UpToDate | Conflicts) -> None:
    agent, branch = one_line(agent), one_line(onto)
    if isinstance(result, Landed):
        show_line("landed ", (agent, "bold"), f" on {branch} as ", (short(result.cid), "yellow"), f" ({result.how})")
        for warning in result.warnings:
            show_line((f"warning: {one_line(warning)}", "yellow"), stderr=True)
    elif isinstance(result, UpToDate):
        show_line(f"{branch} already has all work of {agent}")
    else:
        show_line((f"conflicts; {branch} is unchanged", "red"))
        show_lines(f"  {one_line(conflict.path)}" for conflict in result.paths)
        show_line((f"let the agent work on top of {branch}, or merge by hand: git merge agents/{agent}", "dim"))


@command("publish")
def publish(
    space: Space,
    agents: list[str] = arg("AGENT", "agents to publish", nargs="*"),
    everyone: bool = flag("publish every agent, including archived ones", "--all"),
    remote: str = opt("NAME", "remote to push to (default: origin)", default="origin"),
    federation: bool = flag("also publish the space's public keys and the grants of peers"),
    no_traces: bool = flag("leave out traces"),
    heads: str | None = opt(
        None,
        "where the remote keeps agents' heads: outside of its branches (published, the default unless clia.publish is set in git's "
        "configuration), or as branches, which every clone then has",
        choices=("branches", "published"),
    ),
) -> Answer[list[Pushed]]:
    """Push agents to a remote.

    Exit code 1 if the remote refused something; then it accepted nothing.
    """
    if (agents and everyone) or not (agents or everyone or federation):
        raise invalid_option("name agents, or give --all", option="--all")
    names = [*space.agents(), *space.agents(archived=True)] if everyone else agents
    pushed = space.publish(names, remote, traces=not no_traces, federation=federation, heads=heads)
    refused = any(push.state == "refused" for push in pushed)

    def show() -> None:
        reason = "reason" if any(push.reason for push in pushed) else ""
        # Of many refs, those that the remote objects to: a refused push refuses all refs.
        listed = pushed if len(pushed) <= _MOST_PUSHED else [push for push in pushed if push.reason not in ("", _ATOMIC)]
        listed = listed[:_MOST_PUSHED]
        rows = [(styled(push.state, _PUSH_STYLES.get(push.state, "")), push.ref, push.reason) for push in listed]
        if rows:
            show_table(("state", "ref", reason), rows)
        if len(listed) < len(pushed):
            counts = Counter(push.state for push in pushed)
            text = ", ".join(f"{counts[state]} {state}" for state in _PUSH_STYLES if counts[state])
            write(f"{counted(len(pushed), 'ref')}: {text} (--json lists them)\n")

    return Answer(pushed, show, exit_code=1 if refused else 0)
