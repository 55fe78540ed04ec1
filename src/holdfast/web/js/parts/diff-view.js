import { bytes, count } from "../format.js";
import { fill, h } from "../h.js";
import { isSeen, markSeen } from "../model/seen.js";
import { lineNumber, notesOf, readState } from "./line-comments.js";
import { empty, note, scrollable } from "./ui.js";

const CHUNK = 120; // lines that come and go together
const LINE_PX = 20;
const MAX_CHARS = 1000; // of a line; a browser takes seconds to break one of some hundred thousand
const SIGNS = { add: "+", del: "−", same: " " };
const WORDS = { added: "new file", deleted: "deleted", renamed: "renamed" };

export const textDiff = ({ files: [{ lines }] }) => (lines.length ? h("div.diff-file", lineTable(lines)) : h("p.soft", "Both are the same."));

export function changesView({ files, summary, cut }) {
	if (!files.length) return empty("No changes", "Nothing in the repository is different.");
	const isOpen = (file, index) => index < 20 && file.lines.length + file.pairs.length < 3000 && !file.is_own && !file.is_generated && !file.is_binary && !isViewed(file);
	const views = files.map((file, index) => fileView(file, isOpen(file, index)));
	const all = h("div.stack", summary && h("p.diff-total.num", summary), cut && note("waiting", cut), views);
	return files.length > 1 ? h("div.diff-view", fileTree(files, views), all) : all;
}

const counts = ({ added, removed, is_binary: isBinary }) => isBinary ? h("span.soft.small", "binary") : h("span.num.nowrap.small", h("span.added", `+${count(added)}`), " ", h("span.removed", `−${count(removed)}`));

// Until its content is another one.
const isViewed = ({ path, digest }) => isSeen({ run_id: `file ${path}`, until: digest });

// Folders and files in their order; a click opens the file and goes there, and what was viewed is folded.
function fileTree(files, views) {
	let folder = "";
	const rows = files.flatMap((file, index) => {
		const at = file.path.lastIndexOf("/");
		const [under, name] = [file.is_own ? "artifacts" : `${file.path.slice(0, Math.max(0, at))}/`.replace(/^\/$/, ""), file.path.slice(at + 1)];
		const go = () => {
			views[index].open = true;
			views[index].scrollIntoView({ block: "start" });
			views[index].querySelector("summary").focus({ preventScroll: true });
		};
		const view = ({ target: { checked } }) => (markSeen(`file ${file.path}`, checked ? file.digest : ""), (views[index].open = !checked));
		const box = file.digest && h("input", { type: "checkbox", checked: isViewed(file), title: "Viewed", "aria-label": `Viewed: ${name}`, onchange: view });
		const item = h("li.tree-row", box, h("button.tree-item", { type: "button", title: file.path, onclick: go }, h("span.clip.foreign", name), counts(file)));
		const head = under !== folder && h("li.tree-folder.clip.soft.small.foreign", { title: under }, under || "./");
		folder = under;
		return [head, item];
	});
	return h("nav.diff-tree.card", { "aria-label": "Changed files" }, h("ul", rows));
}

function fileView(file, open) {
	const { path, was, kind, is_binary: isBinary, is_generated: isGenerated, is_own: isOwn, lines, pairs } = file;
	const head = h("summary.diff-head", h("code.foreign", was ? `${was} → ${path}` : path), WORDS[kind] && h("span.tag", WORDS[kind]), isGenerated && h("span.tag", "generated"), isOwn && h("span.tag", "artifact"), file.note && h("span.soft.small", file.note), counts(file));
	const isEmpty = !lines.length && !pairs.length;
	const why = isBinary ? "A binary file; its content is not shown." : isEmpty && "No line changed: it is empty, or only its name or mode is different.";
	const details = h("details.diff-file.card", { open, ontoggle: draw }, head, why && h("p.soft.padded-small", why));
	let isDrawn = isBinary || isEmpty;
	function draw() {
		if (!details.open || isDrawn) return;
		isDrawn = true;
		details.append(pairs.length ? lineTable(pairs, { draw: pairRow, path, look: ".split" }) : lineTable(lines, { path }));
	}
	draw();
	return details;
}

// Lines come in pieces that exist only near the view; each keeps its height while it is gone.
function lineTable(rows, { draw = lineRow, path = "", look = "" } = {}) {
	const widths = look && h("colgroup", ["num", "half", "num", "half"].map((name) => h(`col.${name}`)));
	const table = h(`table.diff${look}`, widths);
	const watcher = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => (isIntersecting ? show(target) : hide(target))), { rootMargin: "600px" });
	const blank = (height) => h("tr.spacer", { "aria-hidden": "true" }, h("td", { colspan: 4, style: { height: `${height}px` } }));
	function show(body) {
		if (body.hasLines) return;
		body.hasLines = true;
		const state = path ? readState(path) : null;
		fill(body, rows.slice(body.from, body.from + CHUNK).map((row) => draw(row, state)));
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
function lineText(line) {
	const { text = "", marks = [], tokens = [] } = line ?? {};
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

function lineRow(line, state) {
	const { type, a, b } = line;
	if (type === "gap") return gap(line);
	const row = h(`tr.${type}`, h("td.ln", type === "del" ? lineNumber(line, a, state) : a), h("td.ln", b && lineNumber(line, b, state)), h("td.sign", SIGNS[type]), h("td.foreign", lineText(line)));
	return [row, notesOf(row, [line], state)];
}

function pairRow({ left, right }, state) {
	if (left?.type === "gap") return gap(left);
	const half = (line, label, type = line?.type ?? "none") => [h(`td.ln.${type}`, label), h(`td.foreign.${type}`, lineText(line))];
	const gone = left?.type === "del" ? left : null;
	const row = h("tr", half(left, gone ? lineNumber(gone, gone.a, state) : left?.a), half(right, right && lineNumber(right, right.b, state)));
	return [row, notesOf(row, [gone, right], state)];
}

const gap = ({ text }) => h("tr.hunk", h("td", { colspan: 4 }, text));
