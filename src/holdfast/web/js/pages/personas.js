// Who can do the work: model, tools, limits, and whether each could work now; if not, what is missing.
import { getJson } from "../api.js";
import { count, money, plural } from "../format.js";
import { fill, h } from "../h.js";
import { definePage } from "../page.js";
import { kept } from "../parts/kept.js";
import { holds, pairs, searchHead } from "../parts/layout.js";
import { empty } from "../parts/states.js";
import { mark } from "../parts/status.js";
import { setQuery } from "../router.js";

const isSimulated = (persona) => persona.definition.backend === "simulated";
const FILTERS = { "": ["All", () => true], ready: ["Ready", (each) => each.is_available && !isSimulated(each)], missing: ["Something missing", (each) => !each.is_available], rehearsal: ["For rehearsals", isSimulated] };

export default definePage({
  title: "Personas",
  async render(main, context) {
    const { params, signal } = context;
    let { query } = context;
    let known = null;
    const list = h("div", { class: "stack" });
    const { head, follow } = searchHead("Personas", context);
    const { element, refresh } = kept({ signal, load: () => load(signal), draw: (personas) => ((known = personas), drawList(), list) });
    function drawList() {
      const show = FILTERS[query.get("show")] ? query.get("show") : "";
      const byText = known.filter(({ name, description, definition }) => holds([name, description, definition.backend, definition.model, ...definition.capabilities].join(" "), query.get("q")));
      const found = byText.filter(FILTERS[show][1]);
      const chip = ([key, [label, fits]]) => h("button", { type: "button", class: "chip", "aria-pressed": String(key === show), onclick: () => setQuery({ show: key }) }, label, h("span", { class: "n" }, count(byText.filter(fits).length)));
      const none = empty("No persona fits", `None of ${plural(known.length, "persona")} is left by this search and filter.`, h("a", { class: "button", href: "/personas" }, "Show all personas"));
      fill(list, h("div", { class: "chips", role: "group", "aria-label": "Which personas" }, Object.entries(FILTERS).map(chip)), found.length ? h("ul", { class: "personas" }, found.map((each) => item(each, each.name === params.persona))) : none);
    }
    main.append(head, h("p", { class: "soft lead" }, "A persona fills a role of a workflow: a model, instructions, tools and limits. A run keeps the personas it was started with."), element);
    refresh().then(() => document.getElementById(`persona-${params.persona}`)?.scrollIntoView({ block: "center" }));
    return {
      update({ params: next, query: asked }) {
        if (next.persona !== params.persona) return false;
        query = asked;
        follow(asked);
        if (known) drawList();
        return true;
      },
    };
  },
});

async function load(signal) {
  const [personas, availability] = await Promise.all(["/api/personas", "/api/personas/availability"].map((path) => getJson(path, { signal })));
  const byName = new Map(availability.items.map((each) => [each.name, each]));
  const rank = (each) => (isSimulated(each) ? 2 : each.is_available ? 0 : 1);
  return personas.items.map((each) => ({ ...byName.get(each.name), ...each })).sort((a, b) => rank(a) - rank(b));
}

function item(persona, isOpen) {
  const { name, definition, reasons = [] } = persona;
  const ready = isSimulated(persona) ? mark("idle", "Rehearsals only") : persona.is_available ? mark("good", "Ready") : mark("waiting", "Not ready");
  return h(
    "li",
    { class: "card padded persona", id: `persona-${name}` },
    h("div", { class: "page-head flat" }, h("h2", { class: "foreign" }, name), ready),
    h("p", { class: "foreign" }, persona.description),
    reasons.length > 0 && h("p", { class: "small" }, `${reasons.join(", ")}. ${persona.remedy}`),
    h("p", { class: "foreign" }, h("span", { class: "tag" }, definition.backend), " ", persona.model_id || definition.argv?.join(" ")),
    h("p", { class: "small soft" }, priceWords(persona)),
    h("p", { class: "tags" }, definition.capabilities.map((each) => h("span", { class: "tag" }, each))),
    h("details", { open: isOpen }, h("summary", {}, "Tools, limits and instructions"), details(persona)),
  );
}

function priceWords({ definition, prices }) {
  if (isSimulated({ definition })) return "Pays nothing";
  if (prices) return `${money(prices.input_usd)} in, ${money(prices.output_usd)} out per million tokens, as of ${prices.checked}`;
  return definition.backend === "command" ? "Paid by the program's own account" : "No price is known; its calls count as $0";
}

const NETWORK = { allow: "commands may use the network", ask: "a person decides when a command wants the network", deny: "commands are cut off from the network" };

function details({ definition, tools = [], source, version, hash }) {
  const { read, write, commands, network } = definition.permissions;
  const rules = [["read", read], ["write", write], ["run", commands]].flatMap(([what, { allow, ask, deny }]) => [["", allow], ["ask before: ", ask], ["never ", deny]].filter(([, each]) => each.length).map(([how, each]) => `${how}${what} ${each.join(", ")}`));
  const facts = [
    ["Tools", tools.join(", ") || "the program's own"],
    ["Limits", [...rules, NETWORK[network]].join("; ")],
    definition.fallback_models.length && ["If it fails", definition.fallback_models.join(", ")],
    definition.max_output_tokens && ["Longest answer", `${count(definition.max_output_tokens)} tokens`],
    definition.base_url && ["Server", definition.base_url],
    ["Version", `${version}, ${source}, ${hash.slice(0, 12)}`],
  ];
  return h("div", { class: "stack tight" }, pairs(facts, { class: "pairs small" }), definition.system_prompt && h("pre", { class: "code foreign", tabindex: "0" }, definition.system_prompt));
}
