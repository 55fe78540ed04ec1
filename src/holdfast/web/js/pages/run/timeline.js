import { withQuery } from "../../api.js";
import { duration, exact } from "../../format.js";
import { fill, h } from "../../h.js";
import { outputOf } from "../../model/activity.js";
import { axisTicks, foldedScale, foldLabels, spread } from "../../model/timescale.js";
import { longText, markdown, raw } from "../../parts/text.js";
import { button, facts, mark, shape } from "../../parts/ui.js";
import { setQuery } from "../../router.js";
import { fork } from "./actions.js";

const TOP = 26;
const HEIGHTS = { phase: 34, step: 24, rest: 24 };
const MARKS = { crash: "✕", failed: "✕", aborted: "■", changes: "↺", resumed: "▶", retried: "↻", paused: "Ⅱ", unknown: "?" };
const LEGEND = { queued: "Queued", working: "Working", waiting: "Waiting for a person", down: "Down after a crash" };

export function timeline(panel, view) {
	const opened = new Set(view.query.get("open")?.split(",").filter(Boolean));
	const labels = h("div.tl-labels");
	const drawing = h("div.tl-drawing", { tabindex: "0", role: "region", "aria-label": "Drawing of the timeline; it scrolls sideways" });
	const detail = h("div.tl-detail");
	let known = { rows: [], marks: [], busy: [], since: null, until: null };
	let [zoom, asked] = [1, ""];
	let chosen = view.query.get("row") ?? view.run.phases.find((phase) => phase.state === "failed")?.key ?? null;
	const foldBox = h("input", { type: "checkbox", checked: true, onchange: () => draw() });
	const zoomBy = (factor) => () => {
		zoom = Math.min(64, Math.max(1, zoom * factor));
		draw();
	};
	const zooms = { "-": ["Zoom out", zoomBy(0.5)], "+": ["Zoom in", zoomBy(2)] };
	const zoomButton = ([sign, [label, act]]) => button(sign.replace("-", "−"), act, { kind: "tiny", "aria-label": label });
	const sample = (type) => h("svg:svg", { width: 22, height: 10, "aria-hidden": "true" }, patterns("legend"), segment(type, "legend", { width: 22, height: 10 }));
	panel.append(
		h(
			"div.panel-bar",
			h("ul.legend.small", Object.entries(LEGEND).map(([type, word]) => h("li", sample(type), word))),
			h("div.buttons", h("label.toggle.small", foldBox, " Fold idle time"), Object.entries(zooms).map(zoomButton)),
		),
		h("div.card.timeline", labels, drawing),
		detail,
	);
	view.setKeys(zooms);
	const ticking = setInterval(() => !view.isOver && !document.hidden && draw(), 1000);
	addEventListener("resize", () => draw(), { signal: view.signal });

	// The server is asked when something has happened; between, the bars only grow.
	async function update() {
		const open = [...opened].join(",");
		const stamp = `${view.run.seq} ${open}`;
		if (stamp === asked) return;
		asked = stamp;
		try {
			const answer = await view.get(withQuery("/timeline", { open }));
			if (stamp !== asked) return;
			known = answer;
			draw();
		} catch {
			asked = ""; // what is drawn stays
		}
	}

	function draw() {
		const { rows, marks, busy, since, until } = known;
		const clockNow = Date.now() / 1000;
		const now = view.isOver ? (until ?? clockNow) : Math.max(clockNow, until ?? 0);
		drawLabels(rows, now);
		const width = Math.max(200, (drawing.clientWidth || 600) - 16) * zoom;
		const from = since ?? now - 1;
		fill(drawing, chart(rows, foldedScale({ from, to: Math.max(now, from + 0.5), busy, width, isFolding: foldBox.checked }), marks, now));
		if (chosen) drawDetail(rows.find((row) => row.key === chosen), now);
	}

	function drawLabels(rows, now) {
		const tooks = rows.map((row) => tookOf(row, now));
		const stamp = JSON.stringify([tooks, rows.map((row) => [row.key, row.status, row.is_open, row.attempts, row.key === chosen])]);
		if (stamp === labels.dataset.stamp) return;
		labels.dataset.stamp = stamp;
		const focused = labels.contains(document.activeElement) && document.activeElement.dataset.key;
		fill(labels, h("div.tl-head"), rows.map((row, index) => label(row, tooks[index])));
		if (focused) labels.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
	}

	function label(row, took) {
		const { type, key, status, is_open: isOpen } = row;
		if (type === "rest") return h("div.tl-label.step.soft", row.label);
		const isPhase = type === "phase";
		const open = h(
			`button.tl-label.${type}`,
			{ type: "button", dataset: { key }, "aria-pressed": String(key === chosen), title: row.told, onclick: () => choose(key) },
			isPhase && h(`span.mark.tone-${status.tone}`, shape(status.shape), h("span.unseen", status.word)),
			h("span.name.clip.foreign", row.label, !isPhase && [" ", h("span.soft", row.brief)]),
			row.attempts > 1 && h("span.tag", `×${row.attempts}`),
			h("span.soft.num.nowrap", took || status.word.toLowerCase()),
		);
		if (!isPhase) return open;
		const props = { type: "button", "aria-expanded": String(isOpen), "aria-label": `Steps of ${key}`, onclick: () => toggle(key) };
		return h("div.tl-phase", row.has_steps ? h("button.tl-toggle", props, isOpen ? "▾" : "▸") : h("span.tl-toggle"), open);
	}

	function toggle(key) {
		if (!opened.delete(key)) opened.add(key);
		setQuery({ open: [...opened].join(",") });
		update();
	}

	function choose(key) {
		chosen = chosen === key ? null : key;
		setQuery({ row: chosen });
		fill(detail);
		detail.dataset.stamp = "";
		draw();
		detail.scrollIntoView({ block: "nearest" });
	}

	function drawDetail(row, now) {
		const stamp = row ? JSON.stringify([row.key, row.status, row.tries, row.facts, row.end_seq]) : "";
		if (stamp === detail.dataset.stamp) return;
		detail.dataset.stamp = stamp;
		const props = { "aria-label": `Details of ${row?.label}` };
		fill(detail, row && h("section.card.padded.stack.tight", props, row.type === "step" ? stepDetail(row, view, now) : phaseDetail(row, view)));
	}

	draw();
	update();
	return { update, leave: () => clearInterval(ticking) };
}

