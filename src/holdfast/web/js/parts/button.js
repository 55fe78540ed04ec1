// Buttons that act once: busy while they work, and disabled ones that say why.
import { add, h } from "../h.js";
import { say } from "../say.js";

let ids = 0;

/**
 * `button("Approve and continue", act, { kind: "main", why: null })`.
 * `act` may be async: until it has ended, further clicks do nothing. With `why` the button stays focusable and says it.
 */
export function button(label, act, { kind = "", why = null, title = null, type = "button", ...more } = {}) {
  let isBusy = false;
  const element = h("button", { class: `button ${kind}`, type, title: why ?? title, ...more, onclick: async (event) => {
    if (why) {
      event.preventDefault();
      say(why);
      return;
    }
    if (isBusy || !act) return;
    isBusy = true;
    element.setAttribute("aria-busy", "true");
    try {
      await act(event);
    } finally {
      isBusy = false;
      element.removeAttribute("aria-busy");
    }
  } }, label);
  if (why) {
    const reason = h("span", { class: "unseen", id: `why-${++ids}` }, why);
    element.setAttribute("aria-disabled", "true");
    element.setAttribute("aria-describedby", reason.id);
    add(element, reason);
    reason.setAttribute("aria-hidden", "true");
  }
  return element;
}
