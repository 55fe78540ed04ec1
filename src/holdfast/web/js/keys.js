// Keys: a few for every page, a few of the page's own, none while someone types.

const common = new Map();
let own = new Map();
let before = ""; // the "g" of "g r"
let timer = 0;

/** `{ "g r": ["Runs", fn] }`: for all pages. */
export function setCommonKeys(keys) {
  for (const [name, [label, act]] of Object.entries(keys)) common.set(name, { label, act });
}

/** The keys of the page that is open; they go when it is left. */
export function setKeys(keys) {
  own = new Map([...own, ...Object.entries(keys).map(([name, [label, act]]) => [name, { label, act }])]);
}

export function clearKeys() {
  own = new Map();
}

export function listKeys() {
  return { own: [...own].map(([name, { label }]) => [name, label]), common: [...common].map(([name, { label }]) => [name, label]) };
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const name = before ? `${before} ${event.key}` : event.key;
    before = "";
    clearTimeout(timer);
    const found = own.get(name) ?? common.get(name);
    if (found) {
      if (name === "Enter" && event.target.closest("a, button, summary, [role=button]")) return;
      event.preventDefault();
      found.act(event);
    } else if ([...own.keys(), ...common.keys()].some((each) => each.startsWith(`${event.key} `))) {
      before = event.key;
      timer = setTimeout(() => (before = ""), 1200);
    }
  });
}

const isTyping = (element) =>
  element.isContentEditable || element.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=submit])");
