import { getJson, send, whyNot, withQuery } from "../api.js";
import { firstLine } from "../format.js";
import { h } from "../h.js";
import { answersTo, describeCall, describeFlow, OVER, toStepRow, toText } from "../model/flow.js";
import { ask, button, empty, facts, field, kept, mark, note, pageHead, pairs, section, statusMark, table, time } from "../parts/ui.js";

const LOOK_EVERY_MS = 3000;

export const title = "Flows";

const flowUrl = (runId) => `/flows/${encodeURIComponent(runId)}`;

export async function render(main, { params, query, signal }) {
	const path = params.runId ? `/api/flows/${encodeURIComponent(params.runId)}` : withQuery("/api/flows", { state: query.get("state"), limit: 200 });
	let isOver = false;
	const draw = (data) => {
		isOver = OVER.has(data.state);
		return params.runId ? drawRun(data, refresh) : drawList(data.items);
	};
	const { element, refresh } = kept({ signal, load: () => getJson(path, signal), draw });
	main.append(pageHead(params.runId ? "Flow" : title), element);
	await refresh();
	const timer = setInterval(() => document.hidden || isOver || refresh(), LOOK_EVERY_MS);
	return { leave: () => clearInterval(timer) };
}

function drawList(runs) {
	if (!runs.length) return empty("No flows yet", "Runs of durable Python functions in this server's store are listed here.");
	const row = (run) => [
		h("a.foreign", { href: flowUrl(run.run_id) }, run.flow || "a flow"),
		h("span", statusMark(run.state), " ", h("span.soft.foreign", describeFlow(run))),
		h("code.clip", run.run_id),
		time(run.updated_at),
	];
	return table(["Flow", "Status", "Run", "Changed"], runs.map(row));
}

function drawRun(run, refresh) {
	const abort = !OVER.has(run.state) && button("Cancel the run", () => askToCancel(run, refresh), { kind: "bad", why: whyNot("operator") });
	return [
		h("div.page-head", h("p.verdict", statusMark(run.state), " ", h("span.foreign", describeFlow(run))), abort),
		run.reason && note("waiting", run.reason),
		...run.questions.map((question) => drawQuestion(run, question, refresh)),
		drawFacts(run),
		run.error && section("Error", h("div.code", `${run.error.type}: ${run.error.message}`)),
		run.state === "completed" && section("Result", h("div.code", toText(run.result))),
		section("Timeline", run.steps.length ? drawSteps(run.steps) : h("p.soft", "Nothing is recorded yet.")),
	];
}

function drawFacts(run) {
	const tags = Object.entries(run.tags).map(([name, value]) => `${name}=${value}`);
	const rows = [
		["Call", h("code", describeCall(run))],
		["Run", h("code", run.run_id)],
		run.parent_run_id && ["Started by", h("a", { href: flowUrl(run.parent_run_id) }, run.parent_run_id)],
		tags.length > 0 && ["Tags", tags.join(", ")],
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
	const asked = question.about === "outcome" ? `“${question.key}” was in flight when its process died.` : `“${question.key}” waits for you.`;
	return h(
		"section.card.padded.stack.tight",
		{ "aria-label": `Question ${question.key}` },
		h("h2.foreign", asked),
		question.show !== null && h("div.code", toText(question.show)),
		facts(["since ", time(question.requested_at)]),
		h("div.buttons", answersTo(question).map(answer)),
	);
}

async function askForComment(run, question, action, label, refresh) {
	const comment = h("textarea", { name: "comment", rows: 3 });
	const url = `/api/flows/${encodeURIComponent(run.run_id)}/answer`;
	const act = (form) => send("POST", url, { key: question.key, action, comment: form.get("comment"), digest: question.digest });
	await ask({ title: `${label}: ${question.key}`, body: field("Comment", comment, "Recorded with the answer."), label, act });
	await refresh();
}

async function askToCancel(run, refresh) {
	const reason = h("textarea", { name: "reason", rows: 2 });
	const act = (form) => send("POST", `/api/flows/${encodeURIComponent(run.run_id)}/abort`, { reason: form.get("reason") });
	await ask({ title: "Cancel this run?", body: field("Reason", reason), label: "Cancel the run", kind: "bad", cancel: "Go back", act });
	await refresh();
}
