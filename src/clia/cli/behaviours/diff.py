"""``clia behaviour diff``: what one version changes in another.

Invariant: a terminal gets the patch coloured and harmless; a pipe or a file gets it as it is.
"""

from __future__ import annotations

import sys

from clia.behaviours.model import PROPOSED
from clia.cli.behaviours.common import known
from clia.cli.output import console, emit_json, plain, write
from clia.cli.space.common import add_space, space_of
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.behaviours.model import BehaviourVersion, KnownBehaviour
    from clia.facade.space import Space

_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}
_HEAD = 2  # lines that name the two versions


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "what",
        nargs="+",
        metavar="NAME|CID",
        help="two versions, each by its id, the start of it, a name (its current version) or PEER/NAME; a name before these two: "
        "both must be of it. An id alone: its parent and it. A name alone: its current version and the newest proposal, or, where "
        "nothing is proposed, the current one's parent and it",
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        before, after = _pair(space, args.what)
        patch = space.behaviour_diff(before, after)
    if args.json:
        emit_json({"before": before, "after": after, "patch": patch})
    elif patch:
        _show(patch)
    else:
        write("note: both say the same\n", sys.stderr)
    return 0


def _pair(space: Space, words: Sequence[str]) -> tuple[str, str]:
    """The ids of what is compared."""
    if len(words) == 1:
        whole = known(space, words[0])
        return _of_a_name(whole) if whole else _with_parent(space.behaviour_version(words[0]))
    if len(words) > 3:
        raise InvalidInput("a diff is of two versions", code="too-much", fields={"field": "what"})
    found = [space.behaviour_version(word) for word in words[-2:]]
    if len(words) == 3:
        name = space.behaviour(words[0]).name
        for each, word in zip(found, words[1:], strict=True):
            if each.name != name:
                raise InvalidInput(
                    f"{word!r} is a version of {each.name!r}, not of {name!r}",
                    code="another-behaviour",
                    hints=[f"clia behaviour show {name}"],
                    fields={"cid": each.cid, "behaviour": name},
                )
    return found[0].cid, found[1].cid


def _of_a_name(behaviour: KnownBehaviour) -> tuple[str, str]:
    proposed = [each for each in behaviour.versions if each.state == PROPOSED]
    if proposed and behaviour.current:
        return behaviour.current, proposed[-1].cid
    chosen = proposed or [each for each in behaviour.versions if each.cid == behaviour.current] or behaviour.versions
    return _with_parent(chosen[-1])


def _with_parent(version: BehaviourVersion) -> tuple[str, str]:
    if version.parent is None:
        raise InvalidInput(
            f"{version.cid[:12]} of {version.name!r} comes from no other version: say what to compare it with",
            code="nothing-to-compare",
            hints=[f"clia behaviour show {version.name} lists its versions"],
            fields={"cid": version.cid, "behaviour": version.name},
        )
    return version.parent, version.cid


def _show(patch: str) -> None:
    terminal = console()
    if not terminal.is_terminal:
        write(patch)
        return
    from rich.text import Text  # only people see it

    text = Text()
    for number, line in enumerate(patch.split("\n")[:-1]):
        text.append(f"{plain(line)}\n", "bold" if number < _HEAD else _STYLES.get(line[:1], ""))
    terminal.print(text, soft_wrap=True, end="")
