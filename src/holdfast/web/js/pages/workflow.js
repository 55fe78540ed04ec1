// One workflow: its graph, what each phase does and asks, and how its last runs went.
import { getJson, withQuery } from "../api.js";
import { duration, money, runTitle, toMs } from "../format.js";
import { h } from "../h.js";
import { approvalWords, RISK_TONES, risksOf, summaryWords } from "../model/phases.js";
import { button } from "../parts/button.js";
import { graph, graphLegend } from "../parts/graph.js";
import { kept } from "../parts/kept.js";
import { pairs, section, table } from "../parts/layout.js";
import { pastFacts } from "../parts/past.js";
import { empty, notFound } from "../parts/states.js";
import { mark, statusMark } from "../parts/status.js";
import { time } from "../parts/time.js";
import { navigate } from "../router.js";
import { whyNot } from "../session.js";

const SOURCES = { package: "comes with holdfast", user: "your own", repository: "of the repository" };

export function renderWorkflow(main, { params, signal, setTitle, setKeys }) {
  const name = params.workflow;
  const start = () => navigate(withQuery("/new", { workflow: name }));
  setTitle(name);
  setKeys({ n: ["New run of this workflow", start] });
  const { element, refresh } = kept({
    signal,
    load: () => Promise.all(["/api/workflows", "/api/statistics", withQuery("/api/runs", { workflow: name, limit: 10 })].map((path) => getJson(path, { signal }))),
    draw: ([workflows, statistics, { items: runs }]) => {
      const item = workflows.items.find((each) => each.name === name);
      if (!item && runs.length === 0) return notFound(`There is no workflow ${name}. A repository's own are seen when a run is started on it.`);
      const about = item ? describe(item, statistics.items.find((each) => each.workflow === name)) : h("p", { class: "note tone-idle" }, "This workflow is a repository's own, or is gone; only its runs are known here.");
      return [about, section("Last runs", lastRuns(runs), runs.length === 10 && h("a", { href: withQuery("/", { workflow: name }) }, "All its runs"))];
    },
  });
  main.append(h("nav", { "aria-label": "Where you are", class: "small" }, h("a", { href: "/workflows" }, "Workflows"), " ›"), h("div", { class: "page-head" }, h("h1", { tabindex: "-1", class: "foreign" }, name), button("New run", start, { kind: "main", why: whyNot("operator") })), element);
  refresh();
  return { update: (next) => next.params.workflow === name };
}

function describe({ definition, description, version, source }, past) {
  const medians = new Map((past?.phases ?? []).map((phase) => [phase.key, phase]));
  const note = past?.is_rehearsed ? "Times are of rehearsals: no run with real models is completed yet." : past?.median_waited_s > 1 && `Of that time, people were waited for ${duration(past.median_waited_s)}.`;
  return h(
    "div",
    { class: "stack" },
    h("p", { class: "lead foreign" }, description),
    h("p", { class: "soft" }, `Version ${version}, ${SOURCES[source] ?? source} · ${summaryWords(definition)}`),
    h("div", { class: "card padded stack" }, graph(definition.phases, { href: (phase) => `#phase-${phase.key}` }), graphLegend()),
    h("div", { class: "sides" }, section("So far", h("div", { class: "card padded stack tight" }, pastFacts(past), note && h("p", { class: "small soft" }, note))), section("Worth knowing", h("ul", { class: "card padded bullets" }, risksOf(definition).map((text) => h("li", { class: "foreign" }, text))))),
    section("Phases", h("ol", { class: "card phases" }, definition.phases.map((phase) => phaseItem(phase, definition.roles.find((role) => role.id === phase.role), medians.get(phase.key))))),
  );
}

function phaseItem(phase, role, median) {
  const artifact = phase.expected_artifact;
  const facts = [
    ["Role", `${role.id}: ${role.required_capabilities.join(", ") || "anyone"}${role.preferred_backends.length ? `; preferably ${role.preferred_backends.join(", ")}` : ""}`],
    ["Hands in", `${artifact.path} as ${artifact.schema}`],
    phase.needs?.length && ["After", phase.needs.join(", ")],
    ["Time limit", `${duration(phase.timeout_seconds)}${phase.attempts > 1 ? `, ${phase.attempts} attempts` : ""}`],
    phase.budget_usd && ["Money limit", money(phase.budget_usd)],
    phase.read_only && ["Files", "may be read only"],
    phase.checks?.length && ["Must pass", phase.checks.map((argv) => argv.join(" ")).join("; ")],
  ];
  return h(
    "li",
    { id: `phase-${phase.key}` },
    h("div", { class: "phase-head" }, h("h3", { class: "foreign" }, phase.title), h("code", {}, phase.key), mark(RISK_TONES[phase.risk], `${phase.risk} risk`, { pill: true, shapeName: "idle" }), median && h("span", { class: "soft small num" }, `${duration(median.median_s)} · ${money(median.median_cost_usd)}`)),
    h("p", {}, approvalWords(phase)),
    pairs(facts, { class: "facts small" }),
    h("details", {}, h("summary", {}, "What the agent is told"), h("pre", { class: "code foreign" }, phase.instructions)),
  );
}

function lastRuns(runs) {
  if (runs.length === 0) return h("div", { class: "card" }, empty("Never run here", "A rehearsal with the simulated model takes seconds and pays nothing."));
  const title = (run) => [h("a", { href: `/runs/${encodeURIComponent(run.run_id)}`, class: "foreign" }, runTitle(run)), run.is_simulated && [" ", h("span", { class: "tag" }, "rehearsal")]];
  const took = (run) => duration(run.ended_at ? (toMs(run.ended_at) - toMs(run.started_at)) / 1000 : null);
  return table(["State", "Run", "Started", ">Took", ">Cost"], runs.map((run) => [statusMark(run.state, { pauseReason: run.pause_reason }), title(run), time(run.created_at), took(run), money(run.cost_usd)]));
}
