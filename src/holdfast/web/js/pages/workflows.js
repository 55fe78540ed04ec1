import { getJson, runUrl, whyNot, withQuery } from "../api.js";
import { duration, plural, toMs } from "../format.js";
import { h } from "../h.js";
import { graph, graphLegend } from "../parts/graph.js";
import { button, empty, holds, liveContent, mark, note, notFound, pageHead, pairs, runMark, searchPage, section, table, time } from "../parts/ui.js";
import { navigate } from "../router.js";

const SOURCES = { package: "comes with holdfast", user: "your own", repository: "of the repository" };

export const title = "Workflows";

export const render = (main, context) => (context.params.workflow ? renderOne : renderList)(main, context);

async function getAll(signal) {
	const [{ items }, statistics] = await Promise.all(["/api/workflows", "/api/statistics"].map((path) => getJson(path, signal)));
	return items.map((item) => ({ ...item, past: statistics.items.find((each) => each.workflow === item.name) }));
}

const renderList = (main, context) => searchPage(main, context, { title, load: () => getAll(context.signal), draw: drawList });

function drawList(items, query) {
	const found = items.filter((item) => holds(`${item.name} ${item.description}`, query.get("q")));
	if (!items.length) return empty("There are no workflows", "holdfast brings some along; a repository keeps its own in .holdfast/workflows.");
	const all = h("a.button", { href: "/workflows" }, "Show all workflows");
	if (!found.length) return empty("No workflow fits", `None of ${plural(items.length, "workflow")} holds “${query.get("q")}”.`, all);
	return [h("ul.stack", found.map(row)), h("p.small.soft", "A repository's own workflows are offered when you start a run on it.")];
}

function row({ name, version, source, description, outlook, past }) {
	const path = encodeURIComponent(name);
	const own = source !== "package" && [" ", h("span.tag", "your own")];
	const head = h("h2", h("a.foreign", { href: `/workflows/${path}` }, name), " ", h("span.tag", `v${version}`), own);
	const start = !whyNot("operator") && h("a.button", { href: `/new?workflow=${path}`, "aria-label": `New run of ${name}` }, "New run");
	const strip = h("ol.phase-strip", outlook.phases.map(step));
	return h(
		"li.card.padded.workflow-row",
		h("div.stack.tight", head, h("p.foreign", description), strip, h("p.small.soft", outlook.summary)),
		h("div.workflow-past", pastFacts(past), start),
	);
}

const step = ({ key, tone, people }) =>
	h(`li.tone-${tone}${people ? ".gate" : ""}`, h("i.risk-strip"), h("span.foreign", key), people > 0 && h("span.unseen", ", a person decides"));

const pastFacts = (past) => (past ? pairs([...past.facts, ["Last", time(past.last_run_at)]], "dl.figures") : h("p.soft.small", "Never run"));

function renderOne(main, { params: { workflow: name }, signal, setTitle, setKeys }) {
	const start = () => navigate(withQuery("/new", { workflow: name }));
	setTitle(name);
	setKeys({ n: ["New run of this workflow", start] });
	const { element, refresh } = liveContent({
		signal,
		load: () => Promise.all([getAll(signal), getJson(withQuery("/api/runs", { workflow: name, limit: 10 }), signal)]),
		draw: ([items, { items: runs }]) => {
			const item = items.find((each) => each.name === name);
			if (!item && !runs.length) return notFound(`There is no workflow ${name}. A repository's own are seen when a run is started on it.`);
			const gone = "This workflow is a repository's own, or is gone; only its runs are known here.";
			const more = runs.length === 10 && h("a", { href: withQuery("/", { workflow: name }) }, "All its runs");
			return [item ? describe(item) : note("idle", gone), section("Last runs", lastRuns(runs), more)];
		},
	});
	const head = pageHead(name, button("New run", start, { kind: "main", why: whyNot("operator") }));
	head.firstChild.classList.add("foreign");
	main.append(h("nav.small", { "aria-label": "Where you are" }, h("a", { href: "/workflows" }, title), " ›"), head, element);
	refresh();
	return { update: ({ params }) => params.workflow === name };
}

function describe(item) {
	const { outlook, description, version, source, past } = item;
	const phases = outlook.phases.map((phase) => phaseItem(phase, past?.phases.find(({ key }) => key === phase.key)));
	const soFar = h("div.card.padded.stack.tight", pastFacts(past), past?.note && h("p.small.soft", past.note));
	const cautions = h("ul.card.padded.bullets", outlook.cautions.map((text) => h("li.foreign", text)));
	return h(
		"div.stack",
		h("p.lead.foreign", description),
		h("p.soft", `Version ${version}, ${SOURCES[source] ?? source} · ${outlook.summary}`),
		h("div.card.padded.stack", graph(item, { href: ({ key }) => `#phase-${key}` }), graphLegend()),
		h("div.sides", section("So far", soFar), section("Worth knowing", cautions)),
		section("Phases", h("ol.card.phases", phases)),
	);
}

const phaseItem = ({ key, title: name, risk, tone, approval, facts, instructions }, median) =>
	h(
		"li",
		{ id: `phase-${key}` },
		h(
			"div.phase-head",
			h("h3.foreign", name),
			h("code", key),
			mark(tone, `${risk} risk`, { pill: true, shapeName: "idle" }),
			median && h("span.soft.small.num", median.summary),
		),
		h("p", approval),
		pairs(facts, "dl.facts.small"),
		h("details", h("summary", "What the agent is told"), h("pre.code.foreign", instructions)),
	);

function lastRuns(runs) {
	if (!runs.length) return h("div.card", empty("Never run", "A rehearsal takes seconds and costs nothing."));
	const cells = (run) => [
		runMark(run),
		[h("a.foreign", { href: runUrl(run.run_id) }, run.heading), run.is_simulated && [" ", h("span.tag", "rehearsal")]],
		time(run.created_at),
		duration(run.ended_at && (toMs(run.ended_at) - toMs(run.started_at)) / 1000),
		run.cost,
	];
	return table(["State", "Run", "Started", ">Took", ">Cost"], runs.map(cells));
}
