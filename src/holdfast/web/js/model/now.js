// Pure: what a run is doing, in one line of a list and in one sentence on its page.
import { clock, duration, firstLine, money, plural } from "../format.js";

const PAUSED = {
  approval: "Waits for an approval",
  budget: "Its budget is used up",
  person: "A person paused it",
  outcome: "What became of a call is not known",
  stalled: "The agent made no progress",
  message: "Waits for a message",
};

/** One line for lists: where it stands, or why not. `standing` may be missing while it loads. */
export function nowLine(run, standing) {
  const phases = standing?.phases ?? [];
  const open = phases.filter((phase) => phase.state === "running" || phase.state === "awaiting_approval");
  if (run.state === "failed") return failure(run, phases);
  if (run.state === "completed") return phases.length ? `${plural(phases.length, "phase")} done` : "Done";
  if (run.state === "cancelled") return firstLine(errorText(run.error)) || "Aborted";
  if (run.state === "paused") {
    const where = phases.find((phase) => phase.state === "awaiting_approval") ?? open[0];
    return `${PAUSED[run.pause_reason] ?? run.waiting_for ?? "Waits"}${where ? ` · ${where.key}` : ""}`;
  }
  if (run.waiting_for) return run.waiting_for;
  if (run.state === "pending") return "Waits for a worker";
  if (open.length === 0) return "Working";
  const done = phases.filter((phase) => phase.state === "completed" || phase.state === "skipped").length;
  const names = open.map((phase) => phase.key + (phase.attempts > 1 ? ` (attempt ${phase.attempts})` : "")).join(" and ");
  return `${names} · ${done} of ${phases.length} done`;
}

function failure(run, phases) {
  const failed = phases.find((phase) => phase.state === "failed");
  const told = firstLine(errorText(run.error) || failed?.error || "It failed");
  return failed && !told.includes(failed.key) ? `${failed.key}: ${told}` : told;
}

export function errorText(error) {
  if (!error) return "";
  if (typeof error === "string") return error;
  return String(error.message ?? error.detail ?? error.code ?? JSON.stringify(error));
}

export const errorHint = (error) => (error && typeof error === "object" ? String(error.hint ?? "") : "");

/** The sentence at the head of a run's page: what is happening, and why. `{ text, tone, since }` */
export function sentence(run, { fold = null, nowMs = 0 } = {}) {
  const open = run.phases.filter((phase) => phase.state === "running");
  const waiting = run.phases.filter((phase) => phase.state === "awaiting_approval");
  const asked = run.approvals.filter((approval) => approval.state === "pending");
  switch (run.state) {
    case "pending":
      return { tone: "idle", text: run.waiting_for ?? "Queued. A worker takes it as soon as one is free.", since: run.created_at };
    case "running":
      return { tone: "busy", text: run.waiting_for ?? working(open, fold, nowMs), since: latest(open.map((phase) => phase.started_at)) };
    case "paused":
      return paused(run, waiting, asked, fold);
    case "completed":
      return { tone: "good", text: `Completed: ${plural(run.phases.length, "phase")} in ${took(run)}.`, since: run.ended_at };
    case "failed":
      return { tone: "bad", text: failedText(run), since: run.ended_at };
    case "cancelled":
      return { tone: "idle", text: cancelledText(fold), since: run.ended_at };
    default:
      return { tone: "idle", text: String(run.state), since: run.updated_at };
  }
}

function working(open, fold, nowMs) {
  if (open.length === 0) return "Working: the workspace is being made ready.";
  const names = open.map((phase) => `“${phase.key}”`).join(" and ");
  const attempt = open.length === 1 && open[0].attempts > 1 ? `, attempt ${open[0].attempts}` : "";
  return `Working on ${names}${attempt}${doing(fold, nowMs)}.`;
}

function doing(fold, nowMs) {
  const step = fold?.lastOpenStep();
  if (!step) return "";
  const age = nowMs ? (nowMs - step.from * 1000) / 1000 : 0;
  const long = age > 5 ? ` for ${duration(age)}` : "";
  return step.type === "model" ? `: the model is thinking${long}` : `: ${step.label}${long}`;
}

