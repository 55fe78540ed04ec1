// Pure: what a workflow's phases ask of people, in words.
import { plural } from "../format.js";

// The tone of each risk, the lowest first; the word always stands beside it.
export const RISK_TONES = { low: "good", medium: "busy", high: "waiting", critical: "bad" };
const RISKS = Object.keys(RISK_TONES);

// `{ isAsked, people, why }`: whether a person decides after this phase, how many, and by which rule.
export function approvalOf({ risk, approval }) {
  const isCritical = risk === "critical";
  const isFixed = approval === "always" || (approval === "never" && !isCritical);
  const isAsked = isFixed ? approval === "always" : risk !== "low";
  return { isAsked, people: isAsked ? 1 + isCritical : 0, why: isFixed ? `this workflow ${approval} asks here` : `its risk is ${risk}` };
}

export function approvalWords(phase) {
  const { isAsked, people, why } = approvalOf(phase);
  return isAsked ? `${people === 2 ? "Two people approve" : "A person approves"} the result: ${why}.` : `Goes on by itself: ${why}.`;
}

// "4 phases · 1 approval · risk up to medium"
export function summaryWords({ phases }) {
  const approvals = phases.filter((phase) => approvalOf(phase).isAsked).length;
  const risk = RISKS[Math.max(0, ...phases.map((phase) => RISKS.indexOf(phase.risk)))];
  return `${plural(phases.length, "phase")} · ${approvals ? plural(approvals, "approval") : "no approval"} · risk up to ${risk}`;
}

// What could go wrong or surprise, as sentences.
export function risksOf({ phases, setup = [], copy = [] }) {
  const quote = (fits) => phases.filter(fits).map(({ title }) => `“${title}”`).join(", ");
  const critical = quote(({ risk }) => risk === "critical");
  const unasked = quote((phase) => phase.risk !== "low" && !approvalOf(phase).isAsked);
  const commands = [...setup, ...phases.flatMap((phase) => phase.checks ?? [])].map((argv) => argv.join(" "));
  return [
    phases.every((phase) => phase.read_only) ? "No phase may change files." : "Files change only in the run's own branch; nothing reaches yours until someone merges it.",
    critical && `${critical}: critical, so two people must approve.`,
    unasked && `${unasked}: nobody is asked, though the risk is not low.`,
    commands.length > 0 && `Runs ${plural(commands.length, "command")} of its own: ${commands.slice(0, 3).join("; ")}${commands.length > 3 ? "; …" : ""}`,
    copy.length > 0 && `Copies ${copy.slice(0, 4).join(", ")} into the workspace, also where git ignores them.`,
  ].filter(Boolean);
}
