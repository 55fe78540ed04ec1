// What agents wrote, to be read: long text in pieces, Markdown and JSON as elements. All of it is text and nothing else.
import { bytes, plural } from "../format.js";
import { add, h } from "../h.js";
import { parseInline, parseMarkdown } from "../model/markdown.js";
import { button, say } from "./ui.js";

const PIECE = 100_000;
const MAX_ITEMS = 100;

export function longText(text, { lines = 14, chars = 2400, className = "code", isNumbered = false } = {}) {
	const start = cut(text, lines, chars);
	const isCut = start.length < text.length;
	const place = h(`pre.${className}.foreign${isNumbered ? ".numbered" : ""}`, { tabindex: isCut && "0" });
	const put = isNumbered ? (piece) => addLines(place, piece) : (piece) => place.append(h("span", piece));
	put(start);
	if (!isCut) return place;
	let end = start.length;
	const label = () => `Show ${end > start.length ? "more" : "all"} (${bytes(text.length - end)} more)`;
	const more = button(label(), () => {
		put(text.slice(end, (end += PIECE)));
		if (end >= text.length) more.remove();
		else more.textContent = label();
	}, { kind: "tiny" });
	return h("div.long", place, more);
}

// Each line an element, which its number is drawn before; what is copied has no numbers.
function addLines(place, text) {
	const [first, ...rest] = text.split("\n");
	if (place.lastElementChild) add(place.lastElementChild, first);
	else place.append(h("span.line", first));
	for (const line of rest) place.append("\n", h("span.line", line));
}

export function copyButton(label, getText) {
	const made = button(label, async () => {
		await copy(getText());
		made.textContent = "Copied";
		say("Copied");
		setTimeout(() => (made.textContent = label), 1500);
	}, { kind: "tiny" });
	return made;
}

async function copy(text) {
	if (navigator.clipboard) return navigator.clipboard.writeText(text);
	// Browsers give no clipboard to pages of another machine without TLS.
	const field = h("textarea.unseen");
	field.value = text;
	document.body.append(field);
	field.select();
	document.execCommand("copy");
	field.remove();
}

function cut(text, lines, chars) {
	let end = -1;
	for (let n = 0; n < lines; n++) {
		end = text.indexOf("\n", end + 1);
		if (end === -1 && text.length <= chars * 1.2) return text;
		if (end === -1 || end > chars) return text.slice(0, chars);
	}
	return text.slice(0, end);
}

export const markdown = (source) => (source.length > 60_000 ? longText(source, { className: "prose-raw" }) : h("div.prose.foreign", parseMarkdown(source).map(block)));

function block({ type, text, level, items, isOrdered }) {
	if (type === "code") return longText(text, { lines: 40, chars: 8000 });
	if (type === "rule") return h("hr");
	if (type === "quote") return h("blockquote", inline(text));
	if (type === "heading") return h(`p.heading.h-${level}`, { role: "heading", "aria-level": Math.min(6, level + 2) }, inline(text));
	if (type === "list") return h(isOrdered ? "ol" : "ul", items.map((item) => h(`li.depth-${item.depth}`, inline(item.text))));
	return h("p", inline(text));
}

const inline = (text) => parseInline(text).map((part) => (part.type === "text" ? part.text : h(part.type, part.text)));

// A JSON value as a document: names, texts, lists. Deep or long parts open on request.
export function jsonView(value, depth = 0) {
	if (typeof value === "string") return value.length > 60 || value.includes("\n") ? markdown(value) : h("span.foreign", value || h("span.soft", "(empty)"));
	if (value === null || typeof value !== "object") return h("code", String(value));
	const isList = Array.isArray(value);
	const entries = Object.entries(value);
	if (!entries.length) return h("span.soft", isList ? "none" : "nothing");
	if (depth > 5) return longText(JSON.stringify(value, null, 2));
	const visibleEntries = entries.slice(0, MAX_ITEMS);
	const rest = entries.length > MAX_ITEMS && h("p.soft", `${plural(entries.length - MAX_ITEMS, "more entry", "more entries")}; the raw view has all.`);
	if (isList) return [h("ul.json-list", visibleEntries.map(([, each]) => h("li", jsonView(each, depth + 1)))), rest];
	return [h(`dl.json-map.depth-${Math.min(depth, 2)}`, visibleEntries.map(([name, each]) => [h("dt.foreign", title(name)), h("dd", jsonView(each, depth + 1))])), rest];
}

function title(name) {
	if (!/^[a-z][a-zA-Z0-9_]*$/.test(name)) return name;
	const words = name.replace(/_/g, " ").replace(/([a-z])([A-Z])/g, (_, before, letter) => `${before} ${letter.toLowerCase()}`);
	return words[0].toUpperCase() + words.slice(1);
}

export const raw = (value, options) => longText(typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "", options);
