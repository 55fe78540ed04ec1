// One event stream, resumed where it broke. Knows nothing of pages: it also runs in the worker that all tabs share.
// EventSource cannot hear kinds it does not know and cannot tell a refusal from a lost line, so this reads the stream itself.
import { toError } from "./api.js";

const SILENCE_MS = 45_000; // the server comments every 15 s; three missed ones are a dead line
const WAITS_MS = [250, 500, 1000, 2000, 4000];

// Follow a stream until `signal` ends it; `onRefused(ApiError)` if it can never work. Messages are `{ id, event, data }`.
export async function follow(path, { lastId = "", signal, onOpen, onMessages, onLost, onRefused }) {
	let last = lastId;
	let failures = 0;
	while (!signal.aborted) {
		try {
			await readOnce(path, last, signal, onOpen, (messages) => {
				failures = 0;
				last = messages.findLast((message) => message.id)?.id ?? last;
				onMessages(messages);
			});
		} catch (error) {
			if (!signal.aborted && error.status >= 400 && error.status < 500 && error.status !== 429) return onRefused(error);
		}
		if (signal.aborted) return;
		onLost();
		await pause(WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2), signal);
	}
}

async function readOnce(path, last, signal, onOpen, onMessages) {
	const own = new AbortController();
	let silence = 0;
	const stopLater = () => {
		clearTimeout(silence);
		silence = setTimeout(() => own.abort(), SILENCE_MS);
	};
	stopLater();
	try {
		const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
		const response = await fetch(path, { headers, signal: AbortSignal.any([signal, own.signal]), cache: "no-store" });
		if (!response.ok) throw await toError(response);
		onOpen();
		const parser = new SseParser();
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
			stopLater();
			const messages = parser.feed(piece.value);
			if (messages.length) onMessages(messages);
		}
	} finally {
		clearTimeout(silence);
		own.abort();
	}
}

export function pause(ms, signal) {
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
			return (message.data !== null || message.id !== "") && { ...message, data: parse(message.data) };
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
