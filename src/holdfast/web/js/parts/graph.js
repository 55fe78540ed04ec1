// The graph of a workflow's phases as SVG: boxes with title, role and risk; a mark where a person decides.
import { firstLine } from "../format.js";
import { fill, h } from "../h.js";
import { layOut, wrap } from "../model/graph-layout.js";
import { approvalOf, approvalWords, RISK_TONES } from "../model/phases.js";
import { SHAPES } from "../model/status.js";
import { mark } from "./ui.js";

const BOX = { width: 184, height: 66 };

// Left to right where there is room, downwards where there is not. `href(phase)` makes the boxes links.
export function graph(phases, { href, isDown = false }) {
  const place = h("div.graph.scroll-x");
  let drawn;
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
  const { nodes, edges, ...size } = layOut(phases, { ...BOX, isDown });
  const [width, height] = [size.width + 4, size.height + 4];
  return h(
    "svg:svg", { viewBox: `-2 -2 ${width} ${height}`, width, height, role: "group", "aria-label": `The phases in their order: ${phases.map((phase) => phase.key).join(", ")}` },
    h("svg:marker", { id: "hf-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, h("svg:path.graph-arrow", { d: "M0 0L8 4L0 8z" })),
    edges.map((edge) => h("svg:path.graph-edge", { d: edge.path, "marker-end": "url(#hf-arrow)" })),
    nodes.map((node, index) => toBox(node, phases[index], href)),
  );
}

function toBox({ x, y }, phase, href) {
  const { title, role, risk } = phase;
  const { isAsked, people } = approvalOf(phase);
  const lines = wrap(title, 20);
  const told = `${title}. Role ${role}, risk ${risk}. ${approvalWords(phase)}`;
  return h(
    `svg:${href ? "a" : "g"}.graph-node.tone-${RISK_TONES[risk]}`,
    { transform: `translate(${x} ${y})`, "aria-label": told, ...(href ? { href: href(phase) } : { role: "img" }) },
    h("svg:title", told),
    h("svg:rect.graph-box", { ...BOX, rx: 7 }),
    h("svg:rect.graph-risk", { x: 5, y: 8, width: 4, height: BOX.height - 16, rx: 2 }),
    lines.map((line, index) => h("svg:text.graph-title", { x: 18, y: (lines[1] ? 21 : 28) + index * 16 }, line)),
    h("svg:text.graph-sub", { x: 18, y: 56 }, `${firstLine(role, 13)} · ${risk} risk`),
    isAsked && h("svg:g.tone-waiting", { transform: `translate(${BOX.width - 22} 43)` }, h("svg:path.graph-asked", { d: SHAPES.waiting, "fill-rule": "evenodd" }), people === 2 && h("svg:text.graph-asked.graph-title", { x: -10, y: 12 }, "2")),
  );
}

// What the marks of the graph mean.
export function graphLegend() {
  const risks = Object.entries(RISK_TONES).map(([risk, tone]) => h(`span.tone-${tone}`, h("i.risk-strip"), risk));
  return h("p.legend.small.soft", "Risk:", risks, mark("waiting", "a person decides"));
}
