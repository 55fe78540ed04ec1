// Activity: the conversation as it happens; tool calls folded, live text growing.
import { clock, count, duration, exact, plural } from "../../format.js";
import { fill, h, reconcile } from "../../h.js";
import { brief } from "../../model/activity.js";
import { button, loading, mark, shape } from "../../parts/ui.js";
import { longText, markdown, raw } from "../../parts/text.js";

const SHOWN = 200;
const TONES = { open: "busy", done: "good", failed: "bad" };

export default function activityTab(panel, view) {
  const nodes = new Map(); // id → { version, node }
  const list = h("ol", { class: "activity" });
  const earlier = h("div", { class: "buttons" });
  const latest = button("Jump to the latest", () => jump(), { kind: "tiny" });
  let shown = SHOWN;
  let isFollowing = false;
  panel.append(h("div", { class: "panel-bar" }, earlier, h("label", { class: "toggle" }, h("input", { type: "checkbox", onchange: (event) => setFollowing(event.target.checked) }), " Follow what is new"), latest), list);
  const box = panel.querySelector("input[type=checkbox]");

  function setFollowing(on) {
    isFollowing = box.checked = on;
    if (on) jump();
  }

  function jump() {
    list.lastElementChild?.scrollIntoView({ block: "end" });
  }

  function update() {
    const { entries } = view.activity;
    if (entries.length === 0) return fill(list, h("li", {}, loading("Waiting for the first events…")));
    const from = Math.max(0, entries.length - shown);
    const wanted = entries.slice(from).map((entry) => nodeOf(entry));
    reconcile(list, wanted);
    fill(earlier, from > 0 && button(`Show ${count(Math.min(from, SHOWN * 5))} earlier of ${count(from)}`, () => ((shown += SHOWN * 5), update()), { kind: "tiny" }));
    if (isFollowing) jump();
    return undefined;
  }

  function nodeOf(entry) {
    const known = nodes.get(entry.id);
    if (known?.version === entry.version) return known.node;
    const isOpen = known?.node.querySelector("details")?.open ?? false;
    const node = h("li", { class: `entry e-${entry.type}`, id: `e-${entry.seq}` }, DRAW[entry.type](entry, isOpen), h("a", { class: "at num small", href: `/runs/${encodeURIComponent(view.runId)}/events?seq=${entry.seq}`, title: exact(entry.ts) }, clock(entry.ts, true)));
    nodes.set(entry.id, { version: entry.version, node });
    return node;
  }

  update();
  return { update, follow: () => setFollowing(!isFollowing) };
}

const DRAW = {
  phase: (entry) => h("div", {}, h("h3", {}, `Phase “${entry.phase}”`, entry.attempt > 1 && `, attempt ${entry.attempt}`), entry.text && h("details", {}, h("summary", { class: "soft small" }, "What the agent was asked"), lazy(() => markdown(entry.text)))),
  message: (entry) => h("div", { class: "said" }, entry.text ? markdown(entry.text) : h("p", { class: "soft" }, entry.state === "open" ? mark("busy", "The model is thinking…") : "(no text; see its calls)"), entry.state === "open" && entry.text && h("span", { class: "caret", "aria-hidden": "true" })),
  thought: (entry) => h("details", {}, h("summary", { class: "soft small" }, "What the model thought"), lazy(() => markdown(entry.text))),
  note: (entry) => h("p", { class: `mark tone-${entry.tone}` }, shape(entry.tone), h("span", { class: "foreign wrap" }, entry.text)),
  tool: (entry, isOpen) => tool(entry, isOpen),
};

function tool(entry, isOpen) {
  const tone = TONES[entry.state] ?? "idle";
  const head = h("summary", {}, h("span", { class: `mark tone-${tone}`, title: entry.state }, shape(tone)), h("code", {}, entry.name), h("span", { class: "soft foreign clip" }, brief(entry.args)), h("span", { class: "soft small num nowrap" }, size(entry)));
  return h("details", { class: "tool", open: isOpen }, head, lazy(() => [h("h4", { class: "small soft" }, "Arguments"), raw(entry.args ?? {}), h("h4", { class: "small soft" }, entry.state === "failed" ? "Error" : "Output"), entry.state === "open" ? h("p", { class: "soft" }, "Not there yet.") : longText(entry.output || "(nothing)")], isOpen));
}

function size(entry) {
  const lines = entry.output ? entry.output.split("\n", 10_000).length : 0;
  return [lines > 1 && plural(lines, "line"), entry.took !== null && entry.took !== undefined && duration(entry.took)].filter(Boolean).join(" · ");
}

/** What stands inside a fold is made when it is opened first. */
function lazy(make, isOpen = false) {
  const place = h("div", { class: "fold" });
  const draw = () => place.childElementCount || fill(place, make());
  if (isOpen) draw();
  else queueMicrotask(() => place.closest("details")?.addEventListener("toggle", draw, { once: true }));
  return place;
}
