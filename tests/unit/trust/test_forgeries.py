"""Forgeries with plain git: each is found by name, in place and from a plain clone without a store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import clia
from clia.facade.backends import connect
from clia.testing import Settings
from clia.trust.machine_log import LoggedMove, write_line
from clia.trust.ssh_signatures import SshSigner, signer_of
from clia.trust.verification import TrustReport, verify_trust
from support.machine_logs import LOGS, chained, key_of, log_at, superseded_commits, write_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.trust.machine_log import LogEntry, MachineLog

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)
HEAD, TRACES, EVENTS, KEYS = "refs/heads/agents/scout", "refs/notes/clia/trace/scout", "refs/clia/events/scout", "refs/clia/keys"
PLAIN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
PERSON = {
    f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in (("NAME", "Ada"), ("EMAIL", "ada@x"))
}


class Repository(NamedTuple):
    path: Path

    def git(self, *words: str, data: str | bytes = "") -> str:
        sent = data.encode() if isinstance(data, str) else data
        environment = {**os.environ, **PLAIN, **PERSON}
        result = subprocess.run(["git", *words], cwd=self.path, input=sent, capture_output=True, env=environment, check=False)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout.decode().strip()

    def at(self, name: str) -> str:
        return self.git("rev-parse", name)

    def message(self, name: str) -> str:
        return self.git("log", "-1", "--format=%B", name)

    def move(self, ref: str, cid: str) -> None:
        self.git("update-ref", ref, cid)

    def commit(self, message: str, *parents: str, tree: str | None = None) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        return self.git("commit-tree", tree or self.git("rev-parse", f"{parents[0]}^{{tree}}"), *words, data=message)

    def machine(self) -> str:
        return next(ref for ref in self.refs() if ref.startswith("refs/clia/log/"))

    def refs(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)").split()

    def rewrite(self, ref: str, change: Callable[[str], str], above: str | None = None) -> None:
        """Rewrite the newest commit of a ref, and what follows it here, as ``git commit --amend`` does."""
        tip = self.at(ref)
        parents = self.git("log", "-1", "--format=%P", tip).split()
        self.move(ref, self.commit(change(self.message(tip)), *parents, tree=self.git("rev-parse", f"{tip}^{{tree}}")))

    def resigned(self, cid: str, seed: bytes, change: Callable[[str], str] = str) -> str:
        """A copy of a commit that another key signed."""
        head, _, body = self.git("cat-file", "commit", cid).partition("\n\n")
        lines = head[: head.index("\ngpgsig ")]
        data = f"{lines}\n\n{change(body)}\n"
        signature = signer_of(seed).sign(data.encode()).replace("\n", "\n ")
        return self.git("hash-object", "-t", "commit", "-w", "--stdin", data=f"{lines}\ngpgsig {signature}\n\n{change(body)}\n")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space with two agents, traces, decisions, a merge, a landing, a behaviour, events and a purge."""
    root = tmp_path_factory.mktemp("record") / "project"
    root.mkdir()
    with clia.init(root, settings=SETTINGS) as space:
        Repository(root).git("commit", "-q", "--allow-empty", "-m", "start")
        for name in ("scout", "rover"):
            space.spawn(name, clia.Briefing(f"the work of {name}"))
            space.trace(name, "note", f"{name} looked around")
            space.commit_with_trace(name, "finding", changes={f"{name}.txt": b"1\n"}, message=f"found by {name}")
        for number in range(20):  # the log has a file for older entries
            space.commit("rover", "finding", changes={"rover.txt": b"%d\n" % number})
        for question, answer in (("merge it?", "yes"), ("land it?", "no")):
            space.ask("scout", {"question": question, "choices": ["yes", "no"]})
            space.decide("scout", answer)
        space.relate("scout", "reviews", "rover")
        space.merge("scout", "rover")
        space.register_type("sketch", "agent-commit")
        space.trace("rover", "note", "the leaked word is swordfish")
        space.commit_with_trace("rover", "finding", changes={"rover.txt": b"2\n"})
        space.trace_purge("rover", "swordfish")
        space.land("scout", "main")
    return root


