import { flowUrl, getJson, loadSession, runUrl, send, session, withQuery } from "../api.js";
import { count, duration, firstLine, toMs, toStatus } from "../format.js";
import { fill, h } from "../h.js";
import { isTurn, listen, Throttle } from "../live.js";
import { describeCall, describeNote, OVER, toStepRow, toText } from "../model/flow.js";
import { copyButton, longText } from "../parts/text.js";
import { ask, button, chip, chips, empty, field, leadOn, liveContent, mark, pageHead, pairs, say, section, shape, statusMark, table, time } from "../parts/ui.js";
import { setQuery } from "../router.js";
import { follow } from "../stream.js";
import { approvalCard } from "./run/approval.js";

const LOOK_EVERY_MS = 60_000; // a flow that begins to wait writes nothing that the stream of all runs tells
const MOST = 200;
const STATES = ["running", "paused", "failed", "pending", "completed", "cancelled"];

export const title = "Flows";

export const render = (main, context) => (context.params.runId ? renderRun : renderList)(main, context);

function renderList(main, { query, signal, setKeys }) {
	const filters = Object.fromEntries(["state", "flow", "tag"].map((name) => [name, query.get(name)]));
	const load = () => getJson(withQuery("/api/flows", { ...filters, limit: MOST }), signal);
	const { element, refresh } = liveContent({ signal, load, draw: ({ items }) => drawList(items, filters) });
	main.append(pageHead(title), filterChips(filters), element);
	setKeys({ j: ["Next flow", () => moveFocus(element, 1)], k: ["Previous flow", () => moveFocus(element, -1)] });
	refresh(); // not waited for: the page has the focus at once, and does not take it from a filter later
	return { leave: followAll(signal, refresh) };
}

function followAll(signal, refresh) {
	const refreshing = new Throttle(refresh);
	const look = () => refreshing.call(300, 4000);
	listen({ signal, onEvents: (events) => events.some(isTurn) && look(), onJoined: look });
	const timer = setInterval(() => document.hidden || look(), LOOK_EVERY_MS);
	return () => (clearInterval(timer), refreshing.stop());
}

function moveFocus(place, by) {
	const links = [...place.querySelectorAll("tbody tr td:first-child a")];
	links[Math.min(links.length - 1, Math.max(0, links.indexOf(document.activeElement) + by))]?.focus();
}

function filterChips({ state: chosen, flow, tag }) {
	const one = (state) => {
		const { shape: shapeName, word, tone } = toStatus(state);
		const made = chip([shape(shapeName), word], chosen === state, () => setQuery({ state: chosen === state ? "" : state }));
		made.classList.add(`tone-${tone}`);
		return made;
	};
	const active = Object.entries({ flow, tag }).filter(([, value]) => value);
	const away = ([name, value]) => h("button.chip", { type: "button", "aria-label": `Take away: ${name} ${value}`, onclick: () => setQuery({ [name]: "" }) }, h("span.clip.foreign", `${name} ${value}`), " ✕");
	return h("div.filters", chips("Filter by state", chip("All", !chosen, () => setQuery({ state: "" })), STATES.map(one)), active.length > 0 && chips("Filters that hold", active.map(away)));
}

async function renderRun(main, { params: { runId }, signal, setTitle, setKeys }) {
	const head = pageHead("Flow");
	const cards = new Map(); // by the approval's id: what somebody writes in one stays
	const view = { signal, notice: ({ message }) => say(message), leadOn: () => leadOn(element.querySelector(".approval h2") ?? head.firstChild) };
	const draw = (run) => {
		view.run = run;
		const name = run.flow || "Flow";
		if (head.textContent !== name) fill(head, h("h1.foreign", { tabindex: "-1" }, name));
		setTitle(`${name} · ${run.run_id}`);
		return drawRun(view, cards);
	};
	const { element, refresh } = liveContent({ signal, load: () => getJson(`/api${runUrl(runId)}`, signal), draw });
	view.refresh = refresh;
	const crumbs = h("nav.crumbs.small", { "aria-label": "Where you are" }, h("a", { href: "/flows" }, title), " › ", h("span.soft.mono.foreign", runId));
	main.append(crumbs, head, element);
	setKeys({ a: ["Go to the decision", () => element.querySelector(".approval :is(textarea, button)")?.focus()] });
	if (!session.isKnown) await loadSession();
	await refresh();
	return { leave: followRun(runId, () => view.run?.seq, refresh) };
}

// By its own stream, while the page is seen: a browser allows few connections, and the stream of all runs has no steps.
function followRun(runId, getSeq, refresh) {
	const refreshing = new Throttle(refresh);
	let stream = new AbortController();
	const start = () => {
		stream.abort();
		if (document.hidden) return;
		stream = new AbortController();
		const { signal } = stream;
		const hear = (messages) => {
			if (signal.aborted) return;
			if (messages.some(({ event }) => event === "done")) stream.abort();
			if (messages.some(({ id }) => Number(id) > getSeq())) refreshing.call(100, 1000);
		};
		const ignore = () => {};
		follow(`/api${runUrl(runId)}/events`, { lastId: String(getSeq() ?? ""), signal, onOpen: ignore, onMessages: hear, onLost: ignore, onRefused: () => stream.abort() });
	};
	document.addEventListener("visibilitychange", start);
	start();
	return () => {
		document.removeEventListener("visibilitychange", start);
		stream.abort();
		refreshing.stop();
	};
}

// It is under way, and nobody works on it: it sleeps, waits for another flow, or its process is gone.
const isLeft = ({ state, is_driven: isDriven }) => state === "running" && !isDriven;
const sentence = (text) => text[0].toUpperCase() + text.slice(1);

