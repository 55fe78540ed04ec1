import { clock, count, duration, exact, firstLine, plural } from "../../format.js";
import { fill, h, reconcile, refill } from "../../h.js";
import { Activity, brief } from "../../model/activity.js";
import { copyButton, longText, markdown, raw } from "../../parts/text.js";
import { button, empty, facts, loading, mark, searchBox, shape } from "../../parts/ui.js";
import { messageComposer } from "./composer.js";
import { WindowedRows } from "../../parts/windowed.js";
import { setQuery } from "../../router.js";

const INITIAL_COUNT = 200;
const MORE = 1000;
const TONES = { open: "busy", done: "good", failed: "bad" };

// What frames each turn of a conversation says nothing to whoever talks; the events have it.
const FRAME = ["phase", "run.created", "run.started", "run.paused", "phase.completed"];

const followBox = (onchange) => h("input", { type: "checkbox", onchange });
const followLabel = (box) => h("label.toggle", box, " Follow what is new");

export function activity(panel, view) {
	view.activity ??= foldEvents(view.events);
	const nodes = new Map(); // id → { version, node }
	const list = h("ol.activity");
	const earlier = h("div.buttons");
	const jump = () => list.lastElementChild?.scrollIntoView({ block: "end" });
	const box = followBox(() => box.checked && jump());
	let visibleCount = INITIAL_COUNT;
	let entrySeq = Number(view.query.get("entry")) || 0;
	let isPlaced = false;
	const isTalk = view.run.workflow === "conversation";
	const composer = messageComposer(view);
	panel.append(h("div.panel-bar", earlier, h("div.buttons", followLabel(box), button("Jump to the latest", jump, { kind: "tiny" }), historyLink(view))), list);
	// In a conversation one decides where one reads, between what was said and what one says next.
	if (isTalk) panel.append(view.approvals);
	panel.append(composer.element);

	function update() {
		const entries = view.activity.entries.filter(({ type, kind }) => !isTalk || !FRAME.includes(kind ?? type));
		composer.update();
		if (!entries.length) return fill(list, h("li", loading("Waiting for the first events…")));
		const at = entrySeq ? entries.findIndex(({ seq }) => seq === entrySeq) : -1;
		if (at >= 0) visibleCount = Math.max(visibleCount, entries.length - at);
		const from = Math.max(0, entries.length - visibleCount);
		reconcile(list, entries.slice(from).map(nodeOf));
		refill(earlier, () => "earlier", from > 0 && button(`Show ${count(Math.min(from, MORE))} earlier of ${count(from)}`, () => ((visibleCount += MORE), update()), { kind: "tiny" }));
		composer.update();
		if (at >= 0 && !isPlaced) point(nodes.get(entrySeq).node);
		else if (box.checked) jump();
	}

	// A link to one entry: it is open, in view, and marked.
	function point(node) {
		isPlaced = view.events.length >= view.run.seq; // until then more comes, and moves it
		list.querySelector(".pointed")?.classList.remove("pointed");
		node.classList.add("pointed");
		for (const details of node.querySelectorAll("details.tool")) details.open = true;
		node.scrollIntoView({ block: "center" });
	}

	function nodeOf(entry) {
		const { id, version, type, seq, ts } = entry;
		const known = nodes.get(id);
		if (known?.version === version) return known.node;
		const isOpen = known?.node.querySelector("details")?.open;
		const at = h("a.at.num.small", { href: view.url(`/events?seq=${seq}`), title: exact(ts) }, clock(ts, true));
		const node = known?.node ?? h(`li.entry.e-${type}`, { id: `e-${seq}` });
		const address = () => `${location.origin}${view.url(`/activity?entry=${seq}`)}`;
		refill(node, nameInEntry, DRAW[type]({ ...entry, address }, isOpen), at);
		nodes.set(id, { version, node });
		return node;
	}

	update();
	const query = (next) => {
		entrySeq = Number(next.get("entry")) || 0;
		isPlaced = false;
		update();
	};
	return { update, query, follow: () => box.click(), leave: () => view.tabs.before(view.approvals) };
}

