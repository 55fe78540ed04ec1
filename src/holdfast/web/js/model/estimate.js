// Pure: what a new run may cost, in words that say how sure they are.
import { duration, money, plural } from "../format.js";

export function describeEstimate(estimate) {
  if (!estimate) return { amount: "–", basis: "Choose a workflow to see what it may cost.", time: null };
  const { basis: kind, usd, low_usd: low, high_usd: high, seconds, runs, unpriced } = estimate;
  const missing = unpriced.length ? ` Not counted, because no price is known: ${unpriced.join(", ")}.` : "";
  const time = seconds === null ? null : `${duration(seconds)}, as ${kind === "simulated" ? "rehearsals" : "runs"} of it took so far`;
  const [amount, basis] = {
    simulated: ["$0", "A rehearsal calls no real model: nothing is paid. Its made-up prices count against limits, so that these can be rehearsed too."],
    runs: [`about ${money(usd)}`, `The median of ${plural(runs, "completed run")}; the dearest was ${money(high)}.${missing}`],
    prices: [`${money(low)} to ${money(high)}`, `A guess from the table of prices: nobody has finished a run of it yet.${missing}`],
  }[kind] ?? ["not known", `No price is known for ${unpriced.join(", ") || "its models"}.`];
  return { amount, basis, time };
}

// What limits mean for this run: sentences with a tone.
export function describeLimits(estimate, limits) {
  if (!limits || !estimate || estimate.basis === "simulated") return [];
  const { budget_usd: budget, day_left_usd: left, day_limit_usd: day } = limits;
  const isTight = (limit) => limit === 0 || (estimate.usd !== null && limit < estimate.usd);
  const tell = (limit, text) => ({ tone: limit === null || isTight(limit) ? "waiting" : "idle", text });
  if (budget === null && left === null) return [tell(null, "There is no limit: the run spends what it needs. Set one here, or run_budget_usd for all runs.")];
  return [
    budget !== null && tell(budget, `${isTight(budget) ? `The limit of ${money(budget)} is below the estimate. At the limit` : `At ${money(budget)}`} the run waits for more; nothing done is lost.`),
    left !== null && tell(left, `${money(left)} of today's ${money(day)} is left${isTight(left) ? "; the run may have to wait until tomorrow" : ""}.`),
  ].filter(Boolean);
}
