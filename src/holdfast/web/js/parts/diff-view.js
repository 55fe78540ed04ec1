import { bytes, count, plural } from "../format.js";
import { fill, h } from "../h.js";
import { button, empty, scrollable } from "./ui.js";

const MAX_LINES = 600;
const MORE_LINES = 2000;
const MAX_CHARS = 1000; // of a line; a browser takes seconds to break one of some hundred thousand
const SIGNS = { add: "+", del: "−", same: " " };
const WORDS = { added: "new file", deleted: "deleted", renamed: "renamed" };

export const textDiff = ({ files: [{ lines }] }) => (lines.length ? h("div.diff-file", lineTable(lines)) : h("p.soft", "Both are the same."));

export function changesView({ files }) {
	if (!files.length) return empty("No changes", "Nothing in the repository is different.");
	return h("div.stack", files.map((file, index) => fileView(file, index < 20 && file.lines.length + file.pairs.length < 800 && !file.is_own)));
}

function fileView({ path, was, kind, added, removed, is_binary: isBinary, lines, pairs }, open) {
	const counts = h("span.num.nowrap", h("span.added", `+${added}`), " ", h("span.removed", `−${removed}`));
	const head = h("summary.diff-head", h("code.foreign", was ? `${was} → ${path}` : path), WORDS[kind] && h("span.tag", WORDS[kind]), counts);
	const binary = isBinary && h("p.soft.padded-small", "A binary file; its content is not shown.");
	const details = h("details.diff-file.card", { open, ontoggle: draw }, head, binary);
	let isDrawn = isBinary;
	function draw() {
		if (!details.open || isDrawn) return;
		isDrawn = true;
		details.append(pairs.length ? lineTable(pairs, pairRow, ".split") : lineTable(lines));
	}
	draw();
	return details;
}

function lineTable(rows, draw = lineRow, look = "") {
	const body = h("tbody", rows.slice(0, MAX_LINES).map(draw));
	let shown = MAX_LINES;
	const label = () => {
		const rest = rows.length - shown;
		return rest > MORE_LINES ? `Show ${count(MORE_LINES)} of ${count(rest)} more lines` : `Show ${plural(rest, "more line")}`;
	};
	const showMore = () => {
		body.append(...rows.slice(shown, shown + MORE_LINES).map(draw));
		shown += MORE_LINES;
		if (shown >= rows.length) more.remove();
		else fill(more, label());
	};
	const more = rows.length > MAX_LINES && button(label(), showMore, { kind: "tiny" });
	return scrollable("div", "Changed lines", h(`table.diff${look}`, body), more);
}

function lineText(text = "") {
	if (text.length <= MAX_CHARS) return text;
	const rest = text.slice(MAX_CHARS);
	return [text.slice(0, MAX_CHARS), h("span.soft", ` … ${bytes(rest.length)} more in this line`)];
}

const lineRow = (line) => gap(line) ?? h(`tr.${line.type}`, h("td.ln", line.a), h("td.ln", line.b), h("td.sign", SIGNS[line.type]), h("td.foreign", lineText(line.text)));

function pairRow({ left, right }) {
	const half = (line, number, type = line?.type ?? "none") => [h(`td.ln.${type}`, number), h(`td.foreign.${type}`, lineText(line?.text))];
	return gap(left) ?? h("tr", half(left, left?.a), half(right, right?.b));
}

const gap = (line) => (line?.type === "gap" ? h("tr.hunk", h("td", { colspan: 4 }, line.text)) : null);
