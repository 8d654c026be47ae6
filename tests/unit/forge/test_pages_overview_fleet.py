"""The fleet page and its metrics."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import clia
from clia.facade.config import ForgeOptions
from clia.forge import metrics
from clia.forge.app import create_app
from clia.forge.forge import forge_of
from clia.store.interface import Task
from clia.workers.fleet import FORGE, Underway
from support import git
from support.fleet import beat, put
from support.forge import ATTACK, IMAGE, OpenForge, assert_harmless
from support.session_flows import QUESTION
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path


def section(page: str, title: str) -> str:
    """The text below a heading, without markup."""
    match = re.search(rf'id="{title}-title">.*?</h2>(.*?)</section>', page, re.DOTALL)
    assert match is not None, f"no section {title}"
    return " ".join(re.sub(r"<[^>]+>", " ", match[1]).split())


def test_without_workers_the_page_says_what_to_do_and_only_users_see_it(empty_forge: OpenForge) -> None:
    page = empty_forge.browser("vi", "viewer").get(f"{empty_forge.base}/fleet").text
    assert "start one: clia worker" in section(page, "waits")
    assert "Start one on any machine that has this space: clia worker" in section(page, "workers")
    assert "No heartbeats" in section(page, "machines")
    assert section(page, "queue") == "No requests are waiting for a worker."
    assert 'aria-current="page">Fleet<' in page
    assert_harmless(page)
    assert empty_forge.stranger().get(f"{empty_forge.base}/fleet").status_code == 303


def test_machines_workers_leases_and_waiting_requests_are_shown_as_text(empty_forge: OpenForge) -> None:
    space = empty_forge.space
    space.sessions.define("question", QUESTION)
    for name, kind in (("scout", "echo"), ("smith", "llm"), ("asks", "human")):
        space.spawn(name, BRIEFING)
        space.start(name, "question", {"kind": kind, "payload": {"question": "Go?"}})
    now = space.fleet().at
    space.local.queue.claim([Task("scout", "1.1", "echo", now)], "w1", now + 1, 300.0)
    doing = Underway("scout", "1.1", "echo", 2, now - 70)
    rows = [
        beat(seen_at=now, clock=now + 90, running=[doing], answered=41, forks=[]),
        beat(
            ATTACK,
            machine=IMAGE,
            clone="c2",
            seen_at=now - 600,
            trouble=ATTACK,
            kinds=[ATTACK],
            forks=["smith"],
            away_since=now - 600,
        ),
        beat("127.0.0.1:8337", kind=FORGE, seen_at=now, clock=now + 90, kinds=[]),
    ]
    put(space, *rows)
    page = empty_forge.browser().get(f"{empty_forge.base}/fleet").text
    assert_harmless(page)
    machines = section(page, "machines")
    assert "north clock 1 min ahead c1 alive 1 1 1 in sync" in machines
    assert "c2 silent 0 0 0 unreachable for 10 min forked: smith" in machines
    workers = section(page, "workers")
    assert "w1 north pid 7, clia 0.1.0 alive" in workers
    assert "scout 1.1 echo , attempt 2, 1 min 41 0 0 echo 4 at once" in workers
    assert "silent 10 min" in workers
    assert section(page, "queue").endswith("echo 0 1 0 1 llm 1 0 0 no worker handles it")
    assert re.search(r"scout 1.1 echo 1 w1 alive \d min$", section(page, "leases"))
    assert "127.0.0.1:8337 north pid 7 alive" in section(page, "forges")
    assert "no worker handles llm" in section(page, "waits")
    assert re.search(rf'<dd id="oldest-people">.*<a href="{empty_forge.base}/inbox/asks/1.1">asks 1.1</a>', page)
    assert re.search(rf'<dd id="oldest-work">.*<a href="{empty_forge.base}/agents/scout">scout 1.1</a>', page)
    numbers = metrics.text(empty_forge.forge).decode()
    for line in (
        'clia_queue_depth{space="repo",state="due"} 1.0',
        'clia_queue_depth{space="repo",state="held"} 1.0',
        'clia_workers{space="repo"} 1.0',
        'clia_workers_silent{space="repo"} 1.0',
        'clia_requests_waiting{kind="other",space="repo"} 2.0',
    ):
        assert line in numbers
    assert float(re.findall(r'clia_oldest_request_seconds\{space="repo",whom="people"\} (.+)', numbers)[0]) > 0


def test_with_a_hub_the_page_shows_unpushed_work_and_work_on_other_machines(tmp_path: Path) -> None:
    """Two clones. One has an unpushed flow, and an agent's latest work is on a third, so its request is not due."""
    hub = tmp_path / "Team Shop.git"
    git("init", "--quiet", "--bare", str(hub), cwd=tmp_path)
    with ExitStack() as stack:
        forges = []
        for name in ("one", "two"):
            space = clia.init(tmp_path / name, settings=settings(), hub=str(hub))
            forges.append(forge_of([(str(tmp_path / name), space)], ForgeOptions()))
            stack.callback(forges[-1].close)
        assert [list(opened_forge.sites) for opened_forge in forges] == [["team-shop"], ["team-shop"]]
        first_forge = OpenForge(forges[0], create_app(forges[0]), ExitStack())
        space = first_forge.space
        space.sessions.define("question", QUESTION)
        space.spawn("scout", BRIEFING)
        space.start("scout", "question", {"kind": "echo", "payload": {}})
        own_clone = space.hub.status().clone
        with space.local.store.writing() as change:
            change.values.put("owed/scout", {"clone": "third", "since": ""})
            change.values.put("owed/@behaviour-go2", {"clone": own_clone, "since": ""})
        now = space.fleet().at
        put(
            space,
            beat(clone=own_clone, forks=["smith"], seen_at=now),
            beat("w2", clone="c2", forks=["a", "b"], kinds=[], seen_at=now),
        )
        (depth,) = space.fleet().queue
        assert (depth.due, depth.held, depth.later, depth.elsewhere) == (0, 0, 0, 1)
        page = first_forge.browser().get("/s/team-shop/fleet").text
        assert "requests due for workers 0 requests for other machines 1 each needs" in section(page, "waits")
        assert "its agent's latest work is on another machine" in section(page, "waits")
        assert section(page, "queue").endswith("Elsewhere Workers echo 0 0 0 1 1")
        assert "not pushed: (behaviours/go2) forked: smith" in section(page, "machines")
        assert "unknown third no processes 0 0 0 not pushed: scout" in section(page, "machines")
        numbers = metrics.text(forges[0]).decode()
        hub.rename(tmp_path / "away.git")
        space.spawn("tailor", BRIEFING)
        metrics_without_hub = metrics.text(forges[0]).decode()
    for text, (unreachable, owed, forked) in ((numbers, (0, 1, 1)), (metrics_without_hub, (1, 2, 1))):
        assert f'clia_hub_away{{space="team-shop"}} {unreachable}.0' in text
        assert f'clia_hub_owed{{space="team-shop"}} {owed}.0' in text
        assert f'clia_hub_forks{{space="team-shop"}} {forked}.0' in text
    assert 'clia_queue_depth{space="team-shop",state="elsewhere"} 1.0' in numbers