// What a summary says changes while its call goes on.
const nameInEntry = (element) => (element.localName === "summary" ? "summary" : element.textContent);

function foldEvents(events) {
	const folded = new Activity();
	for (const event of events) folded.add(event);
	return folded;
}

const historyLink = (view) => h("a.button.tiny", { href: view.api("/history"), download: `${view.run.run_id}.jsonl`, title: "All events as JSON lines" }, "Download history");

const folded = (label, text) => lazy(h("details", h("summary.soft.small", label)), () => markdown(text));

const DRAW = {
	phase: ({ phase, attempt, text }) => h("div", h("h3", `Phase “${phase}”`, attempt > 1 && `, attempt ${attempt}`), text && folded("What the agent was asked", text)),
	message({ text, state, address }) {
		const isDone = state !== "open";
		if (text) return h("div.said", markdown(text), isDone ? h("div.entry-actions", copyButton("Copy", () => text), copyButton("Copy link", address)) : h("span.caret", { "aria-hidden": "true" }));
		return h("div.said", h("p.soft", state === "open" ? mark("busy", "The model is thinking…") : "(no text; see its calls)"));
	},
	person: ({ text, by, phase, isRead, images }) =>
		h("div.person", h("p.small.soft", h("span.foreign", by || "Somebody"), phase && [` to “${phase}”`, isRead ? ", read" : ", not read yet"]), markdown(text), images.map((name) => h("p.small.soft.foreign", `with ${name}`))),
	thought: ({ text }) => folded("What the model thought", text),
	note: ({ tone, text }) => h(`p.mark.tone-${tone}`, shape(tone), h("span.foreign", text)),
	tool({ state, name, args, output, outcome, took, address }, isOpen) {
		const tone = TONES[state] ?? "idle";
		const lines = output ? output.split("\n", 10_000).length : 0;
		const size = [lines > 1 && plural(lines, "line"), (took ?? null) !== null && duration(took)].filter(Boolean).join(" · ");
		const head = h("summary", h(`span.mark.tone-${tone}`, { title: outcome || state }, shape(tone), h("span.unseen", outcome || state)), h("code", name), h("span.soft.foreign.clip", brief(args)), outcome && h("span.bad-text.small.nowrap", outcome), h("span.soft.small.num.nowrap", size));
		const title = (text, ...buttons) => h("div.part-head", h("h4.small.soft", text), h("span.buttons", buttons));
		const answer = () => (state === "open" ? h("p.soft", "Not there yet.") : longText(output || "(nothing)", { isNumbered: Boolean(output) }));
		const answerTitle = outcome === "failed" ? "Error" : outcome === "denied" ? "Why it was denied" : "Output";
		return lazy(h("details.tool", { open: isOpen }, head), () => [
			title("Arguments", copyButton("Copy", () => JSON.stringify(args ?? {}, null, 2)), copyButton("Copy link", address)),
			raw(args ?? {}),
			title(answerTitle, output && copyButton("Copy output", () => output)),
			answer(),
		]);
	},
};

// What stands inside a fold is made when it is opened first.
function lazy(details, make) {
	const place = h("div.fold");
	const draw = () => place.childElementCount || fill(place, make());
	details.append(place);
	if (details.open) draw();
	else details.addEventListener("toggle", draw, { once: true });
	return details;
}

