"""Durable writes: many writers, and kills at any moment."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from clia.identities.journal import Note
from clia.identities.writing import WriteLocation, consolidate, journal, transfer
from clia.values import documents

if TYPE_CHECKING:
    from pathlib import Path

    from support import Tree

PROCESSES = 8
FORK = multiprocessing.get_context("fork")
STEPS = ("temporary-created", "temporary-written", "temporary-synced", "published", "directory-synced")


def many_notes(path: str, writer: int, count: int) -> None:
    for number in range(count):
        journal("scout", Note(f"writer {writer} note {number}"), WriteLocation(path))


def watch(path: Path, stop: Any, counts: Any) -> None:
    """Read the file continuously; every state must be a complete document."""
    changes, last = 0, b""
    try:
        while not stop.wait(0.001):  # leave the cores to the writers
            now = path.read_bytes() if path.exists() else b""
            if now != last:
                json.loads(now)
                changes, last = changes + 1, now
    finally:
        counts.put(changes)


@pytest.mark.parametrize("there_already", [True, False], ids=["existing file", "first write"])
def test_eight_processes_append_entries_and_none_is_lost(tree: Tree, there_already: bool, soak: bool) -> None:
    tree.repository("w")
    path = tree.root / "w/.clia/agents/scout/scout@w.agency.triad.json"
    before: dict[str, Any] = {"slug": "scout", "x-unknown": {"kept": [1, 2.50, "é"]}, "entries": [{"old": True}], "last": None}
    if there_already:
        tree.agency("w", **before)
    stop, counts = FORK.Event(), FORK.Queue()
    watcher = FORK.Process(target=watch, args=(path, stop, counts))
    entries = (100 if soak else 30) if there_already else 20
    writers = [FORK.Process(target=many_notes, args=(tree.path("w"), number, entries)) for number in range(PROCESSES)]
    for process in (watcher, *writers):
        process.start()
    for appender in writers:
        appender.join()
    stop.set()
    assert counts.get() > 0
    watcher.join()
    assert [process.exitcode for process in (watcher, *writers)] == [0] * (PROCESSES + 1)
    after = documents.parse(path.read_bytes(), str(path))
    old = before["entries"] if there_already else []
    assert after["entries"][: len(old)] == old
    summaries = [entry["summary"] for entry in after["entries"][len(old) :]]
    assert len(summaries) == PROCESSES * entries
    assert len(set(summaries)) == PROCESSES * entries
    for writer in range(PROCESSES):
        own = [summary for summary in summaries if summary.startswith(f"writer {writer} ")]
        assert own == [f"writer {writer} note {number}" for number in range(entries)]
    if there_already:
        assert {key: after[key] for key in ("x-unknown", "last")} == {key: before[key] for key in ("x-unknown", "last")}
    assert os.listdir(path.parent) == [path.name]


def test_the_same_key_from_many_processes_makes_one_entry(tree: Tree) -> None:
    tree.repository("w")

    def write() -> None:
        journal("scout", Note("once", idempotency_key="k"), WriteLocation(tree.path("w")))

    writers = [FORK.Process(target=write) for _ in range(PROCESSES)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    path = tree.root / "w/.clia/agents/scout/scout@w.agency.triad.json"
    assert [entry["summary"] for entry in json.loads(path.read_text())["entries"]] == ["once"]


DIE_AT = """
import os, signal, sys
from clia.identities.writing import journal
from clia.identities.writing import WriteLocation
from clia.files import WritableLocalFiles
from clia.identities.journal import Note

