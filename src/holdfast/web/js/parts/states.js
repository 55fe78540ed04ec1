// Loading, empty and error: what is the case, and what can be done.
import { h } from "../h.js";

export function loading(what = "Loading…") {
  return h("p", { class: "loading", "aria-busy": "true" }, what);
}

/** Nothing is there, and that is no error. */
export function empty(title, text, ...actions) {
  return h("div", { class: "state" }, h("h2", {}, title), text && h("p", {}, text), actions.length > 0 && h("div", { class: "buttons" }, actions));
}

/** Something failed: says what, and that trying again is safe. */
export function problemState(error, retry) {
  const again = retry && h("button", { class: "button", type: "button", onclick: retry }, "Try again");
  return h(
    "div",
    { class: "state", role: "alert" },
    h("h2", {}, error.isOffline ? "The server does not answer" : error.title || "This could not be shown"),
    h("p", {}, error.message),
    error.hint && h("p", {}, error.hint),
    again && h("div", { class: "buttons" }, again),
    error.requestId && h("p", { class: "small" }, `Request ${error.requestId}`),
  );
}

/** The same in one line, inside a card or a dialog. */
export function problemNote(error) {
  const details = (error.errors ?? []).map((each) => h("li", {}, [each.loc?.join?.("."), each.path, each.field].find(Boolean), " ", each.msg ?? each.message));
  return h("div", { class: "note tone-bad", role: "alert" }, h("strong", {}, error.message), error.hint && h("div", {}, error.hint), details.length > 0 && h("ul", {}, details));
}

export function notFound(what = "There is no such page.") {
  return empty("Not found", what, h("a", { class: "button", href: "/" }, "All runs"));
}
