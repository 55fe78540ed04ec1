import { count, money } from "../../format.js";
import { h } from "../../h.js";
import { drawer, empty, scrollable } from "../../parts/ui.js";

export function cost(panel, view) {
	const place = h("div.stack");
	const draw = drawer(place, view);
	const update = () => draw(view.run.seq, async () => figuresOf(view.run, await view.get("/cost")));
	panel.append(place);
	update();
	return { update };
}

function figuresOf(run, { spent, reserved_usd: reserved, perhaps_paid: open, input_tokens: input, output_tokens: output, tables, ...sums }) {
	const unanswered = sums.perhaps_paid_usd;
	if (!sums.spent_usd && !sums.simulated_usd && !reserved) return h("div.card", empty("Nothing spent", "No model call has been paid for."));
	const figures = [
		["Spent", spent, limitBar(run)],
		["Reserved for calls under way", money(reserved - unanswered), h("p.small.soft", "Counts against the limits.")],
		unanswered && ["Perhaps paid", money(unanswered), h("p.small.soft", "For calls that ended without an answer. Counts against the limits.")],
		sums.estimated_usd && ["Estimated", money(sums.estimated_usd), h("p.small.soft", "Of what was spent: from the tokens that a program reported.")],
		["Tokens", `${count(input)} in`, h("p.small.soft.num", `${count(output)} out`)],
	].filter(Boolean);
	const figure = ([label, value, more]) => h("div.card.padded", h("div.small.soft", label), h("div.big.num", value), more);
	return [h("div.cost-figures", figures.map(figure)), open.length ? openCalls(run, open) : null, tables.map((each) => tableOf(each, sums.is_simulated ? "Simulated" : "Spent"))];
}

function limitBar({ budget_usd: budget, cost_usd: cost, simulated_usd: simulated, is_simulated: isRehearsal }) {
	const spent = isRehearsal ? simulated : cost;
	if (budget === null) return h("p.small.soft", "No limit of its own.");
	const meter = { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: Math.min(1, spent / budget), "aria-label": "Part of the budget that is used" };
	return h("div", h("meter", meter), h("p.small.soft.num", `of ${money(budget)}`));
}

function openCalls(run, calls) {
	const line = ({ call, step, model, usd }) => h("tr", h("td.foreign", step), h("td.foreign", model), h("td.num", money(usd)), h("td", h("code", call.slice(0, 8))));
	const heads = ["Call without an answer", "Model", "Perhaps paid", "Its name"].map((title, at) => h(at === 2 ? "th.num" : "th", { scope: "col" }, title));
	const table = h("table.table.cost", h("thead", h("tr", heads)), h("tbody", calls.map(line)));
	const how = h("p.small.soft.padded", "If you know what one has cost: ", h("code", `holdfast budget ${run.run_id.slice(0, 8)} --settle NAME=USD`));
	return scrollable("div.card", "Calls that were perhaps paid", table, how);
}

function tableOf({ by, has_limits: hasLimits, rows }, amount) {
	const columns = [
		[amount, "", (row) => money(row.spent_usd)],
		hasLimits && ["Limit", ".soft", (row) => money(row.limit_usd)],
		["Calls", "", (row) => count(row.calls)],
		["Tokens in", ".soft", (row) => count(row.input_tokens)],
		["Tokens out", ".soft", (row) => count(row.output_tokens)],
	].filter(Boolean);
	const head = (tag, ...content) => h(tag, { scope: "col" }, content);
	const heads = [head("th", by), head("th", h("span.unseen", "Share")), columns.map(([title]) => head("th.num", title))];
	const line = (row) => [h("th.foreign", { scope: "row" }, row.name), h("td.part", bar(row.share)), columns.map(([, look, show]) => h(`td.num${look}`, show(row)))];
	const table = h("table.table.cost", h("thead", h("tr", heads)), h("tbody", rows.map((row) => h("tr", line(row)))));
	return scrollable("div.card", `Cost by ${by.toLowerCase()}`, table);
}

const bar = (part) =>
	h(
		"svg:svg.bar-line",
		{ viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
		[["track", 100], ["value", Math.max(0.5, part * 100)]].map(([name, width]) => h(`svg:rect.${name}`, { width, height: 8 })),
	);