@pytest.fixture
def repository(record: Path, tmp_path: Path) -> Repository:
    return Repository(shutil.copytree(record, tmp_path / "project", symlinks=True))


def checked(path: Path, root: str | None = None, *, strict: bool = False) -> TrustReport:
    return verify_trust(connect(str(path), SETTINGS), root=root, strict=strict)


def cloned(repository: Repository) -> Repository:
    """A plain clone with everything that git shares; no store, no keys."""
    place = repository.path.parent / "clone"
    repository.git("clone", "--quiet", "--no-local", "--bare", str(repository.path), str(place))
    clone = Repository(place)
    clone.git("fetch", "--quiet", "origin", "+refs/*:refs/*")
    clone.git("remote", "remove", "origin")
    return clone


def codes(report: TrustReport) -> set[str]:
    return {finding.code for finding in report.findings}


def test_an_untouched_record_verifies_in_place_and_in_a_clone(repository: Repository) -> None:
    for path in (repository.path, cloned(repository).path):
        report = checked(path)
        assert report.findings == ()
        assert report.clean
        assert (report.state, report.unsigned, report.strengths) == ("signed", 0, {"attested": 2})
        assert report.moves > 10
        assert checked(path, report.root).findings == ()
        assert codes(checked(path, "SHA256:other")) == {"wrong-root"}
        assert codes(checked(path, strict=True)) == {"no-cosigned-checkpoint", "weak-proof"}


def test_stock_git_verifies_every_signed_commit(repository: Repository, tmp_path: Path) -> None:
    root = json.loads(repository.message(f"{KEYS}").split("Clia-Keys: ")[1])
    (tmp_path / "allowed").write_text(f'* namespaces="git" {root["key"]["public"]}\n')
    commits = repository.git("rev-list", HEAD, TRACES, EVENTS, KEYS, repository.machine(), "--not", "main~1").split()
    settings = ("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={tmp_path / 'allowed'}")
    repository.git(*settings, "verify-commit", *[cid for cid in commits if "Clia-" in repository.message(cid)])
    log = repository.git(*settings, "log", "--format=%G?", f"{HEAD}", "--not", "main~1")
    assert "G" in log
    assert "B" not in log


def decision(repository: Repository, index: int = 0) -> str:
    words = ("log", "--format=%H", "--grep=^Clia-Type: decision", HEAD)
    return repository.git(*words).split()[index]


def fabricate_decision(repository: Repository) -> None:
    tip = repository.at(HEAD)
    text = repository.message(decision(repository)).replace('Clia-Value: "no"', 'Clia-Value: "yes"')
    repository.move(HEAD, repository.commit(text, tip))


def decide_a_request_that_never_existed(repository: Repository) -> None:
    text = repository.message(decision(repository)).replace("Clia-Request: ", "Clia-Request: 9")
    repository.move(HEAD, repository.commit(text, repository.at(HEAD)))


def flip_a_decision_and_rebind_its_notes(repository: Repository) -> None:
    cid = decision(repository)
    repository.move(HEAD, cid)
    repository.rewrite(HEAD, lambda text: text.replace('Clia-Value: "no"', 'Clia-Value: "yes"'))
    note, head = repository.git("notes", f"--ref={TRACES}", "show", cid), repository.at(HEAD)
    repository.git("notes", f"--ref={TRACES}", "add", "-f", "-F", "-", head, data=note.replace(cid, head))


def amend_a_commit(repository: Repository) -> None:
    repository.rewrite(HEAD, lambda text: f"a better word\n{text}")


def replace_a_trace(repository: Repository) -> None:
    cid = repository.git("log", "--format=%H", "--grep=^Clia-Trace", "-1", HEAD)
    note = repository.git("notes", f"--ref={TRACES}", "show", cid)
    repository.git("notes", f"--ref={TRACES}", "add", "-f", "-F", "-", cid, data=note.replace('"text":"', '"text":"not '))


def delete_a_trace(repository: Repository) -> None:
    cid = repository.git("log", "--format=%H", "--grep=^Clia-Trace", "-1", HEAD)
    repository.git("notes", f"--ref={TRACES}", "remove", cid)


