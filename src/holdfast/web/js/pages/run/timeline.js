import { withQuery } from "../../api.js";
import { count, duration, exact, plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { axisTicks, foldedScale, foldLabels, spread } from "../../model/timescale.js";
import { filterRows, moveTo, ROW_HEIGHTS, rowFilter, rowsBetween, rowTops, unfoldRows, zoomAt } from "../../model/trace.js";
import { markdown } from "../../parts/text.js";
import { button, chip, chips, facts, loading, mark, problemNote, searchBox, shape } from "../../parts/ui.js";
import { setQuery } from "../../router.js";
import { findingsLink, fork } from "./actions.js";

const TOP = 26;
const SPARE = 200; // pixels of rows that are drawn beyond what is in view
const MARKS = { crash: "✕", failed: "✕", aborted: "■", stopped: "□", changes: "↺", resumed: "▶", retried: "↻", paused: "Ⅱ", unknown: "?" };
const LEGEND = { queued: "Queued", working: "Working", waiting: "Waiting for a person", down: "Down, without a process" };
const ONLY = [["", "All"], ["errors", "Errors"], ["tools", "Tools"], ["models", "Models"], ["retried", "Retried"]];

export function timeline(panel, view) {
	const listOf = (name) => new Set(view.query.get(name)?.split(",").filter(Boolean));
	const opened = listOf("open"); // phases
	const folded = listOf("fold"); // calls that began a subagent
	const labels = h("div.tl-labels");
	const axis = h("div.tl-axis");
	const hint = "Drawing of the timeline. Arrow keys move it, plus and minus zoom, 0 shows all";
	const drawing = h("div.tl-drawing", { tabindex: "0", role: "region", "aria-label": hint });
	const frame = h("div.tl-frame", { onscroll: drawSoon }, h("div.tl-head"), axis, labels, drawing);
	const detail = h("div.tl-detail");
	const trace = h("div.trace", h("div.card.timeline", frame), detail);
	const summary = h("span.soft.small", { role: "status" });
	const kinds = chips("Which calls");
	const search = searchBox("Search calls", { placeholder: "Search names, input and output", value: view.query.get("find") ?? "", oninput: () => setQuery({ find: search.value.trim() }) });
	const texts = new Map(); // what was said in an event, in lower case
	let known = { rows: [], marks: [], busy: [], since: null, until: null };
	let [rows, tops, place, lastStamp, frameId] = [[], [0], { zoom: 1, left: 0 }, "", 0];
	let only = view.query.get("only") ?? "";
	let chosen = view.query.get("row") ?? view.run.phases.find((phase) => phase.state === "failed")?.key ?? null;
	const foldBox = h("input", { type: "checkbox", checked: true, onchange: () => draw() });
	const widthOf = () => Math.max(120, (drawing.clientWidth || 600) - 16);
	const zoom = (factor, x = widthOf() / 2) => ((place = zoomAt(place, { factor, x, width: widthOf() })), drawSoon());
	const move = (by) => ((place = moveTo({ ...place, left: place.left + by }, widthOf())), drawSoon());
	const zooms = { "-": ["Zoom out", () => zoom(0.5)], "+": ["Zoom in", () => zoom(2)], 0: ["Show all", () => zoom(0)] };
	const zoomButton = ([sign, [label, act]]) => button(sign === "0" ? "Fit" : sign.replace("-", "−"), act, { kind: "tiny", "aria-label": label });
	const sample = (type) => h("svg:svg", { width: 22, height: 10, "aria-hidden": "true" }, patterns("legend"), segment(type, "legend", { width: 22, height: 10 }));
	panel.append(
		h("div.panel-bar", kinds, summary, search),
		h(
			"div.panel-bar",
			h("ul.legend.small", Object.entries(LEGEND).map(([type, word]) => h("li", sample(type), word))),
			h("div.buttons", h("label.toggle.small", foldBox, " Fold idle time"), ["-", "+", "0"].map((sign) => zoomButton([sign, zooms[sign]]))),
		),
		trace,
	);
	view.setKeys(zooms);
	const ticking = setInterval(() => !view.isOver && !document.hidden && draw(), 1000);
	addEventListener("resize", () => draw(), { signal: view.signal });
	drawing.addEventListener("wheel", onWheel, { passive: false });
	drawing.addEventListener("pointerdown", onDrag);
	labels.addEventListener("keydown", onRowKey);
	trace.addEventListener("keydown", (event) => event.key === "Escape" && chosen && close());
	drawing.addEventListener("keydown", (event) => {
		const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
		if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
		event.preventDefault();
		move(by * widthOf() * 0.2);
	});

	// The wheel alone scrolls the rows, as everywhere; with Ctrl, and by pinching, it zooms.
	function onWheel(event) {
		const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
		if (!event.ctrlKey && !event.metaKey && !isSideways) return;
		event.preventDefault();
		if (isSideways && !event.ctrlKey) move(event.deltaX || event.deltaY);
		else zoom(Math.exp(-event.deltaY / 200), event.clientX - drawing.getBoundingClientRect().left - 8);
	}

	function onDrag(event) {
		if (event.button || event.pointerType === "touch") return;
		let last = event.clientX;
		const stop = new AbortController();
		addEventListener("pointermove", (next) => (move(last - next.clientX), (last = next.clientX)), { signal: stop.signal });
		for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => stop.abort(), { signal: stop.signal });
	}

	// The server is asked when something has happened; between, the bars only grow.
	async function update() {
		const open = only || search.value.trim() ? "*" : [...opened].join(",");
		const stamp = `${view.run.seq} ${open}`;
		if (stamp === lastStamp) return arrange();
		lastStamp = stamp;
		try {
			const answer = await view.get(withQuery("/timeline", { open }));
			if (stamp !== lastStamp) return;
			known = answer;
			arrange();
		} catch {
			lastStamp = ""; // what is drawn stays
		}
	}

	const textOf = (row) => `${row.label} ${row.brief} ${row.error}`.toLowerCase() + [row.start_seq, row.end_seq].map(eventText).join(" ");

	function eventText(seq) {
		const event = seq && view.event(seq);
		if (!event) return "";
		if (!texts.has(seq)) texts.set(seq, JSON.stringify(event.payload ?? {}).replaceAll("\\n", "\n").toLowerCase());
		return texts.get(seq);
	}

	function arrange() {
		const text = search.value.trim();
		const fits = rowFilter({ only, text, textOf });
		rows = fits ? filterRows(known.rows, fits) : unfoldRows(known.rows, folded);
		tops = rowTops(rows);
		fill(kinds, ONLY.map(([name, word]) => chip(word, only === name, () => setQuery({ only: name }))));
		const found = fits && known.rows.filter(fits).length;
		fill(summary, fits && (found ? `${plural(found, "call")} of ${count(known.rows.filter((row) => row.type === "step").length)}` : "No call fits"));
		draw();
	}

	function drawSoon() {
		frameId ||= requestAnimationFrame(() => {
			frameId = 0;
			draw();
		});
	}

	function draw() {
		const { marks, busy, since, until } = known;
		const clockNow = Date.now() / 1000;
		const now = view.isOver ? (until ?? clockNow) : Math.max(clockNow, until ?? 0);
		labels.style.height = `${tops.at(-1)}px`; // first: the frame is as high as its rows
		const seen = rowsBetween(tops, frame.scrollTop - SPARE, frame.scrollTop + (frame.clientHeight || 600) + SPARE);
		drawLabels(seen, now);
		const [width, from] = [widthOf(), since ?? now - 1];
		place = moveTo(place, width);
		const whole = foldedScale({ from, to: Math.max(now, from + 0.5), busy, width: width * place.zoom, isFolding: foldBox.checked });
		const scale = { ...whole, left: place.left, seen: width, at: (ts) => whole.toX(ts) - place.left };
		fill(axis, axisDrawing(scale, marks));
		fill(drawing, chart(rows, tops, seen, scale, marks, now));
		trace.classList.toggle("has-detail", Boolean(chosen));
		if (chosen) drawDetail(known.rows.find((row) => row.key === chosen), now);
	}

	function drawLabels({ first, last }, now) {
		const visibleRows = rows.slice(first, last);
		const tooks = visibleRows.map((row) => tookOf(row, now));
		const stamp = JSON.stringify([first, tooks, visibleRows.map((row) => [row.key, row.label, row.status, isOpenRow(row), row.attempts, row.key === chosen])]);
		if (stamp === labels.dataset.stamp) return;
		labels.dataset.stamp = stamp;
		const focused = labels.contains(document.activeElement) && document.activeElement.dataset.key;
		fill(labels, h("div", { style: { "padding-top": `${tops[first]}px` } }, visibleRows.map((row, index) => label(row, tooks[index]))));
		if (focused) labels.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
	}

	const isOpenRow = ({ type, key, is_open: isOpen }) => (type === "phase" ? isOpen : !folded.has(key));

	function label(row, took) {
		const { type, key, status, depth } = row;
		if (type === "rest") return h("div.tl-label.step.soft", row.label);
		const isPhase = type === "phase";
		const level = Math.min(depth, 4);
		const open = h(
			`button.tl-label.${type}.depth-${row.has_steps ? 0 : level}`,
			{ type: "button", dataset: { key }, "aria-pressed": String(key === chosen), title: row.summary, onclick: (event) => choose(key, event.detail === 0) },
			h(`span.mark.tone-${status.tone}`, shape(status.shape), h("span.unseen", status.word)),
			h("span.name.clip.foreign", row.label, !isPhase && [" ", h("span.soft", row.brief)]),
			row.attempts > 1 && h("span.tag", `×${row.attempts}`),
			h("span.soft.num.nowrap", took || status.word.toLowerCase()),
		);
		if (!isPhase && !row.has_steps) return open;
		const isOpen = isOpenRow(row);
		const props = { type: "button", "aria-expanded": String(isOpen), "aria-label": `Steps of ${isPhase ? key : `${row.label} ${row.brief}`}`, onclick: () => toggle(row) };
		return h(`div.tl-parent.${type}.depth-${level}`, row.has_steps ? h("button.tl-toggle", props, isOpen ? "▾" : "▸") : h("span.tl-toggle"), open);
	}

	function toggle({ type, key }) {
		const [name, keys] = type === "phase" ? ["open", opened] : ["fold", folded];
		if (!keys.delete(key)) keys.add(key);
		setQuery({ [name]: [...keys].join(",") });
		update();
	}

	// As in every tree: up and down go from row to row, right and left open and fold.
	function onRowKey(event) {
		const { key } = event.target.dataset;
		if (!key || event.ctrlKey || event.metaKey || event.altKey) return;
		const row = rows.find((each) => each.key === key);
		const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		const isOpening = { ArrowRight: true, ArrowLeft: false }[event.key];
		if (by === undefined && isOpening === undefined) return;
		event.preventDefault();
		const all = [...labels.querySelectorAll("[data-key]")];
		if (by) all[all.indexOf(event.target) + by]?.focus();
		else if (row.has_steps && isOpenRow(row) !== isOpening) toggle(row);
	}

	// With the keyboard one goes on to read it; Escape leads back.
	function choose(key, isByKey = false) {
		chosen = chosen === key ? null : key;
		setQuery({ row: chosen });
		fill(detail);
		detail.dataset.stamp = "";
		draw();
		if (chosen && innerWidth < 1100) detail.scrollIntoView({ block: innerWidth < 700 ? "start" : "nearest" });
		if (chosen && isByKey) detail.querySelector("section")?.focus();
	}

	function close() {
		const key = chosen;
		choose(key);
		labels.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
	}

	function drawDetail(row, now) {
		const stamp = row ? JSON.stringify([row.key, row.status, row.tries, row.facts, row.end_seq, Boolean(view.event(row.end_seq ?? row.start_seq))]) : "";
		if (stamp === detail.dataset.stamp) return;
		detail.dataset.stamp = stamp;
		const props = { "aria-label": `Details of ${row?.label}`, tabindex: "0" };
		const closeButton = button("Close", close, { kind: "tiny", title: "Escape" });
		fill(detail, row && h("section.card.padded.stack.tight", props, row.type === "step" ? callDetail(row, view, tookOf(row, now), closeButton) : phaseDetail(row, view, closeButton)));
	}

	// An address names the phases and the call: it opens them.
	if (chosen?.includes("/")) opened.add(chosen.split("/")[0]);
	arrange();
	update();
	return {
		update,
		query(query) {
			only = query.get("only") ?? "";
			if (document.activeElement !== search) search.value = query.get("find") ?? "";
			update();
		},
		leave: () => clearInterval(ticking),
	};
}

