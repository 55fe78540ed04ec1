import { flowUrl, getJson, runUrl, send, whyNot, withQuery } from "../api.js";
import { firstLine } from "../format.js";
import { h } from "../h.js";
import { Throttle } from "../live.js";
import { answersTo, describeCall, describeFailure, describeFlow, OVER, toStepRow, toText } from "../model/flow.js";
import { ask, button, empty, facts, field, liveContent, mark, note, pageHead, pairs, section, statusMark, table, time } from "../parts/ui.js";
import { follow } from "../stream.js";

const LOOK_EVERY_MS = 5000; // at the list; one run is followed

export const title = "Flows";

export async function render(main, { params: { runId }, query, signal }) {
	const filters = Object.fromEntries(["state", "flow", "tag"].map((name) => [name, query.get(name)]));
	const path = runId ? `/api${flowUrl(runId)}` : withQuery("/api/flows", { ...filters, limit: 200 });
	let seq = 0; // up to where the page knows the run
	const draw = (data) => {
		seq = data.seq;
		return runId ? drawRun(data, refresh) : drawList(data.items, query);
	};
	const { element, refresh } = liveContent({ signal, load: () => getJson(path, signal), draw });
	main.append(pageHead(runId ? "Flow" : title), element);
	await refresh();
	return { leave: runId ? followRun(runId, () => seq, refresh) : lookOften(refresh) };
}

function lookOften(refresh) {
	const timer = setInterval(() => document.hidden || refresh(), LOOK_EVERY_MS);
	return () => clearInterval(timer);
}

// By its own stream, while the page is seen: a browser allows few connections, and the stream of all runs has no flows.
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

function drawList(runs, query) {
	if (!runs.length && ["state", "flow", "tag"].some((name) => query.get(name))) return empty("No flow fits", "There may be runs, but none like this.", h("a.button", { href: "/flows" }, "Show all flows"));
	if (!runs.length) return empty("No flows yet", "Runs of durable Python functions in this server's store are listed here.");
	const row = (run) => [
		h("a.foreign", { href: flowUrl(run.run_id) }, run.flow || "a flow"),
		h("span", statusMark(run.state), " ", h("span.soft.foreign", describeFlow(run))),
		h("span", drawTags(run.tags)),
		h("code.clip", run.run_id),
		time(run.updated_at),
	];
	return table(["Flow", "Status", "Tags", "Run", "Changed"], runs.map(row));
}

function drawRun(run, refresh) {
	const abort = !OVER.has(run.state) && button("Cancel the run", () => askToCancel(run, refresh), { kind: "bad", why: whyNot("operator") });
	return [
		h("div.page-head", h("p.verdict", statusMark(run.state), " ", h("span.foreign", describeFlow(run))), abort),
		run.reason && note("waiting", run.reason),
		...run.questions.map((question) => drawQuestion(run, question, refresh)),
		drawFacts(run),
		run.error && section("Error", h("div.code", describeFailure(run.error))),
		run.state === "completed" && section("Result", h("div.code", toText(run.result))),
		section("Timeline", run.steps.length ? drawSteps(run.steps) : h("p.soft", "Nothing is recorded yet.")),
	];
}

// Each leads to the flows that have it too.
function drawTags(tags) {
	const texts = Object.entries(tags).map(([name, value]) => `${name}=${value}`);
	return texts.map((text) => [h("a.tag.foreign", { href: withQuery("/flows", { tag: text }) }, text), " "]);
}

function drawFacts(run) {
	const rows = [
		["Call", h("code", describeCall(run))],
		["Run", h("code", run.run_id)],
		run.parent_run_id && ["Started by", h("a", { href: flowUrl(run.parent_run_id) }, run.parent_run_id)],
		Object.keys(run.tags).length > 0 && ["Tags", drawTags(run.tags)],
		["Started", time(run.created_at)],
		run.ended_at && ["Ended", time(run.ended_at)],
		run.wake_at && ["Next look", time(run.wake_at)],
	];
	return h("div.card.padded", pairs(rows.filter(Boolean)));
}

function drawSteps(steps) {
	const row = (step) => [
		h("span.foreign", { style: { "padding-left": `${step.depth}em` } }, step.key),
		step.type,
		h("span", step.isFailed ? mark("bad", step.state) : step.state, step.attempts > 1 && h("span.soft", ` (attempt ${step.attempts})`), step.nextAt && [" ", time(step.nextAt)]),
		step.value && (step.value.length > 80 ? h("details", h("summary.foreign", firstLine(step.value, 80)), h("div.code", step.value)) : h("code", step.value)),
		time(step.startedAt),
		step.took,
	];
	return table(["Step", "Kind", "Status", "Value", "Started", ">Took"], steps.map(toStepRow).map(row));
}

function drawQuestion(run, question, refresh) {
	const why = whyNot("approver");
	const answer = ([action, label], index) => button(label, () => askForComment(run, question, action, label, refresh), { kind: index === 0 ? "main" : "plain", why });
	const heading = question.about === "outcome" ? `“${question.key}” was in flight when its process died.` : `“${question.key}” waits for you.`;
	return h(
		"section.card.padded.stack.tight",
		{ "aria-label": `Question ${question.key}` },
		h("h2.foreign", heading),
		question.show !== null && h("div.code", toText(question.show)),
		facts(["since ", time(question.requested_at)]),
		h("div.buttons", answersTo(question).map(answer)),
	);
}

async function askForComment(run, question, action, label, refresh) {
	const comment = h("textarea", { name: "comment", rows: 3 });
	const url = `/api${flowUrl(run.run_id)}/answer`;
	const act = (form) => send("POST", url, { key: question.key, action, comment: form.get("comment"), digest: question.digest });
	await ask({ title: `${label}: ${question.key}`, body: field("Comment", comment, "Recorded with the answer."), label, act });
	await refresh();
}

async function askToCancel(run, refresh) {
	const reason = h("textarea", { name: "reason", rows: 2 });
	const act = (form) => send("POST", `/api${flowUrl(run.run_id)}/abort`, { reason: form.get("reason") });
	await ask({ title: "Cancel this run?", body: field("Reason", reason), label: "Cancel the run", kind: "bad", cancel: "Go back", act });
	await refresh();
}
