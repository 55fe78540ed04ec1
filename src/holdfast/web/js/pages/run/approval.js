// What a person must decide: the thing itself, what is wrong with it, what changed since last time, what each answer causes.
import { send } from "../../api.js";
import { clock, exact, plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { consequences, isOutcome } from "../../model/now.js";
import { patchView, textDiff } from "../../parts/diff-view.js";
import { documentView, raw } from "../../parts/text.js";
import { ask, button, chip, field, mark, problemNote, time } from "../../parts/ui.js";
import { say } from "../../say.js";
import { whyNot } from "../../session.js";
import { artifactUrl, chips, facts, findingList, findingsOf } from "./pieces.js";

// One card per open question. `view` is the run's page.
export function approvalCard(approval, view) {
  const { approval_id: id, first_by: first, digest } = approval;
  const shown = approval.shown ?? {};
  const phase = view.plan?.phases.find((each) => each.key === approval.phase_key);
  const causes = consequences(approval, view.plan, view.run);
  const comment = h("textarea", { name: "comment", rows: "2", maxlength: "100000" });
  const trouble = h("div");

  const answer = async (action, extra) => {
    fill(trouble);
    try {
      const decided = await send("POST", `/api/approvals/${encodeURIComponent(id)}`, { action, comment: comment.value, ...(digest && { digest }), ...extra });
      say(decided.state === "pending" ? "Approved. A second person is needed." : "Answered.");
    } catch (error) {
      fill(trouble, problemNote(error));
      if (error.code !== "approval_answered" && error.code !== "approval_stale") return;
      view.notice(error);
    }
    await view.refresh();
  };

  return h(
    "section.card.approval",
    { "aria-labelledby": `q-${id}` },
    h("header", h("h2", { id: `q-${id}` }, mark("waiting"), heading(approval, shown, phase)), factsOf(approval, shown, phase)),
    h(
      "div.approval-body",
      subject(approval, shown, view),
      h(
        "div.approval-answer",
        choices(approval, causes),
        first && h("p.note.tone-waiting", `${first} approved. A second person is needed.`),
        !isOutcome(approval) && field("Comment", comment, { hint: shown.tool ? "The agent reads it if you reject." : "Goes with your answer; for changes it is what the agent reads." }),
        trouble,
        buttons(approval, { shown, answer, causes, comment }),
      ),
    ),
  );
}

function heading(approval, { tool }, phase) {
  if (tool) return `May the agent call ${tool}?`;
  return isOutcome(approval) ? "What became of this call?" : `Approve “${phase?.title ?? approval.phase_key}”?`;
}

const factsOf = ({ phase_key: key, attempt, requested_at: asked, deadline_at: deadline }, shown, phase) =>
  facts(
    `Phase ${key}, attempt ${attempt}`,
    phase && `Risk ${phase.risk}`,
    shown.artifact && h("code.foreign", String(shown.artifact)),
    Array.isArray(shown.files) && `${plural(shown.files.length, "file")} changed, +${shown.added ?? 0} −${shown.removed ?? 0}`,
    h("span", "asked ", time(asked)),
    deadline && h("span.mark.tone-waiting", { title: exact(deadline) }, `answered with ${shown.on_deadline ?? "reject"} by itself at ${clock(deadline)}`),
  );

function subject(approval, shown, view) {
  if (shown.tool) return h("div.stack.tight", shown.question && h("p.foreign", String(shown.question)), raw(shown.args, { lines: 30, chars: 6000 }));
  if (!isOutcome(approval)) return phaseSubject(approval, shown, view);
  const step = view.fold.steps.get(shown.key);
  const told = "It was in flight when its process died. Nobody but you can find out whether it had its effect.";
  return h("div.stack.tight", h("p", told), h("p", h("code", String(step?.label ?? shown.key))), step?.args !== undefined && raw(step.args));
}

function phaseSubject({ phase_key: key, attempt }, shown, view) {
  const content = typeof shown.content === "string" ? shown.content : "";
  const place = h("div.approval-subject", { tabindex: "0", role: "region", "aria-label": "What is to be approved" });
  const versions = view.run.artifacts.filter((each) => each.phase_key === key);
  const before = versions.findLast((each) => each.attempt < attempt);
  const modes = [
    ["Read it", () => documentView(content)],
    shown.diff && ["Files", () => patchView(String(shown.diff))],
    before && [`Compare with attempt ${before.attempt}`, async () => textDiff(await view.text(artifactUrl(before)), content)],
    shown.diff_since && ["What changed since it was asked", () => patchView(String(shown.diff_since))],
    ["Raw", () => raw(content, { lines: 60, chars: 12000 })],
  ].filter(Boolean);
  const tabs = chips("How to show it");
  const show = async (mode) => {
    fill(tabs, modes.map((each) => chip(each[0], each === mode, () => show(each))));
    fill(place, await (async () => mode[1]())().catch(problemNote));
  };
  show(modes[0]);
  const changed = Array.isArray(shown.changed) && shown.changed.length > 0 && h("p.note.tone-waiting", `Asked again: ${shown.changed.join(" and ")} changed since it was asked the first time.`);
  return h("div.stack.tight", changed, verdict(versions.findLast((each) => each.attempt === attempt)), tabs, place);
}

function verdict(artifact) {
  if (!artifact) return null;
  const findings = findingsOf(artifact);
  if (!findings.length) return h("p", mark("good", `Valid by ${artifact.schema_id}`));
  return h("div", mark(artifact.state === "accepted" ? "waiting" : "bad", plural(findings.length, "finding")), findingList(findings));
}

function choices(approval, causes) {
  const outcome = isOutcome(approval);
  const names = { approve: outcome ? "Make the call again" : "Approve", request_changes: "Request changes", reject: outcome ? "Fail the phase" : "Reject", result: "Give the result" };
  return h("dl.causes", Object.entries(causes).map(([action, text]) => [h("dt", names[action]), h("dd", text)]));
}

function buttons(approval, { shown, answer, causes, comment }) {
  const why = whyNot("approver");
  const approve = (label) => button(label, () => answer("approve"), { kind: "main", why });
  const reject = (label, title) => button(`${label}…`, () => ask({ title, body: h("p", causes.reject), label, kind: "bad main", act: () => answer("reject") }), { kind: "bad", why });
  if (isOutcome(approval)) {
    const result = h("textarea", { name: "result", rows: "4" });
    const giveResult = () =>
      ask({
        title: "What did the call give?",
        body: field("Result", result, { hint: "JSON, or plain text. The agent reads it as the call's answer." }),
        label: "Go on with this result",
        act: () => answer("approve", { result: toJson(result.value) }),
      });
    return h("div.buttons", approve("Make the call again"), button("Give the result…", giveResult, { why }), reject("Fail the phase", "Fail the phase?"));
  }
  const requestChanges = () => {
    if (comment.value.trim()) return answer("request_changes");
    comment.focus();
    comment.ariaInvalid = "true";
    comment.placeholder = "Say what should change.";
    say(comment.placeholder);
  };
  return h("div.buttons", approve(shown.tool ? "Allow this call" : "Approve and continue"), !shown.tool && button("Request changes", requestChanges, { why }), reject("Reject", "Reject it?"));
}

function toJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
