// What a page hears of runs while they work; whether it is live; what waits for a person.
import { getJson, onSignedOut } from "./api.js";
import { isSeen } from "./model/seen.js";
import { StreamHub } from "./stream-hub.js";

const HIDDEN_MS = 5_000; // a page that nobody sees listens to nothing, and reads what it missed when it is seen again

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

const listeners = new Set(); // { runId, onEvents, onJoined }
let port = null;
let isAway = false;
let followedRunId = null;
let hiding = 0;

// Hear of events until `signal` ends it: of run `runId` whole, of all others `run_id`, `seq` and `kind`. After `onJoined`
// nothing is missed any more, but what happened before must be read.
export function listen({ runId = "", signal, onEvents, onJoined }) {
	const listener = { runId, onEvents, onJoined };
	listeners.add(listener);
	signal.addEventListener("abort", () => {
		listeners.delete(listener);
		queueMicrotask(tell); // the next page may follow the same
	});
	tell();
}

function tell() {
	const runId = isAway || !listeners.size ? null : ([...listeners].find((each) => each.runId)?.runId ?? "");
	if (runId === followedRunId) return;
	followedRunId = runId;
	if (runId === null) return port?.postMessage({ type: "leave" });
	port ??= connect();
	port.postMessage({ type: "follow", runId });
}

function connect() {
	let worker;
	try {
		worker = new SharedWorker("/js/stream-worker.js", { type: "module", name: "holdfast" });
	} catch {
		return connectHere(); // there are none here, or they are forbidden
	}
	worker.onerror = () => {
		port = connectHere(); // its file could not be had
		if (followedRunId !== null) port.postMessage({ type: "follow", runId: followedRunId });
	};
	worker.port.onmessage = hear;
	return worker.port;
}

// A browser without shared workers has a stream for each tab that is seen.
function connectHere() {
	const { port1, port2 } = new MessageChannel();
	new StreamHub().connect(port2);
	port1.onmessage = hear;
	return port1;
}

function hear({ data: { type, events, status } }) {
	if (followedRunId === null) return;
	if (type === "refused") {
		followedRunId = null;
		return status === 401 && onSignedOut.call();
	}
	liveness.set(type !== "lost");
	if (type === "events") for (const { onEvents } of listeners) onEvents(events);
	if (type === "joined") for (const { onJoined } of listeners) onJoined();
}

function setAway(isSo) {
	clearTimeout(hiding);
	isAway = isSo;
	tell();
}

document.addEventListener("visibilitychange", () => {
	clearTimeout(hiding);
	if (document.hidden && !canNotify()) hiding = setTimeout(setAway, HIDDEN_MS, true);
	else setAway(false);
});
addEventListener("pagehide", () => setAway(true));
addEventListener("pageshow", ({ persisted }) => persisted && setAway(false));

// Calls at most once in a while: soon after a rest, else when `everyMs` have passed since the last time.
export class Throttle {
	#timer = 0;
	#due = Infinity;
	#last = -Infinity;

	constructor(act) {
		this.act = act;
	}

	call(soonMs, everyMs) {
		const due = Math.max(Date.now() + soonMs, this.#last + everyMs);
		if (due >= this.#due) return;
		clearTimeout(this.#timer);
		this.#due = due;
		this.#timer = setTimeout(() => {
			this.#due = Infinity;
			this.#last = Date.now();
			this.act();
		}, due - Date.now());
	}

	stop() {
		clearTimeout(this.#timer);
		this.#due = Infinity;
	}
}

// What changes where a run stands, and with it lists, counts and what waits; the rest only adds to it.
export const isTurn = ({ kind }) => /^(?:run|phase|human|artifact|budget\.(?:raised|exhausted))\b/.test(kind);

export const waiting = { items: [], isKnown: false, listeners: new Set() };

// What waits for whoever looks: not for others, and not what they have looked at.
export const toYours = (items) => items.filter((item) => item.is_yours && !isSeen(item));

const readingInbox = new Throttle(refreshWaiting);
let forWaiting = null;

export function startWaiting(onChange) {
	waiting.listeners.add(onChange);
	forWaiting?.abort();
	forWaiting = new AbortController();
	const look = () => readingInbox.call(250, 4000);
	const { signal } = forWaiting;
	listen({ signal, onEvents: (events) => events.some(isTurn) && look(), onJoined: look });
	refreshWaiting();
}

export async function refreshWaiting() {
	try {
		const { items } = await getJson("/api/inbox");
		if (waiting.isKnown) notify(toYours(items), waiting.items);
		Object.assign(waiting, { items, isKnown: true });
		for (const listener of waiting.listeners) listener();
	} catch {
		// Whoever shows a list says that it is old; the number stays until the next change.
	}
}

const idOf = (item) => item.approval_id ?? `${item.run_id} ${item.until}`;
const canNotify = () => globalThis.Notification?.permission === "granted";

// One notice for each that is new, however many tabs there are; none while somebody looks at the page.
function notify(yours, before) {
	if (!document.hidden || !canNotify()) return;
	const known = new Set(before.map(idOf));
	for (const item of yours.filter((each) => !known.has(idOf(each)))) {
		const notice = new Notification(item.question, { body: `${item.heading}\n${item.summary}`, tag: idOf(item) });
		notice.onclick = () => {
			focus();
			navigateTo.call(`/inbox?item=${encodeURIComponent(item.approval_id ?? item.run_id)}`);
		};
	}
}

export const navigateTo = { call: () => {} };