function drawList(runs, filters) {
	if (!runs.length && Object.values(filters).some(Boolean)) return empty("No flow fits", "There may be runs, but none like this.", h("a.button", { href: "/flows" }, "Show all flows"));
	if (!runs.length) return empty("No flows yet", "Runs of durable Python functions in this server's store are listed here.");
	const row = (run) => [
		h("a.foreign", { href: flowUrl(run.run_id) }, run.flow || "a flow"),
		isLeft(run) ? mark("waiting", sentence(run.now)) : h("span", statusMark(run.state, run.waits_for && "approval"), " ", h(`span.foreign${run.state === "failed" ? ".bad-text" : ".soft"}`, run.now)),
		h("span", drawTags(run.tags)),
		h("code.clip.foreign", run.run_id),
		time(run.created_at),
		time(run.updated_at),
	];
	const more = h("p.small.soft", runs.length === MOST && `The newest ${count(MOST)}. `, "The ", h("a", { href: withQuery("/", { ...filters, kind: "flow" }) }, "list of runs"), " has all, with a search, and acts on several at once.");
	return [table(["Flow", "Status", "Tags", "Run", "Started", "Changed"], runs.map(row)), more];
}

function drawRun(view, cards) {
	const { run } = view;
	const { tone, text } = run.telling;
	const pending = run.approvals.filter(({ state }) => state === "pending");
	const abort = !OVER.has(run.state) && button("Cancel the run…", () => askToCancel(view), { kind: "bad", why: run.refusals.abort });
	const again = run.state === "failed" && !run.parent_run_id ? "retry" : run.pause_reason === "crashing" && "resume";
	const retry = again && button("Run it again…", () => runAgain(view, again), { kind: "main", why: run.refusals[again] });
	const card = (approval) => {
		const key = `${approval.approval_id} ${approval.digest}`;
		// To cancel is offered at the head, where it happens at once.
		const causes = approval.causes.filter(({ action }) => action !== "abort");
		if (!cards.has(key)) cards.set(key, approvalCard({ ...approval, causes }, view));
		return cards.get(key);
	};
	return [
		h("div.page-head", h("p.verdict", mark(tone, h("span.foreign", text))), retry, abort),
		pending.map(card),
		run.state === "completed" && section("Result", longText(toText(run.result), { lines: 24 })),
		drawFacts(run),
		section("Timeline", run.steps.length ? drawSteps(run) : h("p.soft", "Nothing is recorded yet.")),
		run.notes.length > 0 && section("Log", table(["When", "What"], run.notes.map((note) => [time(note.written_at), h("span.foreign", describeNote(note))]))),
	];
}

// Each leads to the flows that have it too.
function drawTags(tags) {
	const texts = Object.entries(tags).map(([name, value]) => `${name}=${value}`);
	return texts.map((text) => [h("a.tag.foreign", { href: withQuery("/flows", { tag: text }) }, text), " "]);
}

function drawFacts(run) {
	const took = run.created_at && duration(((toMs(run.ended_at) ?? Date.now()) - toMs(run.created_at)) / 1000);
	const rows = [
		["Call", longText(describeCall(run), { lines: 8, className: "call" })],
		["Run", [h("code.foreign", run.run_id), " ", copyButton("Copy id", () => run.run_id)]],
		run.parent_run_id && ["Started by", h("a.foreign", { href: flowUrl(run.parent_run_id) }, run.parent_run_id)],
		run.status_text && ["Says", h("span.foreign", run.status_text)],
		Object.keys(run.tags).length > 0 && ["Tags", drawTags(run.tags)],
		["Started", time(run.created_at, { focusable: true })],
		run.ended_at && ["Ended", time(run.ended_at, { focusable: true })],
		took && [run.ended_at ? "Took" : "So far", took],
		run.due_at && ["Next look", time(run.due_at)],
		["History", h("a", { href: `/api${runUrl(run.run_id)}/history`, download: `${run.run_id}.jsonl` }, "Download the events")],
	];
	return h("div.card.padded", pairs(rows.filter(Boolean)));
}

function drawSteps(run) {
	const row = ({ key, childRunId, depth, type, tone, state, span, value, attempts, nextAt, startedAt, took }) => [
		h("span.foreign", { style: { "padding-left": `${depth}em` } }, childRunId ? h("a", { href: flowUrl(childRunId) }, key) : key),
		type,
		h("span", mark(tone, state), attempts > 1 && h("span.soft", ` (attempt ${attempts})`), nextAt && [" ", time(nextAt)]),
		value && (value.length > 80 ? h("details", h("summary.foreign", firstLine(value.replace(/\s+/g, " "), 80)), longText(value, { lines: 24 })) : h("code.foreign", value)),
		h("span.step-span", { "aria-hidden": "true" }, h(`i.tone-${tone}`, { style: { left: `${span.left}%`, width: `${span.width}%` } })),
		time(startedAt),
		took,
	];
	return table(["Step", "Kind", "Status", "Value", "When", "Started", ">Took"], run.steps.map((step) => toStepRow(step, run)).map(row));
}

function runAgain({ run, refresh }, verb) {
	const act = () => send("POST", `/api${runUrl(run.run_id)}/${verb}`);
	return ask({ title: "Run it again?", body: "It goes on where it stopped. What was recorded before is not called again.", label: "Run it again", cancel: "Go back", act }).then(refresh);
}

function askToCancel({ run, refresh }) {
	const act = (form) => send("POST", `/api${runUrl(run.run_id)}/abort`, { reason: form.get("reason") });
	return ask({ title: "Cancel this run?", body: field("Reason", h("textarea", { name: "reason", rows: 2 })), label: "Cancel the run", kind: "bad main", cancel: "Go back", act }).then(refresh);
}
