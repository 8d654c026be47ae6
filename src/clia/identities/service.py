"""Identities as seen from the directory of a space: ``space.identities``. Read only.

Invariant: clients are on other machines, so paths are relative to the space's directory. An unusable document is reported with its
location and never hides the others.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NamedTuple

from clia.errors import CliaError, NotFound
from clia.identities import checks
from clia.identities.contexts import AGENCY, AGENDA, AGENT
from clia.identities.lineage import lineage
from clia.identities.working_path import parents
from clia.values.records import json_form
from clia.values.slugs import SLUG_MAX
from clia.verbs import ADMIN, VIEWER, Hint, for_people, require_person, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clia.api.parameters import AcceptIncomplete
    from clia.api.parameters import Agent as AgentName
    from clia.approvals.accepted_guardrails import AcceptedLoss
    from clia.facade.components import Components
    from clia.files import LocalFiles
    from clia.identities.agenda_work import PlannedWork
    from clia.identities.agent_places import FrozenProfile
    from clia.identities.contexts import IdentityContext
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.guardrails.changes import GuardrailLoss
    from clia.identities.guardrails.rules import RuleExplanation
    from clia.identities.lineage import Lineage
    from clia.identities.origins import Explanation, ValueOrigin
    from clia.identities.profile_drift import AgentIdentity
    from clia.identities.roster import ListedIdentity, Roster, SearchHit
    from clia.rules.model import GuardrailRule
    from clia.values.typed_objects import Briefing

PROFILE, PLAN = "profile", "plan"
DOCUMENTS = {PROFILE: AGENT, PLAN: AGENDA, AGENCY: AGENCY}
"""Kinds of merged documents by public name."""
LINES_BYTES = 4_000_000
"""Maximum bytes read to find line numbers."""

Slug = Annotated[str, Hint((("pattern", "^[a-z0-9]+(-[a-z0-9]+)*$"), ("maxLength", SLUG_MAX)))]
Document = Annotated[str, Hint((("enum", tuple(DOCUMENTS)),))]
_ACTIONS = ("tool", "command", "effect", "commit", "land", "push")
RuleOn = Annotated[str, "action that the rules are asked about", Hint((("enum", _ACTIONS),))]
AgendaItemId = Annotated[str, "id of an item of the agenda, or its start"]
Pointer = Annotated[str, "a JSON pointer into the merged document: /title, /guardrails/0"]


class RelativePaths:
    """Converts local paths to paths relative to a space."""

    def __init__(self, directory: str) -> None:
        self._top = os.path.realpath(directory)
        above = [parent for parent in parents(self._top) if parent != "/"]
        pattern = "|".join(re.escape(parent) for parent in above)  # longest first
        self._known = re.compile(rf"(?<![\w./~-])({pattern})(/|(?![\w.-]))") if above else None

    def short(self, path: str) -> str:
        return _text(os.path.relpath(path, self._top))

    def whole(self, short: str) -> str:
        """The local path for a relative one."""
        return os.path.normpath(os.path.join(self._top, short))

    def in_text(self, text: str) -> str:
        """A message with its paths made relative."""
        return _text(text if self._known is None else self._known.sub(self._relative, text))

    def _relative(self, match: re.Match[str]) -> str:
        relative = os.path.relpath(match[1], self._top)
        return ("" if match[2] else ".") if relative == "." else relative + match[2]

    def in_json(self, value: Any) -> Any:
        """A JSON value with the paths in all its strings made relative."""
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, dict):
            return {key: self.in_json(item) for key, item in value.items()}
        return [self.in_json(item) for item in value] if isinstance(value, (list, tuple)) else value

    @contextmanager
    def errors(self) -> Iterator[RelativePaths]:
        """Make the paths of errors in the block relative."""
        try:
            yield self
        except CliaError as err:
            raise self.in_error(err) from None

    def in_error(self, err: CliaError) -> CliaError:
        """An error with its paths made relative."""
        hints = [self.in_text(hint) for hint in err.hints]
        return type(err)(self.in_text(err.message), hints=hints, fields=self.in_json(err.fields), code=err.code)


class DocumentFinding(NamedTuple):
    """A problem in a document and its location."""

    severity: str  # `error`, `warning` or `info`
    code: str  # one of the codes of diagnostics
    message: str  # one sentence for a person
    hint: str  # what to do
    path: str | None  # the file or directory that it is about
    line: int | None  # line of the value, from 1; null: unknown
    pointer: str | None  # JSON pointer into the file; null: the whole file


class VisibleIdentities(NamedTuple):
    """The identities that are visible from the space's directory."""

    agents: tuple[ListedIdentity, ...]  # the identities, by slug
    diagnostics: tuple[DocumentFinding, ...]  # problems of their documents


