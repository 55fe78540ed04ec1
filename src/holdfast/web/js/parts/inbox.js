// "Waiting for you": decisions first, the oldest on top.
import { plural } from "../format.js";
import { h } from "../h.js";
import { isOutcome } from "../model/now.js";
import { can } from "../session.js";
import { shape, time } from "./ui.js";

// `items` are open approvals and runs that wait for money or a look.
export function inbox(items) {
  if (!items.length) return null;
  const rest = items.slice(5).map(entry);
  return h(
    "section.inbox.card", { "aria-labelledby": "inbox-title" },
    h("h2", { id: "inbox-title" }, h("span.mark.tone-waiting", shape("waiting")), can("approver") ? "Waiting for you" : "Waiting for an approver", " ", h("span.soft", items.length)),
    h("ul", items.slice(0, 5).map(entry)),
    rest.length > 0 && h("details", h("summary.soft", plural(rest.length, "more decision")), h("ul", rest)),
  );
}

function entry(item) {
  const href = `/runs/${item.run_id}`;
  return h(
    "li",
    h("div.inbox-what", h("a.foreign", { href }, question(item)), h("div.soft.small.foreign.clip", item.run_title ?? item.shown?.workflow)),
    h("span.soft.small.nowrap", "since ", time(item.requested_at, { as: "since" })),
    h("a.button", { href }, item.kind === "run" ? "Look at it" : "Read and decide"),
  );
}

function question(item) {
  const { kind, shown, phase_key: phase, attempt } = item;
  if (kind === "run") return item.question;
  if (shown?.tool) return `May the agent call ${shown.tool}?`;
  return isOutcome(item) ? `What became of a call in “${phase}”?` : `Approve “${phase}”${attempt > 1 ? `, attempt ${attempt}` : ""}?`;
}
