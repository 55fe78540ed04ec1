// An artifact as the server took it apart for reading: a headline, and parts of text, items, steps or any other value.
import { h } from "../h.js";
import { jsonView, markdown } from "./text.js";
import { mark, note, pairs } from "./ui.js";

export const documentView = ({ headline, parts }) =>
	h("div.document.stack.tight", headline && h(`p.headline.tone-${headline.tone}`, mark(headline.tone, headline.text)), parts.map(partView));

function partView({ kind, label, text, items, value, summary }) {
	const head = label && h("h3.part-label", label, summary && h("span.soft.small", ` ${summary}`));
	if (kind === "text") return h("section", head, text ? markdown(text) : note("idle", "(empty)"));
	if (kind === "value") return h("section", head, jsonView(value));
	return h("section", head, h(kind === "steps" ? "ol.doc-steps" : "ul.doc-items", items.map((item) => h("li", itemView(item)))));
}

const itemView = ({ tone, mark: word, title, code, text, notes, paths }) => [
	(word || title || code) && h("div.doc-head", word && mark(tone, word), title && h("strong.foreign", title), code && h("code.foreign", code)),
	text && markdown(text),
	paths.length > 0 && h("p.doc-paths.small", paths.map((path) => h("code.foreign", path))),
	notes.length > 0 && pairs(notes, "dl.pairs.small"),
];