def drop_the_last_commit(repository: Repository) -> None:
    repository.move(HEAD, repository.at(f"{HEAD}~1"))


def wipe_an_agent(repository: Repository) -> None:
    for ref in repository.refs():
        if ref.endswith("/rover"):
            repository.git("update-ref", "-d", ref)


def forge_a_landing(repository: Repository) -> None:
    text = "landed\n\nClia-Landed: scout\nClia-Type: land"
    repository.move(HEAD, repository.commit(text, repository.at(HEAD)))


def delete_the_events(repository: Repository) -> None:
    repository.git("update-ref", "-d", EVENTS)


def drop_an_event(repository: Repository) -> None:
    repository.move("refs/clia/events/rover", repository.commit("x\n\nClia-Event: {}", tree=repository.git("mktree")))


def delete_the_keys(repository: Repository) -> None:
    repository.git("update-ref", "-d", KEYS)


def delete_the_log(repository: Repository) -> None:
    repository.git("update-ref", "-d", repository.machine())


def repeat_a_trailer(repository: Repository) -> None:
    text = repository.message(HEAD) + "\nClia-Agent: rover"
    repository.move(HEAD, repository.commit(text, repository.at(HEAD)))


def replace_an_object(repository: Repository) -> None:
    cid = decision(repository)
    repository.git("replace", cid, repository.commit("another decision", *repository.git("log", "-1", "--format=%P", cid).split()))


def graft_history(repository: Repository) -> None:
    path = repository.path / ("info" if (repository.path / "objects").is_dir() else ".git/info")
    path.mkdir(exist_ok=True)
    (path / "grafts").write_text(f"{repository.at(HEAD)}\n")


def sign_with_a_key_that_is_not_enrolled(repository: Repository) -> None:
    repository.move(HEAD, repository.resigned(repository.at(HEAD), b"\x09" * 32))


def enrol_a_key_without_authority(repository: Repository) -> None:
    other = signer_of(b"\x08" * 32).public
    body = json.loads(repository.message(KEYS).split("Clia-Keys: ")[1])
    body["entry"] = "enrol"
    body["key"] |= {"public": other.text, "owner": "mallory"}
    text = f"enrol\n\nClia-Keys: {json.dumps(body, sort_keys=True, separators=(',', ':'))}"
    unsigned = repository.commit(text, repository.at(KEYS))
    data = repository.git("cat-file", "commit", unsigned) + "\n"
    head, _, body_text = data.partition("\n\n")
    signature = signer_of(b"\x08" * 32).sign(data.encode()).replace("\n", "\n ")
    text = f"{head}\ngpgsig {signature}\n\n{body_text}"
    repository.move(KEYS, repository.git("hash-object", "-t", "commit", "-w", "--stdin", data=text))


def start_another_chain(repository: Repository) -> None:
    body = json.loads(repository.message(KEYS).split("Clia-Keys: ")[1])
    other = signer_of(b"\x08" * 32).public

    def other_root(_: str) -> str:
        body["key"] |= {"public": other.text}
        return f"keys: root\n\nClia-Keys: {json.dumps(body, sort_keys=True, separators=(',', ':'))}"

    repository.move(KEYS, repository.resigned(repository.at(KEYS), b"\x08" * 32, other_root))


def log_of(repository: Repository) -> MachineLog:
    return log_at(repository.path, repository.machine())


def signer_of_machine(repository: Repository) -> SshSigner:
    """The key of the machine; a clone does not have it, but its owner may forge there, too."""
    return key_of(repository.path.parent / "project")


def replace_log(repository: Repository, lines: Sequence[bytes], *, signed: bool = True) -> None:
    machine = repository.machine().removeprefix(LOGS)
    signer = signer_of_machine(repository) if signed else None
    repository.move(repository.machine(), write_log(repository.path, machine, lines, signer))


