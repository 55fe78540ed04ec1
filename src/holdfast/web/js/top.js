import { lateness, loadSession, send, session, whyNot } from "./api.js";
import { clock } from "./format.js";
import { h, refill } from "./h.js";
import { liveness, startWaiting, toYours, waiting } from "./live.js";
import { openPalette } from "./palette.js";
import { ask, icon, say, shape } from "./parts/ui.js";
import { keys, navigate, setCount } from "./router.js";

const HALF_MOON = "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.8v10.4A5.2 5.2 0 0 1 8 2.8z";

const labelOf = (element) => element.getAttribute("aria-label") ?? element.textContent;
let drawn = "";

// What waits is asked for every now and then: an open menu and the focus outlive it.
export function drawTop() {
	const { length } = toYours(waiting.items);
	setCount(length);
	const stamp = [length, session.isKnown, session.name, session.role].join(" ");
	if (stamp === drawn) return;
	drawn = stamp;
	const top = document.getElementById("top-end");
	const isOpen = top.querySelector(".menu[open]") !== null;
	refill(
		top,
		labelOf,
		length > 0 && h("a.needs-you", { href: "/inbox" }, h("span.mark.tone-waiting", shape("waiting")), length, h("span.words", " waiting for you")),
		session.isKnown && newRunLink(),
		h(
			"button.button.plain",
			{ type: "button", "aria-label": "Switch between light and dark", title: "Light or dark", onclick: switchTheme },
			icon(HALF_MOON, { width: 16, height: 16 }),
		),
		session.isKnown && userMenu(isOpen),
	);
}

function newRunLink() {
	const why = whyNot("operator");
	if (why) return h("span.button", { "aria-disabled": "true", title: why, role: "link", tabindex: 0 }, "New run");
	return h("a.button.main", { href: "/new" }, "New run");
}

function userMenu(isOpen) {
	const { name, role } = session;
	const act = (label, onclick) => h("button", { type: "button", onclick }, label);
	const list = h(
		"div.menu-list",
		{ onclick: (event) => event.target.closest("a, button") && closeMenus(null) },
		h("small", `Signed in as ${name}, ${role}`),
		h("a", { href: "/settings" }, "Settings"),
		h("a", { href: "/health" }, "Health"),
		h("a", { href: "/workers" }, "Workers"),
		act("Commands (Ctrl or ⌘ K)", openPalette),
		act("Keys", showHelp),
		act("Log out", logOut),
	);
	return h("details.menu", { open: isOpen }, h("summary.button.plain", { "aria-label": `You: ${name}` }, h("span.clip.foreign.who", name)), list);
}

document.addEventListener("click", (event) => closeMenus(event.target));
document.addEventListener("keydown", (event) => {
	if (event.key !== "Escape") return;
	const open = document.querySelector(".menu[open]");
	closeMenus(null);
	open?.querySelector("summary").focus();
});

document.addEventListener("keydown", (event) => {
	if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || !session.isKnown) return;
	event.preventDefault();
	openPalette();
});

export function closeMenus(except) {
	for (const menu of document.querySelectorAll(".menu[open]")) menu.open = menu.contains(except);
}

function switchTheme() {
	const { theme } = document.documentElement.dataset;
	const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
	setTheme(isDark ? "light" : "dark");
	say(`${document.documentElement.dataset.theme} theme`);
}

// "light", "dark", or "" for the system's.
export function setTheme(theme) {
	if (theme) document.documentElement.dataset.theme = theme;
	else delete document.documentElement.dataset.theme;
	try {
		localStorage.setItem("hf-theme", theme);
	} catch {
		// Not kept; it still holds for this page.
	}
}

export async function logOut() {
	await send("DELETE", "/api/session");
	Object.assign(session, { name: "", role: "", isKnown: false });
	drawTop();
	navigate("/sign-in");
}

export function showHelp() {
	const item = ([name, [label]]) => [h("dt", name.split(" ").map((key) => [h("kbd", key), " "])), h("dd", label)];
	const list = (title, some) => some.length > 0 && [h("h3", title), h("dl.keys", some.map(item))];
	const body = h("div.stack", list("On this page", Object.entries(keys.own)), list("Everywhere", Object.entries(keys.common)));
	ask({ title: "Keys", body, cancel: "Close" });
}

export function drawBar() {
	const bar = document.getElementById("bar");
	const { since } = liveness;
	const wasHidden = bar.hidden;
	bar.hidden = since === null && lateness.since === null;
	if (since !== null) bar.textContent = `Not live since ${clock(since / 1000)}. Reconnecting… Nothing is lost; what you see is what was known then.`;
	else bar.textContent = bar.hidden ? "" : `The server has not answered since ${clock(lateness.since / 1000)}. What you asked for is still on its way.`;
	if (bar.hidden && !wasHidden) say("Live again");
}

export async function start() {
	try {
		await loadSession();
		startWaiting(drawTop);
	} catch {
		// A 401 has already led to the login; without a connection the page says so itself.
	}
	drawTop();
}
