"""The components of a space that check rules and approvals. Most commands need none of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.approvals.accepted_guardrails import AcceptedGuardrails
    from clia.approvals.entries import ApprovalEntries
    from clia.approvals.guardrails import GuardrailApprovals
    from clia.approvals.recorded_rules import RecordedRules
    from clia.approvals.signatures import RecordedSignatures
    from clia.facade.components import Components
    from clia.rules.model import GuardrailRule


def guardrail_approvals(components: Components) -> GuardrailApprovals:
    """Approvals of changes that take guardrails away."""
    from clia.approvals.guardrails import GuardrailApprovals
    from clia.git.submodule_objects import SubmoduleObjects

    submodules = SubmoduleObjects(components.git.handle, components.git.command)

    def check(agent: str, onto: str, trees: tuple[str | None, str], head: str) -> None:
        if components.may_have_rules(agent):
            components.recorded_rules.check_landing(agent, onto, trees, head)

    def entries() -> ApprovalEntries:
        from clia.approvals.entries import ApprovalEntries

        return ApprovalEntries(components.core, components.agent_journals, submodules.tree)

    slug_of = lambda name: components.agents.origin_of(name).slug  # noqa: E731
    return GuardrailApprovals(
        components.core, lambda: components.lifecycle, submodules.tree, components.config.approvals.people, entries, slug_of, check
    )


def accepted_guardrails(components: Components) -> AcceptedGuardrails:
    """The guardrails that earlier agents had."""
    from clia.approvals.accepted_guardrails import AcceptedGuardrails
    from clia.approvals.evidence import Approvers

    lifecycle, approvers = lambda: components.lifecycle, Approvers(components.config.approvals.people)
    return AcceptedGuardrails(
        components.core, components.envelope, components.options.place, lifecycle, approvers, components.git.refs.checked_out
    )


def recorded_rules(components: Components) -> RecordedRules:
    """Rules of guardrails on commits and landings."""
    from clia.approvals.recorded_rules import RecordedRules

    has_trace = lambda commit: components.traces.cid_for(commit.cid) is not None  # noqa: E731
    has_entries = lambda name: bool(components.traces.pending(name))  # noqa: E731
    lifecycle, people = lambda: components.lifecycle, components.config.approvals.people

    def signatures() -> RecordedSignatures:
        from clia.approvals.signatures import RecordedSignatures  # few rules need signatures

        trust = components.trust_keys
        key = trust.machine.public().fingerprint if trust.machine.exists() else None
        return RecordedSignatures(components.git.objects.raw, trust.chain(), key)

    return RecordedRules(
        components.core,
        lifecycle,
        components.registry,
        lambda name: rules_of(components, name),
        has_trace,
        has_entries,
        people,
        signatures,
    )


def rules_of(components: Components, name: str) -> Sequence[GuardrailRule]:
    """The rules of an agent, with paths relative to the space."""
    from clia.identities.service import IdentityService

    identities = IdentityService(components)
    return [identities.shown(rule) for rule in identities.rules_in_force(name)]
