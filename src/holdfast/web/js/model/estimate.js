// Pure: what a new run may cost, in words that say how sure they are.
import { duration, money, plural } from "../format.js";

/** `{ amount, basis, time }` of an estimate of the server. */
export function describeEstimate(estimate) {
  if (!estimate) return { amount: "–", basis: "Choose a workflow to see what it may cost.", time: null };
  const { basis, usd, low_usd: low, high_usd: high, seconds, runs, unpriced } = estimate;
  const missing = unpriced.length > 0 ? ` Not counted, because no price is known: ${unpriced.join(", ")}.` : "";
  const time = seconds === null ? null : `${duration(seconds)}, as ${basis === "simulated" ? "rehearsals" : "runs"} of it took so far`;
  if (basis === "simulated") return { amount: "$0", basis: "A rehearsal calls no real model: nothing is paid. Its made-up prices count against limits, so that these can be rehearsed too.", time };
  if (basis === "runs") return { amount: `about ${money(usd)}`, basis: `The median of ${plural(runs, "completed run")}; the dearest was ${money(high)}.${missing}`, time };
  if (basis === "prices") return { amount: `${money(low)} to ${money(high)}`, basis: `A guess from the table of prices: nobody has finished a run of it yet.${missing}`, time };
  return { amount: "not known", basis: `No price is known for ${unpriced.join(", ") || "its models"}.`, time };
}

/** What limits mean for this run: sentences with a tone. */
export function describeLimits(estimate, limits) {
  if (!limits || !estimate || estimate.basis === "simulated") return [];
  const { budget_usd: budget, day_left_usd: left, day_limit_usd: day } = limits;
  const told = [];
  if (budget === null && left === null) told.push({ tone: "waiting", text: "There is no limit: the run spends what it needs. Set one here, or run_budget_usd for all runs." });
  if (budget !== null) {
    const isTight = estimate.usd !== null && budget < estimate.usd;
    told.push(isTight ? { tone: "waiting", text: `The limit of ${money(budget)} is below the estimate. At the limit the run waits for more; nothing done is lost.` } : { tone: "idle", text: `At ${money(budget)} the run waits for more; nothing done is lost.` });
  }
  if (left !== null) {
    const isTight = left === 0 || (estimate.usd !== null && left < estimate.usd);
    told.push({ tone: isTight ? "waiting" : "idle", text: `${money(left)} of today's ${money(day)} is left${isTight ? "; the run may have to wait until tomorrow" : ""}.` });
  }
  return told;
}
