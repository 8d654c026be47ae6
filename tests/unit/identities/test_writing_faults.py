"""Writing when something goes wrong: faults, races and planted links."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import FileError
from clia.files import LocalFiles, WritableLocalFiles
from clia.identities import journal as journal_module
from clia.identities import writing
from clia.identities.journal import Note, target_at
from clia.identities.working_path import survey
from clia.identities.writing import NewIdentity, WriteLocation, init, journal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support import Tree


class LockRecordingFiles(WritableLocalFiles):
    """Records which directories were locked."""

    def __init__(self) -> None:
        super().__init__()
        self.locked: list[str] = []

    @contextmanager
    def exclusive(self, directory: str) -> Iterator[None]:
        self.locked.append(directory)
        with super().exclusive(directory):
            yield


def test_two_links_to_one_journal_share_its_lock(tree: Tree) -> None:
    tree.repository("w")
    real = tree.write("w/shared/log.agency.triad.json", '{"entries": []}')
    (tree.directory("w/.clia/agents/scout") / "a.agency.triad.json").symlink_to(real)
    files = LockRecordingFiles()
    journal("scout", Note("n"), WriteLocation(tree.path("w")), files=files)
    assert files.locked == [tree.path("w/shared")]


def test_text_without_the_new_entry_is_never_written(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.repository("w")
    path = tree.agency("w", entries=[{"summary": "old"}])
    before = path.read_bytes()
    monkeypatch.setattr(journal_module, "append_to_array", lambda text, key, items: '{"entries": []}')
    with pytest.raises(FileError):
        journal("scout", Note("n"), WriteLocation(tree.path("w")))
    assert path.read_bytes() == before


def consolidation(tree: Tree) -> tuple[Any, Any]:
    tree.repository("w")
    tree.agent("w", "old", title="old")
    tree.agent("w", "new", title="new")
    files = LockRecordingFiles()
    place = survey(files, tree.path("w"))
    source, target = (target_at(files, place, tree.path("w"), slug) for slug in ("old", "new"))
    return files, writing.plan_consolidation(files, "old", "new", source, target)


def test_a_consolidation_locks_both_agents(tree: Tree) -> None:
    files, plan = consolidation(tree)
    writing.apply_consolidation(files, plan, writing.now)
    assert files.locked == [tree.path("w/.clia/agents/old"), tree.path("w/.clia/agents/new")]


def test_nothing_is_removed_if_the_archive_has_other_content(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    files, plan = consolidation(tree)
    real = files.replace
    monkeypatch.setattr(files, "replace", lambda path, data: real(path, data if "receipt" in path else b"broken"))
    with pytest.raises(FileError):
        writing.apply_consolidation(files, plan, writing.now)
    assert (tree.root / "w/.clia/agents/old/old@w.agent.triad.json").exists()


def test_applying_a_transfer_twice_copies_once(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/s")
    tree.agency("w/s", entries=[{"summary": "one"}])
    files = WritableLocalFiles()
    source = target_at(files, survey(files, tree.path("w/s")), tree.path("w/s"), "scout")
    target = target_at(files, survey(files, tree.path("w")), tree.path("w"), "scout")
    plan = journal_module.plan_transfer(files, "scout", source, target, [])
    assert len(journal_module.apply_transfer(files, plan, writing.now)) == 1
    assert journal_module.apply_transfer(files, plan, writing.now) == ()


def test_a_file_is_synced_before_its_rename_and_its_directory_after(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        steps.append("sync directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "sync file")
        real_sync(handle)

    def replace(source: str, target: str) -> None:
        steps.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    WritableLocalFiles().replace(tree.path("file"), b"data")
    assert steps == ["sync file", "rename", "sync directory"]


def test_a_link_in_place_of_the_temporary_file_is_not_written_through(tree: Tree) -> None:
    victim = tree.write("victim", "precious")
    (tree.root / f".clia-writing-{os.getpid()}-file").symlink_to(victim)
    with pytest.raises(FileError):
        WritableLocalFiles().replace(tree.path("file"), b"data")
    assert victim.read_text() == "precious"


def test_reading_a_pipe_does_not_wait_for_a_writer(tree: Tree) -> None:
    os.mkfifo(tree.root / "pipe")
    code = "import sys\nfrom clia.files import LocalFiles\nLocalFiles().read(sys.argv[1], 10)"
    result = subprocess.run(
        [sys.executable, "-c", code, tree.path("pipe")], capture_output=True, text=True, timeout=60, check=False
    )
    assert "not a regular file" in result.stderr
    with pytest.raises(FileError):
        LocalFiles().read(tree.path("."), 10)


def test_init_keeps_the_requested_inheritance(tree: Tree) -> None:
    tree.repository("w")
    init("root", NewIdentity(guardrails=["r"]), WriteLocation(tree.path("w")))
    paths = init("scout", NewIdentity(inherits=["docs/x.agent.triad.json"]), WriteLocation(tree.path("w")))
    with open(paths[0], encoding="utf-8") as document:
        assert json.load(document)["inherits"] == ["docs/x.agent.triad.json"]
