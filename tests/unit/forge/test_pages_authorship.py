"""The pages of people's branches: files with the author of each line, and summaries of authorship."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import clia
from clia.forge.pages import authorship
from support import git
from support.forge import ATTACK, assert_harmless
from support.plain_git import commit_tree, fast_import, rev
from support.session_spaces import root_of

if TYPE_CHECKING:
    from support.forge import OpenForge


@pytest.fixture
def branch(empty_forge: OpenForge) -> OpenForge:
    """A branch ``feature/x`` with two lines of an agent and one of a person."""
    space = empty_forge.space
    space.spawn("scout", clia.Briefing(f"Count {ATTACK}", ""))
    space.trace("scout", "console", "thought")
    space.commit_with_trace("scout", "finding", changes={"src/lines": b"one()\ntwo()\n"})
    files = {b"src/lines": f"one()\r\ntwo()\r\n{ATTACK}\r\n".encode(), b"na\xefve%": b"caf\xe9\n", b"empty": b"", b"bin": b"\0\1"}
    fast_import(root_of(space), "refs/heads/feature/x", files)
    return empty_forge


def shown(forge: OpenForge, address: str) -> str:
    answer = forge.browser("vera", "viewer").get(forge.base + address)
    assert answer.status_code == 200, answer.text
    assert_harmless(answer.text)
    return answer.text


def test_branches_lead_to_files_and_to_the_author_of_each_line(branch: OpenForge) -> None:
    assert f"{branch.base}/files?rev=feature%2Fx" in shown(branch, "/branches")
    assert f"{branch.base}/files?rev=feature%2Fx&amp;path=src" in shown(branch, "/files?rev=feature/x")
    assert "path=src%2Flines" in shown(branch, "/files?rev=feature/x&path=src")
    page = shown(branch, "/files?rev=feature/x&path=src/lines")
    turn, commit = rev(root_of(branch.space), "agents/scout"), rev(root_of(branch.space), "feature/x")
    assert f'<a href="{branch.base}/agents/scout">scout</a>' in page
    assert f'<a href="{branch.base}/agents/scout#briefing-title" title="briefing">Count &lt;script&gt;' in page
    assert f"/commits/{turn}#trace" in page
    assert f"/commits/{commit}" in page
    assert '<span class="person">Tess</span>' in page


def test_a_line_leads_to_why_it_is_there(branch: OpenForge) -> None:
    branch.space.ask("scout", {"question": f"Right? {ATTACK}"})
    branch.space.decide("scout", "yes")
    address = "/why?rev=feature%2Fx&amp;path=src%2Flines&amp;line=1"
    assert f'<a href="{branch.base}{address}">why?</a>' in shown(branch, "/files?rev=feature/x&path=src/lines")
    page = shown(branch, "/why?rev=feature/x&path=src/lines&line=1")
    assert f'<a href="{branch.base}/agents/scout">scout</a>' in page
    assert "verified: signed, logged" in page
    assert '<span class="proof proof-attested">attested</span>' in page
    assert "thought" in page
    assert "a person wrote it with plain git" in shown(branch, "/why?rev=feature/x&path=src/lines&line=3")


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("/why?rev=feature/x&path=src/lines&line=9", 422),
        ("/why?rev=feature/x&path=bin&line=1", 422),
        ("/why?rev=feature/x&path=none&line=1", 404),
        ("/why?rev=nowhere&path=src/lines&line=1", 404),
    ],
)
def test_a_line_that_is_not_there_has_no_reason(branch: OpenForge, address: str, code: int) -> None:
    assert branch.browser("vera", "viewer").get(branch.base + address).status_code == code


def test_the_summary_of_a_branch_a_range_and_a_commit_has_a_row_per_agent(branch: OpenForge) -> None:
    commit = rev(root_of(branch.space), "feature/x")
    for address in ("/authorship?rev=feature/x", f"/commits/{commit}"):
        page = shown(branch, address)
        assert "2 of 4 lines by 1 agent" in page
        assert "people</td>" in page
    assert "0 of 0 lines by agents" in shown(branch, "/authorship?rev=feature/x..feature/x")


def test_names_and_content_that_are_not_utf8_empty_and_binary_files_have_pages(branch: OpenForge) -> None:
    listing = shown(branch, "/files?rev=feature/x")
    odd = quote(quote(b"na\xefve%"), safe="")
    assert f"path={odd}" in listing
    assert "caf\ufffd" in shown(branch, f"/files?rev=feature/x&path={odd}")
    assert "The file is empty" in shown(branch, "/files?rev=feature/x&path=empty")
    assert "Binary file" in shown(branch, "/files?rev=feature/x&path=bin")


def test_links_and_submodules_are_labelled(empty_forge: OpenForge) -> None:
    root = root_of(empty_forge.space)
    blob = git("hash-object", "-w", "/dev/null", cwd=root).strip()
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub", "--cacheinfo", f"120000,{blob},link", cwd=root)
    odd = commit_tree(root, "odd", tree=git("write-tree", "--missing-ok", cwd=root).strip())
    assert f"Submodule at commit <code>{'1' * 40}" in shown(empty_forge, f"/files?rev={odd}&path=sub")
    assert "Symbolic link" in shown(empty_forge, f"/files?rev={odd}&path=link")


def test_a_long_file_has_several_pages(branch: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorship, "LINES_AT_ONCE", 2)
    first = shown(branch, "/files?rev=feature/x&path=src/lines")
    assert "lines 1 to 2 of 3" in first
    assert "Later lines" in first
    assert 'id="L3"' not in first
    last = shown(branch, "/files?rev=feature/x&path=src/lines&from=3")
    assert "lines 3 to 3 of 3" in last
    assert 'id="L3"' in last
    assert 'id="L2"' not in last


@pytest.mark.parametrize("path", ["nothing", "src/lines/x", "../x", "src//lines", ".git/config", "a%00b", "/src", "."])
def test_an_unknown_path_is_a_404(branch: OpenForge, path: str) -> None:
    assert branch.browser().get(f"{branch.base}/files?rev=feature/x&path={path}").status_code == 404


@pytest.mark.parametrize("address", ["/branches", "/files?rev=feature/x", "/authorship?rev=feature/x"])
def test_a_stranger_must_log_in(branch: OpenForge, address: str) -> None:
    assert branch.stranger().get(branch.base + address).status_code in (303, 401)


@pytest.mark.parametrize("address", ["/files?rev=nothing", "/authorship?rev=nothing", "/authorship?rev=feature/x..nothing"])
def test_an_unknown_revision_is_a_404_that_names_it(branch: OpenForge, address: str) -> None:
    answer = branch.browser().get(branch.base + address)
    assert answer.status_code == 404
    assert "nothing" in answer.text


def test_a_deleted_file_is_a_404_at_the_branch_and_shown_at_the_commit_before(branch: OpenForge) -> None:
    root = root_of(branch.space)
    before = rev(root, "feature/x")
    after = commit_tree(root, "delete", before)
    assert branch.browser().get(f"{branch.base}/files?rev={after}&path=src/lines").status_code == 404
    assert 'id="L3"' in shown(branch, f"/files?rev={before}&path=src/lines")
