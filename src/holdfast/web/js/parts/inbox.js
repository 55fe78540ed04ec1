// "Waiting for you": decisions first, the oldest on top.
import { plural } from "../format.js";
import { h } from "../h.js";
import { isOutcome } from "../model/now.js";
import { can } from "../session.js";
import { shape } from "./status.js";
import { time } from "./time.js";

const SHOWN = 5;

/** `items` are open approvals and runs that wait for money or a look. */
export function inbox(items) {
  if (items.length === 0) return null;
  const rest = items.slice(SHOWN);
  return h(
    "section",
    { class: "inbox card", "aria-labelledby": "inbox-title" },
    h("h2", { id: "inbox-title" }, h("span", { class: "mark tone-waiting" }, shape("waiting")), can("approver") ? "Waiting for you" : "Waiting for an approver", " ", h("span", { class: "soft" }, items.length)),
    h("ul", {}, items.slice(0, SHOWN).map(entry)),
    rest.length > 0 && h("details", {}, h("summary", { class: "soft" }, `${plural(rest.length, "more decision")}`), h("ul", {}, rest.map(entry))),
  );
}

function entry(item) {
  const href = `/runs/${encodeURIComponent(item.run_id)}`;
  return h(
    "li",
    {},
    h("div", { class: "inbox-what" }, h("a", { href, class: "foreign" }, question(item)), h("div", { class: "soft small foreign clip" }, item.run_title ?? item.shown?.workflow ?? "")),
    h("span", { class: "soft small nowrap" }, "since ", time(item.requested_at, { as: "since" })),
    h("a", { class: "button", href }, item.kind === "run" ? "Look at it" : "Read and decide"),
  );
}

function question(item) {
  if (item.kind === "run") return item.question;
  if (item.shown?.tool) return `May the agent call ${item.shown.tool}?`;
  if (isOutcome(item)) return `What became of a call in “${item.phase_key}”?`;
  return `Approve “${item.phase_key}”${item.attempt > 1 ? `, attempt ${item.attempt}` : ""}?`;
}
