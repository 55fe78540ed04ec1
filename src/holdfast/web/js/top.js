// The top of every page: who you are, what waits for you, theme, menus, help, and whether the page is live.
import { send } from "./api.js";
import { clock } from "./format.js";
import { fill, h } from "./h.js";
import { listKeys } from "./keys.js";
import { navigate } from "./router.js";
import { loadSession, session, whyNot } from "./session.js";
import { ask, shape } from "./parts/ui.js";
import { say } from "./say.js";
import { startWaiting, waiting } from "./waiting.js";

const HALF_MOON = "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.8v10.4A5.2 5.2 0 0 1 8 2.8z";

export function drawTop() {
  const { length } = waiting.items;
  fill(
    document.getElementById("top-end"),
    length > 0 && h("a.needs-you", { href: "/" }, h("span.mark.tone-waiting", shape("waiting")), length, h("span.words", " waiting for you")),
    session.isKnown && newRunLink(),
    h(
      "button.button.plain",
      { type: "button", "aria-label": "Switch between light and dark", title: "Light or dark", onclick: switchTheme },
      h("svg:svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, h("svg:path", { d: HALF_MOON, fill: "currentColor", "fill-rule": "evenodd" })),
    ),
    session.isKnown && userMenu(),
  );
}

function newRunLink() {
  const why = whyNot("operator");
  if (why) return h("span.button", { "aria-disabled": "true", title: why, role: "link", tabindex: 0 }, "New run");
  return h("a.button.main", { href: "/new" }, "New run");
}

function userMenu() {
  const { name, role } = session;
  const act = (label, onclick) => h("button", { type: "button", onclick }, label);
  const list = h("div.menu-list", h("small", `Signed in as ${name}, ${role}`), h("a", { href: "/settings" }, "Settings"), h("a", { href: "/health" }, "Health"), act("Keys", showHelp), act("Log out", logOut));
  list.addEventListener("click", (event) => event.target.closest("a, button") && closeMenus(null));
  return h("details.menu", h("summary.button.plain", { "aria-label": `You: ${name}` }, h("span.clip.foreign.who", name)), list);
}

document.addEventListener("click", (event) => closeMenus(event.target));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const open = document.querySelector(".menu[open]");
  closeMenus(null);
  open?.querySelector("summary").focus();
});

export function closeMenus(except) {
  for (const menu of document.querySelectorAll(".menu[open]")) menu.open = menu.contains(except);
}

function switchTheme() {
  const { dataset } = document.documentElement;
  const isDark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("hf-theme", dataset.theme);
  } catch {
    // Not kept; it still holds for this page.
  }
  say(`${dataset.theme} theme`);
}

export async function logOut() {
  await send("DELETE", "/api/session");
  Object.assign(session, { name: "", role: "", isKnown: false });
  drawTop();
  navigate("/sign-in");
}

export function showHelp() {
  const { own, common } = listKeys();
  const list = (title, keys) => [h("h3", title), h("dl.keys", keys.map(([name, [label]]) => [h("dt", name.split(" ").map((key) => [h("kbd", key), " "])), h("dd", label)]))];
  ask({ title: "Keys", body: h("div.stack", own.length > 0 && list("On this page", own), list("Everywhere", common)), cancel: "Close" });
}

export function drawBar(since) {
  const bar = document.getElementById("bar");
  bar.hidden = since === null;
  bar.textContent = bar.hidden ? "" : `Not live since ${clock(since / 1000)}. Reconnecting… Nothing is lost; what you see is what was known then.`;
  if (bar.hidden) say("Live again");
}

// Learn who is there; called at the start and after a login.
export async function start() {
  try {
    await loadSession();
    startWaiting(drawTop);
  } catch {
    // A 401 has already led to the login; without a connection the page says so itself.
  }
  drawTop();
}
