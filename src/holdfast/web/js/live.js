// Streams of events, resumed where they broke; what the page knows about being live; what waits for a person.
// EventSource cannot hear kinds it does not know and cannot tell a refusal from a lost line, so this reads the stream itself.
import { getJson, toError } from "./api.js";

const SILENCE_MS = 45_000; // the server comments every 15 s; three missed ones are a dead line
const HIDDEN_MS = 30_000; // browsers allow six connections a host: a page nobody sees gives its own back
const WAITS_MS = [250, 500, 1000, 2000, 4000];

// `since` is null while the page is live, else the time it was last.
export const liveness = {
	since: null,
	listeners: new Set(),
	set(isLive) {
		if (isLive === (this.since === null)) return;
		this.since = isLive ? null : Date.now();
		for (const listener of this.listeners) listener(this.since);
	},
};

// Follow a stream until `signal` ends it, or the server says `done`; `onRefused(ApiError)` if it can never work.
export async function follow(path, { lastId = "", signal, onMessages, onRefused }) {
	let last = lastId;
	let failures = 0;
	while (!signal.aborted) {
		try {
			await untilVisible(signal);
			const end = await readOnce(path, last, signal, (messages) => {
				failures = 0;
				last = messages.findLast((message) => message.id)?.id ?? last;
				onMessages(messages.map((message) => message.data).filter(Boolean));
			});
			if (end === "done") return;
			if (end === "hidden") continue;
		} catch (error) {
			if (!signal.aborted && error.status >= 400 && error.status < 500 && error.status !== 429) {
				liveness.set(true);
				return onRefused(error);
			}
		}
		if (signal.aborted) return;
		liveness.set(false);
		await pause(WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2), signal);
	}
}

async function readOnce(path, last, signal, onMessages) {
	const own = new AbortController();
	let [ended, silence, hidden] = ["lost"];
	const stopLater = () => {
		clearTimeout(silence);
		silence = setTimeout(() => own.abort(), SILENCE_MS);
	};
	const look = () => {
		clearTimeout(hidden);
		if (document.hidden) hidden = setTimeout(() => ((ended = "hidden"), own.abort()), HIDDEN_MS);
	};
	document.addEventListener("visibilitychange", look);
	look();
	stopLater();
	try {
		const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
		const response = await fetch(path, { headers, signal: AbortSignal.any([signal, own.signal]), cache: "no-store" });
		if (!response.ok) throw await toError(response);
		liveness.set(true);
		const parser = new SseParser();
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
			stopLater();
			const messages = parser.feed(piece.value);
			const isDone = messages.at(-1)?.event === "done";
			if (isDone) messages.pop();
			if (messages.length) onMessages(messages);
			if (isDone) return "done";
		}
	} catch (error) {
		if (ended === "lost" || signal.aborted) throw error;
	} finally {
		clearTimeout(silence);
		clearTimeout(hidden);
		document.removeEventListener("visibilitychange", look);
		own.abort();
	}
	return ended;
}

function untilVisible(signal) {
	return new Promise((resolve) => {
		const done = new AbortController();
		const look = () => {
			if (document.hidden && !signal.aborted) return;
			done.abort();
			resolve();
		};
		document.addEventListener("visibilitychange", look, { signal: done.signal });
		signal.addEventListener("abort", look, { signal: done.signal });
		look();
	});
}

function pause(ms, signal) {
	return new Promise((resolve) => {
		const done = new AbortController();
		const wake = () => {
			clearTimeout(timer);
			done.abort();
			resolve();
		};
		const timer = setTimeout(wake, ms);
		signal.addEventListener("abort", wake, { signal: done.signal });
		addEventListener("online", wake, { signal: done.signal });
	});
}

// The text of server-sent events, in whatever pieces it comes, to messages; data that is no JSON becomes null.
export class SseParser {
	#rest = "";
	#message = fresh();

	feed(piece) {
		const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
		this.#rest = lines.pop();
		return lines.map((line) => this.#take(line)).filter(Boolean);
	}

	#take(line) {
		const message = this.#message;
		if (line === "") {
			this.#message = fresh();
			return message.data !== null && { ...message, data: parse(message.data) };
		}
		const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
		if (name === "data") message.data = message.data === null ? value : `${message.data}\n${value}`;
		else if (name === "id" || name === "event") message[name] = value;
	}
}

const fresh = () => ({ id: "", event: "message", data: null });

function parse(text) {
	try {
		return JSON.parse(text);
	} catch {
		return null;
	}
}

const watchers = new Set();
let watching = null;

// `onChange(runIds)` after events of these runs, null where it is not known which; until `signal` ends it.
export function watchRuns({ signal, onChange }) {
	watchers.add(onChange);
	signal.addEventListener("abort", () => {
		watchers.delete(onChange);
		if (watchers.size) return;
		watching?.abort();
		watching = null;
	});
	if (watching) return;
	watching = new AbortController();
	listen(watching.signal);
}

function listen(signal) {
	const tell = (runIds) => watchers.forEach((watcher) => watcher(runIds));
	follow("/api/events", {
		signal,
		onMessages: (events) => tell(new Set(events.map((event) => event.run_id).filter(Boolean))),
		// Its place in the stream is not known any more: it begins anew.
		onRefused: (error) => error.status !== 401 && pause(3000, signal).then(() => (tell(null), listen(signal))),
	});
}

export const waiting = { items: [], listeners: new Set() };

let forWaiting = null;
let timer = 0;

export function startWaiting(onChange) {
	waiting.listeners.add(onChange);
	forWaiting?.abort();
	forWaiting = new AbortController();
	watchRuns({ signal: forWaiting.signal, onChange: () => (timer ||= setTimeout(refreshWaiting, 250)) });
	refreshWaiting();
}

async function refreshWaiting() {
	timer = 0;
	try {
		waiting.items = (await getJson("/api/inbox")).items;
		for (const listener of waiting.listeners) listener();
	} catch {
		// Whoever shows a list says that it is old; the number stays until the next change.
	}
}
