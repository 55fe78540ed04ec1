// Differences: of two versions of a text, and of a repository as a patch; unified or side by side.
import { plural } from "../format.js";
import { h } from "../h.js";
import { diffLines, parsePatch, sideBySide, withContext } from "../model/diff.js";
import { button } from "./button.js";
import { empty } from "./states.js";

const MAX_LINES = 600;
const SIGNS = { add: "+", del: "−", same: " ", hunk: "", gap: "" };
const WORDS = { added: "new file", deleted: "deleted", renamed: "renamed", changed: "" };

export function textDiff(before, after, { isSplit = false } = {}) {
  const lines = withContext(diffLines(before, after));
  if (lines.every((line) => line.type === "gap" || line.type === "same")) return h("p", { class: "soft" }, "Both are the same.");
  return h("div", { class: "diff-file" }, lineTable(lines, isSplit));
}

export function patchView(patch, { isSplit = false } = {}) {
  const files = parsePatch(patch);
  if (files.length === 0) return patch.trim() ? h("pre", { class: "code" }, patch.slice(0, 5000)) : empty("No changes", "Nothing in the repository is different.");
  return h("div", { class: "stack" }, [...files].sort((a, b) => isOwn(a) - isOwn(b)).map((file, index) => fileView(file, { isSplit, isOpen: index < 20 && file.lines.length < 800 && !isOwn(file) })));
}


/** What the engine itself asked for; it comes last, and folded. */
const isOwn = (file) => file.path.startsWith(".holdfast/");

function fileView(file, { isSplit, isOpen }) {
  const word = WORDS[file.kind];
  const head = h("summary", { class: "diff-head" }, h("code", { class: "foreign" }, file.from ? `${file.from} → ${file.path}` : file.path), word && h("span", { class: "tag" }, word), h("span", { class: "num nowrap" }, h("span", { class: "added" }, `+${file.added}`), " ", h("span", { class: "removed" }, `−${file.removed}`)));
  const body = file.isBinary ? h("p", { class: "soft padded-small" }, "A binary file; its content is not shown.") : null;
  const details = h("details", { class: "diff-file card", open: isOpen }, head, body);
  const draw = () => {
    if (details.open && !details.dataset.drawn && !file.isBinary) {
      details.dataset.drawn = "1";
      details.append(lineTable(file.lines, isSplit));
    }
  };
  details.addEventListener("toggle", draw);
  draw();
  return details;
}

function lineTable(lines, isSplit) {
  const told = lines.filter((line, index) => line.type !== "hunk" || line.text || index > 0);
  const rows = isSplit ? sideBySide(told) : told;
  const draw = isSplit ? pairRow : lineRow;
  const body = h("tbody", {}, rows.slice(0, MAX_LINES).map(draw));
  const table = h("table", { class: `diff${isSplit ? " split" : ""}` }, body);
  let shown = MAX_LINES;
  const more = rows.length > MAX_LINES && button(`Show ${plural(rows.length - MAX_LINES, "more line")}`, () => {
    body.append(...rows.slice(shown, shown + 5000).map(draw));
    shown += 5000;
    if (shown >= rows.length) more.remove();
  }, { kind: "tiny" });
  return h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Changed lines" }, table, more);
}

function lineRow(line) {
  if (line.type === "hunk" || line.type === "gap") return wide(line, 4);
  return h("tr", { class: line.type }, h("td", { class: "ln" }, line.a ?? ""), h("td", { class: "ln" }, line.b ?? ""), h("td", { class: "sign" }, SIGNS[line.type]), h("td", { class: "foreign" }, line.text));
}

function pairRow({ left, right }) {
  if (left && (left.type === "hunk" || left.type === "gap")) return wide(left, 4);
  const half = (line, n) => [h("td", { class: `ln ${line?.type ?? "none"}` }, n ?? ""), h("td", { class: `foreign ${line?.type ?? "none"}` }, line?.text ?? "")];
  return h("tr", {}, half(left, left?.a), half(right, right?.b));
}

const wide = (line, columns) => h("tr", { class: "hunk" }, h("td", { colspan: columns }, line.type === "gap" ? `⋯ ${plural(line.count, "line")} the same` : `⋯ ${line.text}`));
