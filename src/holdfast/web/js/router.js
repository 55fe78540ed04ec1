// The address is the state: links, back and forward, filters and tabs all go through here.
import { ApiError } from "./api.js";
import { clearKeys, setKeys } from "./keys.js";
import { findRoute } from "./model/paths.js";
import { routes } from "./routes.js";
import { notFound, problemState } from "./parts/states.js";
import { fill } from "./h.js";

let current = null; // { route, params, controller, handle, path }
let visit = 0;

export function startRouter() {
  addEventListener("popstate", () => show());
  document.addEventListener("click", onClick);
  return show();
}

/** Go to one of our own addresses. `replace` leaves no entry in the history: for filters and tabs. */
export function navigate(url, { replace = false } = {}) {
  const target = new URL(url, location.href);
  if (target.href !== location.href) history[replace ? "replaceState" : "pushState"](null, "", target);
  return show();
}

/** Change the query of this page: null or "" takes a value out. */
export function setQuery(changes, { replace = true } = {}) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "" || value === undefined) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  return navigate(url, { replace });
}

/** Draw the current page anew, as after a login. */
export function reload() {
  leave();
  return show();
}

function onClick(event) {
  const link = event.target.closest?.("a[href]");
  const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href?.baseVal ?? link.href, location.href);
  if (url.origin !== location.origin || !findRoute(routes, url.pathname)) return;
  if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
  event.preventDefault();
  navigate(url);
}

async function show() {
  const mine = ++visit;
  const main = document.getElementById("main");
  const found = findRoute(routes, location.pathname);
  const query = new URLSearchParams(location.search);
  if (found && current?.route === found.route && current.handle?.update?.({ ...current.context, params: found.params, query }) === true) return;
  const wasOpen = current !== null;
  leave();
  markNavigation(found?.route.name);
  if (!found) {
    fill(main, notFound());
    return setTitle("Not found");
  }
  const controller = new AbortController();
  const context = { params: found.params, query, signal: controller.signal, setTitle, setKeys };
  current = { route: found.route, controller, handle: null, context };
  try {
    const module = await found.route.load();
    if (mine !== visit) return;
    const page = module.default;
    setTitle(page.title);
    main.replaceChildren();
    current.handle = (await page.render(main, context)) ?? {};
  } catch (error) {
    if (mine !== visit || error.name === "AbortError") return;
    if (!(error instanceof ApiError)) console.error(error);
    fill(main, problemState(error, () => reload()));
  }
  if (wasOpen && mine === visit) {
    scrollTo(0, 0);
    (main.querySelector("h1") ?? main).focus?.({ preventScroll: true });
  }
}

function leave() {
  if (!current) return;
  clearKeys();
  current.controller.abort();
  current.handle?.leave?.();
  current = null;
}

function setTitle(title) {
  document.title = title ? `${title} · holdfast` : "holdfast";
}

function markNavigation(name) {
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}
