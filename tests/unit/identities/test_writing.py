"""Journal, transfer, consolidate and init: what they write, and where."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clia import lineage
from clia.errors import AgentNotFound, AlreadyExists, InvalidDocument, InvalidInput, NotFound, UnsafePath
from clia.identities.journal import Note
from clia.identities.writing import NewIdentity, WriteLocation, consolidate, init, journal, transfer
from clia.values.canonical import digest
from support import clia, git
from support.fake_secrets import HEX

if TYPE_CHECKING:
    from support import Tree


def fixed() -> datetime:
    return datetime(2026, 11, 15, 9, 30, 5, 999999, tzinfo=UTC)


def write(tree: Tree, where: str, note: Note | None = None, **options: Any) -> Any:
    return journal("scout", note or Note("hello"), WriteLocation(tree.path(where), **options), clock=fixed)[0]


def test_an_entry_has_time_signature_context_and_summary(tree: Tree) -> None:
    tree.repository("mono")
    tree.agent("mono", extensions={"journalSignature": "-SC"})
    note = Note("found it", ["a", "b", "a", " "], dirs_touched=["src", "docs", "src"], idempotency_key="k1")
    result = write(tree, "mono", note)
    assert result.entry == {
        "timestamp": "2026-11-15T09:30:05Z",
        "kind": "log",
        "summary": "found it",
        "signature": "-SC",
        "source": "mono",
        "contributions": [{"by": "scout", "types": [{"type": "log", "weight": 1, "evidence": "found it"}]}],
        "tags": ["a", "b"],
        "extensions": {"x-dirsTouched": ["src", "docs"], "x-idempotencyKey": "k1"},
    }
    assert result.sha256 == digest(result.entry)
    assert json.loads(Path(result.path).read_text()) == {"schemaVersion": "0.4.0", "slug": "scout", "entries": [result.entry]}


@pytest.mark.parametrize(("signature", "expected"), [("auto", "-scout"), ("-XY", "-XY")])
def test_the_signature_defaults_to_the_slug(tree: Tree, signature: str, expected: str) -> None:
    tree.repository("w")
    assert write(tree, "w", Note("n", signature=signature)).entry["signature"] == expected


@pytest.mark.parametrize("bare", [False, True], ids=["with a worktree", "bare"])
def test_a_journal_in_a_linked_worktree_is_named_after_the_repository(tree: Tree, bare: bool) -> None:
    repository = tree.path("acme.git" if bare else "acme")
    git("init", "--quiet", *(["--bare"] if bare else []), repository, cwd=tree.root)
    tree_id = git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=repository).strip()
    commit = git("commit-tree", "-m", "start", tree_id, cwd=repository).strip()
    git("worktree", "add", "--quiet", "--detach", tree.path("elsewhere/scratch"), commit, cwd=repository)
    tree.directory("elsewhere/scratch/src")
    result = write(tree, "elsewhere/scratch/src")
    assert Path(result.path) == tree.root / "elsewhere/scratch/.clia/agents/scout/scout@acme.agency.triad.json"
    assert result.entry["source"] == "acme"
    assert write(tree, "elsewhere/scratch/src", scope="local").entry["source"] == "src"


@pytest.mark.parametrize("link", ["", "gitdir:", "gitdir: ../missing", "nonsense", "\0", "gitdir: \0"])
def test_a_git_file_that_names_no_worktree_does_not_change_the_name(tree: Tree, link: str) -> None:
    tree.directory("w")
    tree.write("w/.git", link)
    assert write(tree, "w").entry["source"] == "w"


def test_an_idempotency_key_counts_in_all_journals_of_a_directory(tree: Tree) -> None:
    tree.repository("w")
    second = tree.document("w", "scout", "agency", {"entries": []}, name="scout@z.agency.triad.json")
    first = write(tree, "w", Note("one", idempotency_key="k"))
    tree.document("w", "scout", "agency", {"entries": []}, name="scout@a.agency.triad.json")
    repeated = write(tree, "w", Note("two", idempotency_key="k"))
    assert Path(first.path) == second
    assert not repeated.appended
    assert repeated.entry["summary"] == "one"


@pytest.mark.parametrize(
    ("scope", "directory"),
    [("local", "w/sub/src"), ("submodule", "w/sub"), ("workspace", "w")],
    ids=["local", "submodule", "workspace"],
)
def test_the_scope_chooses_the_directory(tree: Tree, scope: str, directory: str) -> None:
    tree.repository("w")
    tree.repository("w/sub", as_file=True)
    tree.directory("w/sub/src")
    result = write(tree, "w/sub/src", scope=scope)
    assert Path(result.path).parent == tree.root / directory / ".clia/agents/scout"
    assert Path(result.path).name == f"scout@{Path(directory).name}.agency.triad.json"


def test_without_a_repository_the_agents_directory_is_needed(tree: Tree) -> None:
    tree.directory("plain")
    with pytest.raises(NotFound) as caught:
        write(tree, "plain")
    assert caught.value.code == "no-repository"
    assert any("--agents-dir" in hint for hint in caught.value.hints)
    assert not (tree.root / "plain/.clia").exists()
    result = write(tree, "plain", agents_dir=tree.path("plain/.clia/agents"))
    assert Path(result.path) == tree.root / "plain/.clia/agents/scout/scout@plain.agency.triad.json"
    assert lineage(tree.path("plain"), "scout").agency()["entries"] == [result.entry]


def test_an_agents_directory_that_is_not_needed_is_refused_as_unused(tree: Tree) -> None:
    tree.repository("w")
    ran = clia("agents", "journal", "--slug", "scout", "--note", "n", "--agents-dir", tree.path("x"), "--json", cwd=tree.root / "w")
    assert ran.code == 0
    assert json.loads(ran.err)["code"] == "agents-dir-unused"
    assert not (tree.root / "x").exists()


@pytest.mark.parametrize("name", ["scout.agency.json", "a.agency.triad.json", "z@other.agency.triad.json"])
def test_the_entry_goes_to_the_file_that_reading_selects(tree: Tree, name: str) -> None:
    tree.repository("w")
    path = tree.document("w", "scout", "agency", {"entries": []}, name=name)
    result = write(tree, "w")
    assert result.path == str(path)
    assert lineage(tree.path("w"), "scout").agency()["entries"] == [result.entry]


def test_ancestors_are_never_touched(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/s")
    outer = tree.agency("w", entries=[{"summary": "outer"}])
    before = outer.read_bytes()
    write(tree, "w/s")
    assert outer.read_bytes() == before
    assert [journal_entry["summary"] for journal_entry in lineage(tree.path("w/s"), "scout").agency()["entries"]] == [
        "outer",
        "hello",
    ]


def test_the_same_key_twice_is_one_entry_and_the_first_one_stays(tree: Tree) -> None:
    tree.repository("w")
    first = write(tree, "w", Note("first", idempotency_key="k"))
    second = write(tree, "w", Note("second", idempotency_key="k"))
    assert (first.appended, second.appended) == (True, False)
    assert second.entry == first.entry
    assert len(lineage(tree.path("w"), "scout").agency()["entries"]) == 1


@pytest.mark.parametrize(
    "note", [Note(""), Note("  "), Note("x", signature=""), Note("x", idempotency_key=" "), Note("a\0b"), Note("\ud800")]
)
def test_an_invalid_note_is_refused(tree: Tree, note: Note) -> None:
    tree.repository("w")
    with pytest.raises(InvalidInput):
        write(tree, "w", note)
    assert not (tree.root / "w/.clia").exists()


@pytest.mark.parametrize("text", ['{"entries": {}}', '{"entries": "x"}', '{"entries": [}', "[]", '{"a": 1, "a": 2}'])
def test_a_broken_agency_is_refused_and_not_changed(tree: Tree, text: str) -> None:
    tree.repository("w")
    path = tree.write("w/.clia/agents/scout/scout@w.agency.triad.json", text)
    with pytest.raises(InvalidDocument) as caught:
        write(tree, "w")
    assert caught.value.fields["path"] == str(path)
    assert path.read_text() == text


def test_a_link_out_of_the_repository_is_never_written_through(tree: Tree) -> None:
    tree.repository("w")
    outside = tree.directory("outside")
    tree.directory("w/.clia/agents")
    (tree.root / "w/.clia/agents/scout").symlink_to(outside)
    with pytest.raises(UnsafePath):
        write(tree, "w")
    assert list(outside.iterdir()) == []


def test_a_linked_agency_inside_the_repository_is_written_at_its_real_path(tree: Tree) -> None:
    tree.repository("w")
    real = tree.write("w/shared/log.agency.triad.json", '{"entries": []}')
    link = tree.directory("w/.clia/agents/scout") / "a.agency.triad.json"
    link.symlink_to(real)
    write(tree, "w")
    assert link.is_symlink()
    assert len(json.loads(real.read_text())["entries"]) == 1


def test_the_file_mode_is_kept(tree: Tree) -> None:
    tree.repository("w")
    path = tree.agency("w", entries=[])
    path.chmod(0o640)
    write(tree, "w")
    assert path.stat().st_mode & 0o777 == 0o640


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-0{number}T00:00:00Z", "summary": f"entry {number}", "source": "s", **more}


def nested(tree: Tree, *entries: dict[str, Any]) -> tuple[str, WriteLocation]:
    tree.repository("w")
    tree.repository("w/s")
    tree.agency("w/s", entries=list(entries))
    return tree.path("w"), WriteLocation(tree.path("w/s"))


def test_transfer_is_a_dry_run_by_default(tree: Tree) -> None:
    to, where = nested(tree, entry(1))
    before = tree.snapshot()
    plan, entries = transfer("scout", to, [], where, apply=False, clock=fixed)
    assert (entries, len(plan.missing)) == ((), 1)
    assert tree.snapshot() == before


def test_transfer_copies_entries_as_they_are_and_leaves_a_receipt(tree: Tree) -> None:
    to, where = nested(tree, entry(1), entry(2, **{"x-odd": [1]}))
    plan, entries = transfer("scout", to, [], where, apply=True, clock=fixed)
    assert entries == (entry(1), entry(2, **{"x-odd": [1]}))
    assert lineage(to, "scout").agency()["entries"] == list(entries)
    assert len(lineage(tree.path("w/s"), "scout").agency()["entries"]) == 2, "the merged agency must not have duplicates"
    receipt = json.loads(Path(plan.receipt).read_text())
    assert receipt["from"] == "s"
    assert receipt["timestamp"] == "2026-11-15T09:30:05Z"
    assert [receipt_entry["sha256"] for receipt_entry in receipt["entries"]] == [digest(copied_entry) for copied_entry in entries]
    assert transfer("scout", to, [], where, apply=True, clock=fixed)[1] == ()


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        (["2026-01-01"], [1]),
        (["2026-01-03T00:00:00Z", "2026-01-01"], [1, 3]),
        (["tag:keep"], [2]),
        ([digest(entry(3))[:8]], [3]),
        (["all"], [1, 2, 3]),
    ],
)
def test_transfer_copies_only_the_selected_entries(tree: Tree, selectors: list[str], expected: list[int]) -> None:
    to, where = nested(tree, entry(1), entry(2, tags=["keep"]), entry(3))
    _, entries = transfer("scout", to, selectors, where, apply=True, clock=fixed)
    assert [copied_entry["summary"] for copied_entry in entries] == [f"entry {number}" for number in expected]


@pytest.mark.parametrize(
    ("to", "selectors", "kind"),
    [
        ("w", ["tag:none"], NotFound),
        ("w", ["abc"], NotFound),
        ("w/s", [], InvalidInput),
        ("w/s/deeper", [], InvalidInput),
        ("x", [], InvalidInput),
    ],
)
def test_an_invalid_transfer_changes_nothing(tree: Tree, to: str, selectors: list[str], kind: type[Exception]) -> None:
    _, where = nested(tree, entry(1))
    tree.directory("w/s/deeper")
    tree.directory("x")
    before = tree.snapshot()
    with pytest.raises(kind):
        transfer("scout", tree.path(to), selectors, where, apply=True, clock=fixed)
    assert tree.snapshot() == before


def two_agents(tree: Tree) -> WriteLocation:
    tree.repository("w")
    tree.agent("w", "old", title="old")
    tree.agency("w", "old", entries=[entry(1)])
    tree.write("w/.clia/agents/old/persona/voice.md", "# voice\r\n")
    tree.agent("w", "new", title="new")
    return WriteLocation(tree.path("w"))


def test_consolidate_is_a_dry_run_by_default(tree: Tree) -> None:
    where = two_agents(tree)
    before = tree.snapshot()
    plan = consolidate("old", "new", where, apply=False, clock=fixed)
    assert plan.files == ("old@w.agency.triad.json", "old@w.agent.triad.json", "persona/voice.md")
    assert tree.snapshot() == before


def test_consolidate_archives_everything_and_then_removes(tree: Tree) -> None:
    where = two_agents(tree)
    home = tree.root / "w/.clia/agents/old"
    before = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    plan = consolidate("old", "new", where, apply=True, clock=fixed)
    archive = Path(plan.archive)
    assert {str(path.relative_to(archive)): path.read_bytes() for path in archive.rglob("*") if path.is_file()} == before
    assert not home.exists()
    assert json.loads(Path(plan.receipt).read_text())["into"] == "new"
    with pytest.raises(AgentNotFound):
        lineage(tree.path("w"), "old")


@pytest.mark.parametrize(
    ("slug", "into", "kind"),
    [("old", "old", InvalidInput), ("none", "new", AgentNotFound), ("old", "none", AgentNotFound), ("../x", "new", InvalidInput)],
)
def test_an_invalid_consolidation_changes_nothing(tree: Tree, slug: str, into: str, kind: type[Exception]) -> None:
    where = two_agents(tree)
    before = tree.snapshot()
    with pytest.raises(kind):
        consolidate(slug, into, where, apply=True, clock=fixed)
    assert tree.snapshot() == before


def test_an_archive_with_other_content_stops_a_consolidation(tree: Tree) -> None:
    where = two_agents(tree)
    tree.write("w/.clia/agents/new/legacy-imports/old/persona/voice.md", "something else")
    before = tree.snapshot()
    with pytest.raises(AlreadyExists):
        consolidate("old", "new", where, apply=True, clock=fixed)
    assert tree.snapshot() == before


def test_a_link_inside_the_agent_stops_a_consolidation(tree: Tree) -> None:
    where = two_agents(tree)
    (tree.root / "w/.clia/agents/old/link").symlink_to("persona")
    with pytest.raises(UnsafePath):
        consolidate("old", "new", where, apply=True, clock=fixed)
    assert (tree.root / "w/.clia/agents/old/persona/voice.md").exists()


def test_init_creates_three_documents_that_inherit_the_root_directives(tree: Tree) -> None:
    tree.repository("mono")
    tree.repository("mono/sub")
    init("root", NewIdentity(guardrails=["Never force-push."]), WriteLocation(tree.path("mono")), clock=fixed)
    paths = init("scout", NewIdentity("Scout", "Explorer", "Finds things."), WriteLocation(tree.path("mono/sub")), clock=fixed)
    assert [Path(path).name for path in paths] == [f"scout@sub.{kind}.triad.json" for kind in ("agent", "agenda", "agency")]
    profile = lineage(tree.path("mono/sub"), "scout").profile()
    assert profile["guardrails"] == ["Never force-push."]
    assert (profile["title"], profile["role"], profile["updated"]) == ("Scout", "Explorer", "2026-11-15T09:30:05Z")
    assert profile.diagnostics == ()


def test_root_directives_have_no_fields_of_an_agent(tree: Tree) -> None:
    tree.repository("w")
    init("root", NewIdentity(guardrails=["Never force-push."]), WriteLocation(tree.path("w")), clock=fixed)
    path = tree.root / "w/.clia/agents/root/root@w.agent.triad.json"
    assert json.loads(path.read_text()) == {"schemaVersion": "0.4.0", "slug": "root", "guardrails": ["Never force-push."]}


def test_init_never_touches_an_existing_document(tree: Tree) -> None:
    tree.repository("w")
    tree.document("w", "scout", "agenda", {"title": "mine"}, name="old-name.agenda.json")
    before = tree.snapshot()
    with pytest.raises(AlreadyExists):
        init("scout", NewIdentity(), WriteLocation(tree.path("w")), clock=fixed)
    assert tree.snapshot() == before


def test_the_clock_must_be_timezone_aware(tree: Tree) -> None:
    tree.repository("w")
    with pytest.raises(ValueError, match="aware"):
        journal("scout", Note("n"), WriteLocation(tree.path("w")), clock=lambda: datetime(2026, 1, 1))  # noqa: DTZ001  # on purpose


def test_a_slug_that_contains_a_secret_is_refused(tree: Tree) -> None:
    tree.repository("w")
    with pytest.raises(InvalidInput) as caught:
        init("pul-" + HEX[:40], NewIdentity(), WriteLocation(tree.path("w")), clock=fixed)
    assert caught.value.code == "secret-in-name"
    assert not (Path(tree.path("w")) / ".clia").exists()
