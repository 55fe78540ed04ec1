import { bytes, count } from "../format.js";
import { fill, h } from "../h.js";
import { button, empty, say, scrollable } from "./ui.js";

const CHUNK = 120; // lines that come and go together
const LINE_PX = 20;
const MAX_CHARS = 1000; // of a line; a browser takes seconds to break one of some hundred thousand
const SIGNS = { add: "+", del: "−", same: " " };
const WORDS = { added: "new file", deleted: "deleted", renamed: "renamed" };

export const textDiff = ({ files: [{ lines }] }) => (lines.length ? h("div.diff-file", lineTable(lines)) : h("p.soft", "Both are the same."));

export function changesView({ files, summary }) {
	if (!files.length) return empty("No changes", "Nothing in the repository is different.");
	const isOpen = (file, index) => index < 20 && file.lines.length + file.pairs.length < 3000 && !file.is_own && !file.is_generated && !file.is_binary;
	const views = files.map((file, index) => fileView(file, isOpen(file, index)));
	const all = h("div.stack", summary && h("p.diff-total.num", summary), views);
	return files.length > 1 ? h("div.diff-view", fileTree(files, views), all) : all;
}

const counts = ({ added, removed }) => h("span.num.nowrap.small", h("span.added", `+${count(added)}`), " ", h("span.removed", `−${count(removed)}`));

// Folders and files in their order; a click opens the file and goes there.
function fileTree(files, views) {
	let folder = null;
	const rows = files.flatMap((file, index) => {
		const at = file.path.lastIndexOf("/");
		const [under, name] = [file.path.slice(0, Math.max(0, at)), file.path.slice(at + 1)];
		const go = () => {
			views[index].open = true;
			views[index].scrollIntoView({ block: "start" });
			views[index].querySelector("summary").focus({ preventScroll: true });
		};
		const item = h("li", h("button.tree-item", { type: "button", title: file.path, onclick: go }, h("span.clip.foreign", name), counts(file)));
		const head = under !== folder && under && h("li.tree-folder.clip.soft.small.foreign", { title: under }, `${under}/`);
		folder = under;
		return [head, item];
	});
	return h("nav.diff-tree.card", { "aria-label": "Changed files" }, h("ul", rows));
}

function fileView(file, open) {
	const { path, was, kind, is_binary: isBinary, is_generated: isGenerated, lines, pairs } = file;
	const head = h("summary.diff-head", h("code.foreign", was ? `${was} → ${path}` : path), WORDS[kind] && h("span.tag", WORDS[kind]), isGenerated && h("span.tag", "generated"), counts(file));
	const binary = isBinary && h("p.soft.padded-small", "A binary file; its content is not shown.");
	const details = h("details.diff-file.card", { open, ontoggle: draw }, head, binary);
	let isDrawn = isBinary;
	function draw() {
		if (!details.open || isDrawn) return;
		isDrawn = true;
		details.append(pairs.length ? lineTable(pairs, (row) => pairRow(row, path), ".split") : lineTable(lines, (row) => lineRow(row, path)));
	}
	draw();
	return details;
}

// Lines come in pieces that exist only near the view; each keeps its height while it is gone.
function lineTable(rows, draw = lineRow, look = "") {
	const table = h(`table.diff${look}`);
	const watcher = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => (isIntersecting ? show(target) : hide(target))), { rootMargin: "600px" });
	const blank = (height) => h("tr.spacer", { "aria-hidden": "true" }, h("td", { colspan: 4, style: { height: `${height}px` } }));
	function show(body) {
		if (body.hasLines) return;
		body.hasLines = true;
		fill(body, rows.slice(body.from, body.from + CHUNK).map(draw));
	}
	function hide(body) {
		// What somebody writes or has selected stays.
		if (!body.hasLines || body.querySelector(".line-comment") || body.contains(document.activeElement) || !body.isConnected) return;
		const height = body.getBoundingClientRect().height;
		if (!height) return;
		body.hasLines = false;
		fill(body, blank(height));
	}
	for (let from = 0; from < rows.length; from += CHUNK) {
		const body = h("tbody");
		body.from = from;
		table.append(body);
		if (from < CHUNK) show(body);
		else fill(body, blank(Math.min(CHUNK, rows.length - from) * LINE_PX));
		if (rows.length > CHUNK) watcher.observe(body);
	}
	return scrollable("div", "Changed lines", table);
}

