// Pure: from values and states to words, tones and shapes.

// With what has no width, and the letters of no shape in which text can be hidden; joiners are a part of words.
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const COLOURS = /\u001b\[[0-9;]*m/g;

// Text that can be shown anywhere: colour codes go, other control and direction characters become visible.
export const showable = (text) => (text.search(CONTROL) === -1 ? text : text.replace(/\r\n/g, "\n").replace(COLOURS, "").replace(CONTROL, toVisible));

function toVisible(character) {
	const code = character.codePointAt(0);
	if (code < 0x20) return String.fromCharCode(0x2400 + code);
	return code === 0x7f ? "\u2421" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

export function toMs(time) {
	const ms = typeof time === "number" ? time * 1000 : Date.parse(time);
	return Number.isNaN(ms) ? null : ms;
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const isMissing = (n) => Number.isNaN(n ?? NaN);

export function duration(seconds) {
	if (isMissing(seconds)) return "–";
	if (seconds < 0.95) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
	if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
	const whole = Math.round(seconds);
	const index = UNITS.findIndex(([, size]) => whole >= size);
	const [[unit, size], next] = [UNITS[index], UNITS[index + 1]];
	const rest = next && (unit !== "min" || whole < 600) ? Math.floor((whole % size) / next[1]) : 0;
	return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

export function ago(time, nowMs) {
	const ms = toMs(time);
	if (ms === null) return "–";
	const s = (nowMs - ms) / 1000;
	if (s < -2) return `in ${coarse(-s)}`;
	if (s < 3) return "just now";
	return s < 86400 * 2 ? `${coarse(s)} ago` : day(time, nowMs);
}

export function since(time, nowMs) {
	const ms = toMs(time);
	return ms === null ? "–" : coarse((nowMs - ms) / 1000);
}

function coarse(s) {
	const [unit, size] = s < 86400 * 2 && s >= 86400 ? UNITS[1] : UNITS.find(([, each]) => s >= each) ?? UNITS[3];
	return `${Math.max(1, Math.floor(s / size))} ${unit}`;
}

export function clock(time, withSeconds = false) {
	const ms = toMs(time);
	return ms === null ? "–" : new Date(ms).toLocaleTimeString("en-GB").slice(0, withSeconds ? 8 : 5);
}

// "3 Nov", with the year if it is another one
export function day(time, nowMs) {
	const at = new Date(toMs(time));
	const isThisYear = at.getFullYear() === new Date(nowMs).getFullYear();
	return at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: isThisYear ? undefined : "numeric" });
}

// "Mon 16 Nov 2026, 12:04:09"
export function exact(time) {
	const ms = toMs(time);
	return ms === null ? "" : `${new Date(ms).toLocaleDateString("en-GB", { weekday: "short" })} ${day(time, NaN)}, ${clock(time, true)}`;
}

export function money(usd) {
	if (isMissing(usd)) return "–";
	const sign = usd < 0 ? "−" : "";
	const amount = Math.abs(usd);
	if (amount === 0) return "$0";
	if (amount < 0.0001) return `${sign}<$0.0001`;
	return `${sign}$${amount < 0.1 ? Number(amount.toPrecision(2)) : count(amount.toFixed(2))}`;
}

export const count = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
	if (n < 1000) return `${n} B`;
	return n < 1e6 ? `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

export function firstLine(text, max = 140) {
	const line = String(text ?? "").trim().split("\n", 1)[0].replace(/^#+\s*/, "");
	return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}

export function errorText(error) {
	if (!error) return "";
	return typeof error === "string" ? error : String(error.message ?? error.detail ?? error.code ?? JSON.stringify(error));
}

export function tookSeconds(run, nowMs) {
	const to = run.ended_at ? Date.parse(run.ended_at) : nowMs;
	return Math.max(0, (to - Date.parse(run.started_at ?? run.created_at)) / 1000);
}

// A state has a tone, and a tone has a shape and a word, so that colour is never alone.
const STATES = {
	pending: ["idle", "Queued"],
	running: ["busy", "Running"],
	paused: ["waiting", "Waiting"],
	awaiting_approval: ["waiting", "Waiting for approval"],
	completed: ["good", "Completed"],
	failed: ["bad", "Failed"],
	cancelled: ["idle", "Aborted"],
	skipped: ["idle", "Skipped"],
};
const PAUSES = { approval: "Waiting for you", budget: "Out of budget", person: "Paused", outcome: "Outcome unknown", stalled: "Stalled", crashing: "Crashing", message: "Your turn", provider: "Provider", files: "Files too big" };

export function toStatus(state, pauseReason = null) {
	const [tone, word] = STATES[state] ?? ["idle", String(state)];
	return { tone, shape: state === "cancelled" ? "stopped" : tone, word: (state === "paused" && PAUSES[pauseReason]) || word };
}

// How a run stands; a completed one whose review is not content is not plainly good.
export function statusOf({ state, pause_reason: pauseReason, verdict }) {
	const status = toStatus(state, pauseReason);
	const { tone, text: word } = verdict ?? {};
	return tone && tone !== "good" ? { tone, shape: tone, word } : status;
}

const DISC = "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1z";
const RING = `${DISC}m0 1.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 0 1 8 2.8z`;
export const SHAPES = {
	good: `${DISC}m-1 10.4L3.7 8.1l1.2-1.2L7 9l4.1-4.1 1.2 1.2z`,
	bad: "M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1zM5.9 4.7 4.7 5.9 6.8 8l-2.1 2.1 1.2 1.2L8 9.2l2.1 2.1 1.2-1.2L9.2 8l2.1-2.1-1.2-1.2L8 6.8z",
	busy: "M8 1a7 7 0 1 0 7 7h-2a5 5 0 1 1-5-5z",
	waiting: `${RING}M8 4v4h4a4 4 0 0 1-4 4 4 4 0 0 1 0-8z`,
	idle: RING,
	stopped: `${RING}M5 7.1h6v1.8H5z`,
};
