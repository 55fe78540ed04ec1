import { plural } from "../format.js";
import { h } from "../h.js";
import { button, empty } from "./ui.js";

const MAX_LINES = 600;
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
	const showMore = () => {
		body.append(...rows.slice(shown, shown + 5000).map(draw));
		shown += 5000;
		if (shown >= rows.length) more.remove();
	};
	const more = rows.length > MAX_LINES && button(`Show ${plural(rows.length - MAX_LINES, "more line")}`, showMore, { kind: "tiny" });
	return h("div.scroll-x", { tabindex: "0", role: "region", "aria-label": "Changed lines" }, h(`table.diff${look}`, body), more);
}

const lineRow = (line) => gap(line) ?? h(`tr.${line.type}`, h("td.ln", line.a), h("td.ln", line.b), h("td.sign", SIGNS[line.type]), h("td.foreign", line.text));

function pairRow({ left, right }) {
	const half = (line, number, type = line?.type ?? "none") => [h(`td.ln.${type}`, number), h(`td.foreign.${type}`, line?.text)];
	return gap(left) ?? h("tr", half(left, left?.a), half(right, right?.b));
}

const gap = (line) => (line?.type === "gap" ? h("tr.hunk", h("td", { colspan: 4 }, line.text)) : null);
