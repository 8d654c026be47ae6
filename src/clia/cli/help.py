"""Help: commands by what people want to do, an example of each, and topics.

This module is loaded for help, and after a mistyped command.
"""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from clia.cli.command import Answer, arg, command
from clia.cli.output import write
from clia.cli.registry import TREE, Group
from clia.errors import NotFound, did_you_mean

SECTIONS = {
    "start": ("init", "demo", "spawn", "checkout", "run", "hook", "mcp", "acp", "help"),
    "work": (
        *("commit", "undo", "trace", "journal", "ask", "merge", "resolve", "rename", "delete", "flow", "session"),
        *("behaviour", "ingest"),
    ),
    "look": (
        *("status", "changes", "list", "log", "show", "diff", "blame", "why", "authorship", "tree", "graph", "fork-point"),
        *("relations", "relate"),
    ),
    "decide": ("inbox", "decide", "land", "grant", "budget"),
    "govern": ("agents", "gate", "policy", "witness", "reprofile", "types"),
    "share": ("publish", "hub", "key", "peer", "cap", "announce", "sync", "remotes"),
    "operate": (
        *("serve", "user", "worker", "fleet", "doctor", "verify", "attest", "rebuild", "relink", "maintain"),
        *("archive", "backup", "restore", "completion"),
    ),
}
"""The commands of the first level, by what people want to do; a command that is missing here is listed last."""

