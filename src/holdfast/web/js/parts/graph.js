// The graph of a workflow's phases as SVG: boxes with title, role and risk; a mark where a person decides.
import { fill, h } from "../h.js";
import { layOut, wrap } from "../model/graph-layout.js";
import { approvalOf, approvalWords, RISK_TONES } from "../model/phases.js";
import { SHAPES } from "../model/status.js";
import { mark } from "./status.js";

const BOX = { width: 184, height: 66 };

/** Left to right where there is room, downwards where there is not. `href(phase)` makes the boxes links. */
export function graph(phases, { href = null, isDown = false } = {}) {
  const place = h("div", { class: "graph scroll-x" });
  let drawn = null;
  const draw = (down) => {
    if (down !== drawn) fill(place, picture(phases, href, down));
    drawn = down;
  };
  const across = layOut(phases, BOX).width;
  draw(isDown);
  if (!isDown) new ResizeObserver(([{ contentRect }]) => draw(contentRect.width < Math.min(560, across))).observe(place);
  return place;
}

function picture(phases, href, isDown) {
  const { width, height, nodes, edges } = layOut(phases, { ...BOX, isDown });
  return h(
    "svg:svg",
    { viewBox: `-2 -2 ${width + 4} ${height + 4}`, width: width + 4, height: height + 4, role: "group", "aria-label": `The phases in their order: ${phases.map((phase) => phase.key).join(", ")}` },
    h("svg:marker", { id: "hf-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, h("svg:path", { d: "M0 0L8 4L0 8z", class: "graph-arrow" })),
    edges.map((edge) => h("svg:path", { d: edge.path, class: "graph-edge", "marker-end": "url(#hf-arrow)" })),
    nodes.map((node) => toBox(node, phases.find((phase) => phase.key === node.key), href)),
  );
}

function toBox({ x, y }, phase, href) {
  const { isAsked, people } = approvalOf(phase);
  const lines = wrap(phase.title, 20);
  const told = `${phase.title}. Role ${phase.role}, risk ${phase.risk}. ${approvalWords(phase)}`;
  const role = phase.role.length > 13 ? `${phase.role.slice(0, 12)}…` : phase.role;
  return h(
    href ? "svg:a" : "svg:g",
    { class: `graph-node tone-${RISK_TONES[phase.risk]}`, transform: `translate(${x} ${y})`, "aria-label": told, ...(href ? { href: href(phase) } : { role: "img" }) },
    h("svg:title", {}, told),
    h("svg:rect", { ...BOX, rx: 7, class: "graph-box" }),
    h("svg:rect", { x: 5, y: 8, width: 4, height: BOX.height - 16, rx: 2, class: "graph-risk" }),
    lines.map((line, index) => h("svg:text", { x: 18, y: (lines.length === 1 ? 28 : 21) + index * 16, class: "graph-title" }, line)),
    h("svg:text", { x: 18, y: 56, class: "graph-sub" }, `${role} · ${phase.risk} risk`),
    isAsked && h("svg:g", { class: "tone-waiting", transform: `translate(${BOX.width - 22} 43)` }, h("svg:path", { d: SHAPES.waiting, class: "graph-asked", "fill-rule": "evenodd" }), people === 2 && h("svg:text", { x: -10, y: 12, class: "graph-asked graph-title" }, "2")),
  );
}

/** What the marks of the graph mean. */
export function graphLegend() {
  const risks = Object.entries(RISK_TONES).map(([risk, tone]) => h("span", { class: `tone-${tone}` }, h("i", { class: "risk-strip" }), risk));
  return h("p", { class: "legend small soft" }, "Risk:", risks, mark("waiting", "a person decides"));
}