const tookOf = ({ seconds, live_since: live }, now) => (seconds === null ? "" : duration(seconds + (live === null ? 0 : Math.max(0, now - live))));

const svgTitle = (text) => h("svg:title", text);
const svgText = (kind, x, y, text) => h("svg:text", { class: kind, x, y }, text);

function axisDrawing(scale, marks) {
	const { left, seen, at } = scale;
	const isSeen = (x) => x >= -20 && x <= seen + 20;
	const ticks = axisTicks(scale, { left, right: left + seen }).map(({ x, label }) => svgText("tick", x - left + 3, 14, label));
	const folds = foldLabels(scale).filter(({ x }) => isSeen(x - left)).map(({ x, label }) => svgText("tick mid", x - left, 14, label));
	const visibleMarks = marks.filter(({ ts }) => isSeen(at(ts)));
	const signs = spread(visibleMarks.map(({ ts }) => at(ts)), { width: seen });
	const moment = ({ type, ts, text }, index) => h(`svg:g.moment.${type}`, svgText("mid", signs[index], TOP - 1, MARKS[type] ?? "•"), svgTitle(`${text}, ${exact(ts)}`));
	return h("svg:svg", { width: seen, height: TOP, "aria-hidden": "true" }, ticks, folds, visibleMarks.map(moment));
}