export function events(panel, view) {
	const hint = { placeholder: "Filter by kind, lane or content" };
	const filter = searchBox("Filter events", { ...hint, value: view.query.get("filter") ?? "", oninput: () => setQuery({ filter: filter.value }) });
	const box = followBox(() => box.checked && rows.scrollToEnd());
	const summary = h("span.soft.small", { role: "status" });
	const body = h("tbody");
	const head = h("thead", h("tr", ["No.", "Time", "Kind", "Lane", "Content"].map((name) => h("th", { scope: "col" }, name))));
	const scroller = h("div.events-frame", { tabindex: "0", role: "region", "aria-label": "Events" }, h("table.table.events", head, body));
	const detail = h("div.event-detail");
	panel.append(h("div.panel-bar", filter, h("div.buttons", summary, followLabel(box), historyLink(view))), h("div.card", scroller), detail);
	let visibleEvents = view.events;
	let chosen = Number(view.query.get("seq")) || 0;
	let isPlaced = false;
	const rows = new WindowedRows(body, {
		scroller,
		columns: 5,
		signal: view.signal,
		keyOf: (index) => visibleEvents[index].seq,
		stampOf: (index) => visibleEvents[index].seq === chosen,
		draw: (index) => row(visibleEvents[index]),
	});

	function row(event) {
		const { seq, ts, kind, lane_id: lane } = event;
		const query = new URLSearchParams({ ...(filter.value && { filter: filter.value }), seq });
		return h(
			"tr",
			{ class: `${seq === chosen ? "selected " : ""}${/\.(?:error|failed|unknown)$/.test(kind) ? "bad-row" : ""}` },
			h("td.num", h("a.row-link", { href: view.url(`/events?${query}`) }, seq)),
			h("td.num.soft", { title: exact(ts) }, clock(ts, true)),
			h("td", h("code.foreign", kind)),
			h("td.soft", h("div.clip.foreign", lane)),
			h("td.soft", h("div.clip.foreign.mono", briefEvent(event))),
		);
	}

	function update() {
		const filterText = filter.value.trim().toLowerCase();
		const all = plural(view.events.length, "event");
		visibleEvents = filterText ? view.events.filter((event) => fits(event, filterText)) : view.events;
		fill(summary, filterText ? `${count(visibleEvents.length)} of ${all}` : all);
		rows.update(visibleEvents.length);
		if (box.checked) rows.scrollToEnd();
		if (filterText && !visibleEvents.length) fill(detail, empty("No event fits", "Take the filter away to see all of them."));
		else if (!isPlaced) place();
	}

	function place() {
		const index = visibleEvents.findIndex((event) => event.seq === chosen);
		if (chosen && index === -1) return;
		isPlaced = true;
		if (index >= 0) rows.show(index)?.scrollIntoView({ block: "center" });
		fill(detail, index >= 0 && detailOf(visibleEvents[index]));
	}

	update();
	return {
		update,
		query(query) {
			chosen = Number(query.get("seq")) || 0;
			if (document.activeElement !== filter) filter.value = query.get("filter") ?? "";
			isPlaced = false;
			update();
			if (chosen) detail.scrollIntoView({ block: "nearest" });
		},
		follow: () => box.click(),
	};
}

const detailOf = ({ seq, kind, ts, lane_id: lane, span_id: span, payload }) =>
	h(
		"section.card.padded",
		{ "aria-label": `Event ${seq}` },
		h("div.part-head", h("h2", `${seq} `, h("code.foreign", kind)), h("span.buttons", copyButton("Copy", () => JSON.stringify(payload ?? {}, null, 2)), copyButton("Copy link", () => location.href))),
		facts(exact(ts), h("span.foreign", lane), h("span.mono", span)),
		raw(payload ?? {}, { lines: 60, chars: 12_000 }),
	);

const fits = ({ kind, lane_id: lane, payload }, filterText) => kind.includes(filterText) || `${lane} ${JSON.stringify(payload ?? {})}`.toLowerCase().includes(filterText);

function briefEvent({ payload }) {
	const { key, phase, tool, model, message, text, error, action, reason } = payload ?? {};
	const parts = [tool ?? model, key ?? phase, action ?? reason, error?.message ?? error, message, text].filter((each) => each && typeof each === "string");
	return firstLine(parts.join(" · ") || JSON.stringify(payload ?? {}).slice(0, 300), 200);
}