def put_an_older_log_back(repository: Repository) -> None:
    """With the machine's own signature: the log as it was a moment ago."""
    source = Repository(repository.path.parent / "project")
    older = source.git("cat-file", "commit", superseded_commits(source.path)[-2])
    tree = source.git("ls-tree", older.splitlines()[0].split()[1])
    for line in tree.splitlines():
        data = source.git("cat-file", "blob", line.split()[2]) + "\n"
        assert repository.git("hash-object", "-w", "--stdin", data=data) == line.split()[2]
    repository.git("mktree", data=tree + ("\n" if tree else ""))
    repository.move(repository.machine(), repository.git("hash-object", "-t", "commit", "-w", "--stdin", data=older + "\n"))


def drop_the_last_log_entry(repository: Repository) -> None:
    replace_log(repository, log_of(repository).lines[:-1], signed=False)


def forge_a_log_entry(repository: Repository) -> None:
    """Move a ref and log it, without the machine's key."""
    tip, forged = repository.at(HEAD), repository.commit(repository.message(HEAD), repository.at(HEAD))
    log = log_of(repository)
    move = LoggedMove(HEAD, tip, forged, "clia: finding")
    repository.move(HEAD, forged)
    replace_log(repository, [*log.lines, write_line(log.end.digest, log.entries[-1]._replace(moves=(move,)))], signed=False)


def forge_a_linked_log_entry(repository: Repository) -> None:
    """The same, in the form of earlier versions."""
    tip, forged = repository.at(HEAD), repository.commit(repository.message(HEAD), repository.at(HEAD))
    body = {"keys": repository.at(KEYS), "moves": [[HEAD, tip, forged, "clia: finding"]]}
    text = f"log\n\nClia-Log: {json.dumps(body, separators=(',', ':'))}"
    repository.move(HEAD, forged)
    repository.move(repository.machine(), repository.commit(text, repository.at(repository.machine())))


def change_an_old_file_of_the_log(repository: Repository) -> None:
    """Exchange two entries in a file of the log; the signature of its commit is as it was."""
    ref = repository.machine()
    files = repository.git("ls-tree", ref).splitlines()
    lines = repository.git("cat-file", "blob", files[0].split()[2]).split("\n")
    lines[0], lines[1] = lines[1], lines[0]
    blob = repository.git("hash-object", "-w", "--stdin", data="\n".join(lines) + "\n")
    tree = repository.git("mktree", data="\n".join([f"100644 blob {blob}\t{files[0].split()[3]}", *files[1:]]) + "\n")
    data = repository.git("cat-file", "commit", ref) + "\n"
    data = f"tree {tree}\n" + data.partition("\n")[2]
    repository.move(ref, repository.git("hash-object", "-t", "commit", "-w", "--stdin", data=data))


def remove_a_file_of_the_log(repository: Repository) -> None:
    """In place of the ref's objects, as a damaged disk does."""
    blob = repository.git("ls-tree", repository.machine()).split()[2]
    unpack(repository)
    (Path(repository.git("rev-parse", "--absolute-git-dir")) / "objects" / blob[:2] / blob[2:]).unlink()


def unpack(repository: Repository) -> None:
    directory = Path(repository.git("rev-parse", "--absolute-git-dir"))
    for pack in list((directory / "objects/pack").glob("*.pack")):
        moved = pack.rename(directory / pack.name)
        pack.with_suffix(".idx").unlink()
        repository.git("unpack-objects", "-q", data=moved.read_bytes())


def rechained(repository: Repository, change: Callable[[list[LogEntry]], object]) -> None:
    """Rewrite the log as who has the machine's key can: every entry names the one before."""
    entries = log_of(repository).entries
    change(entries)
    replace_log(repository, chained(repository.machine().removeprefix(LOGS), entries))


def drop_a_log_entry_with_the_key(repository: Repository) -> None:
    rechained(repository, lambda entries: entries.pop(next(n for n, entry in enumerate(entries) if moves_head(entry) and n > 6)))


def moves_head(entry: LogEntry) -> bool:
    return any(move.ref == HEAD and move.old is not None for move in entry.moves)


def repeat_a_log_entry_with_the_key(repository: Repository) -> None:
    rechained(repository, lambda entries: entries.append(entries[-1]))


