"""Which commands there are, and where each lives: data, so that help needs no imports."""

from __future__ import annotations

from typing import NamedTuple

ALSO = {"behavior": "behaviour"}
"""How commands may be spelled too."""


class Command(NamedTuple):
    module: str
    help: str


class Group(NamedTuple):
    help: str
    commands: dict[str, Command | Group]


def _agents(name: str, text: str) -> Command:
    return Command(f"clia.cli.agents.{name}", text)


def _space(name: str, text: str) -> Command:
    return Command(f"clia.cli.space.{name}", text)


def _sessions(name: str, text: str) -> Command:
    return Command(f"clia.cli.sessions.{name}", text)


def _forge(name: str, text: str) -> Command:
    return Command(f"clia.cli.forge.{name}", text)


def _hooks(name: str, text: str) -> Command:
    return Command(f"clia.cli.hooks.{name}", text)


def _federation(name: str, text: str) -> Command:
    return Command(f"clia.cli.federation.{name}", text)


def _behaviours(name: str, text: str) -> Command:
    return Command(f"clia.cli.behaviours.{name}", text)


def _hub(name: str, text: str) -> Command:
    return Command(f"clia.cli.hub.{name}", text)


TREE = Group(
    "The system of record for AI agents, kept in the git repository they work in.",
    {
        "init": _space("init", "make this repository a space, or adopt the one of its origin"),
        "spawn": _space("spawn", "a new agent: a branch from a briefing"),
        "commit": _space("commit", "record what an agent did, as a typed commit"),
        "run": _space("run", "run any program as an agent: its console and its changes are recorded"),
        "checkout": _space("checkout", "an agent's files in a directory of their own"),
        "merge": _space("merge", "one agent takes in another's work"),
        "resolve": _space("resolve", "conclude a merge that had conflicts"),
        "land": _space("land", "bring an agent's work to a branch of people"),
        "publish": _space("publish", "send agents to a remote"),
        "list": _space("list_agents", "every agent of this space, and what it did last"),
        "log": _space("log", "what an agent did, newest first"),
        "show": _space("show", "an agent, or one commit"),
        "diff": _space("diff", "what an agent or a commit changed"),
        "blame": _space("blame", "who wrote each line: agent, kind, briefing, trace"),
        "tree": _space("tree", "agents and their sub-agents"),
        "graph": _space("graph", "the commits of agents, in lanes"),
        "fork-point": _space("fork_point", "the newest commit that two agents share"),
        "relate": _space("relate", "state or retract a relation between two agents"),
        "relations": _space("relations", "whom agents work with"),
        "trace": Group(
            "What agents said and saw, bound to their commits.",
            {
                "add": _space("trace_add", "append to an agent's trace"),
                "pending": _space("trace_pending", "what was traced since the last commit with trace"),
                "show": _space("trace_show", "the trace of a commit"),
                "attach": _space("trace_attach", "bind a trace to any commit"),
                "history": _space("trace_history", "every binding a commit's trace ever had"),
                "search": _space("trace_search", "find a text in all traces"),
                "export": _space("trace_export", "what agents did, as spans for a collector of traces"),
                "purge": _space("trace_purge", "take a leaked text out of traces and their history"),
            },
        ),
        "flow": Group(
            "Programs that sessions run: sandboxed Python that stops wherever it asks for something.",
            {
                "define": _sessions("flow_define", "make a source the current version of a flow"),
                "list": _sessions("flow_list", "every flow that is defined here"),
                "show": _sessions("flow_show", "a flow, its versions and its source"),
                "check": _sessions("flow_check", "what cannot work in a flow, in its own lines"),
            },
        ),
        "behaviour": Group(
            "What works: skills of agents in versions, what was observed of each, and what follows.",
            {
                "add": _behaviours("add", "make a prompt or a flow the current version of a behaviour"),
                "list": _behaviours("list_behaviours", "every behaviour of this space"),
                "show": _behaviours("show", "a behaviour, its versions and what happened to them; or one version"),
                "diff": _behaviours("diff", "what one version changes in another"),
                "lineage": _behaviours("lineage", "which version came from which, and how each does"),
                "propose": _behaviours("propose", "a candidate with its evidence; it runs once a person adopts it"),
                "suggest": _behaviours("suggest", "adopt, keep or retire, by the record; or not enough data"),
                "adopt": _behaviours("adopt", "make a version what its name means, or let it run on trial"),
                "retire": _behaviours("retire", "a version that shall start no more"),
                "stats": _behaviours("stats", "what was observed of versions, with rates and intervals"),
                "compare": _behaviours("compare", "two versions side by side, by every measure"),
                "replay": _behaviours("replay", "a past session under another version; nothing is written"),
                "export": _behaviours("export", "write a prompt as a skill, for the tools people already run"),
            },
        ),
        "session": Group(
            "Where agents are, and what they wait for.",
            {
                "start": _sessions("start", "run a flow for an agent, up to its first request"),
                "show": _sessions("show", "an agent's session: where it is, what it waits for, what it was told"),
                "resume": _sessions("resume", "answer a request that is no question to people"),
                "fork": _sessions("fork", "a new agent whose session is where another's is, or was at a commit"),
                "cancel": _sessions("cancel", "end a session that nobody needs any more"),
                "list": _sessions("list_sessions", "every session, live ones first"),
            },
        ),
        "inbox": _sessions("inbox", "the questions that wait for you, oldest first"),
        "decide": _sessions("decide", "answer a question: a commit, and the session goes on"),
        "ask": _sessions("ask", "put a question to people for an agent"),
        "worker": _sessions("worker", "answer the requests that are no questions to people"),
        "fleet": Command("clia.cli.fleet", "the machines and workers of this space, who has what, and what waits"),
        "hub": Group(
            "The git server where the machines of this space meet.",
            {
                "set": _hub("set_hub", "choose the hub, or another one"),
                "status": _hub("status", "is this clone in step with the hub, and what is owed, forked or elsewhere?"),
                "sync": _hub("sync", "take over what the hub has, and publish what it has not"),
            },
        ),
        "key": Group(
            "Who this space is to others: the key that they pin.",
            {
                "show": _federation("key_show", "what other spaces pin to know this one"),
                "rotate": _federation("key_rotate", "a new key, signed by the one before it"),
            },
        ),
        "peer": Group(
            "Other spaces, each known by its public key.",
            {
                "add": _federation("peer_add", "pin another space by its key"),
                "list": _federation("peer_list", "every peer, and how far it was heard"),
                "show": _federation("peer_show", "a peer: keys, what is tracked of it, what waits and why"),
                "change": _federation("peer_change", "another address or other trust for a peer"),
                "share": _federation("peer_share", "what a peer is told about: nothing, unless it is said here"),
                "remove": _federation("peer_remove", "take a peer away, with its grants and what is tracked of it"),
            },
        ),
        "cap": Group(
            "What of a peer's is taken in here: nothing, unless it is granted.",
            {
                "grant": _federation("cap_grant", "let something of a peer's in"),
                "revoke": _federation("cap_revoke", "take grants back, at once"),
                "list": _federation("cap_list", "every grant that was not revoked"),
                "explain": _federation("cap_explain", "which grant, trust and subtype allow something, or what is missing"),
            },
        ),
        "announce": _federation("announce", "tell peers what is new of what is shared with them"),
        "sync": _federation("sync", "hear what peers say, and track what is granted"),
        "remotes": _federation("remotes", "the agents of peers, as they are tracked here"),
        "mcp": Command("clia.cli.mcp_server", "this space for an agent's client, over the Model Context Protocol"),
        "serve": _forge("serve", "the page where people watch agents and answer them, and its API"),
        "user": Group(
            "Who may use the page and its API.",
            {
                "add": _forge("user_add", "somebody more who may use the page"),
                "list": _forge("user_list", "every user, and the tokens of their programs"),
                "change": _forge("user_change", "another role, name or address for a user"),
                "link": _forge("user_link", "a link that logs a user in, once"),
                "token": _forge("user_token", "a token for a program of a user, or the end of one"),
                "remove": _forge("user_remove", "take a user away, with every token and login"),
            },
        ),
        "hook": Group(
            "Record what Claude Code, Codex and Gemini CLI do.",
            {
                "install": _hooks("install", "make the tools' settings run clia for each of their events"),
                "uninstall": _hooks("uninstall", "take out of the tools' settings what install put in"),
                "rehearse": _hooks("rehearse", "a made-up session of a tool, to try things out"),
                "claude-code": _hooks("event", "what Claude Code runs: put one of its events down"),
                "codex": _hooks("event", "what Codex runs: put one of its events down"),
                "gemini": _hooks("event", "what Gemini CLI runs: put one of its events down"),
            },
        ),
        "ingest": _hooks("ingest", "turn what hooks put down into agents, traces and commits"),
        "types": _space("types", "kinds of commits and objects; register another"),
        "verify": _space("verify", "is everything recorded still there, and does it agree?"),
        "rebuild": _space("rebuild", "make the index anew from git"),
        "relink": _space("relink", "bind traces to what a squash or rebase made of their commits"),
        "maintain": _space("maintain", "pack the repository; archive finished agents"),
        "archive": _space("archive", "take an agent out of the branch list, or bring it back"),
        "agents": Group(
            "Who an agent is, here: profiles, plans and journals merged over enclosing directories.",
            {
                "list": _agents("list_agents", "every agent visible here"),
                "context": _agents("context", "which directories count for an agent, and why"),
                "profile": _agents("profile", "the merged identity of an agent"),
                "plan": _agents("plan", "the merged agenda of an agent"),
                "agency": _agents("agency", "the merged journal of an agent"),
                "explain": _agents("explain", "where one merged value comes from"),
                "journal": _agents("journal", "append an entry to an agent's journal"),
                "init": _agents("init", "scaffold an agent's three documents"),
                "mirrors": _agents("mirrors", "render documents as Markdown under .generated/"),
                "transfer": _agents("transfer", "copy chosen journal entries to an enclosing directory"),
                "consolidate": _agents("consolidate", "archive one agent inside another, then remove it"),
                "export": _agents("export", "write the profile for the tools people already run"),
                "lint": _agents("lint", "check every agent's documents"),
                "smoke": _agents("smoke", "resolve every agent of a tree, for CI"),
                "doctor": _agents("doctor", "chain, inheritance and findings of each agent"),
                "schema": _agents("schema", "the JSON Schemas of the documents"),
            },
        ),
        "doctor": Command("clia.cli.doctor", "is everything here in order?"),
        "completion": Command("clia.cli.completion", "a completion script for your shell"),
    },
)
