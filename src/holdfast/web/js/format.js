// Pure: from values to words. No DOM, no clock of its own.

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const HAS_CONTROL = new RegExp(CONTROL.source);
const COLOURS = /\u001b\[[0-9;]*m/g;

/** Text that can be shown anywhere: colour codes go, other control and direction characters become visible. */
export function showable(text) {
  if (!HAS_CONTROL.test(text)) return text;
  return text.replace(/\r\n/g, "\n").replace(COLOURS, "").replace(CONTROL, toVisible);
}

function toVisible(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

/** Milliseconds since 1970 from an ISO text, a number of epoch seconds, or null. */
export function toMs(time) {
  if (time === null || time === undefined || time === "") return null;
  const ms = typeof time === "number" ? time * 1000 : Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** "0.4 s", "38 s", "14 min", "2 h 5 min", "3 d 4 h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "\u2013";
  const s = Math.max(0, seconds);
  if (s < 0.95) return `${Math.max(1, Math.round(s * 1000))} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  const index = UNITS.findIndex(([, size]) => whole >= size);
  const [unit, size] = UNITS[index];
  const next = UNITS[index + 1];
  const rest = next ? Math.floor((whole % size) / next[1]) : 0;
  const isLong = unit === "min" && whole >= 600;
  return `${Math.floor(whole / size)} ${unit}${rest && !isLong ? ` ${rest} ${next[0]}` : ""}`;
}

/** "just now", "12 s ago", "6 min ago", "yesterday 12:04", "3 Nov". */
export function ago(time, nowMs) {
  const ms = toMs(time);
  if (ms === null) return "\u2013";
  const s = (nowMs - ms) / 1000;
  if (s < -2) return `in ${coarse(-s)}`;
  if (s < 3) return "just now";
  return s < 86400 * 2 ? `${coarse(s)} ago` : day(ms, nowMs);
}

/** How long since, without "ago": "6 min". */
export function since(time, nowMs) {
  const ms = toMs(time);
  return ms === null ? "\u2013" : coarse(Math.max(0, (nowMs - ms) / 1000));
}

function coarse(s) {
  if (s < 60) return `${Math.max(1, Math.floor(s))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400 * 2) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (n) => String(n).padStart(2, "0");

/** "12:04:09" in the reader's own time zone. */
export function clock(time, withSeconds = false) {
  const ms = toMs(time);
  if (ms === null) return "\u2013";
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
}

/** "3 Nov", with the year if it is another one. */
export function day(time, nowMs) {
  const at = new Date(typeof time === "number" && time > 1e11 ? time : toMs(time));
  const year = at.getFullYear() === new Date(nowMs).getFullYear() ? "" : ` ${at.getFullYear()}`;
  return `${at.getDate()} ${MONTHS[at.getMonth()]}${year}`;
}

/** "Mon 16 Nov 2026, 12:04:09" for whoever wants to know exactly. */
export function exact(time) {
  const ms = toMs(time);
  if (ms === null) return "";
  const at = new Date(ms);
  const weekday = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][at.getDay()];
  return `${weekday} ${at.getDate()} ${MONTHS[at.getMonth()]} ${at.getFullYear()}, ${clock(time, true)}`;
}

/** "$1.12", "$0.004", "$0", "$1,204". */
export function money(usd) {
  if (usd === null || usd === undefined || Number.isNaN(usd)) return "\u2013";
  const sign = usd < 0 ? "\u2212" : "";
  const amount = Math.abs(usd);
  if (amount === 0) return "$0";
  if (amount < 0.0001) return `${sign}<$0.0001`;
  if (amount < 0.1) return `${sign}$${Number(amount.toPrecision(2))}`;
  return `${sign}$${count(Math.floor(Number(amount.toFixed(2))))}.${amount.toFixed(2).slice(-2)}`;
}

/** "12,345" */
export function count(n) {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  return n < 1e6 ? `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

/** The first line, at most so many characters. */
export function firstLine(text, max = 140) {
  const line = String(text ?? "").trim().split("\n", 1)[0].replace(/^#+\s*/, "");
  return line.length > max ? `${line.slice(0, max - 1)}\u2026` : line;
}

/** What a run is called where it has no title. */
export function runTitle(run) {
  return firstLine(run.title, 120) || firstLine(run.requirements_md, 120) || `${run.workflow || "Run"} ${String(run.run_id).slice(0, 8)}`;
}
