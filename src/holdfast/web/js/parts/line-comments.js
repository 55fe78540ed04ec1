// Comments on the lines of a difference, where a decision is open: they go into what is asked for with it.
import { h } from "../h.js";
import { readComments, withComment } from "../model/line-comments.js";
import { button, draftKey, keepDraft, say } from "./ui.js";

const REQUEST = "textarea[data-asks=changes]";
const findRequest = (element) => element?.closest(".approval")?.querySelector(REQUEST) ?? document.querySelector(REQUEST);

const placeOf = (path, { a, b }) => `${path}:${b ?? `${a} before`}`;

// What is known of the lines of this file now, or null where nothing is to be decided.
export function readState(path) {
	const request = findRequest();
	return request && { path, comments: readComments(request.value), drafts: draftsOf(request) };
}

function draftsOf(request) {
	const start = draftKey(`${request.dataset.draft}-`);
	try {
		return new Set(Object.keys(sessionStorage).filter((key) => key.startsWith(start)).map((key) => key.slice(start.length)));
	} catch {
		return new Set();
	}
}

export const hasDrafts = (id) => draftsOf({ dataset: { draft: id } }).size > 0;

// The number of a line, to be pressed for a comment on it.
export function lineNumber(line, label, state) {
	if (!state) return label;
	const where = line.b === null || line.b === undefined ? `line ${line.a} as it was` : `line ${line.b}`;
	const press = ({ target, shiftKey }) => pressLine(target.closest("tr"), state.path, line, shiftKey);
	return h("button.ln-button", { type: "button", "aria-label": `Comment on ${where}`, title: `Comment on ${where}; with Shift on all from the one before`, onclick: press }, label);
}

// The line pressed last: with Shift, the comment is on all from there. It stands below the last of them.
let start = null;
function pressLine(row, path, { a, b }, isRange) {
	const end = { row, path, b };
	if (!isRange || !b || !start?.b || start.path !== path || start.b === b) {
		start = end;
		return edit(row, placeOf(path, { a, b }));
	}
	const open = below(start.row, placeOf(path, start));
	if (open?.querySelector("textarea")?.value === "") open.remove();
	const [first, last] = [start, end].sort((one, other) => one.b - other.b);
	edit(last.row, `${path}:${first.b}-${last.b}`);
}

// What is said of the lines of a row, or what somebody was writing there when the page went away.
export function notesOf(row, lines, state) {
	if (!state) return null;
	const known = [...new Set([...state.comments.keys(), ...state.drafts])];
	const places = lines.filter(Boolean).flatMap((line) => known.filter((each) => each === placeOf(state.path, line) || (line.b && each.startsWith(`${state.path}:`) && each.endsWith(`-${line.b}`))));
	return places.map((place) => (state.drafts.has(place) ? editor(row, place) : state.comments.has(place) && noteRow(row, place, state.comments.get(place))));
}

const shell = (place, ...content) => h("tr.line-comment", { dataset: { place } }, h("td", { colspan: 4 }, content));
function below(row, place) {
	let next = row.nextElementSibling;
	while (next?.matches(".line-comment") && next.dataset.place !== place) next = next.nextElementSibling;
	return next?.dataset.place === place ? next : null;
}

function put(row, place, made) {
	below(row, place)?.remove();
	if (made) row.after(made);
}

const leave = (row) => row.querySelector(".ln-button")?.focus();

function edit(row, place) {
	const open = below(row, place)?.querySelector("textarea");
	if (open) return open.focus();
	const made = editor(row, place);
	put(row, place, made);
	made.querySelector("textarea").focus();
}

function change(row, place, text) {
	const request = findRequest(row);
	if (!request) return false;
	request.value = withComment(request.value, place, text);
	request.dispatchEvent(new Event("input"));
	return true;
}

function noteRow(row, place, text) {
	const drop = () => {
		change(row, place, "");
		put(row, place, null);
		say("The comment is gone from the request");
		leave(row);
	};
	const buttons = h("div.buttons", button("Edit", () => edit(row, place), { kind: "tiny plain" }), button("Remove", drop, { kind: "tiny plain" }));
	return shell(place, h("div.note.tone-waiting", h("div.foreign.pre", text), h("div.small.soft", "In the comment of the decision; send it with “Request changes”."), buttons));
}

function editor(row, place) {
	const request = findRequest(row);
	const text = h("textarea.input", { rows: "3", placeholder: `Comment on ${place}`, "aria-label": `Comment on ${place}`, onkeydown: onKey });
	const before = readComments(request?.value ?? "").get(place) ?? "";
	const draft = keepDraft(text, `${request?.dataset.draft}-${place}`);
	text.value ||= before;
	const show = (said) => {
		put(row, place, said ? noteRow(row, place, said) : null);
		leave(row);
	};
	const cancel = () => {
		draft.clear();
		show(before);
	};
	const add = () => {
		const said = text.value.trim();
		if (!said || !change(row, place, said)) return text.focus();
		draft.clear();
		say("Added to what is to be changed");
		show(said);
	};
	function onKey(event) {
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
			event.preventDefault();
			add();
		} else if (event.key === "Escape") {
			event.stopPropagation();
			show(before); // what was written is there again when the line is pressed again
		}
	}
	const buttons = h("div.buttons", button("Add to the request", add, { kind: "tiny" }), button("Cancel", cancel, { kind: "tiny plain" }), h("span.small.soft", "Ctrl or ⌘ Enter adds it, Escape closes it."));
	return shell(place, text, buttons);
}
