// Small pieces that the parts of a run's page share.
import { h } from "../../h.js";

export const facts = (...items) => h("div.facts.small", items.map((item) => (typeof item === "string" && item ? h("span", item) : item)));

export const chips = (label, ...children) => h("div.chips", { role: "group", "aria-label": label }, children);

export const findingsOf = ({ findings }) => (Array.isArray(findings) ? findings : []);

export const findingList = (findings) =>
  h("ul.findings", findings.map((each) => h("li.foreign", typeof each === "string" ? each : [h("code", String(each.path ?? each.rule ?? "")), " ", each.message ?? JSON.stringify(each)])));

export const artifactUrl = ({ phase_key: key, attempt }) => `/artifacts/${encodeURIComponent(key)}?attempt=${attempt}`;
