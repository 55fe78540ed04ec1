import { clock, count, duration, exact, firstLine, plural } from "../../format.js";
import { fill, h, reconcile, refill } from "../../h.js";
import { Activity, brief } from "../../model/activity.js";
import { copyButton, longText, markdown, raw } from "../../parts/text.js";
import { button, empty, facts, keepInView, loading, mark, searchBox, shape } from "../../parts/ui.js";
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
	const isTalk = view.run.workflow === "conversation";
	const isVisible = ({ type, kind, isSilent, failures }) => (!isSilent || failures) && !(isTalk && FRAME.includes(kind ?? type));
	const all = entryList("ol.activity", () => view.activity.entries.filter(isVisible), view);
	const jump = () => all.list.lastElementChild?.scrollIntoView({ block: "end" });
	const box = followBox(() => box.checked && jump());
	let entrySeq = Number(view.query.get("entry")) || 0;
	let isPlaced = false;
	const composer = messageComposer(view);
	panel.append(h("div.panel-bar", all.earlier, h("div.buttons", followLabel(box), button("Jump to the latest", jump, { kind: "tiny" }), historyLink(view))), all.list);
	// In a conversation one decides where one reads, between what was said and what one says next.
	if (isTalk) panel.append(view.approvals);
	panel.append(composer.element);

	function update() {
		composer.update();
		const node = all.update(isPlaced ? 0 : entrySeq);
		if (node) point(node);
		else if (box.checked) jump();
	}

	// A link to one entry: it is open, in view, and marked.
	function point(node) {
		isPlaced = view.events.length >= view.run.seq; // until then more comes, and moves it
		all.list.querySelector(".pointed")?.classList.remove("pointed");
		node.classList.add("pointed");
		for (const details of node.querySelectorAll("details.tool")) details.open = true;
		node.scrollIntoView({ block: "center" });
	}

	update();
	if (entrySeq) keepInView(() => all.list.querySelector(".pointed"), view.signal);
	const query = (next) => {
		entrySeq = Number(next.get("entry")) || 0;
		isPlaced = false;
		update();
	};
	return { update, query, follow: () => box.click(), leave: () => view.tabs.before(view.approvals) };
}

// A list of entries, the last ones first made: `update(seq)` gives the node of the entry `seq`, if it is in the list or inside one of it.
function entryList(tag, entriesOf, view) {
	const nodes = new Map(); // id → { version, node, agent }
	const list = h(tag);
	const earlier = h("div.buttons");
	let visibleCount = INITIAL_COUNT;
	const holds = (entry, seq) => entry.seq === seq || entry.entries?.some((each) => holds(each, seq));

	function update(seq = 0) {
		const entries = entriesOf();
		if (!entries.length) return void fill(list, h("li", loading("Waiting for the first events…")));
		const at = seq ? entries.findIndex((entry) => holds(entry, seq)) : -1;
		if (at >= 0) visibleCount = Math.max(visibleCount, entries.length - at);
		const from = Math.max(0, entries.length - visibleCount);
		reconcile(list, entries.slice(from).map(nodeOf));
		refill(earlier, () => "earlier", from > 0 && button(`Show ${count(Math.min(from, MORE))} earlier of ${count(from)}`, () => ((visibleCount += MORE), update()), { kind: "tiny" }));
		if (at < 0) return null;
		const { node, agent } = nodes.get(entries[at].id);
		return agent?.show(seq) ?? node;
	}

	function nodeOf(entry) {
		const { id, version, type, seq, ts } = entry;
		const known = nodes.get(id);
		if (known?.version === version) return known.node;
		const isOpen = known?.node.querySelector("details")?.open;
		const at = () => h("a.at.num.small", { href: view.url(`/events?seq=${seq}`), title: exact(ts) }, clock(ts, true));
		const node = known?.node ?? h("li", { id: `e-${seq}` });
		node.className = `entry e-${type}`;
		let agent = known?.agent;
		if (type === "agent") {
			agent ??= agentEntry(entry, view);
			agent.update();
			if (!node.contains(agent.element)) fill(node, agent.element, at());
		} else {
			const address = () => `${location.origin}${view.url(`/activity?entry=${seq}`)}`;
			refill(node, nameInEntry, DRAW[type]({ ...entry, address }, isOpen), at());
		}
		nodes.set(id, { version, node, agent });
		return node;
	}

	return { list, earlier, update };
}