@json_form(more_journals="moreJournals?", link="link?", real_path="realPath?")
class ContextView(NamedTuple):
    """A directory with documents of the identity."""

    prefix: str  # short name: the first part of the names of its files
    path: str  # the domain directory, with `.clia`
    reasons: tuple[str, ...]  # why it counts: `ancestor`, `submodule-root`, `agents-dir`, `symlink`, `root-chain` or `local`
    documents: Mapping[str, str | None]  # path of the document of each kind
    more_journals: tuple[str, ...] | None = None  # further agency documents in the directory, by name; all of them are merged
    link: str | None = None  # the directory of the identity, if it is behind a link
    real_path: str | None = None  # where the link leads


class MergedView(NamedTuple):
    """A merged document."""

    slug: str  # the identity
    kind: str  # `agent`, `agenda` or `agency`
    chain: tuple[ContextView, ...]  # the contexts that it was merged from, outermost first
    document: Mapping[str, Any]  # the merged document
    diagnostics: tuple[DocumentFinding, ...]  # problems of its files


class Reprofiled(NamedTuple):
    """The result of recording the present profile of an agent."""

    agent: str  # the agent
    commit: str | None  # the commit that records it; null: the recorded profile is the present one
    profile: str | None  # id of the new profile
    added: tuple[Any, ...]  # guardrails that it has in addition
    lost: tuple[Any, ...]  # guardrails that it no longer has
    decision: str | None = None  # the decision that approves the loss


class WorkStart(NamedTuple):
    """What a program that works as an agent must know."""

    instructions: str  # Markdown, guardrails first
    missing: tuple[str, ...]  # guardrails that are gone at the place of the agent; they bind it
    wrong: tuple[str, ...]  # documents that cannot be read, which a person accepted


