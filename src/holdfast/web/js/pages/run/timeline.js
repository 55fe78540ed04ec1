// Timeline: where the time went. Labels on the left are buttons; the drawing on the right can be made wider.
import { duration, exact, money, plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { busyIntervals, foldedScale } from "../../model/timescale.js";
import { axisTicks, timelineRows } from "../../model/timeline.js";
import { errorHint, errorText } from "../../model/now.js";
import { brief, outputOf } from "../../model/activity.js";
import { actionsOf } from "../../model/actions.js";
import { button, mark, shape, statusMark } from "../../parts/ui.js";
import { longText, markdown, raw } from "../../parts/text.js";
import { setQuery } from "../../router.js";
import { whyNot } from "../../session.js";
import { fork } from "./actions.js";

const TOP = 26;
const HEIGHTS = { phase: 34, step: 24, rest: 24 };
const MARKS = { crash: "✕", failed: "✕", aborted: "■", changes: "↺", resumed: "▶", retried: "↻", paused: "Ⅱ", unknown: "?" };
const LEGEND = [["queued", "Queued"], ["working", "Working"], ["waiting", "Waiting for a person"], ["down", "Down after a crash"]];

export default function timelineTab(panel, view) {
  const opened = new Set(view.query.get("open")?.split(",").filter(Boolean) ?? []);
  const labels = h("div", { class: "tl-labels" });
  const drawing = h("div", { class: "tl-drawing", tabindex: "0", role: "region", "aria-label": "Drawing of the timeline; it scrolls sideways" });
  const detail = h("div", { class: "tl-detail" });
  let zoom = 1;
  let isFolding = true;
  let chosen = view.query.get("row") ?? view.run.phases.find((phase) => phase.state === "failed")?.key ?? null;
  const foldBox = h("input", { type: "checkbox", checked: true, onchange: () => ((isFolding = foldBox.checked), update()) });
  const setZoom = (to) => ((zoom = Math.min(64, Math.max(1, to))), update());
  const legend = h("ul", { class: "legend small" }, LEGEND.map(([type, word]) => h("li", {}, h("svg:svg", { width: 22, height: 10, "aria-hidden": "true" }, patterns("legend"), h("svg:rect", { width: 22, height: 10, rx: 2, class: `seg ${type}`, ...fillOf(type, "legend") })), word)));
  const bar = h("div", { class: "panel-bar" }, legend, h("div", { class: "buttons" }, h("label", { class: "toggle small" }, foldBox, " Fold idle time"), button("−", () => setZoom(zoom / 2), { kind: "tiny", "aria-label": "Zoom out" }), button("+", () => setZoom(zoom * 2), { kind: "tiny", "aria-label": "Zoom in" })));
  panel.append(bar, h("div", { class: "card timeline" }, labels, drawing), detail);
  view.setKeys({ "+": ["Zoom in", () => setZoom(zoom * 2)], "-": ["Zoom out", () => setZoom(zoom / 2)] });
  const ticking = setInterval(() => !view.fold.isOver && !document.hidden && update(), 1000);
  const onResize = () => update();
  addEventListener("resize", onResize, { signal: view.signal });

  function update() {
    const { run, plan, fold } = view;
    const isOver = ["completed", "failed", "cancelled"].includes(run.state);
    const now = isOver ? (fold.lastTs ?? Date.now() / 1000) : Math.max(Date.now() / 1000, fold.lastTs ?? 0);
    const rows = timelineRows({ run, plan, fold, opened, now });
    drawLabels(rows);
    const width = Math.max(200, (drawing.clientWidth || 600) - 16) * zoom;
    const attempts = [...fold.attempts.values()];
    const from = fold.firstTs ?? now - 1;
    const scale = foldedScale({ from, to: Math.max(now, from + 0.5), busy: busyIntervals(attempts, now), width, isFolding });
    fill(drawing, chart(rows, scale, { from, now, marks: fold.marks }));
    if (chosen) drawDetail(rows.find((row) => row.key === chosen), now);
  }

  function drawLabels(rows) {
    const stamp = JSON.stringify(rows.map((row) => [row.key, row.state, row.isOpen, row.took, row.attempts, row.step?.state, row.key === chosen]));
    if (stamp === labels.dataset.stamp) return;
    labels.dataset.stamp = stamp;
    const focused = labels.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    fill(labels, h("div", { class: "tl-head" }), rows.map(label));
    if (focused) labels.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function label(row) {
    if (row.type === "rest") return h("div", { class: "tl-label step soft" }, row.label);
    const text = row.type === "phase" ? [statusShape(row), h("span", { class: "name clip foreign" }, row.label), row.attempts > 1 && h("span", { class: "tag" }, `×${row.attempts}`)] : [h("span", { class: "name clip foreign" }, row.label, " ", h("span", { class: "soft" }, brief(row.step.args)))];
    const open = h("button", { class: `tl-label ${row.type}`, type: "button", dataset: { key: row.key }, "aria-pressed": String(row.key === chosen), title: row.told, onclick: () => choose(row) }, text, h("span", { class: "soft num nowrap" }, row.type === "phase" && !row.took ? row.status.word.toLowerCase() : row.took));
    if (row.type !== "phase") return open;
    return h("div", { class: "tl-phase" }, row.hasSteps ? h("button", { class: "tl-toggle", type: "button", "aria-expanded": String(row.isOpen), "aria-label": `Steps of ${row.key}`, onclick: () => toggle(row.key) }, row.isOpen ? "▾" : "▸") : h("span", { class: "tl-toggle" }), open);
  }

  function toggle(key) {
    if (!opened.delete(key)) opened.add(key);
    setQuery({ open: [...opened].join(",") });
    update();
  }

  function choose(row) {
    chosen = chosen === row.key ? null : row.key;
    setQuery({ row: chosen });
    fill(detail);
    detail.dataset.stamp = "";
    update();
    detail.scrollIntoView({ block: "nearest" });
  }

  function drawDetail(row, now) {
    const stamp = row ? `${row.key} ${row.state ?? row.step?.state} ${row.attempts ?? ""} ${row.step?.endSeq ?? ""}` : "";
    if (stamp === detail.dataset.stamp) return;
    detail.dataset.stamp = stamp;
    fill(detail, row && h("section", { class: "card padded stack tight", "aria-label": `Details of ${row.label}` }, row.type === "phase" ? phaseDetail(row, view) : stepDetail(row.step, view, now)));
  }

  update();
  return { update: () => update(), query() {}, leave: () => clearInterval(ticking) };
}

const statusShape = (row) => h("span", { class: `mark tone-${row.status.tone}` }, shape(row.status.shape), h("span", { class: "unseen" }, row.status.word));

// -- drawing ------------------------------------------------------------------------------------------------------

function chart(rows, scale, { from, now, marks }) {
  let y = TOP;
  const bodies = rows.map((row) => {
    const drawn = rowGroup(row, y, scale);
    y += HEIGHTS[row.type];
    return drawn;
  });
  const height = y + 4;
  const ticks = axisTicks(scale, { from, to: now }).map(({ x, label }) => [h("svg:line", { class: "grid", x1: x, x2: x, y1: TOP - 4, y2: height }), h("svg:text", { class: "tick", x: x + 3, y: 14 }, label)]);
  const folds = scale.folds.map((fold) => h("svg:g", { class: "fold-mark" }, h("svg:rect", { x: fold.x, y: TOP - 6, width: fold.width, height: height - TOP + 6 }), h("svg:text", { class: "tick mid", x: fold.x + fold.width / 2, y: 14 }, `⋯ ${duration(fold.seconds)}`), h("svg:title", {}, `Nobody worked for ${duration(fold.seconds)}`)));
  const lines = marks.map((each) => {
    const x = scale.toX(each.ts);
    return h("svg:g", { class: `moment ${each.type}`, transform: `translate(${x} 0)` }, h("svg:line", { y1: TOP - 4, y2: height }), h("svg:text", { class: "mid", y: TOP - 1, x: 0 }, MARKS[each.type] ?? "•"), h("svg:title", {}, `${each.text}, ${exact(each.ts)}`));
  });
  return h("svg:svg", { width: scale.width, height, role: "img", "aria-label": rows.map((row) => row.told).filter(Boolean).slice(0, 30).join("; ") || "Nothing has happened yet" }, patterns("tl"), folds, ticks, bodies, lines);
}

function rowGroup(row, y, scale) {
  const height = HEIGHTS[row.type];
  const thick = row.type === "phase" ? 16 : 10;
  const top = y + (height - thick) / 2;
  const bars = row.bars.map((each) => {
    const x = scale.toX(each.from);
    const width = Math.max(row.type === "phase" ? 2 : 1.5, scale.toX(each.to) - x);
    return h("svg:rect", { x, y: top, width, height: thick, rx: 2, class: `seg ${each.type}${each.isLive ? " live" : ""}${each.state === "failed" || each.state === "cut" ? " failed" : ""}`, ...fillOf(each.type, "tl") }, h("svg:title", {}, `${each.type}${each.n > 0 ? `, attempt ${each.n}` : ""}: ${duration(each.to - each.from)}`));
  });
  const ends = row.ends.filter((each) => each.ts !== null).map((each) => h("svg:text", { class: `end-mark ${each.type}`, x: scale.toX(each.ts) + 3, y: y + height / 2 + 4 }, MARKS[each.type] ?? "✕"));
  return h("svg:g", {}, h("svg:line", { class: "row-line", x1: 0, x2: scale.width, y1: y + height, y2: y + height }), bars, ends);
}

const PATTERNED = new Set(["queued", "waiting", "down"]);
const fillOf = (type, id) => (PATTERNED.has(type) ? { fill: `url(#${id}-${type})` } : {});

function patterns(id) {
  const pattern = (name, size, turn, ...content) => h("svg:pattern", { id: `${id}-${name}`, width: size, height: size, patternUnits: "userSpaceOnUse", patternTransform: turn ? `rotate(${turn})` : null, class: `pattern ${name}` }, content);
  const ground = (size) => h("svg:rect", { width: size, height: size, class: "ground" });
  return h("svg:defs", {}, pattern("queued", 4, 0, ground(4), h("svg:circle", { cx: 1.5, cy: 1.5, r: 0.9, class: "ink" })), pattern("waiting", 7, 45, ground(7), h("svg:rect", { width: 2.5, height: 7, class: "ink" })), pattern("down", 5, -45, ground(5), h("svg:rect", { width: 1.5, height: 5, class: "ink" })));
}

// -- details ------------------------------------------------------------------------------------------------------

function phaseDetail(row, view) {
  const planned = view.plan?.phases.find((phase) => phase.key === row.key);
  const role = view.plan?.roles.find((each) => each.role === planned?.role);
  const spent = view.fold.money.byPhase.get(row.key);
  const stored = view.run.phases.find((phase) => phase.key === row.key);
  const attempts = view.fold.attemptsOf(row.key);
  const why = actionsOf(view.run, whyNot).fork;
  return [
    h("div", { class: "page-head" }, h("div", {}, h("h2", { class: "foreign" }, planned?.title ?? row.key), h("div", { class: "facts small" }, statusMark(row.state), planned && h("span", {}, `risk ${planned.risk}`), role && h("span", { class: "foreign", title: role.explanation }, `${role.persona}${role.model ? ` · ${role.model}` : ""}`), spent && h("span", {}, money(spent.micros / 1e6)), planned?.requires_approval && h("span", {}, "asks for approval"))), h("div", { class: "buttons" }, button("Fork from here…", () => fork(view, row.key), { why }))),
    stored?.error && h("div", { class: "note tone-bad" }, h("strong", { class: "foreign" }, errorText(stored.error)), errorHint(stored.error) && h("div", {}, errorHint(stored.error))),
    attempts.length > 0 && h("ul", { class: "stack tight" }, attempts.map((attempt) => attemptItem(attempt, view))),
    stored?.artifact && h("p", {}, "Handed in ", h("a", { href: `/runs/${encodeURIComponent(view.runId)}/artifacts?phase=${encodeURIComponent(row.key)}` }, stored.artifact), "."),
    attempts.at(-1)?.envelope && h("details", {}, h("summary", {}, "What the agent was asked"), h("div", { class: "fold" }, markdown(attempts.at(-1).envelope))),
  ];
}

const WORDS = { running: ["busy", "under way"], completed: ["good", "completed"], failed: ["bad", "failed"], changes: ["waiting", "changes requested"], aborted: ["idle", "aborted"] };

function attemptItem(attempt, view) {
  const [tone, word] = WORDS[attempt.state] ?? ["idle", attempt.state];
  const steps = view.fold.stepsOf(attempt.phase, attempt.n);
  const models = steps.filter((step) => step.type === "model").length;
  return h("li", { class: "facts small" }, mark(tone, `Attempt ${attempt.n} ${word}`), h("span", {}, `${plural(models, "model call")}, ${plural(steps.length - models, "tool call")}`), attempt.to && h("span", {}, duration(attempt.to - attempt.from)), attempt.error && h("span", { class: "bad-text foreign" }, errorText(attempt.error)));
}

function stepDetail(step, view, now) {
  const at = `/runs/${encodeURIComponent(view.runId)}/events?seq=`;
  return [
    h("h2", { class: "foreign" }, h("code", {}, step.label)),
    h("div", { class: "facts small" }, mark({ open: "busy", done: "good", failed: "bad", cut: "idle" }[step.state], { open: "under way", done: "done", failed: "failed", cut: "cut off" }[step.state]), h("span", {}, duration((step.to ?? now) - step.from)), step.micros > 0 && h("span", {}, money(step.micros / 1e6)), step.tries > 1 && h("span", {}, plural(step.tries, "try", "tries")), step.isUnknown && mark("waiting", "its outcome was unknown after a crash"), h("a", { href: at + step.startSeq }, `event ${step.startSeq}`), step.endSeq && step.endSeq !== step.startSeq && h("a", { href: at + step.endSeq }, `event ${step.endSeq}`)),
    step.args !== undefined && [h("h3", {}, "Input"), raw(step.args)],
    step.error && h("div", { class: "note tone-bad foreign" }, errorText(step.error)),
    step.result !== undefined && [h("h3", {}, "Output"), longText(outputOf(step.result) || "(nothing)")],
  ];
}
