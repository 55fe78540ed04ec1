// Pure: events to a conversation. Pieces of live text stand until the whole answer is there.
import { errorText, firstLine, money } from "../format.js";

const NOTES = {
	"run.created": (p) => ["idle", `Run created${by(p.started_by)}`],
	"run.started": () => ["idle", "Started"],
	"run.paused": (p) => ["waiting", `Paused: ${p.reason ?? p.waiting ?? ""}`],
	"run.completed": () => ["good", "Run completed"],
	"run.failed": (p) => ["bad", `Run failed: ${errorText(p.error)}`],
	"run.cancelled": (p) => ["idle", `Run aborted${by(p.by)}${said(p.reason)}`],
	"run.cancel.requested": (p) => ["idle", `Abort asked for${by(p.by)}`],
	"run.changed": (p) => ["idle", `Changed${by(p.by)}: ${[...("requirements_md" in p ? ["the requirements"] : []), ...imageNames(p), ...Object.entries(p.personas ?? {}).map(([role, one]) => `${role} is ${one.name}`)].join(", ")}`],
	"phase.completed": (p, e) => ["good", `Phase “${laneOf(e).phase}” completed`],
	"phase.failed": (p, e) => ["bad", `Phase “${laneOf(e).phase}” failed: ${errorText(p.error)}`],
	"phase.reopened": (p, e) => ["waiting", `Phase “${laneOf(e).phase}” runs again${said(p.comment)}`],
	"artifact.accepted": (p) => ["good", `Artifact of “${p.phase}” is valid`],
	"artifact.rejected": (p) => ["bad", `Artifact of “${p.phase}” is not valid`],
	"human.approval.requested": (p) => ["waiting", p.show?.tool ? `May the agent call ${p.show.tool}?` : `“${p.phase ?? ""}” waits for approval`],
	"human.approval.received": (p) => ["good", `${ANSWERS[p.action] ?? p.action}${by(p.by)}${said(p.comment)}`],
	"human.approval.first": (p) => ["waiting", `Approved by a first person${by(p.by)}; a second is needed`],
	"budget.exhausted": (p) => ["waiting", p.message ?? "Budget used up"],
	"budget.raised": (p) => ["good", `Budget raised by ${money((p.amount_micros ?? 0) / 1e6)}${by(p.by)}`],
	"agent.error": (p) => ["bad", `Agent: ${errorText(p.error)}`],
	"model.error": (p) => ["bad", `Model: ${errorText(p.error)}${p.retry_at ? "; tried again" : ""}`],
	"run.error": (p) => ["bad", errorText(p.error)],
};
const ANSWERS = { approve: "Approved", reject: "Rejected", request_changes: "Changes requested", abort: "Aborted", done: "Told what became of it" };
const by = (name) => (name ? ` by ${name}` : "");
const said = (words) => (words ? `: ${words}` : "");

const imageNames = ({ images }) => (Array.isArray(images) ? images.map((each) => str(each?.name)) : []);
const str = (value) => (typeof value === "string" ? value : "");

// Entries in order: `{ type: "phase" | "message" | "thought" | "tool" | "note", id, seq, ts, … }`; `version` grows when one changes.
export class Activity {
	entries = [];
	#byKey = new Map();
	#isAfterCrash = false;

	add(event) {
		const { kind } = event;
		const payload = event.payload ?? {};
		const { result } = payload;
		const tool = { type: "tool", name: str(payload.tool), args: payload.args };
		switch (kind) {
			case "phase.started": {
				const { phase, n } = laneOf(event);
				return this.#push(event, { type: "phase", phase, attempt: n, text: str(result?.envelope) });
			}
			case "text.delta":
				return this.#live(event, payload);
			case "model.request":
				return this.#keyed(event, payload, { type: "message", state: "open", text: "" });
			case "model.response":
				return this.#answer(event, payload);
			case "message.received":
				return this.#push(event, { type: "person", text: str(payload.text), by: str(payload.by), phase: str(payload.phase), images: imageNames(payload) });
			case "step.completed":
				return this.#deliver(payload);
			case "reasoning.summary":
				return this.#push(event, { type: "thought", text: str(payload.text) });
			case "tool.started":
				return this.#keyed(event, payload, { ...tool, state: "open" });
			case "tool.result": {
				const outcome = outcomeOf(result);
				return this.#keyed(event, payload, { ...tool, state: outcome ? "failed" : "done", outcome, output: outputOf(result), took: result?.took_s ?? null });
			}
			case "tool.error":
				return this.#keyed(event, payload, { ...tool, state: "failed", outcome: "failed", output: errorText(payload.error) });
			case "run.resumed":
				return this.#resume(event, payload);
			case "tool.unknown":
				return this.#unknown(event, payload);
		}
		const [tone, text] = NOTES[kind]?.(payload, event) ?? [];
		return tone ? this.#push(event, { type: "note", kind, tone, text }) : null;
	}

