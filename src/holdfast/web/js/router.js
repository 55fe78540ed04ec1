// The address is the state: links, back and forward, filters and tabs all go through here.
import { ApiError } from "./api.js";
import { fill } from "./h.js";
import { clearKeys, setKeys } from "./keys.js";
import { findRoute } from "./model/paths.js";
import { notFound, problemState } from "./parts/ui.js";
import { routes } from "./routes.js";

let current = null; // { route, controller, handle, context }
let visit = 0;

export function startRouter() {
  addEventListener("popstate", show);
  document.addEventListener("click", onClick);
  show();
}

// Go to one of our own addresses. `replace` leaves no entry in the history: for filters and tabs.
export function navigate(url, { replace = false } = {}) {
  const target = new URL(url, location.href);
  if (target.href !== location.href) history[replace ? "replaceState" : "pushState"](null, "", target);
  return show();
}

// Change the query of this page: null or "" takes a value out.
export function setQuery(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if ((value ?? "") === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  return navigate(url, { replace: true });
}

function onClick(event) {
  const link = event.target.closest?.("a[href]");
  const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href.baseVal ?? link.href, location.href);
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
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.dataset.page === found?.route.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!found) {
    fill(main, notFound());
    return setTitle("Not found");
  }
  const { route, params } = found;
  const controller = new AbortController();
  const context = { params, query, signal: controller.signal, setTitle, setKeys };
  current = { route, controller, context };
  try {
    const { default: page } = await import(`./pages/${route.file ?? route.name}.js`);
    if (mine !== visit) return;
    setTitle(page.title);
    main.replaceChildren();
    current.handle = await page.render(main, context);
  } catch (error) {
    if (mine !== visit || error.name === "AbortError") return;
    if (!(error instanceof ApiError)) console.error(error);
    // A browser never asks again for a module it once failed to get; loading the page anew does.
    fill(main, problemState(error, error instanceof ApiError ? reload : () => location.reload()));
  }
  if (wasOpen && mine === visit) {
    scrollTo(0, 0);
    (main.querySelector("h1") ?? main).focus({ preventScroll: true });
  }
}

function reload() {
  leave();
  show();
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
