// Cost: where the money went, against what it may.
import { count, money } from "../../format.js";
import { fill, h } from "../../h.js";
import { empty } from "../../parts/ui.js";

export default function costTab(panel, view) {
  const place = h("div", { class: "stack" });
  panel.append(place);

  function update() {
    const { run, fold, plan } = view;
    if (fold.money.micros === 0 && fold.reservedMicros === 0) return fill(place, h("div", { class: "card" }, empty("Nothing spent", "No model call has been paid for.")));
    const personas = byPersona(fold, plan);
    const limits = new Map((plan?.phases ?? []).filter((phase) => phase.budget_usd !== null).map((phase) => [phase.key, phase.budget_usd]));
    return fill(
      place,
      h("div", { class: "cost-figures" }, figure("Spent", money(fold.money.micros / 1e6), limitBar(run)), figure("Reserved for calls without an answer", money(fold.reservedMicros / 1e6), h("p", { class: "small soft" }, "Under way, or cut off by a crash and perhaps paid.")), figure("Tokens", `${count(fold.money.tokens.input)} in`, h("p", { class: "small soft num" }, `${count(fold.money.tokens.output)} out`))),
      table("Phase", fold.money.byPhase, fold.money.micros, limits),
      table("Model", fold.money.byModel, fold.money.micros),
      personas.size > 0 && table("Persona", personas, fold.money.micros),
    );
  }

  update();
  return { update };
}

function figure(label, value, more) {
  return h("div", { class: "card padded" }, h("div", { class: "small soft" }, label), h("div", { class: "big num" }, value), more);
}

function limitBar(run) {
  if (run.budget_usd === null) return h("p", { class: "small soft" }, "No limit of its own.");
  const part = Math.min(1, run.cost_usd / run.budget_usd);
  return h("div", {}, h("meter", { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: part, "aria-label": "Part of the budget that is used" }), h("p", { class: "small soft num" }, `of ${money(run.budget_usd)}`));
}

function table(name, map, total, limits = new Map()) {
  const rows = [...map].sort((a, b) => b[1].micros - a[1].micros);
  const hasLimits = limits.size > 0;
  return h(
    "div",
    { class: "card scroll-x" },
    h(
      "table",
      { class: "table cost" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, name), h("th", { scope: "col" }, h("span", { class: "unseen" }, "Share")), ["Spent", ...(hasLimits ? ["Limit"] : []), "Calls", "Tokens in", "Tokens out"].map((each) => h("th", { scope: "col", class: "num" }, each)))),
      h("tbody", {}, rows.map(([label, each]) => h("tr", {}, h("th", { scope: "row", class: "foreign" }, label), h("td", { class: "part" }, bar(total ? each.micros / total : 0)), h("td", { class: "num" }, money(each.micros / 1e6)), hasLimits && h("td", { class: "num soft" }, limits.has(label) ? money(limits.get(label)) : "–"), h("td", { class: "num" }, count(each.calls)), h("td", { class: "num soft" }, count(each.input)), h("td", { class: "num soft" }, count(each.output))))),
    ),
  );
}

function bar(part) {
  return h("svg:svg", { class: "bar-line", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, h("svg:rect", { class: "track", width: 100, height: 8 }), h("svg:rect", { class: "value", width: Math.max(0.5, part * 100), height: 8 }));
}

/** Who spent it: a phase's role tells its persona. */
function byPersona(fold, plan) {
  const roles = new Map((plan?.roles ?? []).map((role) => [role.role, role.persona]));
  const sums = new Map();
  for (const phase of plan?.phases ?? []) {
    const spent = fold.money.byPhase.get(phase.key);
    if (!spent) continue;
    const name = roles.get(phase.role) || phase.role;
    const before = sums.get(name) ?? { micros: 0, calls: 0, input: 0, output: 0 };
    sums.set(name, { micros: before.micros + spent.micros, calls: before.calls + spent.calls, input: before.input + spent.input, output: before.output + spent.output });
  }
  return sums;
}
