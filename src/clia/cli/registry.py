"""Which commands there are, and where each lives: data, so that help needs no imports."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    module: str
    help: str


class Group(NamedTuple):
    help: str
    commands: dict[str, Command | Group]


def _agents(name: str, text: str) -> Command:
    return Command(f"clia.cli.agents.{name}", text)


TREE = Group(
    "The system of record for AI agents, kept in the git repository they work in.",
    {
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
