"""``clia grant``: what people allowed agents to repeat."""

from __future__ import annotations

from clia.cli.command import WHY, Answer, arg, command
from clia.cli.inputs import message_text
from clia.cli.output import plain
from clia.cli.rendering import show_line, show_rows, styled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.capture.permissions.prompts import CallGrant
    from clia.facade.space import Space

_STYLES = {"active": "green", "expired": "dim", "revoked": "yellow"}


@command("grant list")
def grant_list(space: Space, agent: str | None = arg("AGENT", "agent name (default: all)", nargs="?")) -> Answer[list[CallGrant]]:
    """List the permissions that people gave with the answer `always`, newest first."""
    from clia.capture.permissions.prompts import grants

    listed = grants(space, agent)

    def show() -> None:
        if not listed:
            show_line("no grants")
            return
        rows = [
            (grant.decision[:10], grant.agent, styled(grant.state, _STYLES[grant.state]), grant.until, grant.by, _what(grant))
            for grant in listed
        ]
        show_rows(("decision", "agent", "state", "until", "by", "what"), rows, cut=("what",))

    return Answer(listed, show)


def _what(grant: CallGrant) -> str:
    return plain(grant.command or ", ".join(grant.files) or grant.tool)


@command("grant revoke")
def grant_revoke(
    space: Space, decision: str = arg("DECISION", "commit of the decision that granted it, or its start"), message: str = WHY
) -> Answer[str]:
    """Revoke a permission; the revocation is a decision commit, too."""
    from clia.capture.permissions.prompts import grant_named, revoke

    grant = grant_named(space, decision)
    cid = revoke(space, grant, message_text(message), None)
    return Answer(cid, lambda: show_line(f"revoked by {cid[:10]}: {_what(grant)}"))