const tookOf = ({ seconds, live_since: live }, now) => (seconds === null ? "" : duration(seconds + (live === null ? 0 : Math.max(0, now - live))));

const svgTitle = (text) => h("svg:title", text);
const svgText = (kind, x, y, text) => h("svg:text", { class: kind, x, y }, text);

function chart(rows, scale, marks, now) {
	let y = TOP;
	const bodies = rows.map((row) => {
		y += HEIGHTS[row.type];
		return rowGroup(row, y, scale, now);
	});
	const height = y + 4;
	const ticks = axisTicks(scale).map(({ x, label }) => [h("svg:line.grid", { x1: x, x2: x, y1: TOP - 4, y2: height }), svgText("tick", x + 3, 14, label)]);
	const folds = scale.folds.map(({ x, width, seconds }) => {
		const box = h("svg:rect", { x, y: TOP - 6, width, height: height - TOP + 6 });
		return h("svg:g.fold-mark", box, svgTitle(`Nobody worked for ${duration(seconds)}`));
	});
	const foldNames = foldLabels(scale).map(({ x, label }) => svgText("tick mid", x, 14, label));
	const signs = spread(marks.map(({ ts }) => scale.toX(ts)), scale);
	const moment = ({ type, ts, text }, index) => {
		const x = scale.toX(ts);
		const line = h("svg:line", { x1: x, x2: x, y1: TOP - 4, y2: height });
		return h(`svg:g.moment.${type}`, line, svgText("mid", signs[index], TOP - 1, MARKS[type] ?? "•"), svgTitle(`${text}, ${exact(ts)}`));
	};
	const told = rows.map((row) => row.told).filter(Boolean).slice(0, 30).join("; ") || "Nothing has happened yet";
	return h("svg:svg", { width: scale.width, height, role: "img", "aria-label": told }, patterns("tl"), folds, foldNames, ticks, bodies, marks.map(moment));
}

function rowGroup({ type: rowType, bars, ends }, bottom, scale, now) {
	const middle = bottom - HEIGHTS[rowType] / 2;
	const [thick, least] = rowType === "phase" ? [16, 2] : [10, 1.5];
	const segments = bars.map(({ type, since, until, look, told }) => {
		const x = scale.toX(since);
		const looks = `${until === null ? "live" : ""} ${look === "failed" || look === "cut" ? "failed" : ""}`;
		const box = { x, y: middle - thick / 2, width: Math.max(least, scale.toX(until ?? now) - x), height: thick, class: looks };
		return segment(type, "tl", box, svgTitle(`${told}: ${duration((until ?? now) - since)}`));
	});
	const line = h("svg:line.row-line", { x1: 0, x2: scale.width, y1: bottom, y2: bottom });
	return h("svg:g", line, segments, ends.map(({ ts, type }) => svgText(`end-mark ${type}`, scale.toX(ts) + 3, middle + 4, MARKS[type] ?? "✕")));
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

function phaseDetail({ key, title, status, facts: told, error, hint, tries, artifact }, view) {
	const envelope = view.event(tries.at(-1)?.seq)?.payload?.result?.envelope;
	const forkButton = button("Fork from here…", () => fork(view, key), { why: view.run.refusals.fork });
	const attempt = (each) => h("li", facts(mark(each.tone, each.text), each.calls, each.took, each.error && h("span.bad-text.foreign", each.error)));
	return [
		h("div.page-head", h("div", h("h2.foreign", title), facts(mark(status.tone, status.word, { shapeName: status.shape }), told)), h("div.buttons", forkButton)),
		error && h("div.note.tone-bad", h("strong.foreign", error), hint && h("div", hint)),
		tries.length > 0 && h("ul.stack.tight", tries.map(attempt)),
		artifact && h("p", "Handed in ", h("a", { href: view.url(`/artifacts?phase=${encodeURIComponent(key)}`) }, artifact), "."),
		envelope && h("details", h("summary", "What the agent was asked"), h("div.fold", markdown(envelope))),
	];
}

function stepDetail(row, view, now) {
	const { start_seq: start, end_seq: end, status, error } = row;
	const link = (seq) => h("a", { href: view.url(`/events?seq=${seq}`) }, `event ${seq}`);
	const [{ args } = {}, { args: finalArgs, result } = {}] = [start, end].map((seq) => view.event(seq)?.payload);
	const input = finalArgs ?? args;
	return [
		h("h2.foreign", h("code", row.label)),
		facts(mark(status.tone, status.word), tookOf(row, now), row.facts, link(start), end && end !== start && link(end)),
		input !== undefined && [h("h3", "Input"), raw(input)],
		error && h("div.note.tone-bad.foreign", error),
		result !== undefined && [h("h3", "Output"), longText(outputOf(result) || "(nothing)")],
	];
}