// A line in pieces: what is coloured, what has changed in it, and how much of it is left out.
function lineText({ text = "", marks = [], tokens = [] } = {}) {
	const visibleText = text.slice(0, MAX_CHARS);
	const rest = text.length > MAX_CHARS && h("span.soft", ` … ${bytes(text.length - MAX_CHARS)} more in this line`);
	if (!marks.length && !tokens.length) return [visibleText, rest];
	const ends = [...new Set([0, visibleText.length, ...marks.flat(), ...tokens.flatMap(([from, to]) => [from, to])])].filter((end) => end <= visibleText.length).sort((a, b) => a - b);
	const around = (spans, at) => spans.find(([from, to]) => from <= at && at < to);
	const piece = (from, index) => {
		if (index === ends.length - 1) return null;
		const [kind, isMarked] = [around(tokens, from)?.[2], around(marks, from)];
		const part = visibleText.slice(from, ends[index + 1]);
		return kind || isMarked ? h(isMarked ? "mark" : "span", { class: kind && `t-${kind}` }, part) : part;
	};
	return [ends.map(piece), rest];
}

const lineRow = (line, path) => gap(line) ?? h(`tr.${line.type}`, h("td.ln", line.a), h("td.ln", number(line, line.b ?? line.a, path, line.b)), h("td.sign", SIGNS[line.type]), h("td.foreign", lineText(line)));

function pairRow({ left, right }, path) {
	const half = (line, label, type = line?.type ?? "none") => [h(`td.ln.${type}`, label), h(`td.foreign.${type}`, lineText(line))];
	return gap(left) ?? h("tr", half(left, left?.a), half(right, right?.b && number(right, right.b, path, right.b)));
}

const gap = (line) => (line?.type === "gap" ? h("tr.hunk", h("td", { colspan: 4 }, line.text)) : null);

// Where a decision is open, a line can be commented on: the comment goes into what is asked for with the decision.
const findRequest = () => document.querySelector(".approval-answer textarea");

function number(line, at, path, label) {
	if (!path || !findRequest()) return label;
	const act = (event) => writeComment(event.target.closest("tr"), `${path}:${at}`);
	return h("button.ln-button", { type: "button", "aria-label": `Comment on line ${at}`, onclick: act }, label ?? "·");
}

function writeComment(row, place) {
	if (row.nextElementSibling?.matches(".line-comment")) return row.nextElementSibling.querySelector("textarea").focus();
	const text = h("textarea.input", { rows: "2", "aria-label": `Comment on ${place}` });
	const close = () => (made.remove(), row.querySelector(".ln-button")?.focus());
	const add = () => {
		const request = findRequest();
		if (!text.value.trim() || !request) return text.focus();
		request.value = `${request.value.trimEnd()}${request.value.trim() ? "\n" : ""}${place}: ${text.value.trim()}\n`;
		request.dispatchEvent(new Event("input"));
		say("Added to what is to be changed");
		row.querySelector(".ln-button")?.focus();
		fill(made.firstChild, h("div.note.tone-waiting.foreign", text.value.trim(), h("div.small.soft", "In the comment of the decision: send it with “Request changes”.")));
	};
	const made = h("tr.line-comment", h("td", { colspan: 4 }, text, h("div.buttons", button("Cancel", close, { kind: "tiny plain" }), button("Add to the request", add, { kind: "tiny" }))));
	row.after(made);
	text.focus();
}
