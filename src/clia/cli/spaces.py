"""Commands about the space itself: init, types, verify, rebuild, relink, maintain; and shell completion."""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.cli.command import PATH, STORE, Answer, arg, command, flag, many, opt
from clia.cli.hub import heads_option, restart_hints, show_forks_and_elsewhere, show_standing
from clia.cli.inputs import invalid_option
from clia.cli.output import counted, one_line, write
from clia.cli.rendering import only_ascii, progress_bar, short, show_hints, show_line, show_lines, show_table, spinner
from clia.cli.witness import freshness
from clia.errors import FileError, InvalidInput, NotFound, TransportError
from clia.hub.model import ELSEWHERE, PUBLISHED, REMOVED
from clia.space.remotes import AHEAD, NEW, UNITED, Adopted
from clia.trust.verification import UNSIGNED_SPACE, TrustReport
from clia.trust.verified_cache import cache_directory
from clia.values import refs as names
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.facade.settings import Settings
    from clia.facade.setup import Moved
    from clia.facade.space import Space
    from clia.hub.joining import HubTarget
    from clia.hub.model import HubStatus
    from clia.space.model import Maintained
    from clia.space.relinking import Relinked
    from clia.space.verification import Report


_NOTE_MAX = 64 * 1024


class FetchedRemote(NamedTuple):
    """A remote of the repository."""

    name: str  # its name
    fetch: Sequence[str]  # refspecs that clia fetches; a plain `git fetch` does not use them


class Initialized(NamedTuple):
    space: str  # id of the space
    path: str  # the repository
    created: bool  # false: it existed, or came from a remote
    adopted: tuple[Adopted, ...]  # refs of remotes that were adopted
    remotes: list[FetchedRemote]  # the remotes of the repository
    hub: HubStatus | None  # as `clia hub status` prints it; null: there is none
    published: list[str]  # refs that the hub did not have before
    moved: Moved | None  # what `--store` moved from the local store to a server; null: nothing


@command("init")
def init(
    settings: Settings,
    json_output: bool,
    directory: str = arg("DIR", "repository, or an empty directory (default: current directory)", nargs="?", default="."),
    no_adopt: bool = flag("do not ask remotes other than --hub for an existing space or new work"),
    store: str | None = opt("URL", "postgresql://… for a store on a server; saved in git's configuration"),
    hub: str | None = opt("URL", "repository on any git server through which the machines of this space exchange work"),
    heads: str | None = heads_option("--hub-heads"),
    claim: list[str] = many("AGENT", "take over an agent of another clone (repeatable)"),
) -> Answer[Initialized]:
    """Create a space in this repository, or adopt the one of its remote.

    Running it again only fetches what is new from remotes and the hub. A password is never written to a file.
    """
    from clia.hub.joining import HubTarget

    if store is not None:
        check_store(store)
    if heads and hub is None:
        hints = ["to change an existing hub: clia hub set REMOTE --heads …"]
        raise invalid_option("--hub-heads goes with --hub", hints, option="--hub-heads")
    target = None if hub is None else HubTarget(hub, heads)
    try:
        report, hints = _init(settings, directory, target, claim, adopt=not no_adopt, move=bool(store), json_output=json_output)
    except TransportError as err:
        if hub is None:
            err.hints = (*err.hints, "ask no remote with: clia init --no-adopt")
        raise

    def show() -> None:
        _show_report(report)
        show_hints(hints)

    return Answer(report, show)


def check_store(store: str) -> None:
    """Check the address before anything is created: it is written to a file."""
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(store)
        password = parts.password or any("password" in key for key in parse_qs(parts.query))
    except ValueError:
        parts, password = None, False
    if parts is None or parts.scheme not in ("postgresql", "postgres"):
        hints = ["leave it out to use a file beside the repository"]
        message = "the address of a store starts with postgresql://"
        raise InvalidInput(message, code="invalid-store", hints=hints, fields={"field": "store"})
    if password:
        hints = ["leave out --store and set CLIA_STORE, or keep the password in ~/.pgpass"]
        message = "the address of the store contains a password and would be saved in git's configuration"
        raise InvalidInput(message, code="password-in-store", hints=hints, fields={"field": "store"})


