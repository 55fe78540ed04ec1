// You, how the pages look, and the tokens that let programs in.
import { getJson, send } from "../api.js";
import { fill, h } from "../h.js";
import { ask, button, empty, field, kept, mark, section, table, time } from "../parts/ui.js";
import { say } from "../say.js";
import { can, loadSession, session, whyNot } from "../session.js";
import { logOut } from "../top.js";

const ROLES = { viewer: "sees everything, changes nothing", operator: "starts and moves runs", approver: "decides approvals too", admin: "makes and revokes tokens too" };

export default {
  title: "Settings",
  async render(main, { signal }) {
    main.append(h("h1.page-title", { tabindex: "-1" }, "Settings"));
    if (!session.isKnown) await loadSession();
    main.append(h("div.stack.wide-gap", section("You", you()), section("Look", look()), tokens(signal)));
  },
};

const choice = (props, ...label) => h("label.choice", h("input", { type: "radio", ...props }), h("span", label));

function you() {
  const { name, role } = session;
  return h("div.card.padded.stack.tight", h("p", h("strong.foreign", name), ` · ${role}, who ${ROLES[role]}`), name === "local" ? h("p.soft", "This server asks nobody who they are: whoever reaches it may do everything.") : h("div.buttons", button("Log out", logOut)));
}

function look() {
  const now = document.documentElement.dataset.theme ?? "";
  const themes = [["", "As the system"], ["light", "Light"], ["dark", "Dark"]];
  return h("div.card.padded.choices", { role: "radiogroup", "aria-label": "Look" }, themes.map(([value, label]) => choice({ name: "theme", value, checked: value === now, onchange: () => setTheme(value) }, label)));
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem("hf-theme", theme);
  } catch {
    // Not kept; it still holds for this page.
  }
}

function tokens(signal) {
  const why = whyNot("admin");
  const { element, refresh } = kept({ signal, load: () => getJson("/api/tokens", { signal }), draw: ({ items }) => list(items, refresh) });
  if (can("admin")) refresh();
  else fill(element, h("div.card", empty("Tokens are for admins", why)));
  return h("section.stack.tight", h("div.page-head.flat", h("h2", "Tokens"), button("New token…", () => create(refresh), { why })), h("p.soft", "A token lets a program use the API, or a person log in, with one role. It is shown once and kept only as a hash."), element);
}

function list(items, refresh) {
  if (!items.length) return h("div.card", empty("There are no tokens", "Make one for each program and person, with the least role that does."));
  const isOver = ({ revoked_at: revoked, expires_at: end }) => Boolean(revoked || (end && Date.parse(end) <= Date.now()));
  const timeOrNever = (at) => (at ? time(at) : "never");
  const over = (token) => mark("idle", token.revoked_at ? `Revoked by ${token.revoked_by || "someone"}` : "Over", { shapeName: "stopped" });
  const row = (token) => [
    [h("span.foreign", token.name), h("div.small.soft.mono", token.id)],
    token.role,
    isOver(token) ? over(token) : mark("good", "Works"),
    [time(token.created_at), token.created_by && h("div.small.soft.foreign", `by ${token.created_by}`)],
    timeOrNever(token.last_used_at),
    timeOrNever(token.expires_at),
    !isOver(token) && button("Revoke…", () => revoke(token, refresh), { kind: "tiny bad", "aria-label": `Revoke ${token.name}` }),
  ];
  const sorted = items.sort((a, b) => isOver(a) - isOver(b) || b.created_at.localeCompare(a.created_at));
  return table(["Name", "Role", "State", "Made", "Last used", "Ends", "Action"], sorted.map(row));
}

async function create(refresh) {
  const roles = Object.entries(ROLES).map(([role, what]) => choice({ name: "role", value: role, checked: role === "viewer" }, h("strong", role), h("span.soft", ` ${what}`)));
  const ends = h("select", { name: "days" }, [[30, "in 30 days"], [90, "in 90 days"], [365, "in a year"], ["", "never"]].map(([value, label]) => h("option", { value }, label)));
  const made = await ask({
    title: "New token",
    body: h("div.stack", field("Name", h("input", { name: "name", required: true, maxlength: "200", autocomplete: "off" }), { hint: "It stands in the journal beside what the token did." }), h("fieldset.choices.column", h("legend", "Role"), roles), field("Ends", ends)),
    label: "Make token",
    act: (form) => send("POST", "/api/tokens", { name: form.get("name").trim(), role: form.get("role"), ...(form.get("days") && { expires_in_days: Number(form.get("days")) }) }),
  });
  if (!made) return;
  refresh();
  const copied = h("span.soft.small", { role: "status" });
  const shown = h("input.input.mono", { readonly: true, value: made.token, "aria-label": "The new token" });
  const copy = async () => {
    shown.select();
    fill(copied, await navigator.clipboard.writeText(made.token).then(() => "Copied", () => "Press Ctrl+C to copy it"));
  };
  await ask({ title: "The new token", body: h("div.stack", h("p.note.tone-waiting", h("strong", "This is the only time it is shown.")), shown, h("div.buttons", button("Copy token", copy), copied), h("p.small.soft", "Programs send it as “Authorization: Bearer …”.")), cancel: "I have kept it" });
}

async function revoke(token, refresh) {
  const done = await ask({
    title: `Revoke ${token.name}?`,
    body: h("p", "Whoever uses it is refused from now on, and every login that began with it ends. This cannot be taken back. What was done with it stays in the journal."),
    label: "Revoke token",
    kind: "bad main",
    act: () => send("DELETE", `/api/tokens/${token.id}`),
  });
  if (done) say("The token is revoked");
  refresh();
}
