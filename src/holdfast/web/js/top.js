// The top of every page: who you are, what waits for you, theme, menus, help, and whether the page is live.
import { send } from "./api.js";
import { clock } from "./format.js";
import { fill, h } from "./h.js";
import { listKeys } from "./keys.js";
import { navigate } from "./router.js";
import { loadSession, session, whyNot } from "./session.js";
import { ask } from "./parts/dialog.js";
import { shape } from "./parts/status.js";
import { say } from "./say.js";
import { startWaiting, waiting } from "./waiting.js";

export function drawTop() {
  fill(
    document.getElementById("top-end"),
    waiting.items.length > 0 && h("a", { class: "needs-you", href: "/" }, h("span", { class: "mark tone-waiting" }, shape("waiting")), waiting.items.length, h("span", { class: "words" }, " waiting for you")),
    session.isKnown && newRunLink(),
    h("button", { class: "button plain", type: "button", "aria-label": "Switch between light and dark", title: "Light or dark", onclick: switchTheme }, themeIcon()),
    session.isKnown && userMenu(),
  );
}

function newRunLink() {
  const why = whyNot("operator");
  if (why) return h("span", { class: "button", "aria-disabled": "true", title: why, role: "link", tabindex: "0" }, "New run");
  return h("a", { class: "button main", href: "/new" }, "New run");
}

function themeIcon() {
  const path = "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.800v10.400A5.200 5.200 0 0 1 8 2.800z";
  return h("svg:svg", { viewBox: "0 0 16 16", width: "16", height: "16", "aria-hidden": "true" }, h("svg:path", { d: path, fill: "currentColor", "fill-rule": "evenodd" }));
}

function userMenu() {
  const menu = h(
    "details",
    { class: "menu" },
    h("summary", { class: "button plain", "aria-label": `You: ${session.name}` }, h("span", { class: "clip foreign who" }, session.name)),
    h(
      "div",
      { class: "menu-list" },
      h("small", {}, `Signed in as ${session.name}, ${session.role}`),
      h("a", { href: "/settings" }, "Settings"),
      h("a", { href: "/health" }, "Health"),
      h("button", { type: "button", onclick: showHelp }, "Keys"),
      h("button", { type: "button", onclick: logOut }, "Log out"),
    ),
  );
  menu.addEventListener("click", (event) => event.target.closest(".menu-list :is(a, button)") && (menu.open = false));
  return menu;
}

document.addEventListener("click", (event) => closeMenus(event.target));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const open = document.querySelector(".menu[open]");
  closeMenus(null);
  open?.querySelector("summary").focus();
});

export function closeMenus(except) {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!except || !menu.contains(except)) menu.open = false;
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).colorScheme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("hf-theme", root.dataset.theme);
  } catch {
    // Not kept; it still holds for this page.
  }
  say(`${root.dataset.theme} theme`);
}

export async function logOut() {
  await send("DELETE", "/api/session");
  Object.assign(session, { name: "", role: "", isKnown: false });
  drawTop();
  navigate("/sign-in");
}

export function showHelp() {
  const { own, common } = listKeys();
  const list = (keys) => h("dl", { class: "keys" }, keys.map(([name, label]) => [h("dt", {}, name.split(" ").map((key) => [h("kbd", {}, key), " "])), h("dd", {}, label)]));
  const body = h("div", { class: "stack" }, own.length > 0 && [h("h3", {}, "On this page"), list(own)], h("h3", {}, "Everywhere"), list(common));
  ask({ title: "Keys", body, cancel: "Close" });
}

export function drawBar(since) {
  const bar = document.getElementById("bar");
  bar.hidden = since === null;
  bar.textContent = since === null ? "" : `Not live since ${clock(since / 1000)}. Reconnecting… Nothing is lost; what you see is what was known then.`;
  if (since === null) say("Live again");
}

/** Learn who is there; called at the start and after a login. */
export async function start() {
  try {
    await loadSession();
    startWaiting(drawTop);
  } catch {
    // A 401 has already led to the login; without a connection the page says so itself.
  }
  drawTop();
}
