// One call beside the timeline: what went in, what came out, how often it was tried.
import { withQuery } from "../../api.js";
import { plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { outputOf } from "../../model/activity.js";
import { copyButton, longText, markdown, raw } from "../../parts/text.js";
import { facts, loading, mark, note, problemState } from "../../parts/ui.js";

export function stepDetail(row, view, took, closeButton) {
	const { start_seq: start, end_seq: end, status, error, key } = row;
	const link = (seq) => h("a", { href: view.url(`/events?seq=${seq}`) }, `event ${seq}`);
	const address = `${location.origin}${view.url(`?row=${encodeURIComponent(key)}`)}`;
	const head = [
		h("div.page-head", h("h2.foreign", h("code", row.label)), h("div.buttons", copyButton("Copy link", () => address), closeButton)),
		facts(mark(status.tone, status.word), took, row.facts, link(start), end && end !== start && link(end)),
		error && h("div.note.tone-bad.foreign", error),
	];
	return [head, row.bars[0]?.type === "model" ? modelParts(key, view) : toolParts(row, view)];
}

function toolParts({ start_seq: start, end_seq: end }, view) {
	const [{ args } = {}, { args: finalArgs, result } = {}] = [start, end].map((seq) => view.event(seq)?.payload);
	const input = finalArgs ?? args;
	const output = result === undefined ? "" : outputOf(result);
	return [
		input !== undefined && part("Input", inputText(input), inputView(input)),
		result !== undefined && part("Output", output, longText(output || "(nothing)", { isNumbered: true })),
	];
}

const part = (title, text, ...content) => h("section.call-part", h("div.part-head", h("h3", title), text && copyButton("Copy", () => text)), content);
const fold = (title, ...content) => h("details", h("summary", title), h("div.fold", content));

function modelParts(key, view) {
	const place = h("div.stack.tight", loading());
	const draw = async () => {
		try {
			fill(place, modelCall(await view.get(withQuery("/model-call", { key }))));
		} catch (error) {
			if (!view.signal.aborted) fill(place, problemState(error, draw));
		}
	};
	draw();
	return place;
}

function modelCall({ note: missing, summary, system, messages, tools, settings, answer, reasoning, calls, usage, finish_reason: reason, tries }) {
	const named = Object.entries(settings).map(([name, value]) => h("li", h("code", name), " ", h("span.foreign", JSON.stringify(value))));
	return [
		facts(usage, reason && h("span.foreign", `ended by: ${reason}`)),
		tries.length > 0 && part("Attempts that failed", "", h("ol.findings", tries.map(({ text }) => h("li.foreign", text)))),
		answer && part("Answer", answer, markdown(answer)),
		reasoning && fold("What the model thought", markdown(reasoning)),
		calls.length > 0 && part("Tool calls asked for", "", calls.map(callView)),
		missing && note("idle", missing),
		summary && part("Sent", JSON.stringify({ system, messages, tools, settings }, null, 2), h("p.soft.small", summary), sentParts({ system, messages, tools })),
		named.length > 0 && fold("Model settings", h("ul.stack.tight", named)),
	];
}

const callView = ({ name, args }) => h("div.asked", h("code.foreign", name), inputView(args ?? {}, { lines: 8, chars: 800 }));

// A command as one types it; of any other call its arguments.
const commandOf = (args) => (typeof args?.command === "string" ? args.command : null);
const inputText = (args) => commandOf(args) ?? JSON.stringify(args, null, 2);

function inputView(args, size) {
	const command = commandOf(args);
	if (command === null) return raw(args, size);
	const { command: _, ...rest } = args;
	return [longText(`$ ${command}`, { ...size, className: "code.command" }), Object.keys(rest).length > 0 && raw(rest, size)];
}

function sentParts({ system, messages, tools }) {
	const old = messages.filter((each) => !each.is_new);
	const tool = ({ name, description, parameters }) => h("li", fold(h("code.foreign", name), markdown(description), parameters && raw(parameters)));
	return [
		system && fold("System prompt", longText(system, { lines: 30, chars: 6000 })),
		tools.length > 0 && fold(plural(tools.length, "tool"), h("ul.stack.tight", tools.map(tool))),
		old.length > 0 && fold(`${plural(old.length, "message")} as before`, old.slice(-200).map(message)),
		messages.filter((each) => each.is_new).map(message),
	];
}

const message = ({ role, name, text, calls }) =>
	h("div.sent", h("div.small.soft", role, name && h("span.foreign", ` ${name}`)), text && longText(text, { lines: 10, chars: 1500 }), calls.map(callView));
