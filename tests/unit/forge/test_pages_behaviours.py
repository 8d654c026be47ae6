"""The pages of behaviours: statistics with little and much data, and changes of versions by administrators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from clia.behaviours.index import ObservationIndex
from clia.behaviours.measures import compare
from clia.behaviours.model import BehaviourVersion
from clia.behaviours.statistics import Count
from clia.forge.pages.behaviours import descent, judged
from clia.space.events import append_event
from clia.testing import components
from clia.values import refs as names
from support.forge import ATTACK, assert_harmless, open_forge
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx2 import Response

    import clia
    from support.forge import Browser, OpenForge

FLAKY = "def main(input):\n    if input % 2:\n        raise ValueError('odd')\n    return input\n"
STEADY = "def main(input):\n    return input\n"
HOSTILE = f"# {ATTACK}\ndef main(input):\n    return 0\n"


class BehavioursScene(NamedTuple):
    """A forge with a behaviour of three versions: a current one, one on trial, and a hostile proposal."""

    forge: OpenForge
    flaky: str
    steady: str
    hostile: str

    @property
    def space(self) -> clia.Space:
        return self.forge.space

    def page(self, browser: Browser, path: str) -> str:
        answer = browser.get(f"{self.forge.base}/{path}")
        assert answer.status_code == 200, answer.text
        assert_harmless(answer.text)
        return answer.text.replace("\u00a0", " ")

    def change(self, browser: Browser, action: str, version: str, expect: str | None, **more: str) -> Response:
        fields = {"action": action, "version": version, "expect": expect or "", "why": "since", **more}
        return browser.post(f"{self.forge.base}/behaviours/review/change", fields)

    def events(self) -> list[str]:
        return [event.event for event in self.space.behaviours.get("review").history]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[BehavioursScene]:
    with open_forge(tmp_path) as opened:
        space = opened.space
        space.spawn("scout", BRIEFING)
        flaky = space.behaviours.add("review", FLAKY, "session-flow", why="the first").cid
        steady = space.behaviours.propose("review", STEADY, why="no failures").cid
        space.behaviours.adopt("review", steady, trial=True)
        evidence = ["scout"]
        hostile = space.behaviours.propose("review", HOSTILE, why=ATTACK, notes=ATTACK, evidence=evidence, agent="scout").cid
        yield BehavioursScene(opened, flaky, steady, hostile)


def selected_version(page: str) -> tuple[list[str], list[str]]:
    """The version that is selected in the form, and its primary buttons."""
    form = page.partition('id="do"')[2].partition("</form>")[0]
    return re.findall(r'<option value="(\w*)" selected>', form), re.findall(r'class="primary" name="action" value="(\w+)"', form)


def observe(scene: BehavioursScene, version: str, sessions: int) -> None:
    for number in range(sessions):
        scene.space.start("scout", version, number)


def test_without_or_with_one_observation_there_is_not_enough_data(scene: BehavioursScene) -> None:
    browser = scene.forge.browser()
    for count, rate in ((0, "never observed"), (1, "100 % of 1 (21 % to 100 %)")):
        observe(scene, scene.flaky, count)
        assert f"finished {rate}" in scene.page(browser, "behaviours")
        page = scene.page(browser, "behaviours/review")
        assert "<h2>No suggestion: not enough data</h2>" in page
        assert selected_version(page) == ([""], [])
        assert ("No observations for this measure yet." in page) == (count == 0)
    compared = scene.page(browser, f"behaviours/review/compare?before={scene.flaky}&after={scene.steady}")
    assert "not enough data: the later one was never observed" in compared
    both = scene.page(browser, f"behaviours/review/compare?before={scene.steady}&after={scene.hostile}")
    assert "Not enough data: neither version has observations" in both
    same = scene.page(browser, f"behaviours/review/compare?before={scene.flaky}&after={scene.flaky}")
    assert "cannot compare a version with itself" in same


def test_a_suggestion_is_shown_with_its_evidence_and_adopted_with_it(scene: BehavioursScene) -> None:
    """Evidence links to sessions and commits. The chain records who adopted the version."""
    observe(scene, scene.flaky, 30)
    observe(scene, scene.steady, 30)
    browser = scene.forge.browser(display="Ada Lovelace", email="ada@example.org")
    list_page = scene.page(browser, "behaviours")
    assert re.search(rf"<strong>adopt</strong> <span[^>]*><a[^>]*>{scene.steady[:12]}", list_page)
    assert "3, including 1 proposed" in list_page
    page = scene.page(browser, "behaviours/review?over=month")
    suggestion, evidence = scene.space.behaviours.suggest("review"), page.partition('id="evidence"')[2].partition("</details>")[0]
    assert re.findall(r'title="(\w+)"', evidence) == [*suggestion.evidence]
    session = f'href="{scene.forge.base}/sessions/scout/60" title="{suggestion.evidence[0]}">session 60 of scout finished</a>'
    assert session in evidence
    assert evidence.count(" failed</a>") == 15
    assert f"Evidence: {len(suggestion.evidence)} commits" in page
    assert "the newest 20 of each version" in evidence
    assert selected_version(page) == ([scene.steady], ["adopt"])
    assert f'href="{scene.forge.base}/commits/{scene.space.head("scout")}"' in page.partition('id="history"')[2]
    assert '<title id="plot-time-title">finished by month' in page
    assert "by an agent, not reviewed" in page
    assert scene.change(browser, "adopt", scene.steady, scene.flaky).headers["location"] == f"{scene.forge.base}/behaviours/review"
    adoption = scene.space.behaviours.get("review").history[0]
    assert (adoption.event, adoption.cid, adoption.evidence) == ("adopt", scene.steady, suggestion.evidence)
    assert (adoption.why, adoption.by, adoption.measure) == ("since", "Ada Lovelace <ada@example.org>", "finished")
    assert selected_version(scene.page(browser, "behaviours/review")) == ([scene.flaky], ["retire"])
    for version, primary in ((scene.flaky, ["retire"]), (scene.steady, []), (scene.hostile, [])):
        assert selected_version(scene.page(browser, f"behaviour-versions/{version}"))[1] == primary
    for version in (scene.flaky, scene.hostile):
        assert scene.change(browser, "retire", version, scene.steady).status_code == 303
    final_page = scene.page(browser, "behaviours/review")
    assert ("Suggested: keep the current version" in final_page, selected_version(final_page)) == (True, ([""], []))


def test_evidence_is_described_if_it_is_valid_and_links_only_to_what_exists(scene: BehavioursScene) -> None:
    """A session is missing in the store, an agent does not exist, and events have invalid content and markup."""
    core, browser = components(scene.space).core, scene.forge.browser()
    ended = {"event": "session-ended", "agent": "scout", "session": "999", "status": "failed"}
    refused = {"event": "merge-refused", "into": "scout", "from": "north/digger"}
    bodies = (
        ended,
        ended | {"agent": "nobody"},
        refused,
        ended | {"status": ATTACK},
        ended | {"session": [1]},
        refused | {"from": ATTACK},
        {"event": "x"},
    )
    cids = [append_event(core, names.events("scout"), core.agent_stamp("scout"), body, "said") for body in bodies]
    version = scene.space.behaviours.propose("review", "def main(input):\n    return 7\n", evidence=[*cids, "scout"]).cid
    page = scene.page(browser, f"behaviour-versions/{version}")
    scout, head = f"{scene.forge.base}/agents/scout", scene.space.head("scout")
    assert re.findall(r"<li>(.*?)</li>", page.partition('<ul class="cited">')[2].partition("</ul>")[0]) == [
        f'<a href="{scout}" title="{cids[0]}">session 999 of scout failed</a>',
        f'<span title="{cids[1]}">session 999 of nobody failed</span>',
        f'<a href="{scout}" title="{cids[2]}">merge of north/digger into scout refused</a>',
        *(f'<code title="{cid}">{cid[:12]}</code>' for cid in cids[3:]),
        f'<a class="mono" href="{scene.forge.base}/commits/{head}" title="{head}">{head[:12]}</a>',
    ]


def test_versions_can_be_compared_by_abbreviated_ids_and_unknown_ids_select_nothing(scene: BehavioursScene) -> None:
    browser = scene.forge.browser()
    page = scene.page(browser, f"behaviours/review/compare?before={scene.steady[:12]}&after={scene.flaky[:8]}")
    assert re.findall(r'<option value="(\w*)" selected>', page) == [scene.steady, scene.flaky]
    page = scene.page(browser, f"behaviours/review/compare?before=zzzz&after={scene.flaky[:8]}")
    assert re.findall(r'<option value="(\w*)" selected>', page) == ["", scene.flaky]
    assert "no version" in page


def test_a_version_on_trial_is_named_until_it_is_adopted(scene: BehavioursScene) -> None:
    browser = scene.forge.browser()

    def trials(path: str) -> list[str]:
        cell = re.search(
            r'<td data-label="on trial">(.*?)</td>|<dt>on trial</dt><dd>(.*?)</dd>', scene.page(browser, path), re.DOTALL
        )
        assert cell is not None
        return re.findall(r"/behaviour-versions/(\w+)", cell[0])

    for path in ("behaviours", "behaviours/review"):
        assert trials(path) == [scene.steady]
    assert 'id="trial"' in scene.page(browser, f"behaviour-versions/{scene.steady}")
    scene.space.behaviours.adopt("review", scene.steady)
    for path in ("behaviours", "behaviours/review"):
        assert trials(path) == []
    assert "state-former" in scene.page(browser, f"behaviour-versions/{scene.flaky}")


def test_a_version_is_shown_as_text_with_its_changes(scene: BehavioursScene) -> None:
    page = scene.page(scene.forge.browser(), f"behaviour-versions/{scene.hostile}")
    assert page.count("&lt;script&gt;alert(1)") >= 4  # why, notes, body, and the added line
    assert "Proposed by an agent." in page
    assert "Changes from its parent" in page
    assert 'class="add"' in page
    assert f'name="expect" value="{scene.flaky}"' in page
    proposal = scene.space.behaviours.propose("review", "def main(input):\n    return 1\n").cid
    assert "</strong> Proposed. It cannot run" in scene.page(scene.forge.browser(), f"behaviour-versions/{proposal}")
    current = scene.page(scene.forge.browser(), f"behaviour-versions/{scene.flaky}")
    assert "It is the current version." in current
    assert 'id="unreviewed"' not in current


def test_a_change_based_on_an_outdated_page_is_refused(scene: BehavioursScene) -> None:
    """For every action, and also if nothing was current when the page was loaded."""
    browser = scene.forge.browser()
    assert scene.change(browser, "adopt", scene.steady, scene.flaky).status_code == 303
    before = scene.events()
    for action in ("adopt", "trial", "retire"):
        for expect in (scene.flaky, None):
            answer = scene.change(browser, action, scene.hostile, expect)
            assert answer.status_code == 409, (action, expect)
            assert "the current version of" in answer.text
            assert f'name="expect" value="{scene.steady}"' in answer.text  # the form has the new current version
            assert ">since</textarea>" in answer.text.replace("\n", "")
    assert scene.events() == before
    assert scene.change(browser, "retire", scene.steady, scene.steady).status_code == 303
    assert "no current version" in scene.page(browser, "behaviours")
    assert scene.change(browser, "trial", scene.hostile, None).status_code == 303
    assert scene.change(browser, "adopt", scene.hostile, None).status_code == 303
    assert scene.events()[:3] == ["adopt", "trial", "retire"]


def test_an_unknown_action_or_version_or_a_missing_role_is_refused(scene: BehavioursScene) -> None:
    browser, decider, before = scene.forge.browser(), scene.forge.browser("grace", "decider"), scene.events()
    assert scene.change(browser, "burn", scene.steady, scene.flaky).status_code == 422
    assert scene.change(browser, "adopt", "0" * 40, scene.flaky).status_code == 422
    without_version = scene.change(browser, "adopt", "", scene.flaky)
    assert (without_version.status_code, "select a version" in without_version.text) == (422, True)
    assert scene.change(browser, "adopt", scene.steady, scene.flaky, _csrf="wrong").status_code == 403
    assert scene.change(decider, "adopt", scene.steady, scene.flaky).status_code == 403
    for path in ("behaviours/review", f"behaviour-versions/{scene.steady}"):
        assert 'name="action"' in scene.page(browser, path)
        assert 'name="action"' not in scene.page(decider, path)
    assert browser.post(f"{scene.forge.base}/behaviours/nope/change", {"action": "adopt"}).status_code == 404
    for path in ("behaviours/nope", "behaviours/nope/compare", "behaviour-versions/zzzz", f"behaviour-versions/{'0' * 40}"):
        assert browser.get(f"{scene.forge.base}/{path}").status_code == 404, path
    assert scene.events() == before


def test_a_page_reads_the_index_once_and_reports_missing_objects(scene: BehavioursScene, monkeypatch: pytest.MonkeyPatch) -> None:
    core, browser = components(scene.space).core, scene.forge.browser()
    refusal = {"event": "merge-refused", "ours": "0" * 40, "theirs": "1" * 40}
    append_event(core, names.events("scout"), core.agent_stamp("scout"), refusal, "refused")
    reads: list[str] = []

    def count_reads(name: str) -> None:
        read_method = getattr(ObservationIndex, name)

        def read(index: ObservationIndex, *args: object) -> object:
            reads.append(name)
            return read_method(index, *args)

        monkeypatch.setattr(ObservationIndex, name, read)

    count_reads("every")
    count_reads("sums")
    pages = ("behaviours", "behaviours/review", f"behaviour-versions/{scene.steady}", "behaviours/review/compare")
    for number, path in enumerate(pages, 1):
        assert "1 item could not be read" in scene.page(browser, path)
        assert len(reads) == number, path


def test_a_commit_links_the_version_that_ran_if_it_is_present(scene: BehavioursScene, tmp_path: Path) -> None:
    space, browser = scene.space, scene.forge.browser()
    prompt = space.behaviours.add("careful", "Be careful: {{task}}", "prompt").cid
    space.spawn("digger", space.behaviours.brief("careful", "Dig", agent="digger"))
    commit = space.commit("digger", "test", {"a": b"1"}, meta={"outcome": "pass"})
    link = f'href="{scene.forge.base}/behaviour-versions/{prompt}"'
    assert link in scene.page(browser, f"commits/{commit}")
    assert link in scene.page(browser, "agents/digger")
    (tmp_path / "repo/.git/objects" / prompt[:2] / prompt[2:]).unlink()
    assert link not in scene.page(browser, f"commits/{commit}")
    assert prompt[:12] in scene.page(browser, f"commits/{commit}")


def test_a_lineage_has_every_version_once_whatever_its_parents() -> None:
    """Even if git wrote a chain with a cycle or a missing parent."""
    parents = {"a": None, "b": "a", "c": "a", "d": "b", "e": "gone", "x": "y", "y": "x"}
    versions = [BehaviourVersion("n", cid, "prompt", "former", "", parent) for cid, parent in parents.items()]
    rows = [(version.cid, depth) for version, depth in descent(versions)]
    assert rows == [("a", 0), ("b", 1), ("d", 2), ("c", 1), ("e", 0), ("x", 0), ("y", 1)]


def test_a_probability_is_described_in_words() -> None:
    probable, verdict = judged(compare("passed", Count(1, 4), Count(4, 1)), 20)
    assert probable.replace("\u00a0", " ") == "96 % likely that the later is better"
    assert verdict == "not enough data: 20 observations of each are needed"
    probable, verdict = judged(compare("passed", Count(90, 10), Count(40, 60)), 20)
    assert probable.replace("\u00a0", " ") == "over 99.9 % likely that the earlier is better"
    assert verdict == "the earlier is better"
    probable, _ = judged(compare("passed", Count(0, 9000), Count(9000, 0)), 20)
    assert probable.replace("\u00a0", " ") == "over 99.9 % likely that the later is better"
    assert judged(compare("passed", Count(50, 50), Count(51, 49)), 20)[1] == "no difference"