def reached(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

journal("scout", Note("new"), WriteLocation(sys.argv[1]), files=WritableLocalFiles(reached))
"""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("there_already", [True, False], ids=["existing file", "first write"])
def test_killed_at_a_named_step_leaves_the_old_file_or_the_new_one(tree: Tree, step: str, there_already: bool) -> None:
    tree.repository("w")
    path = tree.root / "w/.clia/agents/scout/scout@w.agency.triad.json"
    if there_already:
        tree.agency("w", entries=[{"summary": "old"}])
    died = subprocess.run([sys.executable, "-c", DIE_AT, tree.path("w"), step], check=False)
    assert died.returncode == -signal.SIGKILL
    old = ["old"] if there_already else []
    published = step in ("published", "directory-synced")
    if published or there_already:
        assert summaries(path) == [*old, "new"] if published else old
    else:
        assert not path.exists()
    journal("scout", Note("after"), WriteLocation(tree.path("w")))
    assert summaries(path) == [*old, *(["new"] if published else []), "after"]
    assert os.listdir(path.parent) == [path.name], "the next writer removes the files of a killed one"


def summaries(path: Path) -> list[str]:
    return [entry["summary"] for entry in documents.parse(path.read_bytes(), str(path))["entries"]]


FOREVER = """
import sys
from clia.identities.writing import journal
from clia.identities.writing import WriteLocation
from clia.identities.journal import Note
number = 0
while True:
    journal("scout", Note(f"{sys.argv[2]} {number}"), WriteLocation(sys.argv[1]))
    print(number, flush=True)
    number += 1
"""


def test_a_kill_at_any_moment_loses_no_acknowledged_entry(tree: Tree, life: int) -> None:
    tree.repository("w")
    path = tree.root / "w/.clia/agents/scout/scout@w.agency.triad.json"
    order = random.Random(life)  # noqa: S311  # a moment, not a secret
    for number in range(3):
        process = subprocess.Popen([sys.executable, "-c", FOREVER, tree.path("w"), str(number)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = -1
        for _ in range(order.randrange(1, 40)):
            acknowledged = int(process.stdout.readline())
        spin = order.randrange(0, 4000)  # inside of the next write
        while spin:
            spin -= 1
        process.kill()
        acknowledged = int((process.stdout.read().splitlines() or [str(acknowledged)])[-1])
        process.wait()
        process.stdout.close()
        own = [summary for summary in summaries(path) if summary.startswith(f"{number} ")]
        assert own[: acknowledged + 1] == [f"{number} {index}" for index in range(acknowledged + 1)]
        assert len(own) <= acknowledged + 2


CONSOLIDATE_AND_DIE = """
import os, signal, sys
from clia.identities import writing
from clia.files import WritableLocalFiles

count = 0
def reached(step):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

class Mortal(WritableLocalFiles):
    def __init__(self):
        super().__init__(reached)

    def remove_tree(self, path):
        reached("before removal")
        first = sorted(os.listdir(path))[0]
        os.unlink(f"{path}/{first}")
        reached("in the middle of removal")
        super().remove_tree(path)
        reached("after removal")

writing.WritableLocalFiles = Mortal
writing.consolidate("old", "new", writing.WriteLocation(sys.argv[1]), apply=True)
"""


def test_a_consolidation_killed_at_any_step_loses_no_byte_and_can_be_finished(tree: Tree) -> None:
    finished = False
    for step in range(1, 200):
        directory = f"w{step}"
        tree.repository(directory)
        tree.agent(directory, "new", title="new")
        tree.agent(directory, "old", title="old")
        tree.agency(directory, "old", entries=[1])
        tree.write(f"{directory}/.clia/agents/old/sub/note.md", "note")
        home = tree.root / directory / ".clia/agents/old"
        contents = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
        died = subprocess.run([sys.executable, "-c", CONSOLIDATE_AND_DIE, tree.path(directory), str(step)], check=False)
        archive = tree.root / directory / ".clia/agents/new/legacy-imports/old"
        for name, data in contents.items():
            copies = [copy for copy in (home / name, archive / name) if copy.exists()]
            assert copies, f"step {step}: {name} is gone"
            assert all(copy.read_bytes() == data for copy in copies)
        if home.exists():
            consolidate("old", "new", WriteLocation(tree.path(directory)), apply=True)
        assert not home.exists()
        assert {name: (archive / name).read_bytes() for name in contents} == contents
        receipt = json.loads((archive.parent / "old.receipt.json").read_text())
        assert sorted(receipt["files"]) == sorted(contents)
        if died.returncode == 0:
            finished = True
            break
    assert finished
    assert step > 10


def test_a_transfer_that_lost_its_receipt_gets_it_on_the_next_run(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/s")
    tree.agency("w/s", entries=[{"summary": "one", "timestamp": "2026-01-01T00:00:00Z"}])
    planned, copied = transfer("scout", tree.path("w"), [], WriteLocation(tree.path("w/s")), apply=True)
    assert len(copied) == 1
    os.unlink(planned.receipt)
    again, copied = transfer("scout", tree.path("w"), [], WriteLocation(tree.path("w/s")), apply=True)
    assert copied == ()
    assert os.path.exists(again.receipt)
    assert again.receipt == planned.receipt
