// Pure: events to a conversation. Pieces of live text stand until the whole answer is there.
import { errorText, firstLine, money, plural, toStatus } from "../format.js";

const NOTES = {
	"run.created": (p) => ["idle", `Run created${by(p.started_by)}`],
	"run.started": () => ["idle", "Started"],
	"run.paused": (p) => p.reason !== "approval" && ["waiting", paused(p)],
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
	"human.approval.requested": (p) => ["waiting", p.show?.tool ? str(p.show.question) : `“${p.phase ?? ""}” waits for approval`],
	"human.approval.received": (p) => ["good", `${ANSWERS[p.action] ?? p.action}${by(p.by)}${said(p.comment)}`],
	"human.approval.first": (p) => ["waiting", `Approved by a first person${by(p.by)}; a second is needed`],
	"budget.exhausted": (p) => ["waiting", p.message ?? "Budget used up"],
	"budget.raised": (p) => ["good", `Budget raised by ${money((p.amount_micros ?? 0) / 1e6)}${by(p.by)}`],
	"agent.error": (p) => ["bad", `Agent: ${errorText(p.error)}`],
	"model.error": (p) => ["bad", `Model: ${errorText(p.error)}`],
	"run.error": (p) => ["bad", errorText(p.error)],
};
const ANSWERS = { approve: "Approved", reject: "Rejected", request_changes: "Changes requested", abort: "Aborted", done: "Told what became of it" };
const RESOLUTIONS = { rerun: "it is made again", not_done: "it had no effect, and is made again", ask: "a person is asked what became of it", fail: "it counts as failed" };
const paused = ({ reason, error }) => ["Paused", ...[errorText(error) || toStatus("paused", reason).word.toLowerCase()].filter((word) => !["paused", "waiting"].includes(word))].join(": ");
const by = (name) => (name ? ` by ${name}` : "");
const said = (words) => (words ? `: ${words}` : "");

const imageNames = ({ images }) => (Array.isArray(images) ? images.map((each) => str(each?.name)) : []);
const str = (value) => (typeof value === "string" ? value : "");

// The lane of the innermost subagent that a lane is of: the key of the call that began it.
const AGENT_LANE = /^.+\.t\d+(?=\/|$)/;
const agentLane = (lane) => AGENT_LANE.exec(lane ?? "")?.[0];

// After these nobody works on a call any more that has no answer.
const STOPS = new Set(["run.paused", "run.completed", "run.failed", "run.cancelled"]);

// Entries in order: `{ type: "phase" | "message" | "person" | "thought" | "tool" | "agent" | "note", id, seq, ts, … }`. What a
// subagent does is in the `entries` of its own. `version` grows when an entry changes, or one inside it.
export class Activity {
	entries = [];
	#byKey = new Map();
	#delegations = new Map(); // key → tool call, from the model's answer that asked for it
	#open = new Set();
	#wasCut = false;
	#hasDied = false;
	#resumedSeq = 0;

	// An event that cannot be read hides none of the others.
	add(event) {
		try {
			return this.#fold(event);
		} catch (error) {
			console.error(error);
			return null;
		}
	}

	#fold(event) {
		const { kind } = event;
		const payload = event.payload ?? {};
		const { result } = payload;
		const tool = { type: "tool", name: str(payload.tool), args: payload.args };
		if (STOPS.has(kind)) this.#cut(payload);
		switch (kind) {
			case "phase.started": {
				const { phase, n } = laneOf(event);
				return this.#push(event, { type: "phase", phase, attempt: n, text: str(result?.envelope) });
			}
			case "text.delta":
				return this.#live(event, payload);
			case "model.request":
				this.#moveOn(event, payload.key);
				return this.#keyed(event, payload, { type: "message", state: "open", text: "" });
			case "model.error":
				if (payload.retry_at && this.#byKey.has(payload.key)) return this.#fail(payload);
				break;
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
		const [tone, text] = NOTES[kind]?.(payload, event) || [];
		return tone ? this.#push(event, { type: "note", kind, tone, text }) : null;
	}

	#push({ seq, ts, lane_id: lane }, entry) {
		const parent = this.#agent(agentLane(lane), seq, ts);
		if (parent?.state === "cut") this.#open.add(Object.assign(parent, { state: "open" }));
		const made = { ...entry, id: seq, seq, ts, parent, version: 1 };
		(parent?.entries ?? this.entries).push(made);
		if (parent) this.#touch(parent);
		return made;
	}

