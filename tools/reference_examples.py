"""Examples for the JSON reference: every command, run with ``--json`` on small repositories made for it.

Ids, times and sizes, which differ from run to run, are replaced by fixed ones; everything else is as it was printed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.cli import main, registry

if TYPE_CHECKING:
    from collections.abc import Iterator


class Example(NamedTuple):
    command: str  # its name in the registry
    words: str  # as typed, without --json
    value: Any  # what it printed; of several lines the last one


ERROR = "error"
_FAILED = "agents profile --slug nobody --ceiling ."
_SECRET = "ghp_" + "Zx9" * 12
_PERSON = {"NAME": "Ada", "EMAIL": "ada@example.org"}
_REFUSED = ("merge lead reviewer", "verify", "flow check ../broken.py", "cap explain ada agent-commit spawn --path ../bea")
_TO_STDERR = ("run",)  # the program owns standard output
_FILES = {
    "four.txt": "apples 4\n",
    "nine.txt": "apples 9\n",
    "both.txt": "apples 13\n",
    "late.txt": "seen afterwards\n",
    "parse.py": 'def main(input):\n    return int(request("number", None))\n',
    "count.py": "def main(input):\n"
    '    plan = request("plan", {"boxes": input["boxes"]})\n'
    '    verdict = request("human", {"question": "Count so?", "plan": plan, "choices": ["approve", "reject"]}, tag="count-so")\n'
    '    return {"verdict": verdict, "plan": plan}\n',
    "broken.py": "def main(input):\n    return 1 +\n",
    "ask.py": 'def main(input):\n    return int(request("supplier", {"how many": input}))\n',
    "better.py": 'def main(input):\n    return int(request("supplier", {"how many": input}).split()[0])\n',
    "review.md": "Review {{task}}.\n",
    "policy.json": '{"rules": [{"verbs": ["decide"], "threshold": 2}]}\n',
}


def examples() -> list[Example]:
    """One example or more of every command that prints JSON."""
    examples: list[Example] = []
    for tour in (_space, _sessions, _behaviours, _federation, _trust, _forge, _hooks, _identities):
        with tempfile.TemporaryDirectory() as directory:
            top = Path(directory).resolve()
            with _environment(top), chdir(_plant(top)):
                printed = [Example(_name(words), words if words != ERROR else _FAILED, value) for words, value in tour()]
            text = json.dumps(printed, ensure_ascii=False)
            examples += (Example(*example) for example in json.loads(_fixed(text, str(top))))
    return examples


@contextmanager
def _environment(home: Path) -> Iterator[None]:
    """The environment of a user with a name and no settings."""
    before = dict(os.environ)
    for key in [key for key in before if key.startswith(("GIT_", "CLIA_", "CLAUDE", "CODEX", "GEMINI"))]:
        del os.environ[key]
    os.environ |= {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _PERSON.items()}
    os.environ |= {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "XDG_STATE_HOME": f"{home}/state",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _plant(top: Path) -> Path:
    """A repository with a remote, and files for commands to read beside it."""
    shop = top / "shop"
    for name, text in _FILES.items():
        (top / name).write_text(text, encoding="utf-8")
    _git("init", "--quiet", "--bare", str(top / "hub.git"))
    _git("init", "--quiet", "--initial-branch", "main", str(shop))
    (shop / "stock.txt").write_text("apples 3\n", encoding="utf-8")
    for words in (("add", "."), ("commit", "--quiet", "--message", "Stock"), ("remote", "add", "origin", "../hub.git")):
        _git("-C", str(shop), *words)
    return shop


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def _name(words: str) -> str:
    if words == ERROR:
        return ERROR
    first, second = [*words.split(), ""][:2]
    group = registry.TREE.commands[first]
    return f"{first} {second}" if hasattr(group, "commands") else first


def _run(words: str) -> Any:
    """What a command prints."""
    before, separator, program = words.partition(" -- ")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main.main([*shlex.split(before), "--json", *(shlex.split(f"-- {program}") if separator else ())])
    if code != (main.REFUSED if words in _REFUSED else main.DONE):
        raise SystemExit(f"reference: clia {words} exits {code}: {err.getvalue()}")
    text = (err if words.partition(" ")[0] in _TO_STDERR else out).getvalue()
    return json.loads(text if text[:2] in ("{\n", "[\n") or text.count("\n") <= 1 else text.splitlines()[-1])


def _each(text: str) -> Iterator[tuple[str, Any]]:
    """Run commands, a line each; one that starts with ``-`` is only a step towards the next."""
    for line in text.strip().splitlines():
        words = line.strip()
        value = _run(words.removeprefix("- "))
        if not words.startswith("- "):
            yield words, value


def _space() -> Iterator[tuple[str, Any]]:
    yield from _each(f"""
        - init
        spawn lead --title 'Lead the stock work'
        - spawn scout --from lead --title 'Count the apples' --text 'Every box.'
        - spawn reviewer --from lead --title 'Check the count'
        trace add scout 'export GITHUB_TOKEN={_SECRET}'
        trace pending scout
        commit scout finding --set stock.txt=../four.txt --meta boxes=7 --trace --message 'One more apple'
        changes --onto main
        status
        - commit reviewer finding --set stock.txt=../nine.txt --message 'Nine apples'
        run counter --title 'Count with wc' -- sh -c 'wc -l stock.txt > lines.txt'
        checkout scout ../scout
        merge lead scout
        merge lead scout
        merge lead reviewer
        resolve lead reviewer --file stock.txt=../both.txt
        changes lead --onto main
        land lead --onto main --squash
        agents accept-loss --message 'The team agreed.'
        publish scout""")
    _git("clone", "--quiet", "../hub.git", "../bea")
    yield from _each("""
        init ../bea
        list
        demo --no-serve --directory ../demo
        help landing
        log scout --own --number 1
        log scout --own --trace --number 1
        show lead
        show agents/scout
        diff scout
        blame scout stock.txt
        why stock.txt:1 scout
        attest scout --output ../scout.jsonl
        attest verify ../scout.jsonl
        authorship main
        tree
        graph scout --number 2
        fork-point lead main
        relate reviewer reviews scout
        relations scout
        trace show agents/scout
        trace show scout
        trace attach agents/reviewer ../late.txt
        trace history agents/reviewer
        trace search github
        trace purge reviewer --text afterwards --yes
        trace export scout
        types
        rebuild""")
    _git("branch", "tidy", _git("commit-tree", "agents/scout^{tree}", "-p", "main~1", "-m", "Counted"))
    yield from _each("relink --onto tidy\n archive reviewer")
    _git("init", "--quiet", "--bare", "../meet.git")
    yield from _each("""
        - init ../crew
        - spawn scout --empty --title 'Count' --path ../crew
        - spawn appels --empty --title 'Count the apples' --path ../crew
        rename appels apples --path ../crew
        - spawn pears --empty --title 'Count the pears' --path ../crew
        undo --dry-run --path ../crew
        undo --path ../crew
        - spawn plums --empty --title 'Count the plums' --path ../crew
        delete plums --path ../crew
        hub set ../meet.git --path ../crew
        hub status --path ../crew
        hub sync --path ../crew
        fleet --path ../crew
        gate install ../meet.git
        gate check main~1..main
        gate explain""")
    _git("update-ref", "-d", "refs/clia/agents/reviewer")
    yield from _each("""
        verify
        maintain --archive-idle 30
        backup ../backups/monday
        restore ../backups/monday ../copy
        ingest
        doctor
        completion bash""")


def _sessions() -> Iterator[tuple[str, Any]]:
    yield from _each("""
        - init
        - spawn scout --title 'Count the apples'
        flow define count ../count.py --message 'Ask before counting'
        flow list
        flow show count
        flow check ../broken.py
        session start scout count --input '{"boxes": 7}'
        session resume scout 'Box by box'
        session fork scout other
        inbox scout
        inbox scout --all
        session list
        decide scout approve --message 'It is sound.'
        session show scout
        session show scout --journal
        session cancel other --message 'One is enough.'
        - spawn lister --title 'List the boxes'
        - flow define parse ../parse.py
        - session start lister parse
        - session resume lister many
        session retry lister --message 'It answered in words.'
        ask scout 'Which box first?' --choices left,right""")
    answering = threading.Thread(target=_answer)
    answering.start()
    yield from _each("ask scout 'And now?' --wait")
    answering.join()
    yield from _each("worker --once")
    Path(".git/clia/config.toml").write_text("[budget.agent.scout]\ncommits = 50\n")
    decision = _grant()
    yield from _each(f"""
        budget scout
        grant list
        grant revoke {decision} --message 'The release is done.'""")


def _grant() -> str:
    """Answer a permission prompt of a tool with `always`; the decision."""
    prompt = {"key": "claude-code/1//2", "session": "claude-code/1/", "scope": "0" * 64, "until": "2099-01-01T00:00:00Z"}
    question = {"question": "Claude Code: may Bash run: make release?", "tool": "Bash", "command": "make release", "clia": prompt}
    with clia.open() as space:
        request = space.sessions.ask_for_clia("scout", question)
        return space.decide("scout", "always", request_id=request.id).cid


def _answer() -> None:
    """Answer the newest question as another user."""
    with clia.open() as space:
        while len(waiting := space.pending("scout")) < 2:
            pass
        space.decide("scout", "go on", request_id=waiting[-1].id)


def _behaviours() -> Iterator[tuple[str, Any]]:
    yield from _each("""
        - init
        - spawn scout --title 'Count the apples'
        behaviour add count ../ask.py --message 'Ask, then count'
        - session start scout count --input '"apples"'
        - session resume scout '"4 boxes"'
        behaviour propose count --from ../better.py --agent scout --evidence agents/scout --message 'In words, too'
        behaviour diff count""")
    with clia.open() as space:
        first, second = (version.cid for version in space.behaviours.get("count").versions)
    yield from _each(f"""
        behaviour replay --session scout/1 --with {second}
        behaviour adopt count {second} --trial
        - session start scout {second} --input '"apples"'
        - session resume scout '"4 boxes"'
        behaviour list
        behaviour show count
        behaviour show {second}
        behaviour lineage count
        behaviour stats count --over week
        behaviour compare {first} {second}
        behaviour suggest count
        behaviour retire count {second}
        - behaviour add review ../review.md
        behaviour export review --to skill""")


def _federation() -> Iterator[tuple[str, Any]]:
    """Ada's space is here, Bea's next to it."""
    yield from _each("""
        - init
        - init ../bea
        - spawn scout --title 'Count the apples'
        - flow define count ../count.py
        key show
        - key show --path ../bea""")
    ada, bea = _run("key show")["text"], _run("key show --path ../bea")["text"]
    yield from _each(f"""
        peer add bea --key {bea}
        - peer add ada --key {ada} --url ../shop --path ../bea
        peer share bea --agent '*' --behaviour '*' --traces
        announce
        sync --path ../bea
        peer show ada --path ../bea
        cap explain ada agent-commit spawn --path ../bea
        cap grant ada --follow --path ../bea
        - cap grant ada behaviour behaviour --path ../bea
        cap list --path ../bea
        sync --path ../bea
        remotes --path ../bea
        remotes --behaviours --path ../bea
        peer list --path ../bea
        peer change ada --trust --path ../bea
        cap revoke ada console-trace note --path ../bea
        peer remove ada --path ../bea
        key rotate""")


def _trust() -> Iterator[tuple[str, Any]]:
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
    yield from _each(f"""
        - init
        - spawn scout --title 'Count the apples'
        key init
        key enrol laptop --machine '{other}'
        key list
        key allowed-signers
        policy set ../policy.json
        policy show
        policy waiting
        key accept rewound-ref refs/heads/agents/scout -m 'an experiment'""")
    laptop = next(key["fingerprint"] for key in _run("key list")["keys"] if not key["here"])
    yield from ((words.replace(laptop, "SHA256:…"), value) for words, value in _each(f"key revoke {laptop} --reason stolen"))
    yield from _witnesses()


def _witnesses() -> Iterator[tuple[str, Any]]:
    """A witness of the space; and a space whose history is older than its keys."""
    state = "--state ../witness"
    yield from _each(f"witness checkpoint\n witness key --name ci.example.org/shop {state}")
    key = _run(f"witness key {state}")["key"]
    yield from ((words.replace(key, "KEY"), value) for words, value in _each(f"witness trust {key}"))
    yield from _each(f"witness cosign {state}\n witness list")
    program = [str(Path(sys.executable).parent / "clia"), *f"witness serve --port 0 {state} --json".split()]
    with _served_by(program) as banner:
        url = banner["address"]
        yield "witness serve", {**banner, "address": "http://127.0.0.1:8338"}
        yield from ((words.replace(url, "http://127.0.0.1:8338"), value) for words, value in _each(f"witness request {url}"))
    for ref in _git("for-each-ref", "--format=%(refname)", "refs/clia/keys", "refs/clia/log/", "refs/clia/checkpoints/").split():
        _git("update-ref", "-d", ref)
    shutil.rmtree(".git/clia/signing")
    _run("key init")
    yield from _each("key endorse --reason 'compared with the backup of May'")


def _forge() -> Iterator[tuple[str, Any]]:
    yield from _each("""
        - init
        user add ada --role admin --name 'Ada Lovelace' --email ada@example.org
        user token ada --label 'nightly build' --role viewer
        user change ada --name 'Ada King'
        user link ada --minutes 30 --address https://forge.example.org
        user passkey ada
        user list""")
    token = _run("user list")[0]["tokens"][0]["id"]
    yield from _each(f"user token ada --revoke {token}\n user remove ada --force")
    Path(".git/clia/config.toml").write_text('[forge]\naddress = "https://forge.example.org"\n', encoding="utf-8")
    yield "serve", _served()


def _served() -> Any:
    """What a forge prints when it starts; then it is stopped."""
    program = [str(Path(sys.executable).parent / "clia"), "serve", "--port", "0", "--quiet", "--json"]
    with _served_by(program) as banner:
        return {**banner, "api": "http://127.0.0.1:8337"}  # its port is another one each time


@contextmanager
def _served_by(program: list[str]) -> Iterator[Any]:
    """Run a server while the block runs; yields what it prints when it starts."""
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101  # it is a pipe
        lines = []
        for line in server.stdout:
            lines.append(line)
            if line == "}\n":
                break
        try:
            yield json.loads("".join(lines))
        finally:
            server.terminate()


def _hooks() -> Iterator[tuple[str, Any]]:
    yield from _each("""
        - init
        hook install claude-code --dry-run
        - hook install claude-code --yes
        hook uninstall claude-code --yes
        hook rehearse --path . --seed 1 --start 2026-01-31T09:00:00Z --no-hooks --stop-after 4""")


def _identities() -> Iterator[tuple[str, Any]]:
    """A repository with an identity, and a submodule that adds to it."""
    root, inner = Path.cwd(), Path("payments").resolve()
    _git("init", "--quiet", str(inner))
    (root / ".gitmodules").write_text('[submodule "payments"]\n\tpath = payments\n[submodule "ledger"]\n\tpath = ledger\n')
    rule = {"on": "tool", "match": {"command": "deploy *"}, "do": "ask", "risk": "high"}
    guardrails = ["Never commit secrets.", {"text": "Deploys need a person's approval.", "rules": [rule]}]
    outer = {"slug": "scout", "title": "Scout", "role": "Explorer", "guardrails": guardrails}
    local = {"slug": "scout", "role": "Payments explorer", "inherits": ["missing.json"]}
    for where, document in ((root, outer), (inner, local)):
        home = where / ".clia" / "agents" / "scout"
        home.mkdir(parents=True)
        (home / f"scout@{where.name}.agent.triad.json").write_text(json.dumps(document, indent=2) + "\n")
    with chdir(inner):
        yield from _each("""
            agents context --slug scout
            agents profile --slug scout
            agents profile --slug scout --root-chain --show-origin
            agents plan --slug scout
            agents agency --slug scout
            agents explain /role --slug scout
            agents rules --slug scout
            agents explain-rule --slug scout --on tool --tool Bash --command 'deploy payments'
            agents list
            agents search scout
            agents lint
            agents smoke
            agents doctor
            agents mirrors
            agents export --slug scout --to agents-md
            agents schema
            agents init ledger --title Ledger
            agents journal --slug scout -m 'Read the build.'
            agents transfer --slug scout --to ..
            agents consolidate ledger --into scout
            - init
            - spawn scout --title 'Look at the refunds'
            agents work --slug scout
            reprofile scout
            agents stats
            journal scout --message 'Refunds are tried three times.'""")
    yield ERROR, _error(_FAILED)


def _error(words: str) -> Any:
    err = io.StringIO()
    with redirect_stderr(err):
        main.main([*shlex.split(words), "--json"])
    return json.loads(err.getvalue())


def _fixed(text: str, top: str) -> str:
    """The same text, with what differs from run to run replaced."""
    text = text.replace(f"{top}/", "/").replace(top, "/").replace(re.sub(r"[^A-Za-z0-9]", "-", top), "")
    ids: dict[str, str] = {}
    text = re.sub(_ID, lambda match: ids.setdefault(match[0], _id(len(ids), match[0])), text)
    for pattern, replacement in _VARYING:
        text = re.sub(pattern, replacement, text)
    return text


_ID = r'\b(?:[0-9a-f]{40}|[0-9a-f]{64})\b|(?<=[":])(?<!SHA256:)[\w-]{43}(?=")'


def _id(number: int, original: str) -> str:
    """A made-up id; equal ids stay equal."""
    return hashlib.sha256(f"object {number}".encode()).hexdigest()[: len(original)]


_VARYING: tuple[tuple[str, Any], ...] = (
    (r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:Gqvi3tMz0Yw9K0XhSg0Z4d3dVbJmGmTnD3lqk3V5yOQ"),
    (r"ssh-ed25519 AAAA[A-Za-z0-9+/]{64}", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"),
    (r"machine-[0-9a-f]{12}", "machine-34750f98bd59"),
    (
        r'"sig": "[A-Za-z0-9+/]{86}=="',
        '"sig": "lAbIoUzBRZVARHjnrGmZffxqenN61ow96s/YT5TdWBqx4d73on1lJ+C9NciXDY6lgn5pX2jQKeIg/CeyszpfAQ=="',
    ),
    (r"(?<=[\w/])\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}", "+033f3034+Af7DzeHM6Yug0cSqq0P6ctc+JREo+DWsc/bEdM6AOnNN"),
    (r"(?<=\\n)[A-Za-z0-9+/]{43}=(?=\\n)", "OQRjhkiwvWAhrcZzegLzPf9WS51chLBCCz5ZkpvVBec="),
    (
        r"(— \S+) [A-Za-z0-9+/]{90,}={0,2}(?=\\n)",
        r"\1 Az8wND5ZfluIUUiG/0/IYPFThB/KX7C9Ul6oxp5oOaqQ2BTHipBs7VMlmp4V74QjhvC+QMA8ZdC/hjxrhOP/KJE0sg0=",
    ),
    (r"(?<=/worktrees/shop-)[0-9a-f]{8}", "5b1c0e5c"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "5b1c0e5c-6f0e-4f6a-9d55-6a1f0c1d2e3f"),
    (r'"(\w*at|since|first|last|heard)": \d+(\.\d+)?', r'"\1": 1769850000'),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", r"2026-01-31T09:00:00\g<1>Z"),
    (r"(T\d\d:\d\d:\d\d)\.\d{3}Z", r"\1.000Z"),
    (r'"\d{4}-\d\d-\d\d"', '"2026-01-31"'),
    (r'"(before|after|bytes|seconds|seq)": \d+(\.\d+)?', r'"\1": 10240'),
    (r'"(clia|python|git)": "[\d.]+"', r'"\1": "1.2.3"'),
    (r'"seed": "\w+"', '"seed": "00000000000000000000000000000000"'),
    (r'"engine": "[^"]*"', '"engine": "engine 1.2.3"'),
    (r"\b(clia_|key=)[\w-]{43}", r"\g<1>" + "x" * 43),
    (r'"([0-9a-f]{4} ){7}[0-9a-f]{4}"', '"1f3a 5c7e 9b0d 2f4a 6c8e 0b1d 3f5a 7c9e"'),
    (r'(Id": )"(?:[0-9a-f]{16}|[0-9a-f]{32})"', r'\1"1f3a5c7e9b0d2f4a"'),
    (r'(Nano": )"\d+"', r'\1"1769850000000000000"'),
    (r'(?<=[" ])[0-9a-f]{12}(?=")', "0a1b2c3d4e5f"),
    (r"transfer-[0-9a-f]{16}", "transfer-1f3a5c7e9b0d2f4a"),
    (r"\b\d\.\d{5,}\b", lambda match: f"{float(match[0]):.4f}"),  # the last digits differ between machines
)
