"""The federation endpoint: requests that peers send to git."""

from __future__ import annotations

from functools import partial

from clia.forge.federation import asked
from support.federation import an_id
from support.spaces import refused


def packets(*lines: str) -> bytes:
    return b"".join(b"%04x%s" % (len(line) + 5, line.encode() + b"\n") if line else b"0000" for line in lines)


def test_a_fetch_request_is_reduced_to_announced_ids() -> None:
    """Git would answer to any id it has, and so reveal other objects to a peer."""
    announced, private = an_id(1), an_id(2)
    want = f"want {announced} multi_ack_detailed agent=git/2"
    request = packets(want, "", f"have {private}", f"have {announced}", f"have {private}", "done")
    assert asked(request, {announced}) == packets(want, "", f"have {announced}", "done")
    assert asked(packets(want, "deepen 1", ""), {announced}) == packets(want, "deepen 1", "")
    assert refused("missing-object", lambda: asked(packets(want, f"want {private}", "", "done"), {announced})).message == private
    for line in (
        f"shallow {announced}",
        "filter blob:none",
        "deepen-since 1",
        "deepen-not main",
        f"have {announced[:39]}",
        f"WANT {announced}",
    ):
        refused("malformed-request", partial(asked, packets(want, line, "", "done"), {announced}))
