// Who can do the work: model, tools, limits, and whether each could work now; if not, what is missing.
import { getJson } from "../api.js";
import { count, money, plural } from "../format.js";
import { h } from "../h.js";
import { chip, empty, holds, mark, pairs, searchPage } from "../parts/ui.js";
import { setQuery } from "../router.js";

const isSimulated = ({ definition }) => definition.backend === "simulated";
const FILTERS = { "": ["All", () => true], ready: ["Ready", (each) => each.is_available && !isSimulated(each)], missing: ["Something missing", (each) => !each.is_available], rehearsal: ["For rehearsals", isSimulated] };
const NETWORK = { allow: "commands may use the network", ask: "a person decides when a command wants the network", deny: "commands are cut off from the network" };

export default {
  title: "Personas",
  render(main, context) {
    const { params: { persona }, signal } = context;
    const lead = h("p.soft.lead", "A persona fills a role of a workflow: a model, instructions, tools and limits. A run keeps the personas it was started with.");
    const page = searchPage(main, context, { title: "Personas", lead, load: () => load(signal), draw: (known, query) => drawList(known, query, persona) });
    page.loaded.then(() => document.getElementById(`persona-${persona}`)?.scrollIntoView({ block: "center" }));
    return page;
  },
};

function drawList(known, query, opened) {
  const show = FILTERS[query.get("show")] ? query.get("show") : "";
  const byText = known.filter(({ name, description, definition: { backend, model, capabilities } }) => holds([name, description, backend, model, ...capabilities].join(" "), query.get("q")));
  const found = byText.filter(FILTERS[show][1]).map((each) => item(each, each.name === opened));
  const chips = Object.entries(FILTERS).map(([key, [label, fits]]) => chip(label, key === show, () => setQuery({ show: key }), h("span.n", count(byText.filter(fits).length))));
  const none = empty("No persona fits", `None of ${plural(known.length, "persona")} is left by this search and filter.`, h("a.button", { href: "/personas" }, "Show all personas"));
  return [h("div.chips", { role: "group", "aria-label": "Which personas" }, chips), found.length ? h("ul.personas", found) : none];
}

async function load(signal) {
  const [personas, availability] = await Promise.all(["", "/availability"].map((path) => getJson(`/api/personas${path}`, { signal })));
  const rank = (each) => (isSimulated(each) ? 2 : each.is_available ? 0 : 1);
  return personas.items.map((each) => ({ ...availability.items.find(({ name }) => name === each.name), ...each })).sort((a, b) => rank(a) - rank(b));
}

function item(persona, isOpen) {
  const { name, definition, reasons = [] } = persona;
  const ready = isSimulated(persona) ? ["idle", "Rehearsals only"] : persona.is_available ? ["good", "Ready"] : ["waiting", "Not ready"];
  return h(
    "li.card.padded.persona", { id: `persona-${name}` },
    h("div.page-head.flat", h("h2.foreign", name), mark(...ready)),
    h("p.foreign", persona.description),
    reasons.length > 0 && h("p.small", `${reasons.join(", ")}. ${persona.remedy}`),
    h("p.foreign", h("span.tag", definition.backend), " ", persona.model_id || definition.argv?.join(" ")),
    h("p.small.soft", priceWords(persona)),
    h("p.tags", definition.capabilities.map((each) => h("span.tag", each))),
    h("details", { open: isOpen }, h("summary", "Tools, limits and instructions"), details(persona)),
  );
}

function priceWords({ definition, prices }) {
  if (isSimulated({ definition })) return "Pays nothing";
  if (prices) return `${money(prices.input_usd)} in, ${money(prices.output_usd)} out per million tokens, as of ${prices.checked}`;
  return definition.backend === "command" ? "Paid by the program's own account" : "No price is known; its calls count as $0";
}

function details({ definition, tools = [], source, version, hash }) {
  const { read, write, commands: run, network } = definition.permissions;
  const rules = Object.entries({ read, write, run }).flatMap(([what, { allow, ask, deny }]) => [["", allow], ["ask before: ", ask], ["never ", deny]].filter(([, each]) => each.length).map(([how, each]) => `${how}${what} ${each.join(", ")}`));
  const facts = [
    ["Tools", tools.join(", ") || "the program's own"],
    ["Limits", [...rules, NETWORK[network]].join("; ")],
    definition.fallback_models.length && ["If it fails", definition.fallback_models.join(", ")],
    definition.max_output_tokens && ["Longest answer", `${count(definition.max_output_tokens)} tokens`],
    definition.base_url && ["Server", definition.base_url],
    ["Version", `${version}, ${source}, ${hash.slice(0, 12)}`],
  ];
  return h("div.stack.tight", pairs(facts, "dl.pairs.small"), definition.system_prompt && h("pre.code.foreign", { tabindex: "0" }, definition.system_prompt));
}