def backdate_a_log_entry_with_the_key(repository: Repository) -> None:
    rechained(repository, lambda entries: entries.append(entries[-1]._replace(keys=repository.at(HEAD))))


def reorder_the_log_with_the_key(repository: Repository) -> None:
    """The entries are as they were, and name others than the ones before them."""
    lines = list(log_of(repository).lines)
    lines[3], lines[4] = lines[4], lines[3]
    replace_log(repository, lines)


def splice_the_log_of_another_machine(repository: Repository) -> None:
    replace_log(repository, [*log_of(repository).lines, *chained("machine-0123456789ab", log_of(repository).entries[:2])])


def sign_the_log_with_the_key_of_another_machine(repository: Repository) -> None:
    machine = repository.machine().removeprefix(LOGS)
    repository.move(repository.machine(), write_log(repository.path, machine, log_of(repository).lines, signer_of(b"\x07" * 32)))


def give_the_log_a_parent(repository: Repository) -> None:
    machine, lines = repository.machine().removeprefix(LOGS), log_of(repository).lines
    cid = write_log(repository.path, machine, lines, signer_of_machine(repository), [repository.at(repository.machine())])
    repository.move(repository.machine(), cid)


def add_the_header_of_a_log(repository: Repository) -> None:
    """To a commit of an agent, with the machine's key."""
    data = repository.git("cat-file", "commit", HEAD) + "\n"
    head, _, message = data.partition("\n\n")
    head = head[: head.index("\ngpgsig ")] + f"\nclia-log {log_of(repository).lines[0].decode()}"
    signature = signer_of_machine(repository).sign(f"{head}\n\n{message}".encode()).strip().replace("\n", "\n ")
    data = f"{head}\ngpgsig {signature}\n\n{message}"
    repository.move(HEAD, repository.git("hash-object", "-t", "commit", "-w", "--stdin", data=data))


def rewrite_the_notes_below_their_head(repository: Repository) -> None:
    """The last notes commit gets another history."""
    tree = repository.git("rev-parse", f"{TRACES}^{{tree}}")
    repository.move(TRACES, repository.commit(repository.message(TRACES), repository.commit("notes", tree=tree), tree=tree))


def exchange_two_signatures(repository: Repository) -> None:
    first, second = (repository.git("cat-file", "commit", f"{HEAD}~{back}") for back in (0, 1))
    signature = second[second.index("gpgsig ") : second.index("-----END SSH SIGNATURE-----")]
    own = first[first.index("gpgsig ") : first.index("-----END SSH SIGNATURE-----")]
    forged = first.replace(own, signature) + "\n"
    repository.move(HEAD, repository.git("hash-object", "-t", "commit", "-w", "--stdin", data=forged))


