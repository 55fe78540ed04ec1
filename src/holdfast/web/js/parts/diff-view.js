// Differences: of two versions of a text, and of a repository as a patch; unified or side by side.
import { plural } from "../format.js";
import { h } from "../h.js";
import { diffLines, parsePatch, sideBySide, withContext } from "../model/diff.js";
import { button, empty } from "./ui.js";

const MAX_LINES = 600;
const SIGNS = { add: "+", del: "−", same: " " };
const WORDS = { added: "new file", deleted: "deleted", renamed: "renamed" };

export function textDiff(before, after) {
  const lines = withContext(diffLines(before, after));
  return lines.every(({ type }) => type === "gap" || type === "same") ? h("p.soft", "Both are the same.") : h("div.diff-file", lineTable(lines));
}

export function patchView(patch, { isSplit } = {}) {
  const files = parsePatch(patch);
  if (!files.length) return patch.trim() ? h("pre.code", patch.slice(0, 5000)) : empty("No changes", "Nothing in the repository is different.");
  return h("div.stack", files.sort((a, b) => isOwn(a) - isOwn(b)).map((file, index) => fileView(file, isSplit, index < 20 && file.lines.length < 800 && !isOwn(file))));
}

// What the engine itself asked for; it comes last, and folded.
const isOwn = (file) => file.path.startsWith(".holdfast/");

function fileView({ path, from, kind, added, removed, isBinary, lines }, isSplit, open) {
  const head = h("summary.diff-head", h("code.foreign", from ? `${from} → ${path}` : path), WORDS[kind] && h("span.tag", WORDS[kind]), h("span.num.nowrap", h("span.added", `+${added}`), " ", h("span.removed", `−${removed}`)));
  const details = h("details.diff-file.card", { open, ontoggle: draw }, head, isBinary && h("p.soft.padded-small", "A binary file; its content is not shown."));
  let isDrawn = isBinary;
  function draw() {
    if (!details.open || isDrawn) return;
    isDrawn = true;
    details.append(lineTable(lines, isSplit));
  }
  draw();
  return details;
}

function lineTable(lines, isSplit) {
  const told = lines.filter((line, index) => line.type !== "hunk" || line.text || index > 0);
  const rows = isSplit ? sideBySide(told) : told;
  const draw = isSplit ? pairRow : lineRow;
  const body = h("tbody", rows.slice(0, MAX_LINES).map(draw));
  let shown = MAX_LINES;
  const more = rows.length > MAX_LINES && button(`Show ${plural(rows.length - MAX_LINES, "more line")}`, () => {
    body.append(...rows.slice(shown, shown + 5000).map(draw));
    shown += 5000;
    if (shown >= rows.length) more.remove();
  }, { kind: "tiny" });
  return h("div.scroll-x", { tabindex: "0", role: "region", "aria-label": "Changed lines" }, h("table.diff", { class: isSplit && "split" }, body), more);
}

const lineRow = (line) => wide(line) ?? h("tr", { class: line.type }, h("td.ln", line.a), h("td.ln", line.b), h("td.sign", SIGNS[line.type]), h("td.foreign", line.text));

function pairRow({ left, right }) {
  const half = (line, number, type = line?.type ?? "none") => [h(`td.ln.${type}`, number), h(`td.foreign.${type}`, line?.text)];
  return wide(left) ?? h("tr", half(left, left?.a), half(right, right?.b));
}

function wide(line) {
  if (line?.type !== "hunk" && line?.type !== "gap") return null;
  return h("tr.hunk", h("td", { colspan: 4 }, line.type === "gap" ? `⋯ ${plural(line.count, "line")} the same` : `⋯ ${line.text}`));
}
