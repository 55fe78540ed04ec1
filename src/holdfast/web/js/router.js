// The address is the state: links, back and forward, filters and tabs all go through here; keys too.
import { ApiError, OFFLINE } from "./api.js";
import { fill, h } from "./h.js";
import { findRoute, routes } from "./model/routes.js";
import { notFound, problemState, say } from "./parts/ui.js";

let current = null; // { route, controller, handle, context }
let visit = 0;

export function startRouter(commonKeys) {
	keys.common = commonKeys;
	history.scrollRestoration = "manual"; // it would scroll before there is anything
	addEventListener("popstate", ({ state }) => show(state));
	document.addEventListener("click", onClick);
	document.addEventListener("keydown", onKey);
	show().then(loadAll);
}

// Go to one of our own addresses. `replace` leaves no entry in the history: for filters and tabs.
export function navigate(url, { replace = false } = {}) {
	const target = new URL(url, location.href);
	if (target.href !== location.href) {
		if (!replace) history.replaceState({ top: scrollY, href: document.activeElement.closest(".row-link")?.getAttribute("href") }, "");
		history[replace ? "replaceState" : "pushState"](null, "", target);
	}
	return show();
}

export function setQuery(changes) {
	const url = new URL(location.href);
	for (const [name, value] of Object.entries(changes)) {
		if ((value ?? "") === "") url.searchParams.delete(name);
		else url.searchParams.set(name, value);
	}
	return navigate(url, { replace: true });
}

const isPlain = (event) => !(event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented);

function onClick(event) {
	const link = event.target.closest?.("a[href]");
	if (!link || !isPlain(event) || event.button || event.shiftKey || link.target || link.hasAttribute("download")) return;
	const url = new URL(link.href.baseVal ?? link.href, location.href);
	if (url.origin !== location.origin || !findRoute(url.pathname)) return;
	if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
	event.preventDefault();
	navigate(url);
}

async function show(before) {
	const mine = ++visit;
	const main = document.getElementById("main");
	const found = findRoute(location.pathname);
	const query = new URLSearchParams(location.search);
	const isSame = found && current?.route === found.route;
	if (isSame && current.handle?.update?.({ ...current.context, params: found.params, query }) === true) return;
	const wasOpen = current !== null;
	leave();
	for (const link of document.querySelectorAll(".nav a")) {
		if (link.dataset.page === found?.route.name) link.setAttribute("aria-current", "page");
		else link.removeAttribute("aria-current");
	}
	if (!found) {
		fill(main, h("h1.unseen", { tabindex: "-1" }, "Not found"), notFound());
		return setTitle("Not found");
	}
	const { route, params } = found;
	const controller = new AbortController();
	const context = { params, query, signal: controller.signal, setTitle, setKeys };
	current = { route, controller, context };
	try {
		const page = await import(`./pages/${route.file ?? route.name}.js`);
		if (mine !== visit) return;
		setTitle(page.title);
		main.replaceChildren();
		showMarked();
		const handle = await page.render(main, context);
		if (mine !== visit) return handle?.leave?.();
		current.handle = handle;
	} catch (error) {
		if (mine !== visit || error.name === "AbortError") return;
		const isMissing = /dynamically imported module|importing a module|module script/i.test(error.message);
		if (!(error instanceof ApiError || isMissing)) console.error(error);
		fill(main, problemState(isMissing ? new ApiError(OFFLINE) : error, error instanceof ApiError ? () => (leave(), show()) : reload));
	}
	// What somebody has gone to while the page was still loading keeps the focus.
	if (wasOpen && mine === visit && !main.contains(document.activeElement)) {
		scrollTo(0, 0);
		(main.querySelector("h1") ?? main).focus({ preventScroll: true });
		if (before) returnTo(before, controller.signal);
	}
}

// Whoever comes back is led to where they were, as soon as that is there again, unless they do something before.
function returnTo({ top, href }, signal) {
	const stop = () => clearInterval(timer);
	const timer = setInterval(() => {
		scrollTo(0, top);
		const row = [...document.querySelectorAll(".row-link")].find((each) => each.getAttribute("href") === href);
		row?.focus({ preventScroll: true });
		if (scrollY === top && (row || !href)) stop();
	}, 50);
	setTimeout(stop, 3000);
	signal.addEventListener("abort", stop);
	for (const name of ["keydown", "pointerdown", "wheel"]) addEventListener(name, stop, { once: true });
}

// On a phone the pages' names are wider than the window.
function showMarked() {
	const marked = document.querySelector(".nav [aria-current]");
	if (marked) marked.parentElement.scrollLeft = marked.offsetLeft - (marked.parentElement.clientWidth - marked.offsetWidth) / 2;
}

// A browser never asks again for a module it once failed to get; loading the page anew does, if there is a server.
export async function reload() {
	const answer = await fetch("/api/health").catch(() => null);
	if (answer) location.reload();
	else say(OFFLINE.detail);
}

// All pages are had soon after the first is shown, so that a server that goes away leaves every link working.
function loadAll() {
	const load = () => {
		for (const { name, file = name } of routes) import(`./pages/${file}.js`).catch(() => {});
	};
	(globalThis.requestIdleCallback ?? setTimeout)(load);
}

function leave() {
	if (!current) return;
	keys.own = {};
	for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close(); // it was about the page that goes
	current.controller.abort();
	current.handle?.leave?.();
	current = null;
}

let pageTitle = "";
let waitingCount = 0;

function setTitle(title) {
	pageTitle = title;
	document.title = `${waitingCount ? `(${waitingCount}) ` : ""}${title ? `${title} · ` : ""}holdfast`;
}

// How many things wait for whoever looks; the title of the window says it too.
export function setCount(count) {
	waitingCount = count;
	setTitle(pageTitle);
}

// A few keys for every page, a few of the page's own, none while someone types: `{ "g r": ["Runs", act] }`
export const keys = { common: {}, own: {} };
let before = ""; // the "g" of "g r"
let timer = 0;

const setKeys = (more) => Object.assign(keys.own, more);

function onKey(event) {
	if (!isPlain(event) || isTyping(event.target) || document.querySelector("dialog[open]")) return;
	const name = before ? `${before} ${event.key}` : event.key;
	const known = { ...keys.common, ...keys.own };
	before = "";
	clearTimeout(timer);
	if (Object.hasOwn(known, name)) {
		if (name === "Enter" && event.target.closest("a, button, summary, [role=button]")) return;
		event.preventDefault();
		known[name][1](event);
	} else if (Object.keys(known).some((each) => each.startsWith(`${event.key} `))) {
		before = event.key;
		timer = setTimeout(() => (before = ""), 1200);
	}
}

const isTyping = (element) =>
	element.isContentEditable || element.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=submit])");
