// By what the list of runs is filtered and ordered; the address has all of it.
import { clock, day } from "../format.js";
import { h } from "../h.js";
import { setQuery } from "../router.js";
import { field, options } from "./ui.js";

export const FILTERS = ["state", "kind", "workflow", "flow", "tag", "text", "repo", "person", "since", "until", "order"];
const NAMES = { kind: "kind", flow: "flow", tag: "tag", repo: "repository", person: "started by", since: "since", until: "before" };
const ORDERS = { "": "Newest first", oldest: "Oldest first", costliest: "Highest cost first", cheapest: "Lowest cost first", longest: "Longest first", shortest: "Shortest first" };

// Who, where and when: folded away until somebody looks for it.
export function moreFilters(query) {
	const input = (name, type, label) => {
		const props = { type, value: type === "date" ? localDay(query.get(name)) : (query.get(name) ?? "") };
		const made = h("input.input", { ...props, onchange: () => setQuery({ [name]: type === "date" ? toMoment(made.value) : made.value.trim() }) });
		return field(label, made);
	};
	const order = h("select.input", { onchange: () => setQuery({ order: order.value }) }, options(Object.entries(ORDERS), query.get("order") ?? ""));
	const kind = h("select.input", { onchange: () => setQuery({ kind: kind.value }) }, options([["", "Workflows and flows"], ["workflow", "Workflows"], ["flow", "Flows"]], query.get("kind") ?? ""));
	const names = ["kind", "flow", "tag", "repo", "person", "since", "until"];
	const body = h("div.more-fields", field("Kind", kind), input("flow", "text", "Flow"), input("tag", "text", "Tag of a flow"), input("repo", "text", "Repository"), input("person", "text", "Started by"), input("since", "date", "Since"), input("until", "date", "Before"), field("Order", order));
	return h("details.more-filters", { open: names.some((name) => query.get(name)) }, h("summary.small", "More filters"), body);
}

export const valuesOf = (fields) => JSON.stringify([...fields.querySelectorAll("input, select")].map(({ value }) => value.trim()));
const moment = (value) => (Number.isNaN(Date.parse(value)) ? value : `${day(value, Date.now())} ${clock(value, true)}`);
const toMoment = (day) => (day ? new Date(`${day}T00:00`).toISOString() : "");
const localDay = (moment) => (moment && !Number.isNaN(Date.parse(moment)) ? new Date(Date.parse(moment) - new Date(moment).getTimezoneOffset() * 60_000).toISOString().slice(0, 10) : "");

// What is filtered by beside states and words, each to be taken away; also times that no field can show.
export function activeFilters(query) {
	const item = ([name, label]) => {
		const value = query.get(name);
		const words = `${label} ${name === "since" || name === "until" ? moment(value) : value}`;
		return h("button.chip", { type: "button", "aria-label": `Take away: ${words}`, onclick: () => setQuery({ [name]: "" }) }, h("span.clip.foreign", words), " ✕");
	};
	return Object.entries(NAMES).filter(([name]) => query.get(name)).map(item);
}
