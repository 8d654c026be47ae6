"""Reading history, upkeep and remotes of a repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from clia.errors import Conflict, GitError, InvalidInput, NotFound, TransportError
from clia.git.records import FileChange, LineOrigin, Pushed
from support import git
from support.porcelain import MISSING, UNUSUAL_NAMES, BenchRepository, open_bench

if TYPE_CHECKING:
    from pathlib import Path

    from clia.git.porcelain import GitPorcelain
    from support import Tree


# Reading history


def test_blame_has_commit_line_and_original_path(repository: BenchRepository) -> None:
    first = repository.commit(**{"a.txt": "one is the first\ntwo is the second\n"})
    git("mv", "a.txt", "z.txt", cwd=repository.root)
    second = repository.commit(**{"z.txt": "zero\none is the first\ntwo is the second\nno newline"})
    assert repository.bench.blame(second, "z.txt") == [
        LineOrigin(second, 1, "z.txt", "zero"),
        LineOrigin(first, 1, "a.txt", "one is the first"),
        LineOrigin(first, 2, "a.txt", "two is the second"),
        LineOrigin(second, 4, "z.txt", "no newline"),
    ]


def test_blame_reads_any_path_and_any_bytes(repository: BenchRepository) -> None:
    content = b"\xff\x00\ttab\r\n\n\tauthor x\nfilename y\n"
    for name in UNUSUAL_NAMES:
        repository.write(name, content)
    repository.write("empty", b"")
    commit = repository.commit()
    for name in UNUSUAL_NAMES:
        texts = ["�\0\ttab\r", "", "\tauthor x", "filename y"]
        assert repository.bench.blame(commit, name) == [LineOrigin(commit, at + 1, name, text) for at, text in enumerate(texts)]
    assert repository.bench.blame(commit, "empty") == []


def test_blame_of_a_missing_path_or_commit_is_an_error(repository: BenchRepository) -> None:
    for path in ("nowhere", "sub", "*"):
        with pytest.raises(NotFound) as caught:
            repository.bench.blame(repository.head(), path)
        assert caught.value.code == "no-such-path"
        assert caught.value.fields["path"] == path
    with pytest.raises(GitError, match="blame failed"):
        repository.bench.blame(MISSING, "a.txt")


USER_CONFIG = """
[diff]
    noprefix = true
    mnemonicPrefix = true
    external = false
    algorithm = patience
    context = 0
    renames = false
    orderFile = {home}/order
    suppressBlankEmpty = true
    relative = true
[diff "loud"]
    textconv = tr a-z A-Z <
    command = false
[core]
    attributesFile = {home}/attributes
    quotePath = true
    pager = false
[color]
    ui = always
[blame]
    ignoreRevsFile = {home}/ignored
[patchid]
    stable = false