function paused(run, waiting, asked, fold) {
  const first = asked[0];
  const since = first?.requested_at ?? run.updated_at;
  const key = first?.phase_key ?? waiting[0]?.key;
  const where = key ? ` of “${key}”` : "";
  switch (run.pause_reason) {
    case "approval":
      if (first?.shown?.tool) return { tone: "waiting", text: `Waiting for a person: may the agent call ${first.shown.tool}?`, since };
      if (!first) return { tone: "busy", text: "Answered. A worker goes on with it as soon as one is free.", since: run.updated_at };
      return { tone: "waiting", text: `Waiting for approval${where}.`, since };
    case "budget":
      return { tone: "waiting", text: fold?.exhausted ?? "Its budget is used up. It goes on when it is given more.", since };
    case "outcome":
      return { tone: "waiting", text: "A call was in flight when its process died, and only a person can say what became of it.", since };
    case "person":
      return { tone: "waiting", text: `Paused${fold?.pausedBy ? ` by ${fold.pausedBy}` : " by a person"}. Resume it to go on.`, since };
    case "stalled":
      return { tone: "waiting", text: fold?.stalled ?? "The agent made no progress, so it was stopped. Look at its activity, then resume or abort.", since };
    default:
      return { tone: "waiting", text: run.waiting_for ?? "It waits.", since };
  }
}

function failedText(run) {
  const failed = run.phases.find((phase) => phase.state === "failed");
  const told = errorText(run.error) || errorText(failed?.error) || "no reason was recorded";
  return `${failed ? `Phase “${failed.key}” failed` : "Failed"}: ${firstLine(told, 300)}`;
}

function cancelledText(fold) {
  const by = fold?.cancelled?.by ? ` by ${fold.cancelled.by}` : "";
  const reason = fold?.cancelled?.reason ? `: ${firstLine(fold.cancelled.reason, 200)}` : ".";
  return `Aborted${by}${reason}`;
}

/** Seconds from start to end, or to now. */
export function tookSeconds(run, nowMs) {
  const from = Date.parse(run.started_at ?? run.created_at);
  const to = run.ended_at ? Date.parse(run.ended_at) : nowMs;
  return Math.max(0, (to - from) / 1000);
}

const took = (run) => duration(tookSeconds(run, Date.parse(run.updated_at)));
const latest = (times) => times.filter(Boolean).sort().at(-1) ?? null;

/** What each answer to an approval will cause, by its words. */
export function consequences(approval, plan, run) {
  const { phase_key: key, shown } = approval;
  if (shown?.tool) {
    return { approve: `The agent calls ${shown.tool} with exactly these arguments.`, reject: "The call is refused; the agent is told so and goes on without it." };
  }
  if (isOutcome(approval)) {
    return { approve: "The call is made again. If it had worked, its effect happens twice.", reject: `Phase “${key}” fails; the run can be retried.`, result: "It had worked: the run goes on with the result you give." };
  }
  const next = nextPhases(key, plan, run, shown);
  const isCritical = plan?.phases.find((phase) => phase.key === key)?.risk === "critical";
  const starts = next.length ? `${next.length > 1 ? "phases" : "phase"} ${next.map((each) => `“${each}”`).join(" and ")} ${next.length > 1 ? "start" : "starts"}.` : "the run completes.";
  const second = isCritical && !approval.first_by ? "A second person must approve too; then " : "";
  return {
    approve: second ? second + starts : starts[0].toUpperCase() + starts.slice(1),
    request_changes: `“${key}” runs again with your comment, as attempt ${approval.attempt + 1}.`,
    reject: `Phase “${key}” and the run fail. It can be retried or forked.`,
  };
}

export const isOutcome = (approval) => !approval.shown?.tool && Boolean(approval.shown?.key);

function nextPhases(key, plan, run, shown) {
  if (Array.isArray(shown?.next) && shown.next.length) return shown.next.map(String);
  const done = new Set(run.phases.filter((phase) => phase.state === "completed" || phase.state === "skipped").map((phase) => phase.key));
  done.add(key);
  return (plan?.phases ?? []).filter((phase) => phase.needs.includes(key) && phase.needs.every((need) => done.has(need))).map((phase) => phase.key);
}

/** The facts under the sentence. */
export function factsOf(run, nowMs) {
  const spent = run.budget_usd ? `${money(run.cost_usd)} of ${money(run.budget_usd)}` : money(run.cost_usd);
  return { started: clock(run.started_at ?? run.created_at), took: duration(tookSeconds(run, nowMs)), spent };
}
