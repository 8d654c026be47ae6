// Written by `clia hook install opencode`. It reports each step of a session to clia, and does nothing where clia is missing.
import { spawnSync } from "node:child_process"

export const Clia = async ({ directory }) => {
  const parents = new Map() // session of a sub-agent -> the session that started it
  const known = new Set() // sessions whose start was reported
  const replies = new Set() // messages of the model
  const sent = new Set() // parts that were reported

  // The process may end right after a turn, so each report is complete before the tool continues.
  const report = (session, name, fields = {}) => {
    const parent = parents.get(session)
    const owner = parent ? { session_id: parent, agent_id: session } : { session_id: session }
    const input = JSON.stringify({ ...owner, hook_event_name: name, cwd: directory, ...fields })
    spawnSync("clia", ["hook", "opencode"], { cwd: directory, input, stdio: ["pipe", "ignore", "ignore"], timeout: 10000 })
  }

  const begin = (session, source) => {
    if (known.has(session)) return
    known.add(session)
    parents.has(session) ? report(session, "SubagentStart") : report(session, "SessionStart", { source })
  }

  const tell = (part) => {
    if (!part.time?.end || !part.text || !replies.has(part.messageID) || sent.has(part.id)) return
    sent.add(part.id)
    report(part.sessionID, "AssistantMessage", part.type === "reasoning" ? { thought: part.text } : { text: part.text })
  }

  const on = {
    "session.created": ({ info }) => {
      if (info.parentID) parents.set(info.id, parents.get(info.parentID) ?? info.parentID)
      begin(info.id, "startup")
    },
    "message.updated": ({ info }) => info.role === "assistant" && replies.add(info.id),
    "message.part.updated": ({ part }) => ["text", "reasoning"].includes(part.type) && tell(part),
    "session.compacted": ({ sessionID }) => report(sessionID, "PostCompact"),
    "session.error": ({ sessionID, error }) =>
      sessionID && report(sessionID, "StopFailure", { error: error?.data?.message ?? error?.name ?? "error" }),
    "session.idle": ({ sessionID }) => report(sessionID, parents.has(sessionID) ? "SubagentStop" : "Stop"),
  }

  return {
    event: async ({ event }) => void on[event.type]?.(event.properties),
    "chat.message": async ({ sessionID }, { parts }) => {
      begin(sessionID, "resume")
      const prompt = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      report(sessionID, "UserPromptSubmit", { prompt: prompt.join("\n") })
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) =>
      report(sessionID, "PreToolUse", { tool_name: tool, tool_input: args, tool_use_id: callID }),
    "tool.execute.after": async ({ tool, sessionID, callID }, result) =>
      report(sessionID, "PostToolUse", { tool_name: tool, tool_response: result?.output ?? "", tool_use_id: callID }),
  }
}
