// Cost: where the money went, against what it may.
import { count, money } from "../../format.js";
import { fill, h } from "../../h.js";
import { empty } from "../../parts/ui.js";

export function cost(panel, view) {
  const place = h("div.stack");
  panel.append(place);

  function update() {
    const { run, fold, plan } = view;
    const { micros, tokens, byPhase, byModel } = fold.money;
    if (!micros && !fold.reservedMicros) return fill(place, h("div.card", empty("Nothing spent", "No model call has been paid for.")));
    const personas = byPersona(byPhase, plan);
    const limits = new Map(plan?.phases.filter((phase) => phase.budget_usd !== null).map((phase) => [phase.key, phase.budget_usd]));
    const figures = [
      ["Spent", money(micros / 1e6), limitBar(run)],
      ["Reserved for calls without an answer", money(fold.reservedMicros / 1e6), h("p.small.soft", "Under way, or cut off by a crash and perhaps paid.")],
      ["Tokens", `${count(tokens.input)} in`, h("p.small.soft.num", `${count(tokens.output)} out`)],
    ];
    return fill(
      place,
      h("div.cost-figures", figures.map(([label, value, more]) => h("div.card.padded", h("div.small.soft", label), h("div.big.num", value), more))),
      table("Phase", byPhase, micros, limits),
      table("Model", byModel, micros),
      personas.size > 0 && table("Persona", personas, micros),
    );
  }

  update();
  return { update };
}

function limitBar({ budget_usd: budget, cost_usd: spent }) {
  if (budget === null) return h("p.small.soft", "No limit of its own.");
  const meter = { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: Math.min(1, spent / budget), "aria-label": "Part of the budget that is used" };
  return h("div", h("meter", meter), h("p.small.soft.num", `of ${money(budget)}`));
}

function table(name, sums, total, limits = new Map()) {
  const columns = [
    ["Spent", "", (each) => money(each.micros / 1e6)],
    limits.size > 0 && ["Limit", ".soft", (_, label) => money(limits.get(label))],
    ["Calls", "", (each) => count(each.calls)],
    ["Tokens in", ".soft", (each) => count(each.input)],
    ["Tokens out", ".soft", (each) => count(each.output)],
  ].filter(Boolean);
  const head = (tag, ...content) => h(tag, { scope: "col" }, content);
  const row = ([label, each]) => h("tr", h("th.foreign", { scope: "row" }, label), h("td.part", bar(total && each.micros / total)), columns.map(([, look, show]) => h(`td.num${look}`, show(each, label))));
  const rows = [...sums].sort((a, b) => b[1].micros - a[1].micros).map(row);
  return h("div.card.scroll-x", h("table.table.cost", h("thead", h("tr", head("th", name), head("th", h("span.unseen", "Share")), columns.map(([title]) => head("th.num", title)))), h("tbody", rows)));
}

const bar = (part) =>
  h("svg:svg.bar-line", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, [["track", 100], ["value", Math.max(0.5, part * 100)]].map(([name, width]) => h(`svg:rect.${name}`, { width, height: 8 })));

// Who spent it: a phase's role tells its persona.
function byPersona(byPhase, plan) {
  const sums = new Map();
  for (const { key, role } of plan?.phases ?? []) {
    const name = plan.roles?.find((each) => each.role === role)?.persona || role;
    const sum = sums.get(name) ?? { micros: 0, calls: 0, input: 0, output: 0 };
    if (!byPhase.has(key)) continue;
    for (const unit of Object.keys(sum)) sum[unit] += byPhase.get(key)[unit];
    sums.set(name, sum);
  }
  return sums;
}
