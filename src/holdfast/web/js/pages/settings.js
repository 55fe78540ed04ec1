// You, how the pages look, and the tokens that let programs in.
import { getJson, send } from "../api.js";
import { fill, h } from "../h.js";
import { definePage } from "../page.js";
import { button } from "../parts/button.js";
import { ask } from "../parts/dialog.js";
import { field } from "../parts/field.js";
import { kept } from "../parts/kept.js";
import { section, table } from "../parts/layout.js";
import { empty } from "../parts/states.js";
import { mark } from "../parts/status.js";
import { time } from "../parts/time.js";
import { say } from "../say.js";
import { can, loadSession, session, whyNot } from "../session.js";
import { logOut } from "../top.js";

const ROLES = { viewer: "sees everything, changes nothing", operator: "starts and moves runs", approver: "decides approvals too", admin: "makes and revokes tokens too" };

export default definePage({
  title: "Settings",
  async render(main, { signal }) {
    main.append(h("h1", { tabindex: "-1", class: "page-title" }, "Settings"));
    if (!session.isKnown) await loadSession();
    main.append(h("div", { class: "stack wide-gap" }, section("You", you()), section("Look", look()), tokens(signal)));
  },
});

const choice = (props, ...label) => h("label", { class: "choice" }, h("input", { type: "radio", ...props }), h("span", {}, label));

function you() {
  const isOpen = session.name === "local";
  return h("div", { class: "card padded stack tight" }, h("p", {}, h("strong", { class: "foreign" }, session.name), ` · ${session.role}, who ${ROLES[session.role]}`), isOpen ? h("p", { class: "soft" }, "This server asks nobody who they are: whoever reaches it may do everything.") : h("div", { class: "buttons" }, button("Log out", logOut)));
}

function look() {
  const now = document.documentElement.dataset.theme ?? "";
  const themes = Object.entries({ "": "As the system", light: "Light", dark: "Dark" });
  return h("div", { class: "card padded choices", role: "radiogroup", "aria-label": "Look" }, themes.map(([value, label]) => choice({ name: "theme", value, checked: value === now, onchange: () => setTheme(value) }, label)));
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
  else fill(element, h("div", { class: "card" }, empty("Tokens are for admins", why)));
  return h("section", { class: "stack tight" }, h("div", { class: "page-head flat" }, h("h2", {}, "Tokens"), button("New token…", () => create(refresh), { why })), h("p", { class: "soft" }, "A token lets a program use the API, or a person log in, with one role. It is shown once and kept only as a hash."), element);
}

function list(items, refresh) {
  if (items.length === 0) return h("div", { class: "card" }, empty("There are no tokens", "Make one for each program and person, with the least role that does."));
  const isOver = (token) => token.revoked_at || (token.expires_at && Date.parse(token.expires_at) <= Date.now());
  const sorted = [...items].sort((a, b) => Boolean(isOver(a)) - Boolean(isOver(b)) || b.created_at.localeCompare(a.created_at));
  const state = (token) => (isOver(token) ? mark("idle", token.revoked_at ? `Revoked by ${token.revoked_by || "someone"}` : "Over", { shapeName: "stopped" }) : mark("good", "Works"));
  const row = (token) => [
    [h("span", { class: "foreign" }, token.name), h("div", { class: "small soft mono" }, token.id)],
    token.role,
    state(token),
    [time(token.created_at), token.created_by && h("div", { class: "small soft foreign" }, `by ${token.created_by}`)],
    token.last_used_at ? time(token.last_used_at) : "never",
    token.expires_at ? time(token.expires_at) : "never",
    isOver(token) ? "" : button("Revoke…", () => revoke(token, refresh), { kind: "tiny bad", "aria-label": `Revoke ${token.name}` }),
  ];
  return table(["Name", "Role", "State", "Made", "Last used", "Ends", "Action"], sorted.map(row));
}

async function create(refresh) {
  const roles = Object.entries(ROLES).map(([role, what]) => choice({ name: "role", value: role, checked: role === "viewer" }, h("strong", {}, role), h("span", { class: "soft" }, ` ${what}`)));
  const ends = h("select", { name: "days" }, [["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"], ["", "never"]].map(([value, label]) => h("option", { value }, label)));
  const made = await ask({
    title: "New token",
    body: h("div", { class: "stack" }, field("Name", h("input", { name: "name", required: true, maxlength: "200", autocomplete: "off" }), { hint: "It stands in the journal beside what the token did." }), h("fieldset", { class: "choices column" }, h("legend", {}, "Role"), roles), field("Ends", ends)),
    label: "Make token",
    act: (form) => send("POST", "/api/tokens", { name: form.get("name").trim(), role: form.get("role"), ...(form.get("days") ? { expires_in_days: Number(form.get("days")) } : {}) }),
  });
  if (!made) return;
  refresh();
  const copied = h("span", { class: "soft small", role: "status" });
  const shown = h("input", { class: "input mono", readonly: true, value: made.token, "aria-label": "The new token" });
  const copy = async () => {
    shown.select();
    await navigator.clipboard.writeText(made.token).then(() => fill(copied, "Copied"), () => fill(copied, "Press Ctrl+C to copy it"));
  };
  await ask({ title: "The new token", body: h("div", { class: "stack" }, h("p", { class: "note tone-waiting" }, h("strong", {}, "This is the only time it is shown.")), shown, h("div", { class: "buttons" }, button("Copy token", copy), copied), h("p", { class: "small soft" }, "Programs send it as “Authorization: Bearer …”.")), cancel: "I have kept it" });
}

async function revoke(token, refresh) {
  const body = h("p", {}, "Whoever uses it is refused from now on, and every login that began with it ends. This cannot be taken back. What was done with it stays in the journal.");
  const done = await ask({ title: `Revoke ${token.name}?`, body, label: "Revoke token", kind: "bad main", act: () => send("DELETE", `/api/tokens/${encodeURIComponent(token.id)}`) });
  if (done) say("The token is revoked");
  refresh();
}