def _init(
    settings: Settings,
    directory: str,
    target: HubTarget | None,
    claims: Sequence[str],
    *,
    adopt: bool,
    move: bool,
    json_output: bool,
) -> tuple[Initialized, list[str]]:
    """Create or adopt the space; return what was done, and hints for what to do next."""
    from clia.facade.setup import move_store, set_up
    from clia.hub.joining import check

    if target is not None:
        check(target)  # before anything is moved
    moved = move_store(directory, settings) if move else None  # first: other processes are refused until it is complete
    hints = None if target is None else _set_hub(directory, settings, target)
    exists = hints is not None  # then hub_sync publishes everything, with a progress bar
    news = adopt and not exists
    result = set_up(directory, settings=settings, adopt=adopt, news=news, keep_store=move, hub=None if exists else target)
    with result.space as space:
        synced = []
        if exists:
            with progress_bar("Syncing", hidden=json_output) as progress:
                synced = space.hub.sync(progress=progress)
        for name in claims:
            space.agents.claim(name)
        fetched = (item for item in synced if item.what not in (PUBLISHED, ELSEWHERE))
        adopted = (*result.adopted, *(Adopted(item.ref, item.what, item.cid or "") for item in fetched))
        published = [item.ref for item in synced if item.what == PUBLISHED]
        published += [names.SPACE] if result.created and target is not None else []
        remotes = [FetchedRemote(*rules) for rules in result.rules]
        status = space.hub.status() if space.has_hub else None
        report = Initialized(space.id, result.path, result.created, adopted, remotes, status, published, moved)
    return report, hints or []


def _set_hub(directory: str, settings: Settings, target: HubTarget) -> list[str] | None:
    """Set the hub of an existing space; return hints, or None if there is no space yet."""
    from clia.facade.setup import hub_address, set_hub

    before = hub_address(directory, settings)
    try:
        with set_hub(directory, target, settings=settings) as space:
            return restart_hints(before, space.hub.status())
    except NotFound as err:
        if err.code in ("no-such-repository", "no-such-space"):
            return None
        raise


def _show_report(report: Initialized) -> None:
    adopted_space = any(item.ref == names.SPACE and item.what == "new" for item in report.adopted)
    title = "new space" if report.created else "adopted the space" if adopted_space else "space"
    show_line(f"{title} ", (report.space, "bold"), f" in {one_line(report.path)}")
    for item in report.adopted:
        style = "green" if item.what in (NEW, AHEAD, UNITED, REMOVED) else "yellow"
        show_line("  ", (f"{item.what:<8}", style), f" {one_line(item.ref)}  {short(item.cid)}")
    if moved := report.moved:
        live, users = counted(moved.sessions, "live session"), counted(moved.users, "user")
        write(f"moved to PostgreSQL: {live}, {counted(moved.traces, 'pending trace entry', 'pending trace entries')}, {users}\n")
        show_hints(["restart the workers and forges that run here"])
    if report.hub:
        if report.published:
            write(f"published {counted(len(report.published), 'ref')}\n")
        show_standing(report.hub)
        show_forks_and_elsewhere(report.hub)
    if report.created:
        show_line("next: clia spawn NAME --title TITLE")


@command("types")
def types(
    space: Space,
    add: str | None = opt("NAME", "register a type; this cannot be undone"),
    parent: str | None = opt("TYPE", "supertype of the new type; agent-commit for a kind of commit; without it, a type of objects"),
    ids: bool = flag("list the ids of registered types, which are the same in every space, instead of the parents"),
) -> Answer[Mapping[str, str | None]]:
    """List the types of commits and objects, or register one."""
    if add is None and parent is not None:
        raise invalid_option("--parent needs --add", ["clia types --add review --parent agent-commit"])
    if add is not None:
        space.types.register(add, parent)
        return Answer(space.types(), f"registered {add}" + (f", a subtype of {parent}" if parent else ", a type of objects"))
    if ids:
        type_ids = space.types.ids()
        return Answer(dict(type_ids), lambda: show_lines(f"{cid}  {name}" for name, cid in type_ids.items()))
    parents = space.types()

    def show() -> None:
        from clia.cli.graph_drawing import tree_lines

        children: dict[str, list[str]] = {}
        for name, parent_name in parents.items():
            if parent_name is not None:
                children.setdefault(parent_name, []).append(name)
        show_lines(tree_lines(parents, children, ascii=only_ascii()))

    return Answer(parents, show)


