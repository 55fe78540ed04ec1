import { pageUrl } from "../api.js";
import { ago, clock, day, duration, SHAPES, statusOf, tookSeconds } from "../format.js";
import { h } from "../h.js";

const HEIGHT = 154;

// `onBrush(since, until)` is called with the times between which somebody has drawn.
export function dotPlot(runs, width, onBrush) {
	const inner = { width: Math.max(120, width - 58), height: HEIGHT - 52, nowMs: Date.now() };
	const { points, xTicks, yTicks, toTime } = plotRuns(runs, inner);
	const grid = yTicks.map(({ y, label }) => [h("svg:line.grid", { x2: inner.width, y1: y, y2: y }), h("svg:text.tick.end", { x: -8, y: y + 4 }, label)]);
	const times = xTicks.map(({ x, label }) => [h("svg:line.grid", { x1: x, x2: x, y1: 0, y2: inner.height }), h("svg:text.tick.mid", { x, y: inner.height + 16 }, label)]);
	const names = [h("svg:text.tick", { y: -6 }, "took"), h("svg:text.tick.end", { x: inner.width, y: inner.height + 29 }, "started; draw across to filter")];
	const chosen = h("svg:rect.brush", { y: 0, height: inner.height, width: 0 });
	const ground = h("svg:rect.ground", { width: inner.width, height: inner.height });
	const plot = h("svg:g", { transform: "translate(46 18)" }, ground, chosen, grid, times, names, points.map(dot));
	const made = h("svg:svg.dots", { width, height: HEIGHT, role: "group", "aria-label": "Recent runs by start and duration" }, plot);
	made.addEventListener("pointerdown", (event) => event.button || brush(event, { made, chosen, width: inner.width, toTime, onBrush }));
	made.addEventListener("keydown", walk);
	made.querySelector(".dot")?.setAttribute("tabindex", "0");
	return made;
}

// While somebody draws across it nothing may take its place.
export const isBrushed = (place) => place.querySelector(".dots.brushed") !== null;

function brush(event, { made, chosen, width, toTime, onBrush }) {
	const place = (each) => Math.min(width, Math.max(0, each.clientX - made.getBoundingClientRect().left - 46));
	const start = place(event);
	const stop = new AbortController();
	made.classList.add("brushed");
	const move = (next) => {
		const [from, to] = [start, place(next)].sort((a, b) => a - b);
		chosen.setAttribute("x", from);
		chosen.setAttribute("width", to - from);
	};
	addEventListener("pointermove", move, { signal: stop.signal });
	addEventListener("pointercancel", () => (stop.abort(), made.classList.remove("brushed")), { signal: stop.signal });
	addEventListener("pointerup", (next) => {
		stop.abort();
		made.classList.remove("brushed");
		const [from, to] = [start, place(next)].sort((a, b) => a - b);
		// A click is for the dot under it.
		if (to - from > 6) onBrush?.(...[from, to].map((x) => new Date(toTime(x)).toISOString()));
	}, { signal: stop.signal });
}

// One dot is in the order of Tab; the arrows lead from dot to dot.
function walk(event) {
	const by = { ArrowLeft: 1, ArrowRight: -1 }[event.key]; // the newest run is the first, and on the right
	const dots = [...event.currentTarget.querySelectorAll(".dot")];
	const next = by && dots[dots.indexOf(document.activeElement) + by];
	if (!next) return;
	event.preventDefault();
	for (const each of dots) each.setAttribute("tabindex", each === next ? "0" : "-1");
	next.focus();
}

function dot({ run, x, y, seconds }) {
	const { tone, shape, word } = statusOf(run);
	const label = `${run.heading}: ${word.toLowerCase()}, ${duration(seconds)}, started ${ago(run.started_at ?? run.created_at, Date.now())}`;
	return h(
		`svg:a.dot.tone-${tone}`,
		{ href: pageUrl(run), "aria-label": label, tabindex: "-1", transform: `translate(${x - 6} ${y - 6})` },
		h("svg:rect.hit", { x: -4, y: -4, width: 20, height: 20 }),
		h("svg:path", { d: SHAPES[shape], transform: "scale(.75)", "fill-rule": "evenodd" }),
		h("svg:title", label),
	);
}

// Durations differ by thousands, so their scale is logarithmic.
const STEPS_S = [1, 10, 60, 600, 3600, 21600, 86400, 604800];
const SPANS_S = [10, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];

function plotRuns(runs, { width, height, nowMs }) {
	const timed = runs.map((run) => ({ run, at: Date.parse(run.started_at ?? run.created_at), seconds: tookSeconds(run, nowMs) }));
	const starts = timed.map((each) => each.at);
	const [first, last] = [Math.min(...starts), Math.max(...starts)];
	// Of a list that ends long ago, the time since then would be most of the plot.
	const to = nowMs - last > 2 * (last - first) + 60_000 ? last + Math.max(10_000, (last - first) * 0.05) : Math.max(nowMs, last);
	const from = Math.min(...starts, to - 20_000);
	const longest = Math.max(10, ...timed.map((each) => each.seconds)) * 1.3;
	const toX = (ms) => ((ms - from) / (to - from)) * width;
	const toY = (seconds) => height * (1 - Math.log(Math.max(1, seconds * 2)) / Math.log(longest * 2));
	const label = (ms) => (to - from > 172_800_000 ? day(ms / 1000, nowMs) : clock(ms / 1000, to - from < 300_000));
	return {
		toTime: (x) => from + (x / width) * (to - from),
		points: timed.map(({ run, at, seconds }) => ({ run, x: toX(at), y: toY(seconds), seconds })),
		xTicks: timeTicks(from, to).filter((ms) => toX(ms) < width - 30).map((ms) => ({ x: toX(ms), label: label(ms) })),
		yTicks: STEPS_S.filter((s) => s < longest).map((s) => ({ y: toY(s), label: duration(s).replace(".0", "") })),
	};
}

function timeTicks(from, to) {
	const last = SPANS_S.at(-1);
	const span = 1000 * (SPANS_S.find((s) => (to - from) / s <= 5000) ?? last * Math.ceil((to - from) / last / 5000));
	const shift = new Date(to).getTimezoneOffset() * 60_000;
	const ticks = [];
	for (let ms = Math.ceil((from - shift) / span) * span + shift; ms <= to; ms += span) ticks.push(ms);
	return ticks;
}
