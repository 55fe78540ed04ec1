// Pure: the little Markdown that agents write, as blocks. What is not understood stays text.

/** `[{ type: "heading" | "text" | "code" | "list" | "quote" | "rule", … }]` */
export function parseMarkdown(source) {
  const blocks = [];
  const lines = source.split("\n");
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)\s*(\S*)/.exec(line);
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (fence) {
      const end = lines.findIndex((each, index) => index > at && each.trim().startsWith(fence[1]));
      const stop = end === -1 ? lines.length : end;
      blocks.push({ type: "code", text: lines.slice(at + 1, stop).join("\n") });
      at = stop + 1;
    } else if (heading) {
      blocks.push({ type: "heading", level: heading[1].length, text: heading[2].trim().replace(/\s#+$/, "") });
      at++;
    } else if (/^\s*(?:[-*+]|\d+[.)])\s+/.test(line)) {
      at = takeList(lines, at, blocks);
    } else if (/^\s*>/.test(line)) {
      at = takeWhile(lines, at, (each) => /^\s*>/.test(each), (taken) => blocks.push({ type: "quote", text: taken.map((each) => each.replace(/^\s*> ?/, "")).join("\n") }));
    } else if (/^\s*(?:-{3,}|\*{3,}|_{3,})\s*$/.test(line)) {
      blocks.push({ type: "rule" });
      at++;
    } else if (line.trim() === "") {
      at++;
    } else {
      at = takeWhile(lines, at, (each, index) => index === at || isPlain(each), (taken) => blocks.push({ type: "text", text: taken.join("\n") }));
    }
  }
  return blocks;
}

const isPlain = (line) => line.trim() !== "" && !/^(?:#{1,6}\s|\s*(?:```|~~~|>)|\s*(?:[-*+]|\d+[.)])\s+)/.test(line);

function takeWhile(lines, at, test, put) {
  let end = at;
  while (end < lines.length && test(lines[end], end)) end++;
  put(lines.slice(at, end));
  return end;
}

function takeList(lines, at, blocks) {
  const items = [];
  const isOrdered = /^\s*\d/.test(lines[at]);
  let end = at;
  while (end < lines.length) {
    const item = /^(\s*)(?:[-*+]|\d+[.)])\s+(.*)$/.exec(lines[end]);
    if (item) items.push({ depth: Math.min(3, Math.floor(item[1].length / 2)), text: item[2] });
    else if (/^\s+\S/.test(lines[end]) && items.length) items.at(-1).text += `\n${lines[end].trim()}`;
    else break;
    end++;
  }
  blocks.push({ type: "list", isOrdered, items });
  return end;
}

const MOST_CHARS = 8_000; // what is longer is no prose, and expressions would take their time over it

/** A line of text as `[{ type: "text" | "code" | "strong" | "em", text }]`; links stay as they were written. */
export function parseInline(text) {
  if (text.length > MOST_CHARS) return [{ type: "text", text }];
  const parts = [];
  const pattern = /(`{1,3})([^`\n]+)\1|\*\*([^*\n]+)\*\*|(?<![\w*])\*(?!\s)([^*\n]+?)\*(?![\w*])/g;
  let last = 0;
  for (const found of text.matchAll(pattern)) {
    if (found.index > last) parts.push({ type: "text", text: text.slice(last, found.index) });
    if (found[2] !== undefined) parts.push({ type: "code", text: found[2] });
    else if (found[3] !== undefined) parts.push({ type: "strong", text: found[3] });
    else parts.push({ type: "em", text: found[4] });
    last = found.index + found[0].length;
  }
  if (last < text.length) parts.push({ type: "text", text: text.slice(last) });
  return parts;
}
