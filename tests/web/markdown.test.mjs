import assert from "node:assert/strict";
import { test } from "node:test";
import { parseInline, parseMarkdown } from "../../src/holdfast/web/js/model/markdown.js";

test("headings, paragraphs, lists, code, quotes and rules are told apart", () => {
  const text = "# Title #\n\nA paragraph\nin two lines.\n\n- one\n- two\n  more\n\n1. first\n\n```py\nx = '# no heading'\n```\n\n> quoted\n\n---";
  assert.deepEqual(parseMarkdown(text).map((block) => block.type), ["heading", "text", "list", "list", "code", "quote", "rule"]);
  const [heading, , list, ordered, code] = parseMarkdown(text);
  assert.equal(heading.text, "Title");
  assert.equal(list.items[1].text, "two\nmore");
  assert.equal(ordered.isOrdered, true);
  assert.equal(code.text, "x = '# no heading'");
});

test("markup and links stay text", () => {
  const text = "<img src=x onerror=alert(1)> [a](javascript:alert(1)) **bold** `code`";
  assert.deepEqual(parseInline(text).map((part) => part.type), ["text", "strong", "text", "code"]);
  assert.equal(parseInline(text)[0].text, "<img src=x onerror=alert(1)> [a](javascript:alert(1)) ");
});

test("nothing is lost: every word of the input is in the output", () => {
  const words = JSON.stringify(parseMarkdown("alpha *beta* [gamma\n```\ndelta"));
  for (const word of ["alpha", "beta", "gamma", "delta"]) assert.ok(words.includes(word), word);
});

test("hostile lengths take no time", () => {
  const started = performance.now();
  for (const bit of ["`", "*", "**", "[", "# ", "#", "> ", "- ", " ", "--", "`a", "**a", "*a"]) {
    for (const block of parseMarkdown(bit.repeat(60_000 / bit.length))) parseInline(block.text ?? "");
    parseInline(bit.repeat(8_000 / bit.length));
    parseMarkdown(`x ${bit}\n`.repeat(5_000));
  }
  assert.ok(performance.now() - started < 4_000);
});