class CompletionScript(NamedTuple):
    shell: str  # the shell
    script: str  # the script


@command("completion", json_output=flag("print the script as a JSON string", "--json"))
def completion(
    shell: str = arg(None, 'then run: eval "$(clia completion bash)"', choices=("bash", "zsh", "fish", "tcsh", "powershell")),
) -> Answer[CompletionScript]:
    """Print a completion script for your shell.

    In bash, zsh and PowerShell it also completes the names of agents and flows.
    """
    from clia.cli.completion_scripts import script_for

    script = script_for(shell)
    return Answer(CompletionScript(shell, script), lambda: write(script))


# Checks and upkeep


@json_form(report=EMBED)
class Verified(NamedTuple):
    """The result of the checks in a clone with a store."""

    clean: bool  # whether nothing was found
    report: Report
    trust: TrustReport  # signatures, statements and logs


@command("verify", store=STORE)
def verify(
    settings: Settings,
    json_output: bool,
    root: str | None = opt("FINGERPRINT", "root that the space must have, as clia key show prints it there"),
    strict: bool = flag("also ask for people's own proofs, a cosigned checkpoint, and no unsigned history that nobody endorsed"),
    since: str | None = opt("CHECKPOINT", "checkpoint that the record must contain, or its file; checks only what came after it"),
    witnesses: list[str] = many("KEY", "key of a witness that counts, in addition to those of the space", "--witness"),
    full: bool = flag("verify everything again, also what this account verified before"),
    path: str = PATH,
) -> Answer[Verified | TrustReport]:
    """Check the record: that it is complete and consistent, and who signed it.

    In a plain clone, without a store, it checks signatures, statements and logs only. Exit code 1 if something is wrong, or the
    space is not signed.
    """
    from clia.facade.setup import CloneChecks, is_plain_clone, trust_of_clone

    cache = None if full else cache_directory(os.environ)
    options = CloneChecks(root, strict, None if since is None else _checkpoint_text(since), tuple(witnesses), cache)
    if is_plain_clone(path):
        trust = trust_of_clone(path, settings, options)
        return Answer(trust, lambda: _show_trust(trust), exit_code=0 if trust.clean else 1)
    from clia.facade.opening import open_space

    with open_space(path, settings=settings) as space:
        with spinner("Checking", hidden=json_output) as say:
            report = space.verify(progress=say)
            trust = space.trust.verify_again(cache, root=root, strict=strict, since=options.since, witnesses=witnesses)
        result = Verified(report.clean and trust.clean, report, trust)
        return Answer(result, lambda: _show_verified(result), exit_code=0 if result.clean else 1)


def _checkpoint_text(text: str) -> str:
    """A checkpoint by its name, or the signed note in a file."""
    if not os.path.isfile(text):
        return text
    try:
        with open(text, encoding="utf-8") as file:
            return file.read(_NOTE_MAX)
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        raise FileError(f"{text}: {reason}", fields={"path": text, "reason": reason}) from None


def _show_verified(result: Verified) -> None:
    report = result.report
    if report.findings:
        show_table(("finding", "what", "ref"), [(finding.code, finding.message, finding.ref or "") for finding in report.findings])
    if report.unseen:
        write("not in this clone, so not checked:\n" + "".join(f"  {one_line(name)}\n" for name in report.unseen))
    counts = ((report.agents, "agent"), (report.commits, "commit"), (report.traces, "trace"), (report.edges, "relation"))
    summary = counted(len(report.findings), "finding") if report.findings else "consistent"
    write(f"{', '.join(counted(*count) for count in counts)}: {summary}\n")
    _show_trust(result.trust)