"""


def test_the_users_git_configuration_does_not_change_results(repository: BenchRepository) -> None:
    first = repository.head()
    git("mv", "sub/b.txt", "sub/c.txt", cwd=repository.root)
    second = repository.commit(**{"a.txt": "one\n\nthree\n", "é.txt": "x\n"})

    def everything() -> list[object]:
        bench = repository.bench
        return [
            bench.blame(second, "a.txt"),
            bench.patch(first, second),
            bench.changes(first, second),
            bench.patch_ids([first, second]),
        ]

    before = everything()
    for attributes in (repository.home / "attributes", repository.git_dir / "info/attributes"):
        attributes.write_text("a.txt diff=loud\n")
    with (repository.home / "attributes").open("a") as more:
        more.write("é.txt -diff\n")
    (repository.home / "ignored").write_text(f"{second}\n")
    (repository.home / "order").write_text("*é*\nsub/*\n")
    repository.config(USER_CONFIG.format(home=repository.home))
    assert everything() == before


def test_a_patch_between_commits_or_trees_applies(repository: BenchRepository, tree: Tree) -> None:
    first = repository.head()
    git("mv", "sub/b.txt", "sub/c.txt", cwd=repository.root)
    second = repository.commit(**{"a.txt": "one\nthree"})
    patch = repository.bench.patch(first, second)
    assert b"rename from sub/b.txt" in patch
    assert f"index {repository.head(f'{first}:a.txt')}..".encode() in patch
    assert repository.bench.patch(f"{first}^{{tree}}", f"{second}^{{tree}}") == patch
    git("checkout", "-q", first, cwd=repository.root)
    subprocess.run(["git", "apply", "--index"], input=patch, cwd=repository.root, check=True)
    assert git("write-tree", cwd=repository.root).strip() == repository.head(f"{second}^{{tree}}")
    assert repository.bench.patch(None, first, ["sub"]).count(b"+++ ") == 1
    assert repository.bench.patch(second, second) == b""
    with pytest.raises(GitError, match="diff-tree failed"):
        repository.bench.patch(MISSING, first)


def test_changes_have_status_paths_and_counts(repository: BenchRepository) -> None:
    first = repository.commit(**{"long.txt": "1\n2\n3\n4\n5\n6\n", "gone": "farewell\n", "kind": "file\n", "bin": "\0a"})
    git("mv", "long.txt", "moved here.txt", cwd=repository.root)
    (repository.root / "gone").unlink()
    (repository.root / "kind").unlink()
    (repository.root / "kind").symlink_to("a.txt")
    repository.write("bin", b"\0b")
    repository.write(":odd\tname\n", "x\ny\n")
    repository.write("not-utf8-\udcff", "x\n")
    second = repository.commit(**{"moved here.txt": "1\n2\n3\n4\n5\n6\n7\n", "a.txt": "one\n2\n3\n"})
    assert sorted(repository.bench.changes(first, second)) == [
        FileChange("A", ":odd\tname\n", None, 2, 0),
        FileChange("A", "not-utf8-\udcff", None, 1, 0),
        FileChange("D", "gone", None, 0, 1),
        FileChange("M", "a.txt", None, 2, 1),
        FileChange("M", "bin", None, None, None),
        FileChange("R", "moved here.txt", "long.txt", 1, 0),
        FileChange("T", "kind", None, 1, 1),
    ]
    assert repository.bench.changes(first, second, ["a.txt"]) == [FileChange("M", "a.txt", None, 2, 1)]
    assert repository.bench.changes(first, second, ["*"]) == []
    assert [change.path for change in repository.bench.changes(None, second, [":odd\tname\n"])] == [":odd\tname\n"]


def test_patch_ids_are_equal_for_equal_changes_and_omit_merges_and_empty_commits(repository: BenchRepository) -> None:
    first = repository.head()
    on_main = repository.commit(new="x\n")
    git("checkout", "-q", "-b", "side", first, cwd=repository.root)
    repository.commit(other="y\n")
    picked = repository.commit(new="x\n")
    empty_commit = repository.commit("nothing")
    git("merge", "-q", "-s", "ours", "-m", "merge", "main", cwd=repository.root)
    ids = repository.bench.patch_ids([first, on_main, picked, empty_commit, repository.head()])
    assert set(ids) == {first, on_main, picked}
    assert ids[on_main] == ids[picked] != ids[first]
    assert repository.bench.patch_ids([]) == {}


def test_patch_ids_of_different_binary_changes_differ(repository: BenchRepository) -> None:
    commits = []
    for data in (b"\0one", b"\0two"):
        repository.write("bin", data)
        commits.append(repository.commit())
    assert len(set(repository.bench.patch_ids(commits).values())) == 2


# Upkeep


def test_an_intact_repository_has_no_complaints_and_a_damaged_one_has(repository: BenchRepository) -> None:
    dangling = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], input=b"x", cwd=repository.root, capture_output=True, check=True
    )
    assert dangling.stdout
    lines: list[str] = []
    assert repository.bench.check(lines.append) == []
    assert lines != []
    blob = repository.head("HEAD:a.txt")
    (repository.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    assert any(blob in complaint for complaint in repository.bench.check())


def test_a_new_repository_has_no_complaints(repository: BenchRepository, tree: Tree) -> None:
    git("init", "-q", "--bare", "new.git", cwd=tree.root)
    assert open_bench(tree.root / "new.git", repository.home).check() == []


def test_a_check_that_fails_to_start_is_a_complaint(repository: BenchRepository) -> None:
    (repository.git_dir / "HEAD").write_text("nonsense\n")
    assert repository.bench.check() != []


def clone(repository: BenchRepository, tree: Tree, *words: str) -> GitPorcelain:
    git("config", "uploadpack.allowFilter", "true", cwd=repository.root)
    git("clone", "-q", "--no-local", *words, f"file://{repository.root}", "clone", cwd=tree.root)
    return open_bench(tree.root / "clone", repository.home)


def test_a_partial_clone_is_recognised_and_checked_without_fetching(repository: BenchRepository, tree: Tree) -> None:
    repository.commit(**{"a.txt": "three\n"})
    bench = clone(repository, tree, "--filter=blob:none")
    assert bench.is_partial()
    assert not bench.is_shallow()
    before = sorted((tree.root / "clone/.git/objects").rglob("*"))
    assert bench.check() == []
    assert sorted((tree.root / "clone/.git/objects").rglob("*")) == before


def test_a_shallow_clone_is_recognised(repository: BenchRepository, tree: Tree) -> None:
    repository.commit(**{"a.txt": "three\n"})
    bench = clone(repository, tree, "--depth=1")
    assert bench.is_shallow()
    assert not bench.is_partial()
    assert not repository.bench.is_shallow()


def test_a_remote_that_is_not_a_promisor_does_not_make_a_partial_clone(repository: BenchRepository) -> None:
    git("config", "remote.x.promisor", "false", cwd=repository.root)
    assert not repository.bench.is_partial()
    git("config", "remote.y.promisor", "true", cwd=repository.root)
    assert repository.bench.is_partial()


def loose(repository: BenchRepository, text: str) -> str:
    result = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], input=text.encode(), cwd=repository.root, capture_output=True, check=True
    )
    return result.stdout.decode().strip()


def exists(repository: BenchRepository, cid: str) -> bool:
    return subprocess.run(["git", "cat-file", "-e", cid], cwd=repository.root, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("grace", [None, "now", "never"])
def test_packing_keeps_recent_unreachable_objects_and_missing_worktrees(
    repository: BenchRepository, tree: Tree, grace: str | None
) -> None:
    git("config", "gc.packRefs", "false", cwd=repository.root)
    if grace:
        git("config", "gc.pruneExpire", grace, cwd=repository.root)
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    os.rename(tree.path("w"), tree.path("away"))
    old, fresh = loose(repository, "old"), loose(repository, "fresh")
    os.utime(repository.git_dir / "objects" / old[:2] / old[2:], (1, 1))
    size = repository.bench.size()
    repository.bench.pack()
    assert exists(repository, fresh)
    assert exists(repository, old) == (grace == "never")
    assert list((repository.git_dir / "objects/pack").glob("*.pack"))
    assert not (repository.git_dir / "refs/heads/main").exists()
    assert repository.bench.size() != size
    os.rename(tree.path("away"), tree.path("w"))
    assert repository.bench.checkout_of(tree.path("w")) is not None


def test_the_size_is_the_sum_of_the_object_files(repository: BenchRepository) -> None:
    files = [path for path in (repository.git_dir / "objects").rglob("*") if path.is_file()]
    assert repository.bench.size() == sum(path.stat().st_blocks * 512 for path in files) > 0


def pack_everything(repository: BenchRepository, *cids: str) -> str:
    """Pack all objects, reachable or not, and return the name of the pack."""
    ids = git("rev-list", "--objects", "--all", cwd=repository.root).split("\n")
    data = "".join(f"{line.split()[0]}\n" for line in [*ids, *cids] if line).encode()
    result = subprocess.run(
        ["git", "pack-objects", "-q", ".git/objects/pack/pack"], input=data, cwd=repository.root, capture_output=True, check=True
    )
    git("prune-packed", cwd=repository.root)
    return result.stdout.decode().strip()


@pytest.mark.parametrize("packed", [False, True])
def test_dropped_objects_are_removed_and_all_others_stay(repository: BenchRepository, packed: bool) -> None:
    dropped, unrelated = [loose(repository, "doomed"), loose(repository, "doomed too")], loose(repository, "other")
    if packed:
        pack_everything(repository, *dropped, unrelated)
    assert repository.bench.drop_objects(dropped) == []
    assert not any(exists(repository, cid) for cid in dropped)
    assert exists(repository, unrelated)
    assert repository.bench.check() == []
    assert repository.bench.drop_objects(dropped) == []


def test_an_object_that_is_both_loose_and_packed_is_removed(repository: BenchRepository) -> None:
    dropped = loose(repository, "doomed")
    path = repository.git_dir / "objects" / dropped[:2] / dropped[2:]
    data = path.read_bytes()
    pack_everything(repository, dropped)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    assert repository.bench.drop_objects([dropped]) == []
    assert not exists(repository, dropped)


@pytest.mark.parametrize("split", [False, True])
def test_dropped_commits_are_removed_from_the_commit_graph(repository: BenchRepository, split: bool) -> None:
    base, dropped = repository.head(), repository.commit("doomed", hidden="x")
    git("commit-graph", "write", "--reachable", *(["--split"] if split else []), cwd=repository.root)
    git("reset", "-q", "--hard", base, cwd=repository.root)
    shutil.rmtree(repository.git_dir / "logs")
    (repository.git_dir / "ORIG_HEAD").unlink()
    assert repository.bench.drop_objects([dropped]) == []
    assert not exists(repository, dropped)
    assert repository.bench.check() == []
    git("commit-graph", "verify", cwd=repository.root)


def test_a_removed_commit_in_the_commit_graph_is_damage_only_if_a_ref_reaches_it(repository: BenchRepository) -> None:
    """Each new value of a log or of checkpoints replaces a commit, and any git may list the former one in a commit-graph."""
    base, removed = repository.head(), repository.commit("replaced")
    git("commit-graph", "write", "--reachable", cwd=repository.root)
    (repository.git_dir / "objects" / removed[:2] / removed[2:]).unlink()
    assert [complaint for complaint in repository.bench.check() if removed in complaint]
    git("update-ref", "--no-deref", "refs/heads/main", base, cwd=repository.root)
    shutil.rmtree(repository.git_dir / "logs")
    with pytest.raises(subprocess.CalledProcessError):
        git("fsck", cwd=repository.root)
    assert repository.bench.check() == []


def test_objects_that_cannot_be_removed_are_returned(repository: BenchRepository, tree: Tree) -> None:
    pinned = loose(repository, "kept")
    name = pack_everything(repository, pinned)
    (repository.git_dir / f"objects/pack/pack-{name}.keep").touch()
    borrowed = loose(repository, "borrowed")
    git("clone", "-q", "--shared", "repo", "sharer", cwd=tree.root)
    sharer = open_bench(tree.root / "sharer", repository.home)
    repository.commit(later="x")
    before = sorted((repository.git_dir / "objects").rglob("*"))
    assert repository.bench.drop_objects([pinned]) == [pinned]
    assert sorted((repository.git_dir / "objects").rglob("*")) == before  # no needless repacking
    assert sharer.drop_objects([borrowed, pinned]) == sorted([borrowed, pinned])
    assert exists(repository, borrowed)


def test_dropping_an_invalid_id_removes_nothing(repository: BenchRepository) -> None:
    valid_id = loose(repository, "doomed")
    for bad in ("../../HEAD", valid_id[:10], "", valid_id.upper()):
        with pytest.raises(InvalidInput) as caught:
            repository.bench.drop_objects([valid_id, bad])
        assert caught.value.code == "invalid-id"
    assert exists(repository, valid_id)


def test_an_object_file_that_cannot_be_deleted_is_an_error(repository: BenchRepository) -> None:
    cid = MISSING
    (repository.git_dir / "objects" / cid[:2] / cid[2:] / "a folder").mkdir(parents=True)
    with pytest.raises(GitError, match="cannot remove object"):
        repository.bench.drop_objects([cid])


# Remotes


def test_a_new_repository_has_no_remotes(repository: BenchRepository) -> None:
    bench: GitPorcelain = repository.bench  # mypy compares the signatures
    assert bench.remotes() == []


@pytest.fixture
def hub(repository: BenchRepository, tree: Tree) -> BenchRepository:
    """The repository, with a bare repository as origin by a relative path."""
    git("init", "-q", "--bare", "hub.git", cwd=tree.root)
    git("remote", "add", "origin", "../hub.git", cwd=repository.root)
    return repository


def refs_of(root: Path) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=root).splitlines()
    return dict(line.split() for line in lines)


def test_remotes_are_listed_with_their_urls(hub: BenchRepository) -> None:
    git("remote", "add", "another", "https://example.org/x", cwd=hub.root)
    assert hub.bench.remotes() == ["another", "origin"]
    assert hub.bench.remote_url("origin") == "../hub.git"
    assert hub.bench.remote_url("nobody") is None


def test_only_the_named_fetch_rules_are_removed(hub: BenchRepository) -> None:
    rules = ["+refs/clia/*:refs/clia/tracking/origin/*", "+refs/x/*:refs/y/*"]
    similar = "+refs/clia/own:refs/clia/tracking/origin/"  # the first rule, read as a pattern, matches it
    for rule in (rules[0], similar, *rules):
        git("config", "--add", "remote.origin.fetch", rule, cwd=hub.root)
    assert hub.bench.remove_fetch_rules("origin", rules[:1]) == rules[:1]
    rules_in_config = git("config", "--get-all", "remote.origin.fetch", cwd=hub.root).splitlines()
    assert rules_in_config == ["+refs/heads/*:refs/remotes/origin/*", similar, rules[1]]
    before = (hub.git_dir / "config").read_bytes()
    assert hub.bench.remove_fetch_rules("origin", rules[:1]) == []
    with pytest.raises(NotFound) as caught:
        hub.bench.remove_fetch_rules("nobody", rules)
    assert caught.value.code == "no-such-remote"
    assert (hub.git_dir / "config").read_bytes() == before


def test_a_push_returns_the_result_of_each_ref(hub: BenchRepository, tree: Tree) -> None:
    first = hub.head()
    git("update-ref", "refs/clia/x", first, cwd=hub.root)
    refs = ["refs/heads/main", "refs/clia/x"]
    assert hub.bench.push("origin", refs) == [Pushed(ref, "new", "") for ref in refs]
    hub.commit()
    assert hub.bench.push("origin", refs) == [Pushed(refs[0], "moved", ""), Pushed(refs[1], "same", "")]
    assert refs_of(tree.root / "hub.git") == {"refs/heads/main": hub.head(), "refs/clia/x": first}
    assert hub.bench.push("origin", []) == []


def test_a_push_is_atomic_and_never_forced(hub: BenchRepository, tree: Tree) -> None:
    first = hub.head()
    git("update-ref", "refs/clia/x", hub.commit(), cwd=hub.root)
    git("config", "push.followTags", "true", cwd=hub.root)
    git("config", "--add", "remote.origin.push", "+refs/*:refs/*", cwd=hub.root)
    hub.bench.push("origin", ["refs/heads/main", "refs/clia/x"])
    before = refs_of(tree.root / "hub.git")
    git("update-ref", "refs/clia/x", first, cwd=hub.root)
    git("tag", "-a", "-m", "x", "v1", cwd=hub.root)
    hub.commit()
    results = hub.bench.push("origin", ["refs/heads/main", "refs/clia/x"])
    assert [(pushed_ref.ref, pushed_ref.state) for pushed_ref in results] == [
        ("refs/heads/main", "refused"),
        ("refs/clia/x", "refused"),
    ]
    assert results[0].reason == "atomic push failed"
    assert results[1].reason in ("non-fast-forward", "fetch first")
    assert refs_of(tree.root / "hub.git") == before


def test_a_refusal_by_the_server_has_its_reason(hub: BenchRepository, tree: Tree) -> None:
    hook = tree.write("hub.git/hooks/update", "#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert hub.bench.push("origin", ["refs/heads/main"]) == [Pushed("refs/heads/main", "refused", "hook declined")]


def test_a_push_of_an_invalid_ref_is_refused_before_anything_is_sent(hub: BenchRepository, tree: Tree) -> None:
    for bad in ("main", "+refs/heads/main", "refs/heads/main:refs/heads/x", "refs/heads/*", ":refs/heads/main", "--force"):
        with pytest.raises(InvalidInput) as caught:
            hub.bench.push("origin", ["refs/heads/main", bad])
        assert caught.value.code == "invalid-ref"
    with pytest.raises(NotFound) as missing:
        hub.bench.push("origin", ["refs/heads/main", "refs/heads/nope"])
    assert missing.value.code == "no-such-ref"
    assert refs_of(tree.root / "hub.git") == {}


def test_a_fetch_writes_the_refs_of_its_rules_and_prunes_nothing(hub: BenchRepository, tree: Tree) -> None:
    git("push", "-q", "origin", "main", "main:refs/clia/x", cwd=hub.root)
    git("update-ref", "-d", "refs/remotes/origin/main", cwd=hub.root)
    git("update-ref", "refs/clia/tracking/mine", hub.head(), cwd=hub.root)
    git("config", "fetch.prune", "true", cwd=hub.root)
    before = refs_of(hub.root)
    hub.bench.fetch("origin", [])
    assert refs_of(hub.root) == before
    hub.bench.fetch("origin", ["+refs/clia/*:refs/clia/tracking/*", "+refs/heads/*:refs/clia/heads/*"])
    assert refs_of(hub.root) == before | {"refs/clia/tracking/x": hub.head(), "refs/clia/heads/main": hub.head()}
    assert not (hub.git_dir / "FETCH_HEAD").exists()


def test_a_fetch_works_in_a_bare_repository(hub: BenchRepository, tree: Tree) -> None:
    git("push", "-q", "origin", "main", cwd=hub.root)
    git("init", "-q", "--bare", "bare.git", cwd=tree.root)
    bench = open_bench(tree.root / "bare.git", hub.home)
    bench.fetch(tree.path("hub.git"), ["refs/heads/main:refs/heads/main"])
    assert refs_of(tree.root / "bare.git") == {"refs/heads/main": hub.head()}


def test_a_fetch_that_is_not_a_fast_forward_moves_nothing(hub: BenchRepository) -> None:
    git("push", "-q", "origin", "main", cwd=hub.root)
    git("update-ref", "refs/mine/x", hub.commit(), cwd=hub.root)
    before = refs_of(hub.root)
    with pytest.raises(Conflict) as caught:
        hub.bench.fetch("origin", ["refs/heads/main:refs/mine/x", "refs/heads/main:refs/mine/y"])
    assert caught.value.code == "fetch-refused"
    assert refs_of(hub.root) == before


def test_an_unreachable_remote_is_a_transport_error_without_passwords(hub: BenchRepository, tree: Tree) -> None:
    address = f"file://tess:p@ss@{tree.path('nowhere')}"
    git("remote", "add", "away", address, cwd=hub.root)
    for remote in ("away", address):
        for call in (lambda to: hub.bench.fetch(to, ["refs/x:refs/y"]), lambda to: hub.bench.push(to, ["refs/heads/main"])):
            with pytest.raises(TransportError) as caught:
                call(remote)
            message = json.dumps(caught.value.to_json())
            assert "p@ss" not in message
            assert "tess" not in message
            assert caught.value.retryable


def test_the_users_configuration_decides_how_servers_are_reached(hub: BenchRepository, tree: Tree) -> None:
    ssh = tree.write("ssh", f'#!/bin/sh\nfor last; do :; done\ncd {tree.path()} && eval "$last"\n')
    ssh.chmod(0o755)
    bench = open_bench(hub.root, hub.home, GIT_SSH_COMMAND=str(ssh), GIT_SSH_VARIANT="simple", GIT_DIR="/nowhere")
    bench.push("example.org:hub.git", ["refs/heads/main"])
    assert refs_of(tree.root / "hub.git") == {"refs/heads/main": hub.head()}