// A subagent: what it does stands inside the call that began it. It is open while it works, and folded where it is read later.
function agentEntry(entry, view) {
	const inside = entryList("ol.inside", () => entry.entries.filter(({ isSilent, failures }) => !isSilent || failures), view);
	const head = h("summary");
	const [place, request, result] = [h("div.fold"), h("div"), h("div")];
	const element = h("details.tool.agent", { open: entry.state === "open", ontoggle: () => update() }, head, place);
	let wasOpen = element.open;

	function update() {
		const { state, args, outcome, took, entries, output } = entry;
		const calls = entries.filter(({ type }) => type === "tool" || type === "agent").length;
		fill(head, toolHead({ state, name: args?.subagent_type ? `subagent ${args.subagent_type}` : entry.name || "subagent", args, tool: "task", outcome }, [plural(calls, "call"), took]));
		if (wasOpen && state !== "open" && entry.lastSeq <= view.loadedSeq) element.open = false; // it was over before one came
		wasOpen = state === "open";
		if (!element.open) return;
		if (!place.childElementCount) fill(place, request, inside.earlier, inside.list, result);
		const { description } = args ?? {};
		if (typeof description === "string" && !request.childElementCount) fill(request, folded("What it was asked", description));
		if (outcome && !result.childElementCount) fill(result, longText(output));
		inside.update();
	}

	function show(seq) {
		if (entry.seq === seq && !entry.entries.some((each) => each.seq === seq)) return null;
		wasOpen = false;
		element.open = true;
		update();
		return inside.update(seq);
	}

	return { element, update, show };
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

// The line of a call: how it went, what it is about, how much came of it and how long it took.
function toolHead({ state, name, tool = name, args, outcome }, [size, took]) {
	const tone = TONES[state] ?? "idle";
	const word = outcome || (state === "cut" ? "cut off" : state);
	const sizes = [size, (took ?? null) !== null && duration(took)].filter(Boolean).join(" · ");
	return [
		h(`span.mark.tone-${tone}`, { title: word }, shape(tone), h("span.unseen", word)),
		h("code.foreign", name),
		h("span.soft.foreign.clip", brief(tool, args)),
		outcome && h("span.bad-text.small.nowrap", outcome),
		h("span.soft.small.num.nowrap", sizes),
	];
}

const DRAW = {
	phase: ({ phase, attempt, text }) => h("div", h("h3", `Phase “${phase}”`, attempt > 1 && `, attempt ${attempt}`), text && folded("What the agent was asked", text)),
	message({ text, state, isSilent, failures, address }) {
		const failed = failures && h("p.small.soft.foreign", `${plural(failures.length, "attempt")} failed: ${[...new Set(failures)].join(" ")}`);
		if (!text) return h("div.said", failed, h("p.soft", state === "open" ? mark("busy", "The model is thinking…") : isSilent ? "Then it answered with calls." : state === "cut" ? "There was no answer." : "The model answered nothing."));
		const actions = () => h("div.entry-actions", copyButton("Copy", () => text), copyButton("Copy link", address));
		const end = state === "open" ? h("span.caret", { "aria-hidden": "true" }) : [state === "cut" && h("p.small.soft", "It was cut off here."), actions()];
		return h("div.said", failed, markdown(text), end);
	},
	person: ({ text, by, phase, isRead, images }) =>
		h("div.person", h("p.small.soft", h("span.foreign", by || "Somebody"), phase && [` to “${phase}”`, isRead ? ", read" : ", not read yet"]), markdown(text), images.map((name) => h("p.small.soft.foreign", `with ${name}`))),
	thought: ({ text }) => folded("What the model thought", text),
	note: ({ tone, text }) => h(`p.mark.tone-${tone}`, shape(tone), h("span.foreign", text)),
	tool({ state, name, args, output, outcome, took, address }, isOpen) {
		const lines = output ? output.split("\n", 10_000).length : 0;
		const head = h("summary", toolHead({ state, name, args, outcome }, [lines > 1 && plural(lines, "line"), took]));
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

	detail.addEventListener("keydown", (event) => {
		const link = event.key === "Escape" && rows.show(visibleEvents.findIndex((each) => each.seq === chosen))?.querySelector("a");
		link?.focus();
	});

	update();
	if (chosen) keepInView(() => body.querySelector(".selected"), view.signal);
	return {
		update,
		query(query) {
			chosen = Number(query.get("seq")) || 0;
			const isInside = body.contains(document.activeElement);
			if (document.activeElement !== filter) filter.value = query.get("filter") ?? "";
			isPlaced = false;
			update();
			if (chosen) detail.scrollIntoView({ block: "nearest" });
			if (isInside) detail.firstElementChild?.focus({ preventScroll: true }); // to read it; Escape leads back
		},
		follow: () => box.click(),
	};
}

const detailOf = ({ seq, kind, ts, lane_id: lane, span_id: span, payload }) =>
	h(
		"section.card.padded",
		{ "aria-label": `Event ${seq}`, tabindex: "-1" },
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
