// What can be run: every workflow with what it took and cost so far, and one with its graph, phases and last runs.
import { getJson, withQuery } from "../api.js";
import { duration, money, plural, runTitle, toMs } from "../format.js";
import { h } from "../h.js";
import { approvalOf, approvalWords, RISK_TONES, risksOf, summaryWords } from "../model/phases.js";
import { graph, graphLegend } from "../parts/graph.js";
import { button, empty, holds, kept, mark, notFound, pageHead, pairs, searchPage, section, statusMark, table, time } from "../parts/ui.js";
import { navigate } from "../router.js";
import { whyNot } from "../session.js";

const SOURCES = { package: "comes with holdfast", user: "your own", repository: "of the repository" };

export default {
  title: "Workflows",
  render: (main, context) => (context.params.workflow ? renderOne : renderList)(main, context),
};

const getAll = (signal, ...paths) => Promise.all(["/api/workflows", "/api/statistics", ...paths].map((path) => getJson(path, { signal })));

const renderList = (main, context) => searchPage(main, context, { title: "Workflows", load: () => getAll(context.signal), draw: drawList });

function drawList([{ items }, { items: past }], query) {
  const found = items.filter((item) => holds(`${item.name} ${item.description}`, query.get("q")));
  if (!items.length) return empty("There are no workflows", "holdfast brings some along; a repository keeps its own in .holdfast/workflows.");
  if (!found.length) return empty("No workflow fits", `None of ${plural(items.length, "workflow")} holds “${query.get("q")}”.`, h("a.button", { href: "/workflows" }, "Show all workflows"));
  return [h("ul.stack", found.map((item) => row(item, past.find((each) => each.workflow === item.name)))), h("p.small.soft", "A repository's own workflows are offered when you start a run on it.")];
}

function row({ name, version, source, description, definition }, past) {
  const path = encodeURIComponent(name);
  const title = h("h2", h("a.foreign", { href: `/workflows/${path}` }, name), " ", h("span.tag", `v${version}`), source !== "package" && [" ", h("span.tag", "your own")]);
  return h(
    "li.card.padded.workflow-row",
    h("div.stack.tight", title, h("p.foreign", description), h("ol.phase-strip", definition.phases.map(step)), h("p.small.soft", summaryWords(definition))),
    h("div.workflow-past", pastFacts(past), !whyNot("operator") && h("a.button", { href: `/new?workflow=${path}`, "aria-label": `New run of ${name}` }, "New run")),
  );
}

function step(phase) {
  const { isAsked } = approvalOf(phase);
  return h(`li.tone-${RISK_TONES[phase.risk]}${isAsked ? ".asked" : ""}`, h("i.risk-strip"), h("span.foreign", phase.key), isAsked && h("span.unseen", ", a person decides"));
}

function pastFacts(past) {
  if (!past) return h("p.soft.small", "Never run here");
  const { completed = 0, failed = 0, cancelled = 0 } = past.by_state;
  const told = Object.entries({ completed, failed, open: past.runs - completed - failed - cancelled, aborted: cancelled }).filter(([, number]) => number);
  return pairs([
    ["Median time", duration(past.median_s)],
    ["Median cost", past.is_rehearsed ? "only rehearsed" : money(past.median_cost_usd)],
    [plural(past.runs, "run"), told.map(([word, number]) => `${number} ${word}`).join(", ")],
    ["Last", time(past.last_run_at)],
  ], "dl.figures");
}