	#push({ seq, ts }, entry) {
		const made = { ...entry, id: seq, seq, ts, version: 1 };
		this.entries.push(made);
		return made;
	}

	#keyed(event, { key }, facts) {
		const known = this.#byKey.get(key);
		if (known) {
			const updates = Object.entries(facts).filter(([, value]) => value !== undefined && value !== "");
			return Object.assign(known, Object.fromEntries(updates), { version: known.version + 1 });
		}
		const made = this.#push(event, facts);
		this.#byKey.set(key, made);
		return made;
	}

	#live(event, payload) {
		const entry = this.#byKey.get(payload.key) ?? this.#keyed(event, payload, { type: "message", state: "open", text: "" });
		if (entry.state !== "open") return entry; // older journals have its last piece behind the answer
		if (payload.attempt !== undefined && payload.attempt !== entry.attempt) Object.assign(entry, { attempt: payload.attempt, text: "" });
		entry.text += str(payload.text);
		entry.version++;
		return entry;
	}

	// An agent has got these messages; in a conversation a turn begins with them.
	#deliver({ key, result }) {
		if (!/\/inbox\d+$/.test(key)) return null;
		for (const entry of this.entries) {
			if (entry.type === "person" && result?.messages?.includes(entry.seq)) Object.assign(entry, { isRead: true, version: entry.version + 1 });
		}
		return null;
	}

	// Of a run that neither waited nor was over the process has died.
	#resume(event, { after }) {
		this.#isAfterCrash = !["pending", "paused", "failed"].includes(after);
		const text = this.#isAfterCrash ? "Resumed after its process died: nothing that was done is done again" : "Resumed";
		return after === "pending" ? null : this.#push(event, { type: "note", tone: "idle", text });
	}

	// A turn in which a person was waited for has no outcome either: only a crash is told.
	#unknown(event, { resolution }) {
		if (!this.#isAfterCrash) return null;
		const hasGoneOn = resolution === "reattached";
		const text = hasGoneOn ? "A command went on while nobody drove the run" : `A call was in flight when its process died: ${resolution ?? "unknown"}`;
		return this.#push(event, { type: "note", tone: hasGoneOn ? "idle" : "waiting", text });
	}

	#answer(event, payload) {
		const entry = this.#keyed(event, payload, { type: "message", state: "done" });
		const answer = messagesOf(payload.result).map(contentText).filter(Boolean).join("\n\n");
		if (answer) entry.text = answer;
		return entry;
	}
}

// Every message inside a recorded result, however deep it is wrapped.
function messagesOf(value, depth = 0) {
	if (depth > 8 || value === null || typeof value !== "object") return [];
	if (Array.isArray(value.$msg)) return [value.$msg[1] ?? {}];
	return Object.values(value).flatMap((each) => messagesOf(each, depth + 1));
}

function contentText({ content }) {
	if (!Array.isArray(content)) return str(content);
	return content.map((block) => str(block?.text ?? block)).filter(Boolean).join("\n");
}

export function outputOf(result) {
	if ((result ?? null) === null) return "";
	const messages = messagesOf(result);
	if (messages.length) return messages.map(contentText).join("\n");
	const value = result.value ?? result;
	return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

// How a call failed although it came back: "denied", "exit 1", "failed"; nothing if it did not.
export function outcomeOf(result) {
	if (typeof (result ?? "") !== "object") return "";
	if (result.refused === true) return "denied";
	const [message = {}] = messagesOf(result);
	const code = result.exit_code ?? message.artifact?.exit_code ?? /\[Command \w+ with exit code (-?\d+)\]\s*$/.exec(contentText(message))?.[1];
	if (Number(code)) return `exit ${Number(code)}`;
	return message.status === "error" ? "failed" : "";
}

const MAIN_ARGUMENTS = ["command", "file_path", "path", "pattern", "query", "url", "description"];

// The first argument that tells something: a path, a command, a pattern.
export function brief(args) {
	if (typeof (args ?? "") !== "object") return firstLine(args, 100);
	const text = MAIN_ARGUMENTS.map((name) => args[name]).find(str) ?? Object.values(args).find((value) => typeof value === "string");
	return firstLine(text ?? JSON.stringify(args), 100);
}

// Phase and attempt from "plan/2/turn1", or from what the payload says.
function laneOf({ lane_id: lane, payload }) {
	const [phase, n] = String(lane ?? "").split("/");
	if (/^\d+$/.test(n)) return { phase, n: Number(n) };
	return { phase: str(payload?.phase) || null, n: Number(payload?.attempt_no ?? payload?.attempt) || 1 };
}
