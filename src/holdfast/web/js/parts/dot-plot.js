// Recent runs at a glance: each dot is a run and opens it.
import { ago, duration } from "../format.js";
import { h } from "../h.js";
import { plotRuns } from "../model/dots.js";
import { SHAPES, toStatus } from "../model/status.js";

const HEIGHT = 150;

export function dotPlot(runs, { width, summaryOf }) {
  const inner = { width: Math.max(120, width - 58), height: HEIGHT - 30, nowMs: Date.now() };
  const { points, xTicks, yTicks } = plotRuns(runs, inner);
  const grid = yTicks.map(({ y, label }) => [h("svg:line.grid", { x2: inner.width, y1: y, y2: y }), h("svg:text.tick.end", { x: -8, y: y + 4 }, label)]);
  const times = xTicks.map(({ x, label }) => h("svg:text.tick.mid", { x, y: inner.height + 16 }, label));
  const plot = h("svg:g", { transform: "translate(46 10)" }, grid, times, points.map((point) => dot(point, summaryOf(point.run))));
  return h("svg:svg.dots", { width, height: HEIGHT, role: "group", "aria-label": "Recent runs by start and duration" }, plot);
}

function dot({ run, x, y, seconds }, title) {
  const { tone, shape, word } = toStatus(run.state, run.pause_reason);
  const told = `${title}: ${word.toLowerCase()}, ${duration(seconds)}, started ${ago(run.started_at ?? run.created_at, Date.now())}`;
  return h(
    `svg:a.dot.tone-${tone}`, { href: `/runs/${run.run_id}`, "aria-label": told, tabindex: "-1", transform: `translate(${x - 6} ${y - 6})` },
    h("svg:rect.hit", { x: -4, y: -4, width: 20, height: 20 }),
    h("svg:path", { d: SHAPES[shape], transform: "scale(.75)", "fill-rule": "evenodd" }),
    h("svg:title", told),
  );
}
