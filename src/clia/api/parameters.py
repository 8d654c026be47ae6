"""Parameters of verbs, with the descriptions that the HTTP API and the MCP tools derive.

Services import these for type checkers only, so that they cost nothing until something is derived (``clia.api.annotations``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from clia.space.model import Content

# Agents
Agent = Annotated[str, "agent name"]
NewAgent = Annotated[str, "name of the new agent: lowercase letters, digits and hyphens"]
AnyAgent = Annotated[str | None, "agent name (default: all agents)"]
Agents = Annotated[Sequence[str], "agent names"]
Parent = Annotated[str, "the parent agent"]
IdentitySlug = Annotated[str | None, "identity to work under (default: the one with the agent's name, if it exists)"]
AcceptIncomplete = Annotated[
    str | None, "why to spawn although documents of the identity cannot be read and guardrails may be missing; recorded"
]
Into = Annotated[str, "the agent to merge into"]
From = Annotated[str, "the agent to merge; PEER/AGENT for a peer's agent"]

# Commits
Revision = Annotated[str, "an agent or PEER/AGENT (for its head), a commit id or its start, or a branch"]
Other = Annotated[str | None, "another commit to compare with"]
OwnOnly = Annotated[bool, "only commits made by this agent, not those that it started from or merged"]
CommitLimit = Annotated[int | None, "maximum number of commits"]
FilePath = Annotated[str, "path of the file, from the top of the repository"]
FirstLine = Annotated[int, "number of the first line, from 1"]
LastLine = Annotated[int | None, "number of the last line (default: the first one)"]
LineLimit = Annotated[int | None, "maximum number of lines (default: all)"]
Paths = Annotated[Sequence[str], "only these paths"]
Kind = Annotated[str, "commit kind, a registered type"]
Message = Annotated[str, "what was done and why: a subject line, then a body"]
Meta = Annotated[Mapping[str, Any] | None, "additional fields, a JSON object"]
Base = Annotated[str | None, "the head that the work is based on: nothing is written if the agent's head has moved"]
Files = Annotated[Mapping[str, Content] | None, "the complete worktree by path, instead of changes; other files are deleted"]
Changes = Annotated[
    Mapping[str, Content | None] | None,
    'changed files by path: a text, {"text": …} or {"base64": …} (with "executable": true), {"link": …}; null deletes the file',
]
Onto = Annotated[str | None, "branch that receives the work (default: the one that is checked out, else main)"]
Form = Annotated[str | None, "squash, merge or fast-forward (default: the setting clia.land, else squash)"]
SeenHead = Annotated[str | None, "the agent's head that was looked at: nothing lands if the agent has done more work since"]
Heads = Annotated[
    str | None,
    "where the remote keeps agents' heads: published (outside of the branches) or branches, which every clone of it then has "
    "(default: the setting clia.publish, else published)",
]
RemoteName = Annotated[str, "name of a git remote"]

# Sessions
FlowSource = Annotated[str, "source of the flow, in Python"]
FlowName = Annotated[str, "flow name or version id"]
SessionId = Annotated[str | None, "session id (default: the live session, else the last)"]
RequestId = Annotated[str | None, "request id (default: the only pending request)"]

# Behaviours
BehaviourName = Annotated[str, "behaviour name"]
DocumentPath = Annotated[
    str | None, "path of the identity's document in the repository: .clia/agents/SLUG/FILE; only for kind identity-document"
]
VersionName = Annotated[str, "a behaviour name (for its current version), a version id or its start, or PEER/NAME"]

# Federation
PeerName = Annotated[str, "peer name"]
AnyPeer = Annotated[str | None, "peer name (default: all peers)"]
GrantedType = Annotated[str, "type, such as finding, with its subtypes"]
Trigger = Annotated[str, "spawn, head-move, merge, note, behaviour or type"]
Execute = Annotated[bool, "whether it may also run: for the type and the trigger behaviour"]