function chart(rows, tops, { first, last }, scale, marks, now) {
	const { left, seen, at } = scale;
	const height = tops[last] - tops[first];
	const line = (look, x) => x >= 0 && x <= seen && h(`svg:line.${look}`, { x1: x, x2: x, y1: 0, y2: height });
	const ticks = axisTicks(scale, { left, right: left + seen }).map(({ x }) => line("grid", x - left));
	const folds = scale.folds.filter(({ x, width }) => x + width > left && x < left + seen).map(({ x, width, seconds }) => {
		return h("svg:g.fold-mark", h("svg:rect", { x: x - left, y: 0, width, height }), svgTitle(`Nobody worked for ${duration(seconds)}`));
	});
	const visibleRows = rows.slice(first, last);
	const bodies = visibleRows.map((row, index) => rowGroup(row, tops[first + index + 1] - tops[first], scale, now));
	const description = visibleRows.map((row) => row.summary).filter(Boolean).slice(0, 30).join("; ") || "Nothing has happened yet";
	const props = { width: seen, height: Math.max(height, 4), role: "img", "aria-label": description, style: { "margin-top": `${tops[first]}px` } };
	return h("svg:svg", props, patterns("tl"), folds, ticks, bodies, marks.map(({ type, ts }) => line(`moment-line.${type}`, at(ts))));
}

