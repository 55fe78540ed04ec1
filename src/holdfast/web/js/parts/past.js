// How a workflow went so far, in four figures.
import { duration, money, plural } from "../format.js";
import { h } from "../h.js";
import { pairs } from "./layout.js";
import { time } from "./time.js";

export function pastFacts(past) {
  if (!past) return h("p", { class: "soft small" }, "Never run here");
  const { completed = 0, failed = 0, cancelled = 0 } = past.by_state;
  const open = past.runs - completed - failed - cancelled;
  const told = [[completed, "completed"], [failed, "failed"], [open, "open"], [cancelled, "aborted"]].filter(([number]) => number).map((each) => each.join(" "));
  const facts = [["Median time", duration(past.median_s)], ["Median cost", past.is_rehearsed ? "only rehearsed" : money(past.median_cost_usd)], [plural(past.runs, "run"), told.join(", ")], ["Last", time(past.last_run_at)]];
  return pairs(facts, { class: "figures" });
}
