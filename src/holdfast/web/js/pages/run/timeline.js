// Timeline: where the time went. Labels on the left are buttons; the drawing on the right can be made wider.
import { duration, exact, money, plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { actionsOf } from "../../model/actions.js";
import { brief, outputOf } from "../../model/activity.js";
import { errorHint, errorText } from "../../model/now.js";
import { axisTicks, timelineRows } from "../../model/timeline.js";
import { busyIntervals, foldedScale } from "../../model/timescale.js";
import { longText, markdown, raw } from "../../parts/text.js";
import { button, mark, shape, statusMark } from "../../parts/ui.js";
import { setQuery } from "../../router.js";
import { whyNot } from "../../session.js";
import { fork } from "./actions.js";
import { facts } from "./pieces.js";

const TOP = 26;
const HEIGHTS = { phase: 34, step: 24, rest: 24 };
const MARKS = { crash: "✕", failed: "✕", aborted: "■", changes: "↺", resumed: "▶", retried: "↻", paused: "Ⅱ", unknown: "?" };
const LEGEND = { queued: "Queued", working: "Working", waiting: "Waiting for a person", down: "Down after a crash" };

export function timeline(panel, view) {
  const opened = new Set(view.query.get("open")?.split(",").filter(Boolean));
  const labels = h("div.tl-labels");
  const drawing = h("div.tl-drawing", { tabindex: "0", role: "region", "aria-label": "Drawing of the timeline; it scrolls sideways" });
  const detail = h("div.tl-detail");
  let zoom = 1;
  let chosen = view.query.get("row") ?? view.run.phases.find((phase) => phase.state === "failed")?.key ?? null;
  const foldBox = h("input", { type: "checkbox", checked: true, onchange: () => update() });
  const zoomBy = (factor) => () => {
    zoom = Math.min(64, Math.max(1, zoom * factor));
    update();
  };
  const zooms = [["−", "Zoom out", zoomBy(0.5)], ["+", "Zoom in", zoomBy(2)]];
  const sample = (type) => h("svg:svg", { width: 22, height: 10, "aria-hidden": "true" }, patterns("legend"), segment(type, "legend", { width: 22, height: 10 }));
  panel.append(
    h(
      "div.panel-bar",
      h("ul.legend.small", Object.entries(LEGEND).map(([type, word]) => h("li", sample(type), word))),
      h("div.buttons", h("label.toggle.small", foldBox, " Fold idle time"), zooms.map(([sign, label, act]) => button(sign, act, { kind: "tiny", "aria-label": label }))),
    ),
    h("div.card.timeline", labels, drawing),
    detail,
  );
  view.setKeys({ "+": ["Zoom in", zoomBy(2)], "-": ["Zoom out", zoomBy(0.5)] });
  const ticking = setInterval(() => !view.fold.isOver && !document.hidden && update(), 1000);
  addEventListener("resize", update, { signal: view.signal });

  function update() {
    const { run, plan, fold } = view;
    const clockNow = Date.now() / 1000;
    const now = view.isOver ? (fold.lastTs ?? clockNow) : Math.max(clockNow, fold.lastTs ?? 0);
    const rows = timelineRows({ run, plan, fold, opened, now });
    drawLabels(rows);
    const width = Math.max(200, (drawing.clientWidth || 600) - 16) * zoom;
    const from = fold.firstTs ?? now - 1;
    const scale = foldedScale({ from, to: Math.max(now, from + 0.5), busy: busyIntervals([...fold.attempts.values()], now), width, isFolding: foldBox.checked });
    fill(drawing, chart(rows, scale, { from, now, marks: fold.marks }));
    if (chosen) drawDetail(rows.find((row) => row.key === chosen), now);
  }

  function drawLabels(rows) {
    const stamp = JSON.stringify(rows.map((row) => [row.key, row.state, row.isOpen, row.took, row.attempts, row.step?.state, row.key === chosen]));
    if (stamp === labels.dataset.stamp) return;
    labels.dataset.stamp = stamp;
    const focused = labels.contains(document.activeElement) && document.activeElement.dataset.key;
    fill(labels, h("div.tl-head"), rows.map(label));
    if (focused) labels.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function label(row) {
    const { type, key, status, isOpen } = row;
    if (type === "rest") return h("div.tl-label.step.soft", row.label);
    const isPhase = type === "phase";
    const open = h(
      `button.tl-label.${type}`,
      { type: "button", dataset: { key }, "aria-pressed": String(key === chosen), title: row.told, onclick: () => choose(key) },
      isPhase && h(`span.mark.tone-${status.tone}`, shape(status.shape), h("span.unseen", status.word)),
      h("span.name.clip.foreign", row.label, !isPhase && [" ", h("span.soft", brief(row.step.args))]),
      row.attempts > 1 && h("span.tag", `×${row.attempts}`),
      h("span.soft.num.nowrap", row.took || status?.word.toLowerCase()),
    );
    if (!isPhase) return open;
    const props = { type: "button", "aria-expanded": String(isOpen), "aria-label": `Steps of ${key}`, onclick: () => toggle(key) };
    return h("div.tl-phase", row.hasSteps ? h("button.tl-toggle", props, isOpen ? "▾" : "▸") : h("span.tl-toggle"), open);
  }

  function toggle(key) {
    if (!opened.delete(key)) opened.add(key);
    setQuery({ open: [...opened].join(",") });
    update();
  }

  function choose(key) {
    chosen = chosen === key ? null : key;
    setQuery({ row: chosen });
    fill(detail);
    detail.dataset.stamp = "";
    update();
    detail.scrollIntoView({ block: "nearest" });
  }

  function drawDetail(row, now) {
    const stamp = row ? `${row.key} ${row.state ?? row.step?.state} ${row.attempts} ${row.step?.endSeq}` : "";
    if (stamp === detail.dataset.stamp) return;
    detail.dataset.stamp = stamp;
    fill(detail, row && h("section.card.padded.stack.tight", { "aria-label": `Details of ${row.label}` }, row.step ? stepDetail(row.step, view, now) : phaseDetail(row, view)));
  }

  update();
  return { update, leave: () => clearInterval(ticking) };
}

// -- drawing

const svgTitle = (text) => h("svg:title", text);
const svgText = (kind, x, y, text) => h("svg:text", { class: kind, x, y }, text);

function chart(rows, scale, { from, now, marks }) {
  let y = TOP;
  const bodies = rows.map((row) => {
    y += HEIGHTS[row.type];
    return rowGroup(row, y, scale);
  });
  const height = y + 4;
  const ticks = axisTicks(scale, { from, to: now }).map(({ x, label }) => [h("svg:line.grid", { x1: x, x2: x, y1: TOP - 4, y2: height }), svgText("tick", x + 3, 14, label)]);
  const folds = scale.folds.map(({ x, width, seconds }) => {
    const box = h("svg:rect", { x, y: TOP - 6, width, height: height - TOP + 6 });
    return h("svg:g.fold-mark", box, svgText("tick mid", x + width / 2, 14, `⋯ ${duration(seconds)}`), svgTitle(`Nobody worked for ${duration(seconds)}`));
  });
  const moments = marks.map(({ type, ts, text }) =>
    h(`svg:g.moment.${type}`, { transform: `translate(${scale.toX(ts)} 0)` }, h("svg:line", { y1: TOP - 4, y2: height }), svgText("mid", 0, TOP - 1, MARKS[type] ?? "•"), svgTitle(`${text}, ${exact(ts)}`)),
  );
  const told = rows.map((row) => row.told).filter(Boolean).slice(0, 30).join("; ");
  return h("svg:svg", { width: scale.width, height, role: "img", "aria-label": told || "Nothing has happened yet" }, patterns("tl"), folds, ticks, bodies, moments);
}

// `bottom` is where the row ends.
function rowGroup({ type: rowType, bars, ends }, bottom, scale) {
  const middle = bottom - HEIGHTS[rowType] / 2;
  const [thick, least] = rowType === "phase" ? [16, 2] : [10, 1.5];
  const segments = bars.map(({ type, from, to, n, isLive, state }) => {
    const x = scale.toX(from);
    const look = `${isLive ? "live" : ""} ${state === "failed" || state === "cut" ? "failed" : ""}`;
    const box = { x, y: middle - thick / 2, width: Math.max(least, scale.toX(to) - x), height: thick, class: look };
    return segment(type, "tl", box, svgTitle(`${type}${n > 0 ? `, attempt ${n}` : ""}: ${duration(to - from)}`));
  });
  const line = h("svg:line.row-line", { x1: 0, x2: scale.width, y1: bottom, y2: bottom });
  return h("svg:g", line, segments, ends.filter(({ ts }) => ts !== null).map(({ ts, type }) => svgText(`end-mark ${type}`, scale.toX(ts) + 3, middle + 4, MARKS[type] ?? "✕")));
}

const segment = (type, id, box, title) => h(`svg:rect.seg.${type}`, { rx: 2, ...box, fill: PATTERNS.some(([name]) => name === type) ? `url(#${id}-${type})` : null }, title);

// name, size, turn, the ink on it
const PATTERNS = [
  ["queued", 4, 0, "circle", { cx: 1.5, cy: 1.5, r: 0.9 }],
  ["waiting", 7, 45, "rect", { width: 2.5, height: 7 }],
  ["down", 5, -45, "rect", { width: 1.5, height: 5 }],
];

const patterns = (id) =>
  h("svg:defs", PATTERNS.map(([name, size, turn, ink, props]) => {
    const box = { width: size, height: size };
    return h(`svg:pattern.pattern.${name}`, { id: `${id}-${name}`, ...box, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` }, h("svg:rect.ground", box), h(`svg:${ink}.ink`, props));
  }));

// -- details

function phaseDetail({ key, state }, view) {
  const planned = view.plan?.phases.find((phase) => phase.key === key);
  const role = view.plan?.roles.find((each) => each.role === planned?.role);
  const spent = view.fold.money.byPhase.get(key);
  const { error, artifact } = view.run.phases.find((phase) => phase.key === key) ?? {};
  const attempts = view.fold.attemptsOf(key);
  const envelope = attempts.at(-1)?.envelope;
  const told = facts(
    statusMark(state),
    planned && `risk ${planned.risk}`,
    role && h("span.foreign", { title: role.explanation }, [role.persona, role.model].filter(Boolean).join(" · ")),
    spent && money(spent.micros / 1e6),
    planned?.requires_approval && "asks for approval",
  );
  return [
    h("div.page-head", h("div", h("h2.foreign", planned?.title ?? key), told), h("div.buttons", button("Fork from here…", () => fork(view, key), { why: actionsOf(view.run, whyNot).fork }))),
    error && h("div.note.tone-bad", h("strong.foreign", errorText(error)), errorHint(error) && h("div", errorHint(error))),
    attempts.length > 0 && h("ul.stack.tight", attempts.map((attempt) => h("li", attemptFacts(attempt, view)))),
    artifact && h("p", "Handed in ", h("a", { href: view.url(`/artifacts?phase=${encodeURIComponent(key)}`) }, artifact), "."),
    envelope && h("details", h("summary", "What the agent was asked"), h("div.fold", markdown(envelope))),
  ];
}

const WORDS = { running: ["busy", "under way"], completed: ["good", "completed"], failed: ["bad", "failed"], changes: ["waiting", "changes requested"], aborted: ["idle", "aborted"] };
const STEP_WORDS = { open: ["busy", "under way"], done: ["good", "done"], failed: ["bad", "failed"], cut: ["idle", "cut off"] };

function attemptFacts({ phase, n, state, from, to, error }, view) {
  const [tone, word] = WORDS[state] ?? ["idle", state];
  const steps = view.fold.stepsOf(phase, n);
  const models = steps.filter((step) => step.type === "model").length;
  return facts(mark(tone, `Attempt ${n} ${word}`), `${plural(models, "model call")}, ${plural(steps.length - models, "tool call")}`, to && duration(to - from), error && h("span.bad-text.foreign", errorText(error)));
}

function stepDetail(step, view, now) {
  const { startSeq, endSeq, args, error, result } = step;
  const event = (seq) => h("a", { href: view.url(`/events?seq=${seq}`) }, `event ${seq}`);
  return [
    h("h2.foreign", h("code", step.label)),
    facts(
      mark(...STEP_WORDS[step.state]),
      duration((step.to ?? now) - step.from),
      step.micros > 0 && money(step.micros / 1e6),
      step.tries > 1 && plural(step.tries, "try", "tries"),
      step.isUnknown && mark("waiting", "its outcome was unknown after a crash"),
      event(startSeq),
      endSeq && endSeq !== startSeq && event(endSeq),
    ),
    args !== undefined && [h("h3", "Input"), raw(args)],
    error && h("div.note.tone-bad.foreign", errorText(error)),
    result !== undefined && [h("h3", "Output"), longText(outputOf(result) || "(nothing)")],
  ];
}
