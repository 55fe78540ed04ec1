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
const quoted = (names) => names.map((name) => `“${name}”`).join(" and ");
const isDone = (phase) => phase.state === "completed" || phase.state === "skipped";
const inState = (items, state) => items.filter((each) => each.state === state);

// One line for lists: where it stands, or why not. `standing` may be missing while it loads.
export function nowLine(run, standing) {
  const phases = standing?.phases ?? [];
  const open = phases.filter((phase) => phase.state === "running" || phase.state === "awaiting_approval");
  if (run.state === "failed") return failure(run, phases);
  if (run.state === "completed") return phases.length ? `${plural(phases.length, "phase")} done` : "Done";
  if (run.state === "cancelled") return firstLine(errorText(run.error)) || "Aborted";
  if (run.state === "paused") {
    const where = inState(phases, "awaiting_approval")[0] ?? open[0];
    return `${PAUSED[run.pause_reason] ?? run.waiting_for ?? "Waits"}${where ? ` · ${where.key}` : ""}`;
  }
  if (run.waiting_for) return run.waiting_for;
  if (run.state === "pending") return "Waits for a worker";
  if (open.length === 0) return "Working";
  const names = open.map((phase) => phase.key + (phase.attempts > 1 ? ` (attempt ${phase.attempts})` : "")).join(" and ");
  return `${names} · ${phases.filter(isDone).length} of ${phases.length} done`;
}

function failure(run, phases) {
  const [failed] = inState(phases, "failed");
  const told = firstLine(errorText(run.error) || failed?.error || "It failed");
  return failed && !told.includes(failed.key) ? `${failed.key}: ${told}` : told;
}

export function errorText(error) {
  if (!error) return "";
  return typeof error === "string" ? error : String(error.message ?? error.detail ?? error.code ?? JSON.stringify(error));
}

export const errorHint = (error) => String(error?.hint ?? "");

// The sentence at the head of a run's page: what is happening, and why. `{ tone, text, since }`
export function sentence(run, { fold = null, nowMs = 0 } = {}) {
  const { waiting_for: why, ended_at: ended, updated_at: updated, phases } = run;
  const told = (tone, text, since) => ({ tone, text, since });
  const open = inState(phases, "running");
  switch (run.state) {
    case "pending":
      return told("idle", why ?? "Queued. A worker takes it as soon as one is free.", run.created_at);
    case "running":
      return told("busy", why ?? working(open, fold, nowMs), open.map((phase) => phase.started_at).filter(Boolean).sort().at(-1) ?? null);
    case "paused":
      return told(...paused(run, inState(run.approvals, "pending")[0], fold));
    case "completed":
      return told("good", `Completed: ${plural(phases.length, "phase")} in ${duration(tookSeconds(run, Date.parse(updated)))}.`, ended);
    case "failed":
      return told("bad", failedText(run), ended);
    case "cancelled":
      return told("idle", cancelledText(fold?.cancelled), ended);
    default:
      return told("idle", String(run.state), updated);
  }
}

function working(open, fold, nowMs) {
  if (open.length === 0) return "Working: the workspace is being made ready.";
  const attempt = open.length === 1 && open[0].attempts > 1 ? `, attempt ${open[0].attempts}` : "";
  return `Working on ${quoted(open.map((phase) => phase.key))}${attempt}${doing(fold?.lastOpenStep(), nowMs)}.`;
}

function doing(step, nowMs) {
  if (!step) return "";
  const age = nowMs ? nowMs / 1000 - step.from : 0;
  return `: ${step.type === "model" ? "the model is thinking" : step.label}${age > 5 ? ` for ${duration(age)}` : ""}`;
}

function paused(run, asked, fold) {
  const key = asked?.phase_key ?? inState(run.phases, "awaiting_approval")[0]?.key;
  const tool = asked?.shown?.tool;
  if (run.pause_reason === "approval" && !asked) return ["busy", "Answered. A worker goes on with it as soon as one is free.", run.updated_at];
  const texts = {
    approval: tool ? `Waiting for a person: may the agent call ${tool}?` : `Waiting for approval${key ? ` of “${key}”` : ""}.`,
    budget: fold?.exhausted ?? "Its budget is used up. It goes on when it is given more.",
    outcome: "A call was in flight when its process died, and only a person can say what became of it.",
    person: `Paused by ${fold?.pausedBy || "a person"}. Resume it to go on.`,
    stalled: fold?.stalled ?? "The agent made no progress, so it was stopped. Look at its activity, then resume or abort.",
  };
  return ["waiting", texts[run.pause_reason] ?? run.waiting_for ?? "It waits.", asked?.requested_at ?? run.updated_at];
}

function failedText(run) {
  const [failed] = inState(run.phases, "failed");
  const told = errorText(run.error) || errorText(failed?.error) || "no reason was recorded";
  return `${failed ? `Phase “${failed.key}” failed` : "Failed"}: ${firstLine(told, 300)}`;
}

const cancelledText = (cancelled) => `Aborted${cancelled?.by ? ` by ${cancelled.by}` : ""}${cancelled?.reason ? `: ${firstLine(cancelled.reason, 200)}` : "."}`;

// Seconds from start to end, or to now.
export function tookSeconds(run, nowMs) {
  const to = run.ended_at ? Date.parse(run.ended_at) : nowMs;
  return Math.max(0, (to - Date.parse(run.started_at ?? run.created_at)) / 1000);
}

// What each answer to an approval will cause.
export function consequences(approval, plan, run) {
  const { phase_key: key, shown } = approval;
  if (shown?.tool) {
    return { approve: `The agent calls ${shown.tool} with exactly these arguments.`, reject: "The call is refused; the agent is told so and goes on without it." };
  }
  if (isOutcome(approval)) {
    return { approve: "The call is made again. If it had worked, its effect happens twice.", reject: `Phase “${key}” fails; the run can be retried.`, result: "It had worked: the run goes on with the result you give." };
  }
  const next = nextPhases(key, plan, run, shown);
  const isSecondNeeded = !approval.first_by && plan?.phases.find((phase) => phase.key === key)?.risk === "critical";
  const [phases, start] = next.length > 1 ? ["phases", "start"] : ["phase", "starts"];
  const starts = next.length ? `${phases} ${quoted(next)} ${start}.` : "the run completes.";
  return {
    approve: isSecondNeeded ? `A second person must approve too; then ${starts}` : starts[0].toUpperCase() + starts.slice(1),
    request_changes: `“${key}” runs again with your comment, as attempt ${approval.attempt + 1}.`,
    reject: `Phase “${key}” and the run fail. It can be retried or forked.`,
  };
}

export const isOutcome = ({ shown }) => !shown?.tool && Boolean(shown?.key);

function nextPhases(key, plan, run, shown) {
  if (Array.isArray(shown?.next) && shown.next.length) return shown.next.map(String);
  const done = new Set([key, ...run.phases.filter(isDone).map((phase) => phase.key)]);
  return (plan?.phases ?? []).filter(({ needs }) => needs.includes(key) && needs.every((need) => done.has(need))).map((phase) => phase.key);
}

// The facts under the sentence.
export function factsOf(run, nowMs) {
  const spent = money(run.cost_usd) + (run.budget_usd ? ` of ${money(run.budget_usd)}` : "");
  return { started: clock(run.started_at ?? run.created_at), took: duration(tookSeconds(run, nowMs)), spent };
}