class IdentityService:
    """The identities that are visible from the space's directory."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._path = components.options.place
        self._paths = RelativePaths(self._path)

    @verb("GET", "/lineage", VIEWER, "lineage", "lineage")
    def __call__(self, all_: bool = False) -> VisibleIdentities:
        """The identities visible from the space's directory."""
        roster = roster_at(self._path, everything=all_)
        agents = [agent._replace(directory=self._paths.short(agent.directory)) for agent in roster.agents]
        return VisibleIdentities(tuple(agents), findings(self._paths, roster.diagnostics))

    @verb("GET", "/lineage/{slug}/{document}", VIEWER, "lineage", "lineage_document")
    def document(self, slug: Slug, document: Document) -> MergedView:
        """A merged document, its chain, and the problems of its files."""
        kind = kind_of(document)
        merged = lineage_at(self._path, slug).merged(kind)
        chain = tuple(self._context(context) for context in merged.chain)
        return MergedView(slug, kind, chain, merged.document, findings(self._paths, merged.diagnostics))

    @verb("GET", "/lineage/{slug}/{document}/explain", VIEWER, "lineage", "lineage_explain")
    def explain(self, slug: Slug, document: Document, at: Pointer) -> Explanation:
        """Where one value of a merged document comes from; an empty pointer stands for the whole document."""
        kind = kind_of(document)
        explanation = lineage_at(self._path, slug).merged(kind).explain(at)
        return explanation._replace(
            winner=explanation.winner and self._origin(explanation.winner),
            contributors=tuple(map(self._origin, explanation.contributors)),
            shadowed=tuple(map(self._origin, explanation.shadowed)),
            diagnostics=(),
        )

    @verb("GET", "/guardrail-rules/{slug}", VIEWER, "lineage", "lineage_rules")
    def rules(self, slug: Slug) -> list[GuardrailRule]:
        """The rules of an identity's guardrails, outermost first; those of waived guardrails are left out."""
        from clia.identities.guardrails.rules import rules_of

        return [self.shown(rule) for rule in rules_of(lineage_at(self._path, slug).profile())]

    @verb("GET", "/guardrail-rules/{slug}/verdict", VIEWER, "lineage", "lineage_explain_rule")
    def explain_rule(  # noqa: PLR0913  # the parts of an action
        self,
        slug: Slug,
        on: RuleOn,
        *,
        tool: Annotated[str, "name of the tool"] = "",
        command: Annotated[str, "shell command line"] = "",
        paths: Annotated[Sequence[str], "files, relative to the repository"] = (),
        program: Annotated[str, "program in the worker's list"] = "",
        effect: Annotated[str, "kind of the request to a worker"] = "",
        branch: Annotated[str, "target branch"] = "",
        kind: Annotated[str, "kind of the commit"] = "",
    ) -> RuleExplanation:
        """What the rules of an identity say about an action, and which rule from which file decides."""
        from clia.identities.guardrails.rules import explain_rule
        from clia.rules.evaluation import RuledAction

        kinds = (kind,) if kind else ()
        action = RuledAction(on, tool, command or None, tuple(paths), program, effect, branch, kinds)
        return explain_rule(slug, self.rules(slug), action)

    @verb("GET", "/agents/{name}/rules", VIEWER, "lineage", "agent_rules")
    def rules_of_agent(self, name: AgentName) -> list[GuardrailRule]:
        """The rules that an agent is bound by: of the profile that it was spawned with, and of its identity now."""
        return [self.shown(rule) for rule in self.rules_in_force(name)]

    def rules_in_force(self, agent: str | None, files: LocalFiles | None = None) -> tuple[GuardrailRule, ...]:
        """The rules of an agent, with local paths; None: of an unknown agent. ``files``: how documents are read."""
        from clia.identities.agent_places import FrozenProfile, SpawnPlace
        from clia.identities.agent_profiles import AgentPlace
        from clia.identities.guardrails.rules import rules_at, rules_in_force, rules_of_record

        origin = None if agent is None else self._components.agents.origin_of(agent)
        frozen = FrozenProfile(agent or "", *(origin or (None, None)))
        place = AgentPlace(self._path, frozen.place or SpawnPlace(""), agent, files)
        current = rules_at(place.files, place.survey, frozen.slug)
        return rules_in_force(current, rules_of_record(agent or "", frozen.profile or {}))

    def shown(self, rule: GuardrailRule) -> GuardrailRule:
        """A rule with paths relative to the space."""
        from clia.identities.guardrails.rules import FROZEN

        path = rule.path if rule.path.startswith(FROZEN) else self._paths.short(rule.path)
        return rule._replace(path=path, problem=self._paths.in_text(rule.problem))

    @verb("GET", "/lineage/{slug}/agenda/items", VIEWER, "lineage", "agenda_items")
    def agenda(self, slug: Slug) -> list[PlannedWork]:
        """The items of an agenda, each with the agents that were spawned for it, their sessions and landings."""
        from clia.identities.agenda_work import work_of

        return work_of(self._components, slug, lineage_at(self._path, slug).merged(AGENDA).document)

    @verb("GET", "/lineage/{slug}/agenda/items/{item}/briefing", VIEWER, "lineage", "agenda_briefing")
    def brief(self, slug: Slug, item: AgendaItemId, *, title: str | None = None, text: str | None = None) -> Briefing:
        """The briefing for an item of an agenda, for ``spawn``. Its title and text are the item's, unless given."""
        from clia.identities.agenda import META, find_item
        from clia.values.typed_objects import Briefing

        chosen = find_item(lineage_at(self._path, slug).merged(AGENDA).document, slug, item)
        meta = {META: {"identity": slug, "item": chosen.id}}
        return Briefing(title or chosen.title, chosen.text if text is None else text, meta=meta)

    @verb("GET", "/agents/{name}/identity", VIEWER, "lineage", "agent_identity")
    def of_agent(self, name: AgentName) -> AgentIdentity:
        """The identity that an agent works under, and how it differs from the one it was spawned with."""
        from clia.identities.agent_places import FrozenProfile
        from clia.identities.profile_drift import identity_at

        agents = self._components.agents
        agents.any_head(name)
        return self._shortened(identity_at(self._path, FrozenProfile(name, *agents.origin_of(name))))

    def start_of_work(self, name: str, accept_incomplete: str | None) -> WorkStart:
        """What an agent must know before it works. ``Conflict`` if its profile is incomplete and no person accepts that."""
        from clia.identities.agent_places import SpawnPlace
        from clia.identities.agent_profiles import check_reason, incomplete
        from clia.identities.merge_rules import projected_text

        check_reason(accept_incomplete)
        if accept_incomplete is not None:
            require_person(self._components.options.agent, "fix the document, then check it: clia agents lint")
        identity = self.of_agent(name)
        wrong = tuple(finding.message for finding in identity.findings)
        if wrong and accept_incomplete is None:
            raise incomplete(identity.slug, list(wrong))
        if not wrong:
            place = identity.place or SpawnPlace("")
            self._components.accepted_guardrails.check(name, identity.slug, place, identity.guardrails)
        return WorkStart(self.instructions(name), tuple(map(projected_text, identity.missing)), wrong)

    def instructions(self, name: str) -> str:
        """What an agent must know before it works, as Markdown: its guardrails, its identity and its briefing."""
        from clia.identities.profile_drift import instructions

        briefing = None
        with suppress(CliaError):  # the clone that recorded it has not pushed
            briefing = self._components.agents.briefing_of(name)
        return instructions(self.of_agent(name), briefing)

    def at_place_of(self, name: str, slug: str) -> Lineage:
        """The lineage of an identity at the place of an agent, with the documents of its worktree if the space is opened there."""
        from clia.identities.agent_places import FrozenProfile
        from clia.identities.profile_drift import place_of

        return place_of(self._path, FrozenProfile(name, *self._components.agents.origin_of(name))).lineage(slug)

    @verb("GET", "/drifted-identities", VIEWER, "lineage", "drifted_identities")
    def drifted(self) -> list[AgentIdentity]:
        """Agents whose identity differs from the one that they were spawned with, or has documents that cannot be read."""
        from clia.identities.profile_drift import drifted

        return [self._shortened(identity) for identity in drifted(self._path, self._recorded())]

    def _recorded(self) -> Iterator[FrozenProfile]:
        """The recorded profile of each agent. One whose record cannot be read is left out; ``verify`` names it."""
        from clia.identities.agent_places import FrozenProfile

        agents = self._components.agents
        for name in agents.names():
            with suppress(CliaError):
                yield FrozenProfile(name, *agents.origin_of(name))

    @verb("GET", "/lost-guardrails", VIEWER, "lineage", "lost_guardrails")
    def lost_guardrails(self) -> list[GuardrailLoss]:
        """Guardrails that earlier agents had at the space's directory or below, and that are gone without a person's decision."""
        return self._components.accepted_guardrails.gone()

    @verb("POST", "/lost-guardrails/acceptance", ADMIN, "lineage", "accept_loss")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def accept_loss(self, reason: Annotated[str, "why they may be lost"], *, by: str | None = None) -> AcceptedLoss:
        """Record a person's decision that guardrails which are gone are lost, as a commit that names them."""
        return self._components.accepted_guardrails.accept(reason, by or self._person())

    def _person(self) -> str:
        person = self._components.core.person
        return f"{person.name} <{person.email}>"

    @verb("POST", "/agents/{name}/profile", ADMIN, "lineage", "reprofile", moves="name")
    @for_people("an agent can ask a person to do it")
    def reprofile(self, name: AgentName, *, accept_incomplete: AcceptIncomplete = None) -> Reprofiled:
        """Record the present profile of an agent's identity, as a commit of the agent. A loss of guardrails needs approval."""
        from clia.identities.agent_places import FrozenProfile
        from clia.identities.profile_drift import new_profile

        self._components.core.own_head(name)
        frozen = FrozenProfile(name, *self._components.agents.origin_of(name))
        with self._paths.errors() as paths:
            new = new_profile(self._path, frozen, accept_incomplete, paths.in_text)
        if new is None:
            return Reprofiled(name, None, None, (), ())
        decision = self._components.approvals.check_profile(name, new.change)
        record = self._components.reprofiling.record
        commit, profile = record(name, frozen.profile, new.profile, new.message, decision)
        return Reprofiled(name, commit, profile, new.identity.added, new.identity.missing, decision)

    def _shortened(self, identity: AgentIdentity) -> AgentIdentity:
        """The identity with relative paths in its findings."""
        short = [None if item.path is None else self._paths.short(item.path) for item in identity.findings]
        shortened = zip(identity.findings, short, strict=True)
        findings = [item._replace(path=path, message=self._paths.in_text(item.message)) for item, path in shortened]
        return identity._replace(findings=tuple(findings))

    @verb("GET", "/lineage-search", VIEWER, "lineage", "lineage_search")
    def search(self, text: str, *, slugs: Sequence[str] = ()) -> list[SearchHit]:
        """The values that contain a text, in any case, in the documents of the visible identities."""
        hits = checks.search(self._path, text, slugs=slugs)
        return [hit._replace(path=None if hit.path is None else self._paths.short(hit.path)) for hit in hits]

    def _context(self, context: IdentityContext) -> ContextView:
        fields = (context.prefix, context.directory, context.reasons, context.documents, context.more_journals or ())
        prefix, path, reasons, documents, journals = self._paths.in_json(fields)
        link, real_path = self._paths.in_json((context.link, context.real_path))
        return ContextView(prefix, path, tuple(reasons), documents, tuple(journals) or None, link, real_path)

    def _origin(self, origin: ValueOrigin) -> ValueOrigin:
        return origin._replace(path=self._paths.short(origin.path))