EXAMPLES = {
    "init": "clia init",
    "demo": "clia demo",
    "help": "clia help landing",
    "status": "clia status --watch",
    "spawn": 'clia spawn scout --title "Count the apples"',
    "reprofile": "clia reprofile scout",
    "commit": 'clia commit scout finding --dir ../scout -m "One more apple"',
    "journal": 'clia journal scout -m "The parser needs Python 3.12." --tags decision',
    "run": "clia run tester -- make test",
    "undo": "clia undo --dry-run",
    "rename": "clia rename scout apple-counter",
    "delete": "clia delete scuot",
    "checkout": "clia checkout scout ../scout",
    "merge": "clia merge lead scout",
    "resolve": "clia resolve lead scout --take theirs",
    "changes": "clia changes scout",
    "land": "clia land scout",
    "publish": "clia publish scout",
    "list": "clia list",
    "log": "clia log scout -n 5",
    "show": "clia show scout",
    "diff": "clia diff scout",
    "blame": "clia blame main stock.txt",
    "why": "clia why stock.txt:1",
    "authorship": "clia authorship main",
    "tree": "clia tree",
    "graph": "clia graph scout",
    "fork-point": "clia fork-point lead scout",
    "relate": "clia relate reviewer reviews scout",
    "relations": "clia relations scout",
    "trace add": 'clia trace add scout "box 7 held one more"',
    "trace pending": "clia trace pending scout",
    "trace show": "clia trace show scout",
    "trace attach": "clia trace attach agents/scout console.txt",
    "trace history": "clia trace history agents/scout",
    "trace search": "clia trace search timeout",
    "trace purge": "clia trace purge scout --text hunter2",
    "trace export": "clia trace export scout --json",
    "flow define": "clia flow define sell sell.py",
    "flow list": "clia flow list",
    "flow show": "clia flow show sell",
    "flow check": "clia flow check sell.py",
    "behaviour add": "clia behaviour add review review.md",
    "behaviour propose": 'clia behaviour propose review --from better.md -m "Asks for tests, too"',
    "behaviour adopt": "clia behaviour adopt review 368562be94 --trial",
    "behaviour retire": "clia behaviour retire review 368562be94",
    "behaviour list": "clia behaviour list",
    "behaviour show": "clia behaviour show review",
    "behaviour export": "clia behaviour export review --to skill",
    "behaviour diff": "clia behaviour diff review",
    "behaviour lineage": "clia behaviour lineage review",
    "behaviour replay": "clia behaviour replay --session scout/1 --with 368562be94",
    "behaviour stats": "clia behaviour stats review",
    "behaviour compare": "clia behaviour compare 368562be94 e019b74e19",
    "behaviour suggest": "clia behaviour suggest review",
    "session start": "clia session start scout sell --input 4",
    "session show": "clia session show scout --journal",
    "session resume": "clia session resume scout 'Box by box'",
    "session fork": "clia session fork scout other --at agents/scout~1",
    "session cancel": 'clia session cancel scout -m "No longer needed"',
    "session retry": "clia session retry scout",
    "session list": "clia session list",
    "inbox": "clia inbox",
    "decide": 'clia decide scout yes -m "They are ripe"',
    "ask": 'clia ask scout "Which box first?" --choices left,right',
    "budget": "clia budget scout",
    "grant list": "clia grant list scout",
    "grant revoke": "clia grant revoke 2bd8f2f251 -m 'The release is done.'",
    "worker": "clia worker --until-idle",
    "fleet": "clia fleet",
    "hub set": "clia hub set origin",
    "hub status": "clia hub status --fetch",
    "hub sync": "clia hub sync",
    "gate install": "clia gate install ../server.git",
    "gate check": "clia gate check main~1..main",
    "gate explain": "clia gate explain",
    "key init": "clia key init",
    "key list": "clia key list",
    "key show": "clia key show",
    "key enrol": "clia key enrol Ada --ssh ~/.ssh/id_ed25519.pub --may owner",
    "key revoke": 'clia key revoke SHA256:… -m "laptop stolen"',
    "key rotate": "clia key rotate --machine",
    "key endorse": 'clia key endorse -m "compared with the backup of May"',
    "key accept": 'clia key accept rewound-ref refs/heads/agents/scout -m "dropped on purpose"',
    "key allowed-signers": "clia key allowed-signers",
    "witness checkpoint": "clia witness checkpoint",
    "witness list": "clia witness list",
    "witness trust": "clia witness trust ci.example.org/shop+…",
    "witness request": "clia witness request http://127.0.0.1:8338",
    "witness key": "clia witness key --name ci.example.org/shop",
    "witness cosign": "clia witness cosign --push origin",
    "witness serve": "clia witness serve --port 8338",
    "policy show": "clia policy show",
    "policy waiting": "clia policy waiting",
    "policy set": "clia policy set policy.json",
    "peer add": 'clia peer add friends --key "$(clia key show --path ../friends)" --url ../friends',
    "peer list": "clia peer list",
    "peer show": "clia peer show friends",
    "peer change": "clia peer change friends --url ../moved",
    "peer share": "clia peer share friends --agent scout planner --traces",
    "peer remove": "clia peer remove friends",
    "cap grant": "clia cap grant friends agent-commit spawn head-move merge --expires 30d",
    "cap revoke": "clia cap revoke friends agent-commit spawn",
    "cap list": "clia cap list",
    "cap explain": "clia cap explain friends agent-commit spawn",
    "announce": "clia announce",
    "sync": "clia sync",
    "remotes": "clia remotes",
    "acp": "clia acp scout -- gemini --acp",
    "mcp": "clia mcp --agent scout",
    "serve": "clia serve",
    "user add": "clia user add ada --role decider",
    "user list": "clia user list",
    "user change": "clia user change ada --role admin",
    "user link": "clia user link ada",
    "user token": "clia user token ada --label ci",
    "user passkey": "clia user passkey ada",
    "user remove": "clia user remove ada",
    "hook install": "clia hook install claude-code",
    "hook uninstall": "clia hook uninstall claude-code",
    "hook rehearse": "clia hook rehearse claude-code",
    "ingest": "clia ingest",
    "types": "clia types --add review --parent agent-commit",
    "verify": "clia verify",
    "attest": "clia attest main --format in-toto",
    "rebuild": "clia rebuild",
    "relink": "clia relink --onto main",
    "maintain": "clia maintain --dry-run",
    "backup": "clia backup ../backups/monday",
    "restore": "clia restore ../backups/monday shop",
    "archive": "clia archive scout",
    "agents init": "clia agents init scout --role Explorer",
    "agents journal": 'clia agents journal --slug scout -m "Read the build."',
    "agents transfer": "clia agents transfer --slug scout --to ..",
    "agents consolidate": "clia agents consolidate ledger --into scout",
    "agents mirrors": "clia agents mirrors",
    "agents export": "clia agents export --slug scout --to claude-agent",
    "agents profile": "clia agents profile --slug scout",
    "agents plan": "clia agents plan --slug scout",
    "agents work": "clia agents work --slug scout",
    "agents agency": "clia agents agency --slug scout",
    "agents context": "clia agents context --slug scout --explain",
    "agents explain": "clia agents explain /role --slug scout",
    "agents list": "clia agents list",
    "agents search": "clia agents search refunds",
    "agents schema": "clia agents schema agent",
    "agents stats": "clia agents stats",
    "agents rules": "clia agents rules --slug scout",
    "agents accept-loss": "clia agents accept-loss -m 'The team agreed in review.'",
    "agents explain-rule": "clia agents explain-rule --slug scout --on tool --tool Bash --command 'deploy shop'",
    "agents lint": "clia agents lint",
    "agents smoke": "clia agents smoke",
    "agents doctor": "clia agents doctor",
    "doctor": "clia doctor",
    "completion": 'eval "$(clia completion bash)"',
}
"""An example of each command. Commands that only tools run have none."""