function renderOne(main, { params: { workflow: name }, signal, setTitle, setKeys }) {
  const start = () => navigate(withQuery("/new", { workflow: name }));
  setTitle(name);
  setKeys({ n: ["New run of this workflow", start] });
  const { element, refresh } = kept({
    signal,
    load: () => getAll(signal, withQuery("/api/runs", { workflow: name, limit: 10 })),
    draw: ([workflows, statistics, { items: runs }]) => {
      const item = workflows.items.find((each) => each.name === name);
      if (!item && !runs.length) return notFound(`There is no workflow ${name}. A repository's own are seen when a run is started on it.`);
      const about = item ? describe(item, statistics.items.find((each) => each.workflow === name)) : h("p.note.tone-idle", "This workflow is a repository's own, or is gone; only its runs are known here.");
      return [about, section("Last runs", lastRuns(runs), runs.length === 10 && h("a", { href: withQuery("/", { workflow: name }) }, "All its runs"))];
    },
  });
  const head = pageHead(name, button("New run", start, { kind: "main", why: whyNot("operator") }));
  head.firstChild.classList.add("foreign");
  main.append(h("nav.small", { "aria-label": "Where you are" }, h("a", { href: "/workflows" }, "Workflows"), " ›"), head, element);
  refresh();
  return { update: ({ params }) => params.workflow === name };
}

function describe({ definition, description, version, source }, past) {
  const note = past?.is_rehearsed ? "Times are of rehearsals: no run with real models is completed yet." : past?.median_waited_s > 1 && `Of that time, people were waited for ${duration(past.median_waited_s)}.`;
  const phases = definition.phases.map((phase) => phaseItem(phase, definition.roles.find((role) => role.id === phase.role), past?.phases.find(({ key }) => key === phase.key)));
  return h(
    "div.stack",
    h("p.lead.foreign", description),
    h("p.soft", `Version ${version}, ${SOURCES[source] ?? source} · ${summaryWords(definition)}`),
    h("div.card.padded.stack", graph(definition.phases, { href: ({ key }) => `#phase-${key}` }), graphLegend()),
    h("div.sides", section("So far", h("div.card.padded.stack.tight", pastFacts(past), note && h("p.small.soft", note))), section("Worth knowing", h("ul.card.padded.bullets", risksOf(definition).map((text) => h("li.foreign", text))))),
    section("Phases", h("ol.card.phases", phases)),
  );
}

function phaseItem(phase, role, median) {
  const { key, title, risk, needs, attempts, checks, expected_artifact: artifact } = phase;
  const facts = [
    ["Role", `${role.id}: ${role.required_capabilities.join(", ") || "anyone"}${role.preferred_backends.length ? `; preferably ${role.preferred_backends.join(", ")}` : ""}`],
    ["Hands in", `${artifact.path} as ${artifact.schema}`],
    needs?.length && ["After", needs.join(", ")],
    ["Time limit", `${duration(phase.timeout_seconds)}${attempts > 1 ? `, ${attempts} attempts` : ""}`],
    phase.budget_usd && ["Money limit", money(phase.budget_usd)],
    phase.read_only && ["Files", "may be read only"],
    checks?.length && ["Must pass", checks.map((argv) => argv.join(" ")).join("; ")],
  ];
  return h(
    "li", { id: `phase-${key}` },
    h("div.phase-head", h("h3.foreign", title), h("code", key), mark(RISK_TONES[risk], `${risk} risk`, { pill: true, shapeName: "idle" }), median && h("span.soft.small.num", `${duration(median.median_s)} · ${money(median.median_cost_usd)}`)),
    h("p", approvalWords(phase)),
    pairs(facts, "dl.facts.small"),
    h("details", h("summary", "What the agent is told"), h("pre.code.foreign", phase.instructions)),
  );
}

function lastRuns(runs) {
  if (!runs.length) return h("div.card", empty("Never run here", "A rehearsal with the simulated model takes seconds and pays nothing."));
  return table(["State", "Run", "Started", ">Took", ">Cost"], runs.map((run) => [
    statusMark(run.state, { pauseReason: run.pause_reason }),
    [h("a.foreign", { href: `/runs/${run.run_id}` }, runTitle(run)), run.is_simulated && [" ", h("span.tag", "rehearsal")]],
    time(run.created_at),
    duration(run.ended_at && (toMs(run.ended_at) - toMs(run.started_at)) / 1000),
    money(run.cost_usd),
  ]));
}
