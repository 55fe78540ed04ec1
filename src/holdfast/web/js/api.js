// Talking with the server: JSON in and out, refusals as one kind of error, one key per wish so that nothing happens twice.

// `code` is stable; "offline" means that no answer came at all.
export class ApiError extends Error {
	constructor({ code = "unknown", title = "", detail, hint = "", errors = [], paths = [], request_id: requestId = "" }, response) {
		super(detail || title || "The server refused.");
		const retryAfter = Number(response?.headers.get("Retry-After") ?? 0);
		const status = response?.status ?? 0;
		Object.assign(this, { code, title, hint, errors, paths, requestId, retryAfter, status, isOffline: code === "offline" });
	}
}

export const onSignedOut = { call: () => {} };

export const OFFLINE = { code: "offline", title: "No connection", detail: "The server does not answer. Nothing is lost; what was acknowledged is kept." };

const LATE_MS = 8_000;
const lateStarts = new Map(); // answer → when it was sent, of those without an answer for so long

// `since` is when the oldest request was sent that should have an answer by now; null if there is none. A server that is
// frozen accepts everything and says nothing.
export const lateness = { since: null, listeners: new Set() };

function setLate(answer, startedAt) {
	if (startedAt === null) lateStarts.delete(answer);
	else lateStarts.set(answer, startedAt);
	const since = lateStarts.size ? Math.min(...lateStarts.values()) : null;
	if (since === lateness.since) return;
	lateness.since = since;
	for (const listener of lateness.listeners) listener();
}

async function waitFor(answer) {
	const timer = setTimeout(setLate, LATE_MS, answer, Date.now());
	try {
		return await answer;
	} finally {
		clearTimeout(timer);
		setLate(answer, null);
	}
}

async function request(method, path, { body, headers, signal, key } = {}) {
	const options = { method, headers: { Accept: "application/json", ...headers }, signal, credentials: "same-origin" };
	if (body !== undefined) {
		options.headers["Content-Type"] = "application/json";
		options.body = JSON.stringify(body);
	}
	if (key) options.headers["Idempotency-Key"] = key;
	const response = await waitFor(fetch(path, options)).catch((error) => {
		throw error.name === "AbortError" ? error : new ApiError(OFFLINE);
	});
	if (!response.ok) throw await toError(response);
	return response;
}

export async function toError(response) {
	const problem = await response.json().catch(() => ({ code: `http_${response.status}`, title: response.statusText }));
	if (response.status === 401) onSignedOut.call();
	return new ApiError(problem, response);
}

export const getJson = async (path, signal) => (await request("GET", path, { signal })).json();
export const getText = async (path, signal) => (await request("GET", path, { signal, headers: { Accept: "*/*" } })).text();

// A file of JSON lines, as it comes: `onLines(values)` for each piece of it.
export async function readLines(path, signal, onLines) {
	const response = await request("GET", path, { signal, headers: { Accept: "application/jsonl" } });
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
		const lines = (rest + piece.value).split("\n");
		rest = lines.pop();
		if (lines.length) onLines(lines.map((line) => JSON.parse(line)));
	}
}

export async function send(method, path, body, options) {
	const response = await request(method, path, { ...options, body });
	return response.status === 204 ? null : response.json();
}

export const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export function withQuery(path, values) {
	const query = new URLSearchParams(Object.entries(values).filter(([, value]) => (value ?? "") !== ""));
	return query.size ? `${path}?${query}` : path;
}

export const runUrl = (runId, rest = "") => `/runs/${encodeURIComponent(runId)}${rest}`;
export const flowUrl = (runId) => `/flows/${encodeURIComponent(runId)}`;
// The page of a run, of a workflow or of a flow.
export const pageUrl = ({ kind, run_id: runId }) => (kind === "flow" ? flowUrl(runId) : runUrl(runId));

// Who is looking, and what they may do. The server decides; this only says beforehand why it would refuse.
export const session = { name: "", role: "", isKnown: false };

export async function loadSession() {
	const { name, role, expires_at: endsAt } = await getJson("/api/session");
	Object.assign(session, { name, role, endsAt, isKnown: true });
}

const ROLES = ["viewer", "operator", "approver", "admin"];
export const can = (role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role);
export const whyNot = (role) => (!session.isKnown || can(role) ? null : `This needs the role ${role}; you are ${session.role}.`);
