// @i-know-the-amp-plugin-api-is-wip-and-very-experimental-right-now
// Written by `clia hook install amp`. It reports each step of a thread to clia, and does nothing where clia is missing.
import { spawnSync } from "node:child_process"

export default function (amp: any) {
  const report = (event: any, name: string, fields: object = {}) => {
    const session = event?.thread?.id
    if (!session) return
    const input = JSON.stringify({ session_id: session, hook_event_name: name, cwd: process.cwd(), ...fields })
    spawnSync("clia", ["hook", "amp"], { input, stdio: ["pipe", "ignore", "ignore"], timeout: 10000 })
  }

  const textOf = (message: any): string =>
    [message?.content ?? ""].flat().map((block: any) => (typeof block === "string" ? block : (block?.text ?? ""))).join("\n").trim()

  amp.on("session.start", (event: any) => report(event, "SessionStart", { source: "startup" }))
  amp.on("agent.start", (event: any) => report(event, "UserPromptSubmit", { prompt: event.message }))
  amp.on("tool.call", (event: any) => {
    report(event, "PreToolUse", { tool_name: event.tool, tool_input: event.input, tool_use_id: event.toolUseID })
    return { action: "allow" }
  })
  amp.on("tool.result", (event: any) => {
    const call = { tool_name: event.tool, tool_use_id: event.toolUseID }
    const failed = event.status === "error"
    report(event, failed ? "PostToolUseFailure" : "PostToolUse", { ...call, error: event.error, tool_response: event.output })
  })
  amp.on("agent.end", (event: any) => {
    const replies = (event.messages ?? []).filter((message: any) => message.role === "assistant").map(textOf).filter(Boolean)
    replies.slice(0, -1).forEach((text: string) => report(event, "AssistantMessage", { text }))
    report(event, "Stop", { last_assistant_message: replies.at(-1) ?? "" })
  })
}