def add_a_header(repository: Repository) -> None:
    data = repository.git("cat-file", "commit", HEAD) + "\n"
    forged = data.replace("\ngpgsig ", "\nmergetag object 0\ngpgsig ", 1)
    repository.move(HEAD, repository.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", data=forged))


def add_an_agent(repository: Repository) -> None:
    repository.move("refs/heads/agents/ghost", repository.at(HEAD))


FORGERIES: list[tuple[Callable[[Repository], None], set[str]]] = [
    (fabricate_decision, {"unsigned-commit", "unlogged-move"}),
    (decide_a_request_that_never_existed, {"unsigned-commit", "unlogged-move"}),
    (flip_a_decision_and_rebind_its_notes, {"unsigned-commit", "unlogged-move"}),
    (amend_a_commit, {"unsigned-commit", "unlogged-move"}),
    (replace_a_trace, {"changed-trace", "unsigned-commit", "unlogged-move"}),
    (delete_a_trace, {"missing-trace", "unsigned-commit", "unlogged-move"}),
    (drop_the_last_commit, {"rewound-ref"}),
    (wipe_an_agent, {"missing-ref"}),
    (forge_a_landing, {"unsigned-commit", "unlogged-move"}),
    (delete_the_events, {"missing-ref"}),
    (drop_an_event, {"unsigned-commit", "unlogged-move"}),
    (delete_the_keys, {"keys-missing"}),
    (delete_the_log, {"missing-log", "unlogged-ref"}),
    (repeat_a_trailer, {"repeated-trailer", "unsigned-commit", "unlogged-move"}),
    (replace_an_object, {"replaced-object"}),
    (graft_history, {"graft"}),
    (sign_with_a_key_that_is_not_enrolled, {"unknown-key", "unlogged-move"}),
    (enrol_a_key_without_authority, {"unknown-key", "unlogged-move"}),
    (start_another_chain, {"unknown-machine", "missing-log", "unknown-key", "unlogged-ref"}),
    (put_an_older_log_back, {"unlogged-commit"}),
    (drop_the_last_log_entry, {"forged-log"}),
    (forge_a_log_entry, {"forged-log", "unsigned-commit", "unlogged-ref"}),
    (forge_a_linked_log_entry, {"forged-log", "unsigned-commit", "unlogged-ref"}),
    (change_an_old_file_of_the_log, {"forged-log"}),
    (remove_a_file_of_the_log, {"missing-commit"}),
    (drop_a_log_entry_with_the_key, {"log-gap"}),
    (repeat_a_log_entry_with_the_key, {"repeated-move"}),
    (backdate_a_log_entry_with_the_key, {"backdated-log"}),
    (reorder_the_log_with_the_key, {"malformed-log"}),
    (splice_the_log_of_another_machine, {"malformed-log"}),
    (sign_the_log_with_the_key_of_another_machine, {"forged-log"}),
    (give_the_log_a_parent, {"malformed-log"}),
    (add_the_header_of_a_log, {"strange-commit"}),
    (rewrite_the_notes_below_their_head, {"unsigned-commit", "unlogged-move"}),
    (exchange_two_signatures, {"bad-signature", "unlogged-move"}),
    (add_a_header, {"strange-commit", "unlogged-move"}),
    (add_an_agent, {"unlogged-ref"}),
]


@pytest.mark.parametrize(("forge", "expected"), FORGERIES, ids=[forge.__name__ for forge, _ in FORGERIES])
def test_each_forgery_is_found_in_place(repository: Repository, forge: Callable[[Repository], None], expected: set[str]) -> None:
    forge(repository)
    assert expected <= codes(checked(repository.path))


@pytest.mark.parametrize(("forge", "expected"), FORGERIES, ids=[forge.__name__ for forge, _ in FORGERIES])
def test_each_forgery_is_found_in_a_plain_clone(
    repository: Repository, forge: Callable[[Repository], None], expected: set[str]
) -> None:
    clone = cloned(repository)
    forge(clone)
    report = checked(clone.path)
    assert expected <= codes(report)
    assert not report.clean


def test_a_promisor_remote_does_not_hide_loss(repository: Repository) -> None:
    clone = cloned(repository)
    lost = decision(clone)
    packs = list((clone.path / "objects/pack").glob("*.pack"))
    for pack in packs:
        moved = pack.rename(clone.path / pack.name)
        pack.with_suffix(".idx").unlink()
        clone.git("unpack-objects", "-q", data=moved.read_bytes())
    (clone.path / "objects" / lost[:2] / lost[2:]).unlink()
    clone.git("config", "remote.origin.url", "https://example.invalid/x")
    clone.git("config", "remote.origin.promisor", "true")
    report = checked(clone.path)
    assert "missing-commit" in codes(report)
    assert any("promisor" in line for line in report.ignored)


def test_an_unsigned_space_is_called_unsigned(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "config", "commit.gpgsign", "true"], cwd=tmp_path, check=True)
    clone = Repository(tmp_path)
    clone.git("config", "gpg.program", "false")
    clone.git("config", "commit.gpgsign", "false")
    clia.init(tmp_path, settings=SETTINGS).close()
    for ref in (KEYS, clone.machine()):
        clone.git("update-ref", "-d", ref)
    space = clone.at("refs/clia/space")
    tree = clone.git("rev-parse", f"{space}^{{tree}}")
    clone.move("refs/clia/space", clone.commit(clone.message(space), tree=tree))
    report = checked(tmp_path)
    assert (report.state, report.clean) == ("unsigned", False)
