// The verbs of a run, each with a dialog that says what it will cause.
import { runPath, send } from "../../api.js";
import { money, plural } from "../../format.js";
import { h } from "../../h.js";
import { actionsOf } from "../../model/actions.js";
import { ask, button, field } from "../../parts/ui.js";
import { navigate } from "../../router.js";
import { say } from "../../say.js";
import { whyNot } from "../../session.js";

export function actionBar(view) {
  const { run } = view;
  const why = actionsOf(run, whyNot);
  const isOver = ["completed", "failed", "cancelled"].includes(run.state);
  const main = [
    run.state === "failed" && button("Retry…", () => retry(view), { kind: "main", why: why.retry }),
    run.state === "paused" && run.pause_reason === "budget" && button("Give it more money…", () => topUp(view), { kind: "main", why: why.topUp }),
    run.state === "paused" && !["approval", "budget", "outcome"].includes(run.pause_reason) && button("Resume run", () => resume(view), { kind: "main", why: why.resume }),
    run.state === "running" && button("Pause run", () => pause(view), { why: why.pause }),
    !isOver && button("Abort run…", () => abort(view), { kind: "bad", why: why.abort }),
  ];
  return h("div", { class: "buttons" }, main, moreMenu(view, why));
}

function moreMenu(view, why) {
  const { run } = view;
  const item = (label, act, reason) => h("button", { type: "button", "aria-disabled": reason ? "true" : null, onclick: () => (reason ? say(reason) : act()) }, label, reason && h("small", {}, reason));
  const like = `/new?like=${encodeURIComponent(run.run_id)}`;
  return h(
    "details",
    { class: "menu" },
    h("summary", { class: "button", "aria-label": "More actions" }, "More"),
    h(
      "div",
      { class: "menu-list" },
      item("Fork from a phase…", () => fork(view), why.fork),
      whyNot("operator") ? item("Start one like this", null, whyNot("operator")) : h("a", { href: like }, "Start one like this"),
      item("Give it more money…", () => topUp(view), why.topUp),
      item("Resume run", () => resume(view), why.resume),
      item("Retry…", () => retry(view), why.retry),
      run.final_report_path && h("a", { href: `${runPath(run.run_id)}/report?format=md`, download: "final-report.md" }, "Download the report"),
      h("a", { href: `${runPath(run.run_id)}/diff`, download: "changes.diff" }, "Download the changes"),
    ),
  );
}

const post = (view, verb, body, key) => send("POST", runPath(view.run.run_id, `/${verb}`), body, { key });

async function directly(view, verb, told) {
  try {
    await post(view, verb);
    say(told);
  } catch (error) {
    view.notice(error);
  }
  await view.refresh();
}

const resume = (view) => directly(view, "resume", "It goes on.");
const pause = (view) => directly(view, "pause", "It pauses after what is in flight.");

export async function abort(view) {
  const { run } = view;
  const done = run.phases.filter((phase) => phase.state === "completed").length;
  const isAborted = await ask({
    title: "Abort this run?",
    body: [
      h("p", {}, "Work in flight is stopped, and the run ends for good: it cannot be resumed."),
      h("p", {}, `What is done stays: ${plural(done, "completed phase")}, artifacts, changes and the journal. The ${money(run.cost_usd)} spent are spent. You can fork it later from any phase.`),
      field("Reason", h("input", { name: "reason", maxlength: "10000" }), { hint: "Stands in the journal." }),
    ],
    label: "Abort run",
    kind: "bad main",
    cancel: "Keep it",
    act: (form, key) => post(view, "abort", { reason: form.get("reason") }, key),
  });
  if (isAborted) await view.refresh();
}

async function retry(view) {
  const failed = view.run.phases.find((phase) => phase.state === "failed");
  const isRetried = await ask({
    title: "Retry this run?",
    body: h("p", {}, failed ? `Phase “${failed.key}” starts again as attempt ${failed.attempts + 1}. Completed phases are kept and not paid for again.` : "It opens again where it failed. Completed phases are kept."),
    label: "Retry",
    act: (_form, key) => post(view, "retry", undefined, key),
  });
  if (isRetried) await view.refresh();
}

export async function fork(view, phaseKey = null) {
  const started = view.run.phases.filter((phase) => phase.state !== "pending" || phase.attempts > 0);
  const offered = (started.length ? started : view.run.phases).map((phase) => phase.key);
  const chosen = phaseKey ?? view.run.phases.find((phase) => phase.state === "failed")?.key ?? offered.at(-1);
  const made = await ask({
    title: "Fork from a phase",
    body: [
      h("p", {}, "A new run begins with the phase you choose, with the files and artifacts as they were before it. This run stays as it is."),
      field("Begin with", h("select", { name: "phase_key" }, offered.map((key) => h("option", { value: key, selected: key === chosen }, key)))),
      field("Title", h("input", { name: "title", maxlength: "200", value: view.run.title }), { hint: "How the new run is called." }),
    ],
    label: "Fork",
    act: (form, key) => post(view, "fork", { phase_key: form.get("phase_key"), title: form.get("title") }, key),
  });
  if (made?.run_id) navigate(`/runs/${encodeURIComponent(made.run_id)}`);
}

async function topUp(view) {
  const { run } = view;
  const isRaised = await ask({
    title: "Give it more money",
    body: [
      h("p", {}, run.budget_usd === null ? `It has no limit of its own; ${money(run.cost_usd)} are spent. The amount goes to the limit it waits for.` : `${money(run.cost_usd)} of ${money(run.budget_usd)} are spent or reserved.`),
      field("Amount in US dollars", h("input", { name: "amount", type: "number", min: "0.01", max: "1000000", step: "0.01", value: "1", required: true }), { hint: "Added to its limit. If it waits for money, it goes on at once." }),
    ],
    label: "Raise the limit",
    act: (form, key) => post(view, "budget", { amount_usd: Number(form.get("amount")) }, key),
  });
  if (isRaised) await view.refresh();
}
