"""Demo of federation: a second space, ``friends``, is tracked as a peer.

At the end one agent of the peer is tracked, and one claim was refused and waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia

if TYPE_CHECKING:
    from pathlib import Path

_GREET = 'def main(input):\n    return request("human", {"question": "Shall we round at the till?", "choices": ["yes", "no"]})\n'
TOUR: tuple[tuple[str, str], ...] = (
    ("Friends have their own space. It is pinned by its key.", "peer add friends --key {key} --url ../friends"),
    ("Nothing of theirs is accepted without a grant. Accept their agents, but not their flows.", "cap grant friends --follow"),
    ("What do they announce? Their agent is tracked; their flow is refused and waits.", "sync friends"),
    ("Why was it refused?", "cap explain friends behaviour behaviour"),
    ("Which of their agents are tracked here?", "remotes"),
    ("What is shared with them? One agent.", "peer share friends --agent scout"),
    ("Announce it to them.", "announce friends"),
)


def plant(repository: Path) -> dict[str, str]:
    """Create the space of the friends next to ours; return the key that the tour pins."""
    settings = clia.Settings(person=("Grace", "grace@example.org"))
    with clia.init(repository.parent / "friends", settings=settings) as friends, clia.open(repository) as ours:
        friends.spawn("cashier", clia.Briefing("Know what a basket costs"))
        friends.trace("cashier", "console", "asked three tills; two of them round up")
        friends.commit_with_trace("cashier", "finding", {"TILLS.md": b"Two tills of three round up.\n"}, message="Tills round up")
        friends.sessions.define("greet", _GREET)
        friends.peers.add("shop", ours.peers.key().text)
        friends.peers.share("shop", agents=["*"], traces=True, behaviours=["*"])
        friends.peers.announce("shop")
        return {"key": friends.peers.key().text}
