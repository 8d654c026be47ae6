"""The index of commands: where each lives and its one-line help, so that ``clia --help`` imports no command.

The help is the first line of the command's docstring; a test compares the two.
"""

from __future__ import annotations

from typing import NamedTuple

ALIASES = {"behavior": "behaviour"}


class Command(NamedTuple):
    module: str
    name: str
    help: str


class Group(NamedTuple):
    help: str
    commands: dict[str, Command | Group]


def _top(module: str, name: str, text: str) -> Command:
    return Command(f"clia.cli.{module}", name, text)


def _group(name: str, text: str, **modules: dict[str, str]) -> Group:
    """A group of commands, by the modules that hold them."""
    commands: dict[str, Command | Group] = {}
    for module, helps in modules.items():
        commands |= {key: _top(module, f"{name} {key}", line) for key, line in helps.items()}
    return Group(text, commands)


TREE = Group(
    "The system of record for AI agents, kept in the git repository they work in.",
    {
        "init": _top("spaces", "init", "create a space in this repository, or adopt the one of its remote"),
        "spawn": _top("agents", "spawn", "create an agent: a branch that starts from a briefing"),
        "reprofile": _top("agents", "reprofile", "record the present profile of an agent's identity"),
        "commit": _top("commits", "commit", "record an agent's work as a typed commit"),
        "journal": _top("agents", "journal", "write to an agent's journal, as a commit on its branch"),
        "run": _top("commits", "run", "run any program as an agent and record its output and its changes"),
        "checkout": _top("agents", "checkout", "check out an agent's files in a separate directory"),
        "undo": _top("commits", "undo", "undo the last thing you did here, by a new record"),
        "merge": _top("merges", "merge", "merge an agent's work into another agent"),
        "resolve": _top("merges", "resolve", "finish a merge that had conflicts"),
        "changes": _top("changes", "changes", "show work that has not landed, and whether it would land"),
        "land": _top("merges", "land", "land an agent's work on a branch"),
        "publish": _top("merges", "publish", "push agents to a remote"),
        "status": _top(
            "status", "status", "show agents at work, what waits for you, what finished since you last looked, and problems"
        ),
        "list": _top("agents", "list", "list agents and their last commits"),
        "log": _top("history", "log", "show the commits of an agent, newest first"),
        "show": _top("history", "show", "show an agent or a commit"),
        "diff": _top("history", "diff", "show what an agent or a commit changed"),
        "blame": _top("history", "blame", "show who wrote each line of a file: agent, kind of commit, briefing and commit"),
        "why": _top(
            "provenance", "why", "explain a line: who wrote it, for which briefing, who approved it, and whether it verifies"
        ),
        "authorship": _top("history", "authorship", "show how many of the lines that commits add were written by agents"),
        "tree": _top("agents", "tree", "show agents and their sub-agents as a tree"),
        "graph": _top("history", "graph", "draw the commit graph of agents"),
        "fork-point": _top("history", "fork-point", "show the newest commit that two agents share"),
        "relate": _top("agents", "relate", "record or retract a relation between two agents"),
        "relations": _top("agents", "relations", "list relations between agents"),
        "trace": _group(
            "trace",
            "Traces of agents: what they said and saw, attached to their commits.",
            traces={
                "add": "append an entry to an agent's trace",
                "pending": "show trace entries recorded since the agent's last commit with a trace",
                "show": "show the trace of a commit, or all traces of an agent",
                "attach": "attach a trace to an existing commit",
                "history": "list every trace that was ever attached to a commit",
                "search": "search all traces for a text",
                "purge": "remove a leaked text from an agent's traces and their history",
                "export": "export sessions and traces as OpenTelemetry spans",
            },
        ),
        "flow": _group(
            "flow",
            "Flows: sandboxed Python programs that sessions run.",
            flows={
                "define": "define a flow, or a new version of it",
                "list": "list the flows of this space",
                "show": "show a flow, its versions and its source",
                "check": "check a flow for errors",
            },
        ),
        "behaviour": _group(
            "behaviour",
            "Behaviours: versioned prompts and flows, what was observed of them, and which to use.",
            behaviours={
                "add": "add a version of a behaviour and make it current",
                "propose": "propose a version with its evidence; it runs once a person adopts it",
                "adopt": "make a version current, or let it run on trial",
                "retire": "retire a version, so that it is not started again",
                "list": "list the behaviours of this space",
                "show": "show a behaviour with its versions and history, or one version",
                "export": "write a prompt as a skill for other tools",
            },
            behaviours_versions={
                "diff": "show what changed between two versions",
                "lineage": "draw which version is derived from which, with their rates",
                "replay": "replay a past session with another version of its flow; nothing is written",
            },
            behaviours_stats={
                "stats": "show what was observed of versions, with rates and intervals",
                "compare": "compare two versions by every measure",
                "suggest": "suggest to adopt, keep or retire a version, based on the record",
            },
        ),
        "session": _group(
            "session",
            "Sessions: runs of flows, and what they wait for.",
            sessions={
                "start": "start a flow for an agent and run it to its first request",
                "show": "show a session: its status, pending requests and answers",
                "resume": "answer a request that is not a question for people",
                "fork": "copy an agent's session to a new agent, or to one that was spawned for it and did nothing yet",
                "cancel": "cancel a session",
                "retry": "retry a failed session from its last step",
                "list": "list sessions, live ones first",
            },
        ),
        "inbox": _top("decisions", "inbox", "list the questions that wait for you, oldest first"),
        "decide": _top("decisions", "decide", "answer a question: record the decision as a commit and resume the session"),
        "ask": _top("decisions", "ask", "ask people a question on behalf of an agent"),
        "budget": _top("budgets", "budget", "show the budgets that apply to an agent, and what is used of each"),
        "grant": _group(
            "grant",
            "Grants: calls of tools that people allowed agents to repeat.",
            grants={
                "list": "list the permissions that people gave with the answer `always`, newest first",
                "revoke": "revoke a permission; the revocation is a decision commit, too",
            },
        ),
        "worker": _top("workers", "worker", "handle requests that do not need a person"),
        "fleet": _top("workers", "fleet", "show the machines and workers of this space, their leases and the queue"),
        "hub": _group(
            "hub",
            "The git server through which the machines of this space exchange work.",
            hub={
                "set": "choose the hub of this space, or change it",
                "status": "show whether this clone is in sync with the hub, and what is unpublished, forked or on another machine",
                "sync": "fetch what is new on the hub, and publish what it lacks",
            },
        ),
        "gate": _group(
            "gate",
            "The gate of a git server: what may be pushed to its protected branches.",
            gate={
                "install": "install the gate as the pre-receive hook of a repository",
                "check": "check a range of commits as the gate does, for CI",
                "explain": "show what a push to a branch needs, and where that is stated",
            },
        ),
        "key": _group(
            "key",
            "Keys: of this space for others, and of machines and people who sign.",
            keys={
                "init": "start to sign the commits of this space, or create the key of this clone",
                "list": "list the keys of machines, people and witnesses",
                "show": "print the key that other spaces pin to identify this one",
                "enrol": "enrol the key of a person, of another clone or of a witness",
                "revoke": "revoke a key",
                "rotate": "replace the key of this space, or of this clone; the old key signs the new one",
                "endorse": "vouch for the history from before the space was signed",
                "accept": "accept a finding of verify, which then lists it as accepted, by whom and why",
                "allowed-signers": "print the file with which stock git verifies the commits of this space",
            },
        ),
        "witness": _group(
            "witness",
            "Witnesses: who confirms that the record only grew, by cosigning checkpoints of it.",
            witness={
                "checkpoint": "sign a checkpoint of the record, which witnesses can cosign",
                "list": "list the witnesses that count, and the newest checkpoint of each machine",
                "trust": "let the cosignatures of a witness count",
                "request": "ask a witness over HTTP to cosign a checkpoint of now",
                "key": "print the key of the witness of this account, or create it",
                "cosign": "cosign the newest checkpoint of each machine in a clone, as a witness",
                "serve": "run a witness over HTTP, in the protocol of C2SP (tlog-witness)",
            },
        ),
        "policy": _group(
            "policy",
            "What the acts of people need: how many people, and how strong proofs.",
            keys={
                "show": "print the policy",
                "waiting": "list acts that wait for more people",
                "set": "replace the policy",
            },
        ),
        "peer": _group(
            "peer",
            "Other spaces, each identified by its public key.",
            peers={
                "add": "add another space as a peer, identified by its key",
                "list": "list peers",
                "show": "show a peer: its keys, what is tracked, what waits and why",
                "change": "change the address or the trust of a peer",
                "share": "choose what a peer is told about. Nothing is shared by default",
                "remove": "remove a peer, its grants and everything tracked from it",
            },
        ),
        "cap": _group(
            "cap",
            "Grants: what is accepted from peers. Nothing is accepted by default.",
            federation={
                "grant": "accept something from a peer",
                "revoke": "revoke grants of a peer, with immediate effect",
                "list": "list grants that were not revoked",
                "explain": "explain why something from a peer is accepted, or what is missing",
            },
        ),
        "announce": _top("federation", "announce", "tell peers what is new in what is shared with them"),
        "sync": _top("federation", "sync", "read what peers announce, and track what is granted"),
        "remotes": _top("federation", "remotes", "list the tracked agents and behaviours of peers"),
        "mcp": _top("forge", "mcp", "serve this space over the Model Context Protocol on standard input and output"),
        "serve": _top("forge", "serve", "run the forge: the web pages where people watch and answer agents, and the API"),
        "user": _group(
            "user",
            "Users of the forge.",
            forge={
                "add": "add a user of the forge",
                "list": "list users and their tokens",
                "change": "change the role, name or address of a user",
                "link": "print a link that logs a user in, once",
                "token": "create an API token for a user, or revoke one",
                "passkey": "list the passkeys of a user, or remove one",
                "remove": "remove a user with all tokens and logins",
            },
        ),
        "hook": _group(
            "hook",
            "Record what Claude Code, Codex, Gemini CLI, Copilot CLI and other tools do.",
            hooks={
                "install": "make tools run clia for each of their events",
                "uninstall": "remove clia from the settings of tools",
                "claude-code": "record an event of Claude Code; its hooks run this",
                "codex": "record an event of Codex; its hooks run this",
                "gemini": "record an event of Gemini CLI; its hooks run this",
                "copilot": "record an event of Copilot CLI; its hooks run this",
                "qwen": "record an event of Qwen Code; its hooks run this",
                "openhands": "record an event of OpenHands; its hooks run this",
                "opencode": "record an event of opencode; its hooks run this",
                "amp": "record an event of Amp; its hooks run this",
                "kimi": "record an event of Kimi CLI; its hooks run this",
                "cline": "record an event of Cline; its hooks run this",
                "answer": "answer a tool's question about a call; its hooks run this where rules ask people",
                "rehearse": "simulate a session of a tool, to try hooks out",
            },
        ),
        "acp": _top("hooks", "acp", "relay between an editor and an agent program, and ask people where rules want that"),
        "ingest": _top("hooks", "ingest", "turn recorded events into agents, traces and commits"),
        "types": _top("spaces", "types", "list the types of commits and objects, or register one"),
        "verify": _top("spaces", "verify", "check the record: that it is complete and consistent, and who signed it"),
        "attest": _top("attesting", "attest", "make signed attestations about commits for other tools, or check some"),
        "rebuild": _top("spaces", "rebuild", "rebuild the index from git"),
        "relink": _top("spaces", "relink", "attach traces and checkpoints to the commits that a squash or rebase created"),
        "maintain": _top("spaces", "maintain", "pack the repository, put idle agents away and archive finished ones"),
        "backup": _top("backups", "backup", "back up git and the store at one moment, while agents work"),
        "restore": _top("backups", "restore", "restore a backup of a space"),
        "rename": _top("agents", "rename", "give an agent another name"),
        "delete": _top("agents", "delete", "delete an agent that did nothing"),
        "archive": _top("agents", "archive", "archive an agent, or restore it"),
        "agents": _group(
            "agents",
            "Identities: profiles, agendas and journals, merged over enclosing directories.",
            identities_documents={
                "init": "create the three documents of an identity",
                "journal": "append an entry to the journal of an identity",
                "transfer": "copy journal entries to an enclosing directory",
                "consolidate": "archive one identity inside another, then remove it",
                "mirrors": "render documents as Markdown under .generated/",
                "export": "write the profile for other tools",
            },
            identities={
                "profile": "show the merged profile of an identity",
                "plan": "show the merged agenda of an identity",
                "work": "show the agents, sessions and landings of each item of an agenda",
                "agency": "show the merged journal of an identity",
                "context": "show which directories an identity is merged from, and why",
                "explain": "show where a merged value comes from",
                "list": "list the identities that are visible here",
                "search": "search the merged documents of the identities that are visible here",
                "schema": "print the JSON Schemas of the documents",
            },
            behaviours_stats={"stats": "show what was observed of agents under each profile of an identity"},
            identities_rules={
                "rules": "list the rules of an identity's guardrails",
                "accept-loss": "accept, as a person, that guardrails which earlier agents had are lost",
                "explain-rule": "show what the rules say about an action, and which rule decides",
            },
            identities_checks={
                "lint": "check the documents of all identities",
                "smoke": "resolve every identity of a tree, for CI",
                "doctor": "show the chain, inheritance and findings of each identity",
            },
        ),
        "doctor": _top("doctor", "doctor", "check the installation, the space, sessions, hooks, peers, the hub and all identities"),
        "demo": _top("demo", "demo", "create a small shop with agents and open questions, and serve it until Ctrl-C"),
        "help": _top("help", "help", "explain a command or a topic"),
        "completion": _top("spaces", "completion", "print a completion script for your shell"),
    },
)
