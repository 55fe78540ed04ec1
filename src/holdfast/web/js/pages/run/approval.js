// What a person must decide: the thing itself, what is wrong with it, what changed since last time, what each answer causes.
import { getText, runPath, send } from "../../api.js";
import { clock, exact, plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { consequences, isOutcome } from "../../model/now.js";
import { ask, button, field, mark, problemNote, shape, time } from "../../parts/ui.js";
import { patchView, textDiff } from "../../parts/diff-view.js";
import { documentView, raw } from "../../parts/text.js";
import { say } from "../../say.js";
import { whyNot } from "../../session.js";

/** One card per open question. `view` is the run's page: `run`, `plan`, `refresh()`. */
export function approvalCard(approval, view) {
  const phase = view.plan?.phases.find((each) => each.key === approval.phase_key);
  const causes = consequences(approval, view.plan, view.run);
  const comment = h("textarea", { name: "comment", rows: "2", maxlength: "100000" });
  const trouble = h("div", {});
  const why = whyNot("approver");

  const answer = async (action, extra = {}) => {
    fill(trouble);
    try {
      const decided = await send("POST", `/api/approvals/${encodeURIComponent(approval.approval_id)}`, { action, comment: comment.value, ...(approval.digest ? { digest: approval.digest } : {}), ...extra });
      say(decided.state === "pending" ? "Approved. A second person is needed." : "Answered.");
    } catch (error) {
      fill(trouble, problemNote(error));
      if (error.code !== "approval_answered" && error.code !== "approval_stale") return;
      say(error.message);
      view.notice(error);
    }
    await view.refresh();
  };
  const confirmFirst = (title, text, label, action) => () =>
    ask({ title, body: h("p", {}, text), label, kind: "bad main", act: () => answer(action) });

  return h(
    "section",
    { class: "card approval", "aria-labelledby": `q-${approval.approval_id}` },
    h("header", {}, h("h2", { id: `q-${approval.approval_id}` }, h("span", { class: "mark tone-waiting" }, shape("waiting")), heading(approval, phase)), h("div", { class: "facts small" }, facts(approval, phase))),
    h("div", { class: "approval-body" }, subject(approval, view), h("div", { class: "approval-answer" }, choices(approval, causes), approval.first_by && h("p", { class: "note tone-waiting" }, `${approval.first_by} approved. A second person is needed.`), !isOutcome(approval) && field("Comment", comment, { hint: approval.shown?.tool ? "The agent reads it if you reject." : "Goes with your answer; for changes it is what the agent reads." }), trouble, buttons(approval, { answer, confirmFirst, causes, why, comment }))),
  );
}

function heading(approval, phase) {
  if (approval.shown?.tool) return `May the agent call ${approval.shown.tool}?`;
  if (isOutcome(approval)) return "What became of this call?";
  return `Approve ${phase ? `“${phase.title}”` : `“${approval.phase_key}”`}?`;
}

function facts(approval, phase) {
  const { shown } = approval;
  return [
    h("span", {}, `Phase ${approval.phase_key}, attempt ${approval.attempt}`),
    phase && h("span", {}, `Risk ${phase.risk}`),
    shown?.artifact && h("code", { class: "foreign" }, shown.artifact),
    Array.isArray(shown?.files) && h("span", {}, `${plural(shown.files.length, "file")} changed, +${shown.added ?? 0} −${shown.removed ?? 0}`),
    h("span", {}, "asked ", time(approval.requested_at)),
    approval.deadline_at && h("span", { class: "mark tone-waiting", title: exact(approval.deadline_at) }, `answered with ${shown?.on_deadline ?? "reject"} by itself at ${clock(approval.deadline_at)}`),
  ];
}

function subject(approval, view) {
  const { shown } = approval;
  if (shown?.tool) return h("div", { class: "stack tight" }, shown.question && h("p", { class: "foreign" }, shown.question), raw(shown.args, { lines: 30, chars: 6000 }));
  if (isOutcome(approval)) {
    const step = view.fold.steps.get(shown.key);
    return h("div", { class: "stack tight" }, h("p", {}, "It was in flight when its process died. Nobody but you can find out whether it had its effect."), h("p", {}, h("code", {}, step?.label ?? shown.key)), step?.args !== undefined && raw(step.args));
  }
  return phaseSubject(approval, view);
}

function phaseSubject(approval, view) {
  const { shown } = approval;
  const content = typeof shown?.content === "string" ? shown.content : "";
  const place = h("div", { class: "approval-subject", tabindex: "0", role: "region", "aria-label": "What is to be approved" });
  const versions = view.run.artifacts.filter((each) => each.phase_key === approval.phase_key);
  const before = versions.filter((each) => each.attempt < approval.attempt).at(-1);
  const own = versions.filter((each) => each.attempt === approval.attempt).at(-1);
  const modes = [
    ["Read it", () => documentView(content)],
    shown?.diff && ["Files", () => patchView(String(shown.diff))],
    before && [`Compare with attempt ${before.attempt}`, async () => textDiff(await artifactText(view, before), content)],
    shown?.diff_since && ["What changed since it was asked", () => patchView(String(shown.diff_since))],
    ["Raw", () => raw(content, { lines: 60, chars: 12000 })],
  ].filter(Boolean);
  const tabs = h("div", { class: "chips", role: "group", "aria-label": "How to show it" });
  const show = async (index) => {
    fill(tabs, modes.map(([label], each) => h("button", { class: "chip", type: "button", "aria-pressed": String(each === index), onclick: () => show(each) }, label)));
    try {
      fill(place, await modes[index][1]());
    } catch (error) {
      fill(place, problemNote(error));
    }
  };
  show(0);
  const changed = Array.isArray(shown?.changed) && shown.changed.length > 0 && h("p", { class: "note tone-waiting" }, `Asked again: ${shown.changed.join(" and ")} changed since it was asked the first time.`);
  return h("div", { class: "stack tight" }, changed, verdict(own), tabs, place);
}

function verdict(artifact) {
  if (!artifact) return null;
  const findings = Array.isArray(artifact.findings) ? artifact.findings : [];
  if (findings.length === 0) return h("p", {}, mark("good", `Valid by ${artifact.schema_id}`));
  return h("div", {}, mark(artifact.state === "accepted" ? "waiting" : "bad", plural(findings.length, "finding")), findingList(findings));
}

export function findingList(findings) {
  return h("ul", { class: "findings" }, findings.map((each) => h("li", { class: "foreign" }, typeof each === "string" ? each : [h("code", {}, String(each.path ?? each.rule ?? "")), " ", String(each.message ?? JSON.stringify(each))])));
}

export function artifactText(view, artifact) {
  return getText(`${runPath(view.run.run_id)}/artifacts/${encodeURIComponent(artifact.phase_key)}?attempt=${artifact.attempt}`, { signal: view.signal });
}

const NAMES = { approve: "Approve", request_changes: "Request changes", reject: "Reject", result: "Give the result" };

function choices(approval, causes) {
  const names = isOutcome(approval) ? { ...NAMES, approve: "Make the call again", reject: "Fail the phase" } : NAMES;
  return h("dl", { class: "causes" }, Object.entries(causes).map(([action, text]) => [h("dt", {}, names[action]), h("dd", {}, text)]));
}

function buttons(approval, { answer, confirmFirst, causes, why, comment }) {
  const reject = confirmFirst("Reject it?", causes.reject, "Reject", "reject");
  if (isOutcome(approval)) {
    const giveResult = () => ask({ title: "What did the call give?", body: field("Result", h("textarea", { name: "result", rows: "4" }), { hint: "JSON, or plain text. The agent reads it as the call's answer." }), label: "Go on with this result", act: (form) => answer("approve", { result: toJson(form.get("result")) }) });
    return h("div", { class: "buttons" }, button("Make the call again", () => answer("approve"), { kind: "main", why }), button("Give the result…", giveResult, { why }), button("Fail the phase…", confirmFirst("Fail the phase?", causes.reject, "Fail the phase", "reject"), { kind: "bad", why }));
  }
  const isTool = Boolean(approval.shown?.tool);
  const requestChanges = async () => {
    if (comment.value.trim()) return answer("request_changes");
    comment.focus();
    comment.setAttribute("aria-invalid", "true");
    say("Say what should change.");
    comment.placeholder = "Say what should change.";
    return undefined;
  };
  return h(
    "div",
    { class: "buttons" },
    button(isTool ? "Allow this call" : "Approve and continue", () => answer("approve"), { kind: "main", why }),
    !isTool && button("Request changes", requestChanges, { why }),
    button("Reject…", reject, { kind: "bad", why }),
  );
}

function toJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
