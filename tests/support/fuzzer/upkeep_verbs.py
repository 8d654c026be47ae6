"""The verbs of upkeep: reading everything, cleaning up, repairing, backups, and exchange with other clones."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import clia
from clia.facade.restore import restore as restore_backup
from clia.testing import components
from support.fuzzer.act import Skipped

if TYPE_CHECKING:
    from support.fuzzer.act import Act, Facts


def relink(act: Act) -> Facts:
    act.space.relink()
    return []


def maintain(act: Act) -> Facts:
    act.space.maintain(archive_idle_days=act.order.choice((None, None, 0)))
    return []


def rebuild(act: Act) -> Facts:
    act.space.rebuild()
    return []


def read(act: Act) -> Facts:
    """Everything that pages and lists read; none of it may fail."""
    space = act.space
    space.states()
    space.relations()
    space.pending()
    space.sessions()
    space.window(limit=50)
    space.hub_status() if space.has_hub else space.verify()
    for name in space.agents():
        space.agent_tree(name)
        space.log(name, limit=20)
    return []


def doctor(act: Act) -> Facts:
    repair = act.order.random() < 0.5
    if repair:
        act.place.begin("repair")
    act.space.doctor(repair=repair)
    return []


def publish(act: Act) -> Facts:
    names = sorted({*act.space.agents(), *act.space.agents(archived=True)})
    chosen = names if act.order.random() < 0.5 else [act.one_of(names)]
    pushed = act.space.publish(chosen)
    refused = {ref.ref for ref in pushed if ref.state == "refused"}
    assert not refused or not [ref for ref in pushed if ref.state in ("new", "moved")], f"not all or nothing: {pushed}"
    return []


def upkeep(act: Act) -> Facts:
    """What runs in the background after some moves."""
    act.space.local.upkeep()
    return []


def put_away(act: Act) -> Facts:
    act.space.local.put_away([act.agent()])
    return []


def bring_back(act: Act) -> Facts:
    act.space.local.unarchive_all()
    return []


def hub_sync(act: Act) -> Facts:
    if not act.space.has_hub:
        raise Skipped
    act.space.hub.sync()
    return []


def adopt(act: Act) -> Facts:
    """Adopt what was published: it is of this clone, and not newer."""
    act.space.adopt("origin")
    return []


def back_up(act: Act) -> Facts:
    """Back up the space, and restore it beside: the copy has every agent with its head, and every session."""
    backup, copy = act.place.beside("backup"), act.place.beside("restored")
    for directory in (backup, copy):
        shutil.rmtree(directory, ignore_errors=True)
    before = _state(act.space)
    act.space.local.back_up(str(backup))
    try:
        if act.place.store is None:
            settings = act.place.settings()
            restore_backup(str(backup), str(copy), settings)
            with clia.open(copy, settings=settings) as restored:
                _check_has(restored, *before)
    finally:
        for directory in (backup, copy):
            shutil.rmtree(directory, ignore_errors=True)
    return []


def _check_has(restored: clia.Space, heads: dict[str, str], sessions: list[tuple[str, str]]) -> None:
    """A backup has what there was before it, and in a burst what others did meanwhile."""
    core, (now, sessions_now) = components(restored).core, _state(restored)
    missing = [name for name, head in heads.items() if name not in now or not core.contains(now[name], head)]
    assert not missing, f"the backup lacks {missing}: it has {now}, not {heads}"
    assert set(sessions) <= set(sessions_now), f"the backup has the sessions {sessions_now}, not {sessions}"


def _state(space: clia.Space) -> tuple[dict[str, str], list[tuple[str, str]]]:
    names = sorted({*space.agents(), *space.agents(archived=True)})
    return {name: str(space.find(name)) for name in names}, sorted((session.agent, session.id) for session in space.sessions())