def _show_trust(trust: TrustReport) -> None:
    """Show what is signed by whom, then what is wrong."""
    if trust.findings:
        show_table(("finding", "what", "ref"), [(finding.code, finding.message, finding.ref or "") for finding in trust.findings])
    for accepted in trust.accepted:
        write(one_line(f"accepted by {accepted.by} ({accepted.strength}): {accepted.finding.message}: {accepted.reason}") + "\n")
    for line in trust.ignored:
        write(f"ignored: {one_line(line)}\n")
    for signer in trust.signers:
        write(one_line(f"signed by {signer.owner} ({signer.key}): {counted(signer.commits, 'commit')}") + "\n")
    if trust.strengths:
        write("decisions: " + ", ".join(f"{count} {strength}" for strength, count in trust.strengths.items()) + "\n")
    if trust.of_peers:
        write(f"of peers, whose own spaces show who signed them: {counted(trust.of_peers, 'commit')}\n")
    if trust.unsigned:
        write(f"unsigned, from before the space was signed: {counted(trust.unsigned, 'commit')}\n")
    for endorsed in trust.endorsed:
        write(one_line(f"endorsed by {endorsed.by} ({endorsed.strength}): {endorsed.reason}") + "\n")
    if trust.state == UNSIGNED_SPACE:
        write("unsigned: nothing shows who wrote this record; sign from now on with: clia key init\n")
        return
    if trust.checkpoints.cosigned is not None:
        write(f"{freshness(trust.checkpoints.age, trust.checkpoints.later)}; by {', '.join(trust.checkpoints.witnesses)}\n")
    elif trust.checkpoints.machines:
        write(f"{freshness(None, 0)}\n")
    result = counted(len(trust.findings), "finding") if trust.findings else "everything is signed and logged"
    write(f"root {trust.root}; {counted(trust.moves, 'logged move')}; {trust.state}: {result}\n")


class Rebuilt(NamedTuple):
    edges: int  # relations


@command("rebuild")
def rebuild(space: Space, json_output: bool) -> Answer[Rebuilt]:
    """Rebuild the index from git."""
    with progress_bar("Reading git", hidden=json_output) as progress:
        edges = space.rebuild(progress=progress)
    behaviours = ", and the observations of behaviours" if not json_output and space.behaviours() else ""
    return Answer(Rebuilt(edges), f"rebuilt the index: {counted(edges, 'relation')}{behaviours}")


@command("relink")
def relink(
    space: Space, json_output: bool, onto: str | None = opt("BRANCH", "search only this branch (default: all branches)")
) -> Answer[list[Relinked]]:
    """Attach traces and checkpoints to the commits that a squash or rebase created."""
    with spinner("Comparing commits", hidden=json_output):
        links = space.traces.relink(onto=onto)
    if not links:
        return Answer([], "nothing to relink: no commit with a trace or checkpoint was squashed or rebased")
    rows = [(short(link.commit), link.agent, " ".join(map(short, link.sources)), link.by) for link in links]
    return Answer(links, lambda: show_table(("commit", "agent", "trace of", "same"), rows))


@json_form(report=EMBED)
class Maintenance(NamedTuple):
    report: Maintained
    dry_run: bool  # whether nothing was changed


@command("maintain")
def maintain(
    space: Space,
    json_output: bool,
    archive_idle: int | None = opt(
        "DAYS", "archive agents that were idle for this long and whose work was merged or landed", type=int
    ),
    dry_run: bool = flag("change nothing; show what would be done"),
    unarchive_all: bool = flag("first bring all agents back from the archive repository, and put none away in future"),
) -> Answer[Maintenance]:
    """Pack the repository, put idle agents away and archive finished ones.

    The refs of idle agents move to the repository .git/clia/archive.git, so that they do not slow down your own git. All commands
    find them there.
    """
    with spinner("Packing", hidden=json_output):
        brought = space.local.unarchive_all() if unarchive_all and not dry_run else []
        report = space.maintain(archive_idle_days=archive_idle, dry_run=dry_run)

    def show() -> None:
        from rich.filesize import decimal

        if archive_idle is not None:
            write(f"{'would archive' if dry_run else 'archived'}: {', '.join(report.archived) or 'no agent'}\n")
        if unarchive_all:
            hint = "to put idle agents away again: git config --unset clia.archiveIdle"
            write(f"brought {counted(len(brought), 'agent')} back; {hint}\n")
        if report.put_away:
            agents = counted(len(report.put_away), "idle agent")
            write(f"{'would move' if dry_run else 'moved'} the refs of {agents} to clia/archive.git in the git directory\n")
        if report.moved:
            write(f"moved {counted(len(report.moved), 'worktree')} out of the git directory\n")
        if report.left:
            write(f"not moved, a program may be using it: the worktree of {', '.join(report.left)}\n")
        if dry_run:
            write(f"objects take {decimal(report.before)}; nothing was changed\n")
        else:
            write(f"objects took {decimal(report.before)}, now {decimal(report.after)}\n")

    return Answer(Maintenance(report, dry_run), show)
