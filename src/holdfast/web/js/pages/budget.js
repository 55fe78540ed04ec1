import { getJson } from "../api.js";
import { day as shortDay, money } from "../format.js";
import { fill, h } from "../h.js";
import { chips, empty, liveContent, pageHead, table } from "../parts/ui.js";

const RANGES = [7, 30, 90];

export const title = "Budget";

export function render(main, { query, signal }) {
	let range;
	const ranges = chips("How many days");
	const { element, refresh } = liveContent({ signal, load: () => getJson(`/api/budget?days=${range}`, signal), draw: (report) => draw(report, range) });
	const update = (next) => {
		range = RANGES.find((days) => String(days) === next.query.get("days")) ?? 30;
		fill(ranges, RANGES.map((days) => h("a.chip", { href: `/budget?days=${days}`, "aria-current": days === range && "true" }, `${days} days`)));
		refresh();
		return true;
	};
	main.append(pageHead(title, ranges), element);
	update({ query });
	return { update };
}

function draw(report, range) {
	const { chart, day_limit_usd: limit, simulated_usd: simulated } = report;
	const played = simulated > 0 && h("p.soft", `Rehearsals: ${money(simulated)} simulated, not counted here.`);
	const part = (...figures) => h("section.card.padded.stack", head(`The last ${range} days`, money(chart.total_usd)), figures, played);
	if (!chart.total_usd) return [today(report), part(empty("Nothing was spent", `No model call was paid for in the last ${range} days.`))];
	const rows = chart.days.filter((each) => each.spent_usd > 0).reverse().map((each) => [each.name, money(each.spent_usd)]);
	return [
		today(report),
		part(figure(chart, limit), h("details", h("summary.small", "As a table"), table(["Day", ">Spent"], rows))),
		h(
			"div.thirds",
			shares("By workflow", report.by_workflow, "/workflows/"),
			shares("By persona", report.by_persona, "/personas/"),
			shares("By model", report.by_model),
		),
	];
}

const head = (text, ...amount) => h("div.page-head.flat", h("h2", text), h("p.big.num", amount));

function today({ spent_today_usd: spent, day_limit_usd: limit, today: { tone, text } }) {
	const valueText = `${money(spent)} of ${money(limit)}`;
	const meter = { role: "meter", "aria-label": "Spent today", "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuetext": valueText };
	const width = `${Math.min(100, (spent / limit) * 100)}%`;
	return h(
		`section.card.padded.stack.tight.tone-${tone}`,
		head("Today", money(spent), limit !== null && h("span.soft", ` of ${money(limit)}`)),
		limit !== null && h("div.meter", { ...meter, "aria-valuenow": Math.min(spent, limit) }, h("i", { style: { width } })),
		h("p.soft", text),
	);
}

// Drawn for the width there is, so that its letters stay as large as the others.
function figure(chart, limit) {
	const place = h("div.bars");
	new ResizeObserver(([{ contentRect }]) => fill(place, bars(chart, limit, Math.max(240, Math.round(contentRect.width))))).observe(place);
	return place;
}

function bars({ days, lines_usd: lines, has_limit: hasLimit }, limit, width) {
	const [left, right, top, deep] = [54, 18, 20, 170];
	const y = (usd) => top + deep * (1 - usd / lines.at(-1));
	const step = (width - left - right) / days.length;
	const every = Math.ceil(64 / step);
	const line = (usd, name) => h(`svg:line.${name}`, { x1: left, x2: width - right, y1: y(usd), y2: y(usd) });
	const text = (x, at, name, words) => h(`svg:text.axis.${name}`, { x, y: at }, words);
	const bar = ({ name: day, spent_usd: usd }, index) => {
		const x = left + index * step;
		const date = shortDay(`${day}T12:00:00Z`, Date.now());
		const isOver = limit !== null && usd >= limit;
		const high = Math.max(2, top + deep - y(usd));
		const tooltip = h("svg:title", `${date}: ${money(usd)}${isOver ? ", the limit was reached" : ""}`);
		return h(
			`svg:g.tone-${isOver ? "bad" : "busy"}`,
			h("svg:rect.bar-hit", { x, y: top, width: step, height: deep }, tooltip),
			usd > 0 && h("svg:rect.bar-fill", { x: x + step * 0.14, y: top + deep - high, width: step * 0.72, height: high, rx: Math.min(3, step * 0.2) }),
			(days.length - 1 - index) % every === 0 && text(x + step / 2, top + deep + 18, "middle", date),
		);
	};
	const largest = money(Math.max(...days.map((each) => each.spent_usd)));
	const label = `Spent per day, at most ${largest}; the table below has the figures`;
	return h(
		"svg:svg",
		{ viewBox: `0 0 ${width} ${top + deep + 26}`, role: "img", "aria-label": label },
		lines.map((usd) => [line(usd, "grid"), text(left - 8, y(usd) + 4, "end", money(usd))]),
		days.map(bar),
		hasLimit && h("svg:g.tone-bad", line(limit, "limit"), text(width - right, y(limit) - 6, "end.limit-text", `limit ${money(limit)}`)),
	);
}

function shares(text, all, path) {
	const toName = (name) => (path && name ? h("a.foreign", { href: path + encodeURIComponent(name) }, name) : h("span.foreign", name || "not told"));
	const row = ({ name, spent_usd: usd, share }) => {
		const amount = h("span.num", money(usd), h("span.soft", ` ${Math.round(share * 100)} %`));
		return h("li", toName(name), amount, h("i.share", { style: { width: `${share * 100}%` } }));
	};
	const rest = all.length > 12 && h("p.small.soft", `and ${all.length - 12} more`);
	return h("section.card.padded.stack.tight", h("h2", text), h("ul.shares", all.slice(0, 12).map(row)), rest);
}
