"""``clia doctor``: check everything in one place."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from clia import __version__
from clia.cli.command import CEILING, WORKING_PATH, Answer, command, flag, opt
from clia.cli.hooks import this_program
from clia.cli.hub import is_in_sync, standing, without_forks
from clia.cli.identities_checks import show_doctor_report
from clia.cli.output import console, counted, one_line, write
from clia.cli.peers import is_missing_directory
from clia.cli.rendering import show_line, styled
from clia.errors import CliaError, NotFound
from clia.identities.diagnostics import has_errors
from clia.values.records import EMBED, ReportedError, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.capture.installation.findings import HookFinding
    from clia.capture.installation.hook_health import HooksHealth
    from clia.facade.settings import Settings
    from clia.federation.model import Peer
    from clia.hub.model import HubStatus
    from clia.identities.checks import DoctorReport
    from clia.identities.guardrails.changes import GuardrailLoss
    from clia.identities.profile_drift import AgentIdentity
    from clia.sessions.health import Ailment
    from clia.space.attribution.health import LineFinding
    from clia.trust.service import SigningState

    HealthRow = tuple[str, str, bool]


_DRIFTED_SHOWN = 20


@json_form("id", "agents", "ailments", "beside", "broken_checkouts", "lost", "drifted", "lines", "signing")
class SpaceHealth(NamedTuple):
    """The space at a path: its id, its agents and broken sessions, or the error that prevents opening it."""

    id: str | None = None  # id of the space
    agents: int = 0  # number of active agents
    error: CliaError | None = None
    ailments: tuple[Ailment, ...] = ()  # problems of sessions and refs
    beside: int = 0  # live sessions in the repository's own store while another store is in use
    broken_checkouts: tuple[str, ...] = ()  # directories of checkouts that do not find the repository, because it was moved
    lost: tuple[GuardrailLoss, ...] = ()  # guardrails that earlier agents had, and that are gone without a decision
    drifted: tuple[AgentIdentity, ...] = ()  # agents whose identity at their place is not the recorded one
    lines: tuple[LineFinding, ...] = ()  # why lines have no author, or the wrong one
    signing: SigningState | None = None  # whether this clone can sign what it records

    @property
    def sound(self) -> bool:
        """Whether the space opens and every problem found has been repaired."""
        can_sign = self.signing is None or self.signing.problem is None
        return self.error is None and can_sign and all(ailment.repaired for ailment in self.ailments)


@json_form("python", "git", "path", "repository", "opened", "agents", opened="space")
class HealthReport(NamedTuple):
    """The versions of Python and git, and the health of the identities and the space at a path."""

    python: str  # version of Python
    git: str | None  # version of git; null: it was not found
    agents: DoctorReport  # as `clia agents doctor` prints it
    space: SpaceHealth | None  # None: no space encloses the path

    @property
    def path(self) -> str:
        """The working path."""
        return self.agents.path

    @property
    def repository(self) -> str | None:
        """The innermost repository that contains the path."""
        return self.agents.repository

    @property
    def opened(self) -> SpaceHealth | ReportedError | None:
        """The space that encloses the path, or why it cannot be opened; null: there is none."""
        return self.space if self.space is None or self.space.error is None else ReportedError(self.space.error)


@json_form(health=EMBED)
class FullReport(NamedTuple):
    clia: str  # version of clia
    health: HealthReport
    hooks: HooksHealth  # hooks of coding tools
    peers: list[Peer] | ReportedError  # each peer, or why they cannot be read
    hub: HubStatus | ReportedError | None  # as `clia hub status` prints it; null: there is none


@command("doctor", store=opt("URL", "postgresql://… for a store on a server (default: CLIA_STORE)"))
def doctor(
    settings: Settings,
    path: str = WORKING_PATH,
    ceiling: str | None = CEILING,
    repair: bool = flag("repair problems of sessions and refs where possible"),
) -> Answer[FullReport]:
    """Check the installation, the space, sessions, hooks, peers, the hub and all identities.

    Exit code 1 on errors, or if a session has a problem that was not repaired.
    """
    from functools import partial

    from clia.capture.installation import hook_health
    from clia.capture.installation.installed_tools import installed_version

    settings = settings._replace(environment=os.environ)
    report = _health(path, ceiling, settings, repair=repair)
    captured = hook_health.captured_in(path, settings) if report.space is not None else ()
    version_of = partial(installed_version, environment=os.environ)
    hooks = hook_health.examine(path, environment=os.environ, program=this_program(), captured=captured, version_of=version_of)
    opened = report.space is not None and report.space.error is None
    peers, hub = _peers_and_hub(path, settings) if opened else ([], None)

    def show() -> None:
        _show_health(report, [*_hook_rows(hooks), *_peer_rows(peers), *_hub_rows(hub, report.git)])
        _show_problems(report.space or SpaceHealth(), hooks)
        if report.space is not None and not report.space.sound and not report.space.error and not repair:
            write("repair what can be repaired with: clia doctor --repair\n")
        show_doctor_report(report.agents)

    space_broken = report.space is not None and (
        not report.space.sound
        or bool(report.space.broken_checkouts)
        or any(item.missing for item in report.space.drifted)
        or bool(report.space.lost)
    )
    broken = space_broken or not hooks.sound or has_errors(report.agents.all_findings())
    shown_peers = ReportedError(peers) if isinstance(peers, CliaError) else peers
    shown_hub = ReportedError(hub) if isinstance(hub, CliaError) else hub
    return Answer(FullReport(__version__, report, hooks, shown_peers, shown_hub), show, exit_code=1 if broken else 0)


def _health(path: str, ceiling: str | None, settings: Settings, *, repair: bool) -> HealthReport:
    """Examine a path; with ``repair``, also repair broken sessions where possible."""
    from clia.identities.checks import doctor as examine_identities
    from clia.identities.git_history import GitHistory

    python = ".".join(str(part) for part in sys.version_info[:3])
    identities = examine_identities(path, environment=os.environ, ceiling=ceiling)
    return HealthReport(python, GitHistory(os.environ).version(), identities, _space_health(path, settings, repair=repair))


def _space_health(path: str, settings: Settings, *, repair: bool) -> SpaceHealth | None:
    """Open the space, which completes or undoes operations of crashed processes; nothing else is written without ``repair``."""
    from clia.facade.opening import open_space

    try:
        with open_space(path, settings=settings) as space:
            ailments, beside = tuple(space.doctor(repair=repair)), space.local.sessions_left_behind()
            broken = tuple(space.local.broken_checkouts())
            lost = tuple(space.identities.lost_guardrails())
            drifted = tuple(space.identities.drifted())
            lines = tuple(space.local.line_findings())
            signing = space.trust.signing()
            return SpaceHealth(space.id, len(space.agents()), None, ailments, beside, broken, lost, drifted, lines, signing)
    except NotFound as err:
        return None if err.code in ("no-such-repository", "no-such-space") else SpaceHealth(error=err)
    except CliaError as err:
        return SpaceHealth(error=err)


def _peers_and_hub(path: str, settings: Settings) -> tuple[list[Peer] | CliaError, HubStatus | CliaError | None]:
    """The peers and the hub, or the errors that reading them raised."""
    from clia.facade.opening import open_space

    try:
        with open_space(path, settings=settings) as space:
            hub = space.hub.status() if space.has_hub else None
            try:
                return space.peers(), hub
            except CliaError as err:
                return err, hub
    except CliaError as err:
        return err, err


def _show_health(report: HealthReport, others: Sequence[HealthRow]) -> None:
    from rich.table import Table

    repository = report.agents.repository
    rows = (
        ("clia", __version__, True),
        ("python", report.python, True),
        ("git", report.git or "not found: the history of repositories cannot be checked", report.git is not None),
        ("path", report.agents.path, True),
        ("repository", repository or "none: not inside a git repository", repository is not None),
        _space_row(report.space),
        *_signing_rows(report.space),
        *_store_rows(report.space),
        *_checkout_rows(report.space),
        *_identity_rows(report.space),
        *others,
    )
    table = Table.grid(padding=(0, 2))
    for name, value, good in rows:
        table.add_row(styled("✓", "green") if good else styled("!", "yellow"), name, styled(value))
    console().print(table)


def _show_problems(space: SpaceHealth, hooks: HooksHealth) -> None:
    """Print the problems of sessions and refs, and why events of tools do not arrive or lines have no author."""
    for ailment in space.ailments:
        mark = ("✓ repaired", "green") if ailment.repaired else ("✗ wrong", "bold red")
        where = f"{ailment.agent}, session {ailment.session}" if ailment.session else ailment.agent or "store"
        show_line(mark, f"  {one_line(where)}: ", (ailment.code, "bold"), f": {one_line(ailment.message)}")
    marks = {"error": ("✗ wrong", "bold red"), "warning": ("! look", "bold yellow"), "info": ("· note", "cyan")}
    findings: list[tuple[str, HookFinding | LineFinding]] = [("hooks", finding) for finding in hooks.findings]
    findings += [("lines", finding) for finding in space.lines]
    for subject, finding in findings:
        hint = (f"\n         {one_line(finding.hint)}", "dim")
        show_line(marks[finding.severity], f"  {subject}: ", (finding.code, "bold"), f": {one_line(finding.message)}", hint)


def _space_row(space: SpaceHealth | None) -> HealthRow:
    if space is None:
        return "space", "none; create one with: clia init", True  # not every repository needs one
    if space.error is not None:
        return "space", one_line("; ".join([f"{space.error.code}: {space.error.message}", *space.error.hints])), False
    wrong = sum(not ailment.repaired for ailment in space.ailments)
    problems = f", {counted(wrong, 'problem')}" if wrong else ""
    return "space", f"{space.id}, {counted(space.agents, 'active agent')}{problems}", not wrong


def _signing_rows(space: SpaceHealth | None) -> list[HealthRow]:
    """Whether what is recorded here is signed."""
    signing = None if space is None else space.signing
    if signing is None or not signing.signing:
        return []
    if signing.problem is not None:
        return [("signing", one_line("; ".join([f"nothing is recorded: {signing.problem}", *signing.hints])), False)]
    hint = "the key of this clone is not enrolled; in a clone that is: clia key enrol NAME --machine KEY"
    return [("signing", "the key of this clone is enrolled" if signing.enrolled else hint, signing.enrolled)]


def _store_rows(space: SpaceHealth | None) -> list[HealthRow]:
    """A store that is not in use, and has live sessions."""
    if space is None or not space.beside:
        return []
    live = f"{counted(space.beside, 'live session is', 'live sessions are')} in the SQLite store, but another store is in use"
    return [("store", f"{live}; to move them: git config --unset clia.store, then clia init --store postgresql://…", False)]


def _checkout_rows(space: SpaceHealth | None) -> list[HealthRow]:
    """Checkouts that do not find the repository."""
    places = () if space is None else space.broken_checkouts
    words = "does not find this repository, which was moved; repair it with: git worktree repair"
    return [("checkout", one_line(f"{place} {words} {place}"), False) for place in places]


def _identity_rows(space: SpaceHealth | None) -> list[HealthRow]:
    """Agents whose identity at their place differs from the recorded one."""
    lost = () if space is None else space.lost
    hint = "restore it, or accept the loss: clia agents accept-loss -m WHY"
    rows: list[HealthRow] = [("guardrails", one_line(f"{loss}; {hint}"), False) for loss in lost[:_DRIFTED_SHOWN]]
    drifted = () if space is None else sorted(space.drifted, key=lambda identity: not identity.missing)
    for identity in drifted[:_DRIFTED_SHOWN]:
        counts = [(identity.missing, "missing"), (identity.added, "not recorded")]
        words = [f"{counted(len(items), 'guardrail')} {word}" for items, word in counts if items]
        words += [f"changed: {', '.join(identity.changed)}"] if identity.changed else []
        words += [finding.message for finding in identity.findings]
        hint = f"; record it with: clia reprofile {identity.agent}" if identity.drifted else ""
        rows.append(("identity", one_line(f"{identity.agent}: {'; '.join(words)}{hint}"), False))
    if len(drifted) > _DRIFTED_SHOWN:
        more = f"{len(drifted) - _DRIFTED_SHOWN} more agents have drifted; --json lists all"
        rows.append(("identity", more, False))
    return rows


def _hook_rows(hooks: HooksHealth) -> list[HealthRow]:
    """Each tool with hooks, where they are installed and its last event; then the spool."""
    rows = []
    for health in hooks.tools:
        places = ", ".join(f"{place.path} ({place.scope})" for place in health.places) or "not installed here"
        last = f"last event {health.last}" if health.last else "no event so far"
        sound = all(finding.tool != health.tool or finding.severity == "info" for finding in hooks.findings)
        rows.append(("hooks", f"{health.tool}: {places}; {last}", sound))
    if not rows:
        rows = [("hooks", "none; record sessions of coding tools with: clia hook install", True)]
    if hooks.spool is not None and (hooks.spool.waiting or hooks.spool.rejected):
        words = f"{counted(hooks.spool.waiting, 'event waits', 'events wait')} for clia ingest, {hooks.spool.rejected} rejected"
        rows.append(("spool", words, all(finding.tool is not None for finding in hooks.findings)))
    return rows


def _peer_rows(peers: list[Peer] | CliaError) -> list[HealthRow]:
    if isinstance(peers, CliaError):
        return [("peers", one_line(f"{peers.code}: {peers.message}; see: clia verify"), False)]
    problems = [f"the chain of {peer.name} has forked" for peer in peers if peer.forked]
    missing = [peer for peer in peers if peer.url and is_missing_directory(peer.url)]
    problems += [f"{peer.name}: directory {peer.url} does not exist" for peer in missing]
    waiting = sum(peer.waiting for peer in peers)
    parts = [counted(len(peers), "peer")] + ([counted(waiting, "claim waits", "claims wait")] if waiting else [])
    return [("peers", one_line("; ".join(parts + problems)), not problems)] if peers else []


MIN_GIT_VERSION = (2, 31)
"""The first git with ``fetch --atomic``, which a hub needs."""


def is_old_git(version: str | None) -> bool:
    """Whether a git version is too old for a hub."""
    parts = [part for part in (version or "").split(".")[:2] if part.isascii() and part.isdigit()]
    return len(parts) == 2 and tuple(map(int, parts)) < MIN_GIT_VERSION


def _hub_rows(hub: HubStatus | CliaError | None, git: str | None) -> list[HealthRow]:
    if hub is None:
        return []
    if isinstance(hub, CliaError):
        return [("hub", one_line(f"{hub.code}: {hub.message}"), False)]
    parts = [f"{hub.address}: {standing(hub)}"]
    if not hub.away_since and without_forks(hub, hub.owed):
        parts.append("publish it with: clia hub sync")
    parts += ["see the forks with: clia hub status"] if hub.forks else []
    parts += [f"{counted(len(hub.elsewhere), 'agent is', 'agents are')} elsewhere"] if hub.elsewhere else []
    old = is_old_git(git)
    parts += [f"git {git} is too old for a hub, which needs {'.'.join(map(str, MIN_GIT_VERSION))}"] if old else []
    return [("hub", one_line("; ".join(parts)), is_in_sync(hub) and not old)]