def roster_at(path: str, *, everything: bool = False) -> Roster:
    """The identities visible from a space's directory; ``everything`` includes names that are not identities."""
    try:
        return checks.roster(path, everything=everything)
    except CliaError as err:
        raise RelativePaths(path).in_error(err) from None


def lineage_at(path: str, slug: str) -> Lineage:
    try:
        return lineage(path, slug)
    except CliaError as err:
        raise RelativePaths(path).in_error(err) from None


def kind_of(document: str) -> str:
    """The document kind for a name in a URL."""
    if document not in DOCUMENTS:
        hints, fields = [f"one of {', '.join(DOCUMENTS)}"], {"document": document}
        raise NotFound(f"unknown document {document!r}", code="no-such-document", hints=hints, fields=fields)
    return DOCUMENTS[document]


def findings(paths: RelativePaths, diagnostics: Iterable[Diagnostic]) -> tuple[DocumentFinding, ...]:
    """Findings with line numbers, as far as they are cheap to compute."""
    listed = list(diagnostics)
    lines = checks.lines_of(_cheap(listed))
    return tuple(
        DocumentFinding(
            diagnostic.severity,
            diagnostic.code,
            paths.in_text(diagnostic.message),
            diagnostic.hint,
            None if diagnostic.path is None else paths.short(diagnostic.path),
            lines.get(diagnostic),
            diagnostic.pointer,
        )
        for diagnostic in listed
    )


def _cheap(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The first diagnostics within the read limit: each line number costs a read of the file, and files may be large."""
    left = LINES_BYTES
    for diagnostic in diagnostics:
        with suppress(OSError):
            left -= os.path.getsize(diagnostic.path) if diagnostic.path is not None else 0
        if left >= 0:
            yield diagnostic


def _text(path: str) -> str:
    """A name with invalid Unicode escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
