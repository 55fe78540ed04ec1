// Pure: the little Markdown that agents write, as blocks. What is not understood stays text.

const ITEM = /^(\s*)(?:[-*+]|\d+[.)])\s+(.*)$/;
const QUOTE = /^\s*>/;
const isPlain = (line) => line.trim() !== "" && !ITEM.test(line) && !/^(?:#{1,6}\s|\s*(?:```|~~~|>))/.test(line);

export function parseMarkdown(source) {
	const blocks = [];
	const lines = source.split("\n");
	let at = 0;
	const takeWhile = (test) => {
		const begin = at++;
		while (at < lines.length && test(lines[at])) at++;
		return lines.slice(begin, at);
	};
	while (at < lines.length) {
		const line = lines[at];
		const fence = /^\s*(```+|~~~+)/.exec(line);
		const heading = /^(#{1,6})\s+(.*)$/.exec(line);
		if (fence) {
			blocks.push({ type: "code", text: takeWhile((each) => !each.trim().startsWith(fence[1])).slice(1).join("\n") });
			at++;
		} else if (heading) {
			blocks.push({ type: "heading", level: heading[1].length, text: heading[2].trim().replace(/\s#+$/, "") });
			at++;
		} else if (ITEM.test(line)) {
			blocks.push({ type: "list", isOrdered: /^\s*\d/.test(line), items: toItems(takeWhile((each) => ITEM.test(each) || /^\s+\S/.test(each))) });
		} else if (QUOTE.test(line)) {
			blocks.push({ type: "quote", text: takeWhile((each) => QUOTE.test(each)).map((each) => each.replace(/^\s*> ?/, "")).join("\n") });
		} else if (/^\s*(?:-{3,}|\*{3,}|_{3,})\s*$/.test(line)) {
			blocks.push({ type: "rule" });
			at++;
		} else if (line.trim() === "") {
			at++;
		} else {
			blocks.push({ type: "text", text: takeWhile(isPlain).join("\n") });
		}
	}
	return blocks;
}

function toItems(lines) {
	const items = [];
	for (const line of lines) {
		const item = ITEM.exec(line);
		if (item) items.push({ depth: Math.min(3, Math.floor(item[1].length / 2)), text: item[2] });
		else items.at(-1).text += `\n${line.trim()}`;
	}
	return items;
}

const MOST_CHARS = 8_000; // what is longer is no prose, and expressions would take their time over it
const INLINE = /(`{1,3})(?<code>[^`\n]+)\1|\*\*(?<strong>[^*\n]+)\*\*|(?<![\w*])\*(?!\s)(?<em>[^*\n]+?)\*(?![\w*])/g;

// A line of text as `[{ type: "text" | "code" | "strong" | "em", text }]`; links stay as they were written.
export function parseInline(text) {
	if (text.length > MOST_CHARS) return [{ type: "text", text }];
	const parts = [];
	let last = 0;
	for (const found of text.matchAll(INLINE)) {
		const [type, inner] = Object.entries(found.groups).find(([, each]) => each !== undefined);
		parts.push({ type: "text", text: text.slice(last, found.index) }, { type, text: inner });
		last = found.index + found[0].length;
	}
	return [...parts, { type: "text", text: text.slice(last) }].filter((part) => part.text);
}
