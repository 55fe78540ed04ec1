// Comments on lines stand in the text that asks for changes, each as "path:line: …" or "path:from-to: …", further lines of it indented. That
// text is the only place where they are: what is edited or removed there is edited or removed at its line.
const HEAD = /^(.+:\d+(?:-\d+)?(?: before)?): (.*)$/;
const INDENT = "  ";

// `[{ place, text }]` and the lines that are no comment, in their order.
function parse(text) {
	const parts = [];
	for (const line of text.split("\n")) {
		const [, place, first] = HEAD.exec(line) ?? [];
		if (place) parts.push({ place, text: first });
		else if (parts.at(-1)?.place && line.startsWith(INDENT)) parts.at(-1).text += `\n${line.slice(INDENT.length)}`;
		else parts.push({ line });
	}
	return parts;
}

const compose = (parts) => parts.map(({ place, text, line }) => (place ? `${place}: ${text.replaceAll("\n", `\n${INDENT}`)}` : line)).join("\n");

export const readComments = (text) => new Map(parse(text).filter(({ place }) => place).map(({ place, text: said }) => [place, said]));

// The text with this comment in place of the one before at the same line; without it if it says nothing.
export function withComment(text, place, comment) {
	const parts = parse(text.trimEnd()).filter((part, index, all) => all.length > 1 || part.line !== "");
	const at = parts.findIndex((part) => part.place === place);
	const said = comment.trim();
	if (at >= 0) parts.splice(at, 1, ...(said ? [{ place, text: said }] : []));
	else if (said) parts.push({ place, text: said });
	const made = compose(parts);
	return made && `${made}\n`;
}
