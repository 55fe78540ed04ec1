import { getJson } from "../api.js";
import { count, plural } from "../format.js";
import { h } from "../h.js";
import { chip, chips, empty, holds, mark, pairs, searchPage } from "../parts/ui.js";
import { setQuery } from "../router.js";

const FILTERS = { "": "All", ready: "Ready", missing: "Something missing", rehearsal: "For rehearsals" };
const LEAD = "A persona fills a role of a workflow: a model, instructions, tools and limits. A run keeps the personas it was started with.";

export const title = "Personas";

export function render(main, context) {
	const { persona } = context.params;
	const page = searchPage(main, context, {
		title,
		lead: h("p.soft.lead", LEAD),
		load: async () => (await getJson("/api/personas/availability", context.signal)).items,
		draw: (known, query) => drawList(known, query, persona),
	});
	page.loaded.then(() => document.getElementById(`persona-${persona}`)?.scrollIntoView({ block: "center" }));
	return page;
}

function drawList(known, query, opened) {
	const show = FILTERS[query.get("show")] ? query.get("show") : "";
	const words = ({ name, portrait: { description, backend, engine, capabilities } }) => [name, description, backend, engine, ...capabilities].join(" ");
	const byText = known.filter((each) => holds(words(each), query.get("q")));
	const inGroup = (group) => byText.filter((each) => !group || each.portrait.group === group);
	const found = inGroup(show).map((each) => item(each, each.name === opened));
	const filter = ([group, label]) => chip(label, group === show, () => setQuery({ show: group }), h("span.n", count(inGroup(group).length)));
	const all = h("a.button", { href: "/personas" }, "Show all personas");
	const none = empty("No persona fits", `None of ${plural(known.length, "persona")} is left by this search and filter.`, all);
	return [chips("Which personas", Object.entries(FILTERS).map(filter)), found.length ? h("ul.personas", found) : none];
}

function item({ name, reasons, remedy, portrait }, open) {
	const { status, instructions } = portrait;
	const prompt = instructions && h("pre.code.foreign", { tabindex: "0" }, instructions);
	return h(
		"li.card.padded.persona",
		{ id: `persona-${name}` },
		h("div.page-head.flat", h("h2.foreign", name), mark(status.tone, status.text)),
		h("p.foreign", portrait.description),
		reasons.length > 0 && h("p.small", `${reasons.join(", ")}. ${remedy}`),
		h("p.foreign", h("span.tag", portrait.backend), " ", portrait.engine),
		h("p.small.soft", portrait.price),
		h("p.tags", portrait.capabilities.map((each) => h("span.tag", each))),
		h("details", { open }, h("summary", "Tools, limits and instructions"), h("div.stack.tight", pairs(portrait.facts, "dl.pairs.small"), prompt)),
	);
}