const BAD = ["failed", "cut"];

function rowGroup({ type: rowType, bars, ends }, bottom, { at, seen }, now) {
	const middle = bottom - ROW_HEIGHTS[rowType] / 2;
	const isPhase = rowType === "phase";
	const segments = bars.map(({ type, since, until, look, summary: label }) => {
		const [start, end] = [at(since), at(until ?? now)];
		if (end < -2 || start > seen + 2) return null;
		const x = Math.max(-4, start);
		const thick = isPhase ? 16 : type === "model" ? 12 : 8;
		const looks = isPhase ? (BAD.includes(look) ? "failed" : "") : `by-${look}`;
		const box = { x, y: middle - thick / 2, width: Math.max(isPhase ? 2 : 1.5, Math.min(seen + 4, end) - x), height: thick, class: `${until === null ? "live" : ""} ${looks}` };
		return segment(type, "tl", box, svgTitle(`${label}: ${duration((until ?? now) - since)}`));
	});
	const line = h("svg:line.row-line", { x1: 0, x2: seen, y1: bottom, y2: bottom });
	return h("svg:g", line, segments, ends.map(({ ts, type }) => at(ts) <= seen && svgText(`end-mark ${type}`, at(ts) + 3, middle + 4, MARKS[type] ?? "✕")));
}

const segment = (type, id, box, title) =>
	h(`svg:rect.seg.${type}`, { rx: 2, ...box, fill: PATTERNS.some(([name]) => name === type) ? `url(#${id}-${type})` : null }, title);

// name, tone, size, turn, the ink on it
const PATTERNS = [
	["queued", "idle", 4, 0, "circle", { cx: 1.5, cy: 1.5, r: 0.9 }],
	["waiting", "waiting", 7, 45, "rect", { width: 2.5, height: 7 }],
	["down", "bad", 5, -45, "rect", { width: 1.5, height: 5 }],
];

function patterns(id) {
	const pattern = ([name, tone, size, turn, ink, props]) => {
		const box = { width: size, height: size };
		const all = { id: `${id}-${name}`, ...box, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` };
		return h(`svg:pattern.pattern.tone-${tone}`, all, h("svg:rect.ground", box), h(`svg:${ink}.ink`, props));
	};
	return h("svg:defs", PATTERNS.map(pattern));
}

// Its file is loaded soon after the page.
function callDetail(row, view, took, closeButton) {
	const place = h("div.stack.tight", loading());
	import("./call-detail.js").then(({ stepDetail }) => fill(place, stepDetail(row, view, took, closeButton)), (error) => fill(place, problemNote(error)));
	return place;
}

function phaseDetail({ key, title, status, facts: phaseFacts, error, hint, tries, artifact }, view, closeButton) {
	const envelope = view.event(tries.at(-1)?.seq)?.payload?.result?.envelope;
	const forkButton = button("Fork from here…", () => fork(view, key), { why: view.run.refusals.fork });
	const attempt = (each) => h("li", facts(mark(each.tone, each.text), each.calls, each.took, each.error && h("span.bad-text.foreign", each.error)));
	return [
		h("div.page-head", h("div", h("h2.foreign", title), facts(mark(status.tone, status.word, { shapeName: status.shape }), phaseFacts)), h("div.buttons", forkButton, closeButton)),
		error && h("div.note.tone-bad", h("strong.foreign", error), h("div", hint, " ", findingsLink(view, key))),
		tries.length > 0 && h("ul.stack.tight", tries.map(attempt)),
		artifact && h("p", "Handed in ", h("a", { href: view.url(`/artifacts?phase=${encodeURIComponent(key)}`) }, artifact), "."),
		envelope && h("details", h("summary", "What the agent was asked"), h("div.fold", markdown(envelope))),
	];
}
