"""What ``clia publish`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.cli import merges
from support import git
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    import clia


def test_many_published_refs_are_counted_and_those_that_the_remote_objects_to_are_listed(
    space: clia.Space, repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merges, "_MOST_PUSHED", 6)
    hub = tmp_path / "hub.git"
    git("init", "-q", "--bare", "hub.git", cwd=tmp_path)
    git("remote", "add", "origin", str(hub), cwd=repo)

    def publish() -> tuple[int, str]:
        answer = merges.publish(space, [], everyone=True, remote="origin", federation=False, no_traces=False, heads=None)
        assert callable(answer.show)
        answer.show()
        return answer.exit_code, capsys.readouterr().out

    space.spawn("one", BRIEFING)
    code, out = publish()
    assert (code, out.splitlines()[0].split()) == (0, ["state", "ref"])
    for name in ("two", "three"):
        space.spawn(name, BRIEFING)
    assert publish() == (0, "10 refs: 4 new, 2 moved, 4 same (--json lists them)\n"), "the log and the checkpoint have moved"
    commit = space.commit("two", "finding", changes={"a": b"1"})
    publish()
    git("update-ref", "refs/heads/agents/two", f"{commit}~1", cwd=repo)
    space.commit("two", "finding", changes={"a": b"2"})
    space.commit("one", "finding", changes={"a": b"2"})
    code, out = publish()
    assert code == 1
    assert [line.split()[:2] for line in out.splitlines()[1:-1]] == [["refused", "refs/clia/agents-published/two"]]
    assert out.splitlines()[-1].startswith("9 refs: 6 same, 3 refused"), "with the log of moves and the head of one"
