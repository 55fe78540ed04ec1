// Pure: events to a conversation. Pieces of live text stand until the whole answer is there.
import { firstLine } from "../format.js";
import { errorText } from "./now.js";
import { laneOf } from "./run-fold.js";

const NOTES = {
  "run.created": (p) => ["idle", `Run created${by(p.started_by)}`],
  "run.started": () => ["idle", "Started"],
  "run.resumed": (p) => (p.after === "pending" ? null : ["idle", "Resumed"]),
  "run.paused": (p) => ["waiting", `Paused: ${p.reason ?? p.waiting ?? ""}`],
  "run.completed": () => ["good", "Run completed"],
  "run.failed": (p) => ["bad", `Run failed: ${errorText(p.error)}`],
  "run.cancelled": (p) => ["idle", `Run aborted${by(p.by)}${p.reason ? `: ${p.reason}` : ""}`],
  "run.cancel.requested": (p) => ["idle", `Abort asked for${by(p.by)}`],
  "phase.completed": (p, e) => ["good", `Phase “${laneOf(e).phase}” completed`],
  "phase.failed": (p, e) => ["bad", `Phase “${laneOf(e).phase}” failed: ${errorText(p.error)}`],
  "phase.reopened": (p, e) => ["waiting", `Phase “${laneOf(e).phase}” runs again${p.comment ? `: ${p.comment}` : ""}`],
  "artifact.accepted": (p) => ["good", `Artifact of “${p.phase}” is valid`],
  "artifact.rejected": (p) => ["bad", `Artifact of “${p.phase}” is not valid`],
  "human.approval.requested": (p) => ["waiting", p.show?.tool ? `May the agent call ${p.show.tool}?` : `“${p.phase ?? ""}” waits for approval`],
  "human.approval.received": (p) => ["good", `${ANSWERS[p.action] ?? p.action}${by(p.by)}${p.comment ? `: ${p.comment}` : ""}`],
  "human.approval.first": (p) => ["waiting", `Approved by a first person${by(p.by)}; a second is needed`],
  "budget.exhausted": (p) => ["waiting", p.message ?? "Budget used up"],
  "budget.raised": (p) => ["good", `Budget raised by $${(p.amount_micros ?? 0) / 1e6}${by(p.by)}`],
  "agent.error": (p) => ["bad", `Agent: ${errorText(p.error)}`],
  "model.error": (p) => ["bad", `Model: ${errorText(p.error)}${p.retry_at ? "; tried again" : ""}`],
  "tool.unknown": (p) => ["waiting", `A call was in flight when its process died: ${p.resolution ?? "unknown"}`],
  "run.error": (p) => ["bad", errorText(p.error)],
};
const ANSWERS = { approve: "Approved", reject: "Rejected", request_changes: "Changes requested", abort: "Aborted", done: "Told what became of it" };
const by = (name) => (name ? ` by ${name}` : "");

/** Entries in order: `{ type: "phase" | "message" | "tool" | "note", id, seq, ts, … }`; `version` grows when one changes. */
export class Activity {
  entries = [];
  #byKey = new Map();

  /** The entry that the event made or changed, or null. */
  add(event) {
    const payload = event.payload ?? {};
    switch (event.kind) {
      case "phase.started":
        return this.#push(event, { type: "phase", phase: laneOf(event).phase, attempt: laneOf(event).n, text: str(payload.result?.envelope) });
      case "text.delta":
        return this.#live(event, payload);
      case "model.request":
        return this.#keyed(event, payload, { type: "message", state: "open", text: "", model: str(payload.model) });
      case "model.response":
        return this.#answer(event, payload);
      case "reasoning.summary":
        return this.#push(event, { type: "thought", text: str(payload.text) });
      case "tool.started":
        return this.#keyed(event, payload, { type: "tool", state: "open", name: str(payload.tool), args: payload.args });
      case "tool.result":
        return this.#keyed(event, payload, { type: "tool", state: "done", name: str(payload.tool), args: payload.args, output: outputOf(payload.result), took: payload.result?.took_s ?? null, verdict: payload.policy?.verdict });
      case "tool.error":
        return this.#keyed(event, payload, { type: "tool", state: "failed", name: str(payload.tool), args: payload.args, output: errorText(payload.error) });
      default:
        return this.#note(event, payload);
    }
  }

  #note(event, payload) {
    const make = NOTES[event.kind];
    const made = make?.(payload, event);
    if (!made) return null;
    const [tone, told] = made;
    return this.#push(event, { type: "note", tone, text: String(told) });
  }

  #push(event, entry) {
    const made = { ...entry, id: event.seq, seq: event.seq, ts: event.ts, lane: event.lane_id, version: 1 };
    this.entries.push(made);
    return made;
  }

  #keyed(event, payload, facts) {
    const known = this.#byKey.get(payload.key);
    if (known) {
      const given = Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined && value !== ""));
      return Object.assign(known, given, { version: known.version + 1 });
    }
    const made = this.#push(event, facts);
    this.#byKey.set(payload.key, made);
    return made;
  }

  #live(event, payload) {
    const entry = this.#byKey.get(payload.key) ?? this.#keyed(event, payload, { type: "message", state: "open", text: "" });
    if (payload.attempt !== undefined && payload.attempt !== entry.attempt) Object.assign(entry, { attempt: payload.attempt, text: "" });
    entry.text += str(payload.text);
    entry.version++;
    return entry;
  }

  #answer(event, payload) {
    const entry = this.#keyed(event, payload, { type: "message", state: "done" });
    const said = messagesOf(payload.result).map((message) => contentText(message.content)).filter(Boolean).join("\n\n");
    if (said) entry.text = said;
    entry.usage = payload.result?.usage ?? null;
    return entry;
  }
}

const str = (value) => (typeof value === "string" ? value : "");

/** Every message inside a recorded result, however deep it is wrapped. */
export function messagesOf(value, depth = 0) {
  if (depth > 8 || value === null || typeof value !== "object") return [];
  if (Array.isArray(value.$msg)) return [value.$msg[1] ?? {}];
  return Object.values(value).flatMap((each) => messagesOf(each, depth + 1));
}

/** A message's content is a text, or a list of blocks. */
export function contentText(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((block) => (typeof block === "string" ? block : str(block?.text))).filter(Boolean).join("\n");
}

/** What a tool gave back, as text. */
export function outputOf(result) {
  if (result === undefined || result === null) return "";
  const messages = messagesOf(result);
  if (messages.length) return messages.map((message) => contentText(message.content)).join("\n");
  const value = result.value ?? result;
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** The first argument that tells something: a path, a command, a pattern. */
export function brief(args) {
  if (args === null || args === undefined) return "";
  if (typeof args !== "object") return firstLine(args, 100);
  const names = ["command", "file_path", "path", "pattern", "query", "url", "description"];
  const told = names.map((name) => args[name]).find((value) => typeof value === "string" && value) ?? Object.values(args).find((value) => typeof value === "string");
  return firstLine(told ?? JSON.stringify(args), 100);
}
