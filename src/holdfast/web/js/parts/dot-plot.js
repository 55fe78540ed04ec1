// Recent runs at a glance: each dot is a run and opens it.
import { ago, duration } from "../format.js";
import { h } from "../h.js";
import { plotRuns } from "../model/dots.js";
import { SHAPES, toStatus } from "../model/status.js";

const BOX = { left: 46, right: 12, top: 10, bottom: 20, height: 150 };

export function dotPlot(runs, { width, summaryOf }) {
  const inner = { width: Math.max(120, width - BOX.left - BOX.right), height: BOX.height - BOX.top - BOX.bottom, nowMs: Date.now() };
  const { points, xTicks, yTicks } = plotRuns(runs, inner);
  const grid = yTicks.map(({ y, label }) => [
    h("svg:line", { class: "grid", x1: 0, x2: inner.width, y1: y, y2: y }),
    h("svg:text", { class: "tick end", x: -8, y: y + 4 }, label),
  ]);
  const times = xTicks.map(({ x, label }) => h("svg:text", { class: "tick mid", x, y: inner.height + 16 }, label));
  const dots = points.map((point) => dot(point, summaryOf(point.run)));
  const plot = h("svg:g", { transform: `translate(${BOX.left} ${BOX.top})` }, grid, times, dots);
  return h("svg:svg", { class: "dots", width, height: BOX.height, role: "group", "aria-label": "Recent runs by start and duration" }, plot);
}

function dot({ run, x, y, seconds }, title) {
  const status = toStatus(run.state, run.pause_reason);
  const told = `${title}: ${status.word.toLowerCase()}, ${duration(seconds)}, started ${ago(run.started_at ?? run.created_at, Date.now())}`;
  return h(
    "svg:a",
    { href: `/runs/${encodeURIComponent(run.run_id)}`, class: `dot tone-${status.tone}`, "aria-label": told, tabindex: "-1", transform: `translate(${x - 6} ${y - 6})` },
    h("svg:rect", { x: -4, y: -4, width: 20, height: 20, class: "hit" }),
    h("svg:path", { d: SHAPES[status.shape], transform: "scale(.75)", "fill-rule": "evenodd" }),
    h("svg:title", {}, told),
  );
}

