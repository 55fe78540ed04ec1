// What can be run: every workflow with what it took and cost so far; one workflow is in workflow.js.
import { getJson } from "../api.js";
import { plural } from "../format.js";
import { fill, h } from "../h.js";
import { approvalOf, RISK_TONES, summaryWords } from "../model/phases.js";
import { definePage } from "../page.js";
import { kept } from "../parts/kept.js";
import { holds, searchHead } from "../parts/layout.js";
import { pastFacts } from "../parts/past.js";
import { empty } from "../parts/states.js";
import { whyNot } from "../session.js";
import { renderWorkflow } from "./workflow.js";

export default definePage({
  title: "Workflows",
  render: (main, context) => (context.params.workflow ? renderWorkflow : renderList)(main, context),
});

function renderList(main, context) {
  const { signal } = context;
  let query = context.query;
  let known = null;
  const list = h("div", { class: "stack" });
  const { head, follow } = searchHead("Workflows", context);
  const { element, refresh } = kept({
    signal,
    load: () => Promise.all([getJson("/api/workflows", { signal }), getJson("/api/statistics", { signal })]),
    draw: (data) => ((known = data), drawList(), list),
  });
  function drawList() {
    const [{ items }, { items: past }] = known;
    const found = items.filter((item) => holds(`${item.name} ${item.description}`, query.get("q")));
    if (items.length === 0) return fill(list, empty("There are no workflows", "holdfast brings some along; a repository keeps its own in .holdfast/workflows."));
    if (found.length === 0) return fill(list, empty("No workflow fits", `None of ${plural(items.length, "workflow")} holds “${query.get("q")}”.`, h("a", { class: "button", href: "/workflows" }, "Show all workflows")));
    return fill(list, h("ul", { class: "stack" }, found.map((item) => row(item, past.find((each) => each.workflow === item.name)))), h("p", { class: "small soft" }, "A repository's own workflows are offered when you start a run on it."));
  }
  main.append(head, element);
  refresh();
  return {
    update({ params, query: next }) {
      if (params.workflow) return false;
      query = next;
      follow(next);
      if (known) drawList();
      return true;
    },
  };
}

function row({ name, version, source, description, definition }, past) {
  return h(
    "li",
    { class: "card padded workflow-row" },
    h(
      "div",
      { class: "stack tight" },
      h("h2", {}, h("a", { href: `/workflows/${encodeURIComponent(name)}`, class: "foreign" }, name), " ", h("span", { class: "tag" }, `v${version}`), source !== "package" && [" ", h("span", { class: "tag" }, "your own")]),
      h("p", { class: "foreign" }, description),
      h("ol", { class: "phase-strip" }, definition.phases.map(step)),
      h("p", { class: "small soft" }, summaryWords(definition)),
    ),
    h("div", { class: "workflow-past" }, pastFacts(past), !whyNot("operator") && h("a", { class: "button", href: `/new?workflow=${encodeURIComponent(name)}`, "aria-label": `New run of ${name}` }, "New run")),
  );
}

function step(phase) {
  const { isAsked } = approvalOf(phase);
  return h("li", { class: `tone-${RISK_TONES[phase.risk]}${isAsked ? " asked" : ""}` }, h("i", { class: "risk-strip" }), h("span", { class: "foreign" }, phase.key), isAsked && h("span", { class: "unseen" }, ", a person decides"));
}
