// Pure: from values to words. No DOM, no clock of its own.

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const COLOURS = /\u001b\[[0-9;]*m/g;

// Text that can be shown anywhere: colour codes go, other control and direction characters become visible.
export const showable = (text) => (text.search(CONTROL) === -1 ? text : text.replace(/\r\n/g, "\n").replace(COLOURS, "").replace(CONTROL, toVisible));

function toVisible(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

// Milliseconds since 1970 from an ISO text or epoch seconds; else null.
export function toMs(time) {
  const ms = typeof time === "number" ? time * 1000 : Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const isMissing = (n) => Number.isNaN(n ?? NaN);

// "0.4 s", "38 s", "14 min", "2 h 5 min", "3 d 4 h"
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

// "just now", "12 s ago", "6 min ago", "3 Nov"
export function ago(time, nowMs) {
  const ms = toMs(time);
  if (ms === null) return "–";
  const s = (nowMs - ms) / 1000;
  if (s < -2) return `in ${coarse(-s)}`;
  if (s < 3) return "just now";
  return s < 86400 * 2 ? `${coarse(s)} ago` : day(time, nowMs);
}

// How long since, without "ago": "6 min"
export function since(time, nowMs) {
  const ms = toMs(time);
  return ms === null ? "–" : coarse((nowMs - ms) / 1000);
}

function coarse(s) {
  const [unit, size] = s < 86400 * 2 && s >= 86400 ? UNITS[1] : UNITS.find(([, each]) => s >= each) ?? UNITS[3];
  return `${Math.max(1, Math.floor(s / size))} ${unit}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (n) => String(n).padStart(2, "0");

// "12:04:09" in the reader's own time zone
export function clock(time, withSeconds = false) {
  const ms = toMs(time);
  if (ms === null) return "–";
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
}

// "3 Nov", with the year if it is another one
export function day(time, nowMs) {
  const at = new Date(toMs(time));
  const year = at.getFullYear();
  return `${at.getDate()} ${MONTHS[at.getMonth()]}${year === new Date(nowMs).getFullYear() ? "" : ` ${year}`}`;
}

// "Mon 16 Nov 2026, 12:04:09"
export function exact(time) {
  const ms = toMs(time);
  if (ms === null) return "";
  const weekday = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][new Date(ms).getDay()];
  return `${weekday} ${day(time, NaN)}, ${clock(time, true)}`;
}

// "$1.12", "$0.004", "$0", "$1,204.00"
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

// The first line, at most so many characters.
export function firstLine(text, max = 140) {
  const line = String(text ?? "").trim().split("\n", 1)[0].replace(/^#+\s*/, "");
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}

export const runTitle = (run) => firstLine(run.title, 120) || firstLine(run.requirements_md, 120) || `${run.workflow || "Run"} ${String(run.run_id).slice(0, 8)}`;