TOPICS = {
    "agents": """\
An agent is a branch, agents/NAME, that starts from a briefing. Each of its actions is a typed git commit, and your own
HEAD, index and files stay as they are. Create one with clia spawn, give it a directory with clia checkout, or let clia
run and clia hook create agents for programs and coding tools. clia list shows all agents.""",
    "identities": """\
An identity says who an agent is: small JSON documents in .clia/agents/SLUG/, merged over the enclosing directories.
clia agents init creates one, clia agents profile shows the result, and clia agents explain says which file a value
comes from. An agent works under the identity that has its name, or under the one that clia spawn --as names.""",
    "traces": """\
A trace is what an agent said and saw: text that is attached to its next commit with --trace, as a git note. Secrets are
removed before anything is stored. clia trace show prints the trace of a commit or of an agent.""",
    "sessions": """\
A session is one run of a flow, a sandboxed Python program that suspends at each request: to a person, a model, a
program or another agent. Questions to people are in clia inbox, and clia decide answers one. clia worker handles the
rest.""",
    "landing": """\
clia changes shows the work that has not landed, and whether it would land. clia land brings an agent's work to a branch
of yours: by default as one commit, to the branch that is checked out. --no-ff keeps the agent's own commits behind a
merge, --ff moves the branch to the agent's last commit. The git setting clia.land changes the default. clia blame
follows each line to the agent's own commit.""",
    "sharing": """\
Nothing leaves the repository until you publish it. clia publish pushes agents to a remote, outside of its branches;
clia init in another clone adopts them. A hub (clia hub set) keeps several machines in sync. Peers (clia peer add) are
other spaces.""",
    "environment": """\
CLIA_AGENT names the agent that runs a command: it may record and ask, not decide. CLIA_STORE and CLIA_CONFIG are the
defaults of --store and --config. NO_COLOR turns colours off, and CLIA_DEBUG=1 prints tracebacks.""",
    "exit-codes": """\
0: done. 1: refused, or a check has findings. 2: bad input. 3: clia ask --wait got no answer. 130: interrupted. With
--json an error is one JSON object on standard error, with a code to match on.""",
}


class HelpText(NamedTuple):
    """Help on a command or a topic."""

    topic: str  # the command or the topic; empty: the list of commands
    text: str  # the help


@command("help")
def show_help(
    words: list[str] = arg("TOPIC", "a command, such as trace show, or a topic", nargs="*"),
) -> Answer[HelpText]:
    """Explain a command or a topic."""
    topic = " ".join(words)
    text = help_on(words)
    return Answer(HelpText(topic, text), lambda: write(text))


def help_on(words: list[str]) -> str:
    """The help on the words of a command or on a topic; ``unknown-topic`` if there is neither."""
    from clia.cli.main import command_help

    if not words:
        return overview()
    # Identities have a group of commands with the name of a topic.
    if len(words) == 1 and words[0] in TOPICS and words[0] != "agents":
        return f"{textwrap.fill(' '.join(TOPICS[words[0]].split()), 88)}\n"
    text = command_help(words)
    if text is not None:
        return text
    names = (*TREE.commands, *TOPICS)
    hints = [f"topics: {', '.join(sorted(TOPICS))}", "clia --help lists the commands"]
    raise NotFound(f"no command or topic {' '.join(words)!r}{did_you_mean(words[0], names)}", code="unknown-topic", hints=hints)


def overview() -> str:
    """The commands in sections, as ``clia --help`` shows them."""
    listed = {name for section in SECTIONS.values() for name in section}
    sections = {**SECTIONS, "other": tuple(name for name in TREE.commands if name not in listed)}
    width = max(map(len, TREE.commands)) + 2
    columns = _columns()
    lines = ["usage: clia COMMAND [--help]", "       clia help TOPIC", "", *textwrap.wrap(TREE.help, columns)]
    for title, names in sections.items():
        present = [name for name in names if name in TREE.commands]
        if present:
            lines += ["", f"{title}:"]
            for name in present:
                entry = TREE.commands[name]
                text = entry.help.rstrip(".") if isinstance(entry, Group) else entry.help
                text = text[:1].lower() + text[1:] if isinstance(entry, Group) else text
                lines += textwrap.wrap(f"  {name:<{width}}{text}", columns, subsequent_indent=" " * (width + 2))
    lines += ["", *textwrap.wrap(f"topics: {', '.join(TOPICS)}", columns, subsequent_indent="  ")]
    lines += ["", *textwrap.wrap("clia alone shows what is going on here. Every command takes --json and --help.", columns)]
    return "\n".join(lines) + "\n"


def _columns() -> int:
    import shutil

    return max(40, min(shutil.get_terminal_size().columns - 2, 100))
