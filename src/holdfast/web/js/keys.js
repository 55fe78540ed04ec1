// Keys: a few for every page, a few of the page's own, none while someone types. `{ "g r": ["Runs", act] }`

let common = {};
let own = {}; // of the page that is open; they go when it is left
let before = ""; // the "g" of "g r"
let timer = 0;

export const setCommonKeys = (keys) => (common = keys);
export const setKeys = (keys) => (own = { ...own, ...keys });
export const clearKeys = () => (own = {});
export const listKeys = () => ({ own: Object.entries(own), common: Object.entries(common) });

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const name = before ? `${before} ${event.key}` : event.key;
    before = "";
    clearTimeout(timer);
    const keys = { ...common, ...own };
    if (Object.hasOwn(keys, name)) {
      if (name === "Enter" && event.target.closest("a, button, summary, [role=button]")) return;
      event.preventDefault();
      keys[name][1](event);
    } else if (Object.keys(keys).some((each) => each.startsWith(`${event.key} `))) {
      before = event.key;
      timer = setTimeout(() => (before = ""), 1200);
    }
  });
}

const isTyping = (element) =>
  element.isContentEditable || element.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=submit])");