	// The entry of a subagent. The call that began it is recorded when it ends, so it is made with its first own event.
	#agent(key, seq, ts) {
		if (!key) return null;
		const known = this.#byKey.get(key);
		if (known) return Object.assign(known, { type: "agent", entries: known.entries ?? [] });
		const parent = this.#agent(agentLane(key.slice(0, key.lastIndexOf("/"))), seq, ts);
		const { name, args } = this.#delegations.get(key) ?? {};
		const made = { type: "agent", state: "open", name: str(name), args, entries: [], id: key, seq, ts, parent, version: 1 };
		(parent?.entries ?? this.entries).push(made);
		this.#byKey.set(key, made);
		this.#open.add(made);
		return made;
	}

	#touch(entry) {
		for (let each = entry; each; each = each.parent) each.version++;
		return entry;
	}

	#keyed(event, { key }, { type, ...facts }) {
		const known = this.#byKey.get(key);
		const entry = known ?? this.#push(event, { type, ...facts });
		if (known) {
			const updates = Object.entries(facts).filter(([, value]) => value !== undefined && value !== "");
			Object.assign(known, Object.fromEntries(updates));
			this.#touch(known);
		}
		this.#byKey.set(key, entry);
		entry.lastSeq = event.seq;
		if (entry.state === "open") this.#open.add(entry);
		else this.#open.delete(entry);
		return entry;
	}

	// A subagent that asks a person goes on afterwards.
	#cut({ reason }) {
		for (const entry of this.#open) {
			if (reason === "approval" && entry.type === "agent") continue;
			this.#open.delete(entry);
			this.#touch(Object.assign(entry, { state: "cut" }));
		}
	}

	// A try that failed and is followed by another belongs to the answer that comes of them.
	#fail({ key, error }) {
		const entry = this.#byKey.get(key);
		(entry.failures ??= []).push(errorText(error));
		return this.#touch(entry);
	}

	#live(event, payload) {
		const entry = this.#byKey.get(payload.key) ?? this.#keyed(event, payload, { type: "message", state: "open", text: "" });
		if (entry.state !== "open") return entry; // older journals have its last piece behind the answer
		if (payload.attempt !== undefined && payload.attempt !== entry.attempt) Object.assign(entry, { attempt: payload.attempt, text: "" });
		entry.text += str(payload.text);
		return this.#touch(entry);
	}

	// An agent has got these messages; in a conversation a turn begins with them.
	#deliver({ key, result }) {
		if (!/\/inbox\d+$/.test(key)) return null;
		for (const entry of this.entries) {
			if (entry.type === "person" && result?.messages?.includes(entry.seq)) Object.assign(entry, { isRead: true, version: entry.version + 1 });
		}
		return null;
	}

	// A call that is made again after a resume stands where that happens.
	#moveOn({ seq, ts }, key) {
		const entry = this.#byKey.get(key);
		if (!entry || entry.seq > this.#resumedSeq || entry.movedSeq > this.#resumedSeq) return;
		const list = entry.parent?.entries ?? this.entries;
		Object.assign(entry, { ts, movedSeq: seq });
		list.push(...list.splice(list.lastIndexOf(entry), 1));
	}

	// Of a run that neither waited nor was over the process has ended; one that died had not given it up.
	#resume(event, { after, taken_over: hasDied }) {
		this.#resumedSeq = event.seq;
		this.#hasDied = hasDied;
		this.#wasCut = !["pending", "paused", "failed"].includes(after);
		const text = this.#wasCut ? `Resumed after its process ${hasDied ? "died" : "was stopped"}: nothing that was done is done again` : "Resumed";
		return after === "pending" ? null : this.#push(event, { type: "note", tone: "idle", text });
	}

	// A turn has no outcome either, and is no call; nor has a call in which a person was waited for: only where its process ended it is told.
	#unknown(event, { key, resolution }) {
		if (!this.#wasCut || /\/turn\d+$/.test(key)) return null;
		const hasGoneOn = resolution === "reattached";
		const text = hasGoneOn ? "A command went on while nobody drove the run" : `A call was in flight when its process ended: ${RESOLUTIONS[resolution] ?? resolution ?? "unknown"}`;
		return this.#push(event, { type: "note", tone: hasGoneOn || (!this.#hasDied && resolution !== "ask") ? "idle" : "waiting", text });
	}

	#answer(event, payload) {
		const entry = this.#keyed(event, payload, { type: "message", state: "done" });
		const messages = messagesOf(payload.result);
		const answer = messages.map(contentText).filter(Boolean).join("\n\n");
		if (answer) entry.text = answer;
		const calls = messages.flatMap((message) => (Array.isArray(message.tool_calls) ? message.tool_calls : []));
		entry.isSilent = !entry.text && calls.length > 0; // its calls say it all
		calls.forEach((call, index) => call?.name === "task" && this.#delegations.set(`${payload.key}.t${index}`, call));
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

// By tool the arguments that say what a call does, and behind the bar those that need no word, as on the server (call_line.py).
const TOOLS = {
	__proto__: null, execute: "command|timeout", ls: "path", read_file: "file_path|offset limit", write_file: "file_path|content", delete: "file_path",
	edit_file: "file_path|old_string new_string replace_all", glob: "pattern path", grep: "pattern path|glob output_mode max_count",
	task: "description|subagent_type", web_fetch: "url", web_search: "query",
};

// What a call is about, and of how many arguments this says nothing: none of them is to hide another.
export function brief(tool, args) {
	if (typeof (args ?? "") !== "object") return firstLine(args, 100);
	const all = Object.keys(args ?? {});
	const [subjects, others] = (TOOLS[tool] ?? "").split("|");
	const known = subjects.split(" ").filter((name) => typeof args?.[name] === "string");
	const names = known.length ? known : all;
	const isText = names.length === 1 && typeof args[names[0]] === "string";
	let chars = 0;
	const parts = names.map((name) => isText ? firstLine(args[name], 100) : `${quoted(name)}: ${firstLine(quoted(args[name], /, |"/), 60)}`)
		.filter((part, place) => (chars += part.length) <= 100 || !place);
	const more = all.filter((name) => !known.length || !others?.split(" ").includes(name)).length - parts.length;
	return `${parts.join(", ")}${more > 0 ? ` … (+${plural(more, "argument")})` : ""}`;
}

// A text as it is, unless it could be taken for something else beside it.
const quoted = (value, odd = /[^\w.-]/) => (typeof value === "string" && !odd.test(value) ? value : JSON.stringify(value));

// Phase and attempt from "plan/2/turn1", or from what the payload says.
function laneOf({ lane_id: lane, payload }) {
	const [phase, n] = String(lane ?? "").split("/");
	if (/^\d+$/.test(n)) return { phase, n: Number(n) };
	return { phase: str(payload?.phase) || null, n: Number(payload?.attempt_no ?? payload?.attempt) || 1 };
}
