"""Trees are those that stock git would write, in every form of description; trees that git fsck refuses are never written."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clia
from clia import File, Link, Submodule
from clia.errors import CliaError, InvalidInput, UnsafePath
from clia.testing import components
from clia.values import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Content = bytes | File | Link | Submodule
    Files = dict[str, Content]

A_COMMIT = "a" * 40
# Few names, so that paths share folders and clash; some sort differently as a file and as a folder.
segments = st.sampled_from(["a", "a.b", "a-b", "a0", "A", "b", "é", "e\u0301", "\U0001f600", " ", "-", "~", "x" * 200])
file_paths = st.lists(segments, min_size=1, max_size=3).map("/".join)
contents: st.SearchStrategy[Content] = (
    st.binary(max_size=4)
    | st.builds(File, st.binary(max_size=2), st.booleans())
    | st.builds(Link, st.sampled_from(["a", "../b", A_COMMIT]))
    | st.builds(Submodule, st.sampled_from([A_COMMIT, "b" * 40]))
)
worktrees = st.dictionaries(file_paths, contents, max_size=8)
EXAMPLES = settings.default.max_examples if settings.default else 100


class TreeSpace:
    """A space, and stock git on its repository."""

    def __init__(self, directory: Path) -> None:
        chosen = clia.Settings(
            durable=False, redact=False, person=("Tess", "tess@example.org"), clock=lambda: datetime(2025, 1, 1, tzinfo=UTC)
        )
        self.directory = directory
        self.space = clia.init(directory, settings=chosen)
        self.count = 0

    def agent(self) -> str:
        self.count += 1
        return self.space.spawn(f"agent-{self.count}", clia.Briefing("write trees")).agent

    def tree(self, commit: str) -> str:
        return self.space.show(commit).tree

    def git(self, *words: str, data: bytes = b"", **more: str) -> bytes:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | more
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        result = subprocess.run(["git", *words], cwd=self.directory, input=data, env=environment, capture_output=True, check=True)
        return result.stdout

    def stock_tree(self, files: Files) -> str:
        """The tree that stock git writes for these files, with a separate index."""
        index = str(self.directory / ".git" / "private-index")
        if os.path.exists(index):
            os.unlink(index)
        rows = b"".join(b"%s %s\t%s\0" % (*self.described(value), path.encode()) for path, value in files.items())
        self.git("update-index", "-z", "--index-info", data=rows, GIT_INDEX_FILE=index)
        return self.git("write-tree", "--missing-ok", GIT_INDEX_FILE=index).decode().strip()

    def described(self, value: Content) -> tuple[bytes, bytes]:
        if isinstance(value, Submodule):
            return b"160000", value.commit.encode()
        data = value.target.encode() if isinstance(value, Link) else value.data if isinstance(value, File) else value
        mode = b"120000" if isinstance(value, Link) else b"100755" if isinstance(value, File) and value.executable else b"100644"
        return mode, components(self.space).core.objects.blob_id(data).encode()

    def everything(self) -> dict[str, bytes]:
        """Every object by name, and every ref with its value."""
        contents = {}
        for folder in ("objects", "refs"):
            for file in (self.directory / ".git" / folder).rglob("*"):
                if file.is_file():
                    contents[str(file)] = file.read_bytes() if folder == "refs" else b""
        return contents


@pytest.fixture(scope="module")
def quiet_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TreeSpace]:
    """A space that no test may change."""
    quiet = TreeSpace(tmp_path_factory.mktemp("quiet"))
    quiet.agent()
    yield quiet
    quiet.space.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TreeSpace]:
    opened = TreeSpace(tmp_path_factory.mktemp("trees"))
    yield opened
    opened.space.close()


def clashes(files: Files) -> bool:
    """Whether a file has the path of a folder of another."""
    return any(longer.startswith(f"{path}/") for path in files for longer in files)


def without_clashes(files: Files) -> Files:
    accepted_files: Files = {}
    for path, value in files.items():
        if not clashes({**accepted_files, path: value}):
            accepted_files[path] = value
    return accepted_files


def delta(old: Files, new: Files) -> dict[str, Content | None]:
    removed: dict[str, Content | None] = dict.fromkeys(old.keys() - new.keys())
    return removed | {
        path: value for path, value in new.items() if path not in old or (type(old[path]), old[path]) != (type(value), value)
    }


@settings(max_examples=max(40, EXAMPLES // 3), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(versions=st.lists(worktrees.map(without_clashes), min_size=1, max_size=4))
def test_full_values_and_deltas_give_the_trees_of_stock_git(place: TreeSpace, versions: list[Files]) -> None:
    full_agent, delta_agent = place.agent(), place.agent()
    before: Files = {}
    for files in versions:
        full_commit = place.space.commit(full_agent, "finding", files)
        delta_commit = place.space.commit(delta_agent, "finding", changes=delta(before, files))
        assert place.tree(full_commit) == place.tree(delta_commit)
        before = files
    assert place.tree(full_agent) == place.stock_tree(versions[-1])
    fresh = place.space.commit(place.agent(), "finding", versions[-1])
    assert place.tree(fresh) == place.tree(full_agent), "the history must not affect the tree"


def outcome(place: TreeSpace, name: str, **form: Any) -> tuple[str, ...]:
    """The tree of a commit, or the code of its refusal, which must not move the head."""
    head = place.space.head(name)
    try:
        return (place.tree(place.space.commit(name, "finding", **form)),)
    except UnsafePath as err:
        assert place.space.head(name) == head
        return (err.code,)


@settings(max_examples=max(40, EXAMPLES // 3), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(start=worktrees.map(without_clashes), more=worktrees)
def test_a_file_in_place_of_a_folder_is_refused_in_both_forms(place: TreeSpace, start: Files, more: Files) -> None:
    full_agent, delta_agent = place.agent(), place.agent()
    for name in (full_agent, delta_agent):
        place.space.commit(name, "finding", start)
    files = {**start, **more}
    full_outcome = outcome(place, full_agent, files=files)
    delta_outcome = outcome(place, delta_agent, changes=delta(start, files))
    assert full_outcome == delta_outcome
    assert (full_outcome == ("path-clash",)) == clashes(files)


def test_a_link_and_a_submodule_with_the_same_text_differ(place: TreeSpace) -> None:
    name = place.agent()
    for value in (Link(A_COMMIT), Submodule(A_COMMIT), File(b"x", executable=True), b"x", File(b"x"), Link("x")):
        place.space.commit(name, "finding", {"it": value})
        assert place.tree(name) == place.stock_tree({"it": value})


@pytest.mark.parametrize(
    "changes",
    [{"gone": None}, {"a/gone": None}, {"file/below": None}, {"gone": None, "gone/new": b""}, {"a": None, "a/new": b""}],
)
def test_a_missing_path_cannot_be_removed(place: TreeSpace, changes: dict[str, Any]) -> None:
    name = place.agent()
    head = place.space.commit(name, "finding", {"a/b": b"", "file": b""})
    with pytest.raises(CliaError) as refused:
        place.space.commit(name, "finding", changes=changes)
    assert refused.value.code in {"no-such-path", "path-clash"}
    assert place.space.head(name) == head


# Paths

odd = st.text(
    st.sampled_from(".gGiItT~1 :\\$-_aé\u200c\u200d\ufeff\u202e\x01\x7f\n\t\"'*?<>|%#@{}^")
    | st.characters(exclude_categories=["Cs"]),
    min_size=1,
    max_size=10,
)
near = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "a", "\u200c", " ", ".", "x\\"]),
        st.sampled_from(
            [".git", ".GIT", "git~1", "git~2", ".gitmodules", "gitmod~1", "gi7eba~1", "gi7eb~10", ".gitignore", ".git\u200d"]
        ),
        st.sampled_from(["", ".", " ", "a", ":a", "::$INDEX_ALLOCATION", "\\", "\\a", "\u200e", " . .", "~1"]),
    ),
)


def accepted(path: str) -> bool:
    try:
        return paths.check(path) == path
    except UnsafePath:
        return False


@settings(max_examples=max(6, EXAMPLES // 15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(names=st.sets(odd | near, min_size=20, max_size=60))
def test_git_fsck_accepts_every_path_that_clia_accepts(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    files: Files = {path: b"[core]\n" for path in names if accepted(path)}
    place = TreeSpace(tmp_path_factory.mktemp("odd"))
    place.space.commit(place.agent(), "finding", without_clashes(files))
    place.git("fsck", "--strict", "--no-dangling")
    place.space.close()


ATTACKS = [
    *(".git", ".GIT", ".Git/config", "a/.git", "a/.gIt/hooks/post-checkout", ".git/"),
    *("git~1", "GIT~1", "a/Git~1/config"),
    *(".git ", ".git.", ".git . .", ".git::$INDEX_ALLOCATION", ".git:stream", "git~1.", "git~1::$INDEX_ALLOCATION", ".git ::$DATA"),
    *(".g\u200cit", ".git\u200d", "\ufeff.git", ".g\u206ait/config", ".GI\u202eT", "\u200e.git\u200f"),
    *(
        ".git\\config",
        "a\\.git",
        "a\\.git\\hooks",
        "a\\git~1",
        "a\\.git \\x",
        "..\\x",
        "a\\..\\..\\x",
        "\\x",
        "a\\",
        "a\\\\b",
        ".\\a",
    ),
    *("..", "../x", "a/..", "a/../x", ".", "./a", "a/.", "a/./b"),
    *("/etc/passwd", "/", "//a", "C:\\x", "C:/x", "c:/x"),
    *("", "a//b", "a/", "//"),
    *("a\0b", "\0", ".git\0"),
    *("\ud800", "a/\udcff"),
    "x" * 5000,
]


@pytest.mark.parametrize("form", ["files", "changes"])
@pytest.mark.parametrize("path", ATTACKS, ids=ascii)
def test_a_hostile_path_is_refused_and_nothing_is_written(quiet_place: TreeSpace, path: str, form: str) -> None:
    before = quiet_place.everything()
    given_files: Any = {form: {"fine": b"", path: b"x"}}
    with pytest.raises(UnsafePath) as refused:
        quiet_place.space.commit("agent-1", "finding", **given_files)
    assert refused.value.code == "unsafe-path"
    assert quiet_place.everything() == before


@pytest.mark.parametrize("path", [None, 1, b"bytes", ("a",)])
def test_a_path_that_is_not_text_is_refused(place: TreeSpace, path: Any) -> None:
    with pytest.raises(UnsafePath):
        place.space.commit(place.agent(), "finding", {path: b"x"})


MODULES = b'[submodule "%s"]\n\tpath = %s\n\turl = %s\n%s'
HOSTILE_MODULES = {
    "name": MODULES % (b"../../hooks", b"a", b"https://example.org/a", b""),
    "name-backslash": MODULES % (b"..\\\\x", b"a", b"https://example.org/a", b""),
    "url": MODULES % (b"a", b"a", b"--upload-pack=touch x", b""),
    "url-newline": MODULES % (b"a", b"a", b'"https://example.org/\\n.."', b""),
    "url-helper": MODULES % (b"a", b"a", b"ext::sh -c x", b""),
    "path": MODULES % (b"a", b"-x", b"https://example.org/a", b""),
    "update": MODULES % (b"a", b"a", b"https://example.org/a", b"\tupdate = !touch x\n"),
}
# The last ones are short names of NTFS, and paths with a backslash on Windows.
MODULES_NAMES = [".gitmodules", ".GITMODULES", ".gitmodules ", ".git\u200cmodules", "gitmod~1", "gi7eba~1", "gi7eb~10", "~1000000"]
MODULES_NAMES += ["x\\.gitmodules", "sub/.gitmodules"]


@pytest.mark.parametrize("path", MODULES_NAMES, ids=ascii)
@pytest.mark.parametrize("kind", [*HOSTILE_MODULES, "link"])
def test_a_hostile_gitmodules_file_is_refused_under_every_name(place: TreeSpace, kind: str, path: str) -> None:
    content: Content = Link("elsewhere") if kind == "link" else HOSTILE_MODULES[kind]
    name = place.agent()
    with pytest.raises(UnsafePath):
        place.space.commit(name, "finding", {path: content})
    with pytest.raises(UnsafePath):
        place.space.commit(name, "finding", changes={path: content})


def test_an_ordinary_gitmodules_file_is_accepted(place: TreeSpace) -> None:
    modules = MODULES % (b"lib", b"parts/lib", b"https://example.org/lib", b"\tupdate = rebase\n")
    files: Files = {".gitmodules": modules, "parts/lib": Submodule(A_COMMIT)}
    name = place.agent()
    place.space.commit(name, "finding", files)
    assert place.tree(name) == place.stock_tree(files)


@pytest.mark.parametrize(
    "content",
    ["text", None, 1, bytearray(b"x"), Link(""), Link("a\0b"), Submodule("short"), Submodule("0" * 40), File("x")],  # type: ignore[arg-type]
)
def test_invalid_content_is_refused_and_the_path_is_named(place: TreeSpace, content: Any) -> None:
    name = place.agent()
    head = place.space.head(name)
    with pytest.raises(InvalidInput) as refused:
        place.space.commit(name, "finding", {"it": content})
    assert refused.value.fields["path"] == "it"
    assert place.space.head(name) == head


def test_all_objects_written_above_pass_git_fsck(place: TreeSpace) -> None:
    place.git("fsck", "--strict", "--no-dangling")
    assert place.space.verify().clean
