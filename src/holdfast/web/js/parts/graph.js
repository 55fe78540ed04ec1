import { firstLine, SHAPES } from "../format.js";
import { fill, h } from "../h.js";
import { mark } from "./ui.js";

const BOX = { width: 184, height: 66 };
const RISKS = { low: "good", medium: "busy", high: "waiting", critical: "bad" };

// Left to right where there is room, downwards where there is not. `href(phase)` makes the boxes links.
export function graph({ outlook: { phases }, across, down }, { href, isDown = false }) {
	const place = h("div.graph.scroll-x");
	let drawn;
	const draw = (layout) => {
		if (layout !== drawn) fill(place, picture(phases, layout, href));
		drawn = layout;
	};
	draw(isDown ? down : across);
	if (!isDown) new ResizeObserver(([{ contentRect }]) => draw(contentRect.width < Math.min(560, across.width) ? down : across)).observe(place);
	return place;
}

function picture(phases, { nodes, edges, ...size }, href) {
	const [width, height] = [size.width + 4, size.height + 4];
	const label = `The phases in their order: ${phases.map((phase) => phase.key).join(", ")}`;
	const arrow = { id: "hf-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" };
	return h(
		"svg:svg",
		{ viewBox: `-2 -2 ${width} ${height}`, width, height, role: "group", "aria-label": label },
		h("svg:marker", arrow, h("svg:path.graph-arrow", { d: "M0 0L8 4L0 8z" })),
		edges.map((d) => h("svg:path.graph-edge", { d, "marker-end": "url(#hf-arrow)" })),
		nodes.map((node, index) => toBox(node, phases[index], href)),
	);
}

function toBox({ x, y }, phase, href) {
	const { title, lines, role, risk, people } = phase;
	const label = `${title}. Role ${role}, risk ${risk}. ${phase.approval}`;
	const approvalMark = h(
		"svg:g.tone-waiting",
		{ transform: `translate(${BOX.width - 22} 43)` },
		h("svg:path.graph-asked", { d: SHAPES.waiting, "fill-rule": "evenodd" }),
		people === 2 && h("svg:text.graph-asked.graph-title", { x: -10, y: 12 }, "2"),
	);
	return h(
		`svg:${href ? "a" : "g"}.graph-node.tone-${phase.tone}`,
		{ transform: `translate(${x} ${y})`, "aria-label": label, ...(href ? { href: href(phase) } : { role: "img" }) },
		h("svg:title", label),
		h("svg:rect.graph-box", { ...BOX, rx: 7 }),
		h("svg:rect.graph-risk", { x: 5, y: 8, width: 4, height: BOX.height - 16, rx: 2 }),
		lines.map((line, index) => h("svg:text.graph-title", { x: 18, y: (lines[1] ? 21 : 28) + index * 16 }, line)),
		h("svg:text.graph-sub", { x: 18, y: 56 }, `${firstLine(role, 13)} · ${risk} risk`),
		people > 0 && approvalMark,
	);
}

export function graphLegend() {
	const risks = Object.entries(RISKS).map(([risk, tone]) => h(`span.tone-${tone}`, h("i.risk-strip"), risk));
	return h("p.legend.small.soft", "Risk:", risks, mark("waiting", "a person decides"));
}
