// <hf-time>: "6 min ago", kept true while it is shown, exact for whoever points at it or focuses it.
import { ago, exact, since } from "../format.js";
import { h } from "../h.js";

const shown = new Set();
setInterval(() => {
  if (!document.hidden) for (const element of shown) element.draw();
}, 5000);

class HfTime extends HTMLElement {
  connectedCallback() {
    shown.add(this);
    this.draw();
  }
  disconnectedCallback() {
    shown.delete(this);
  }
  draw() {
    const at = this.getAttribute("datetime");
    const text = (this.getAttribute("as") === "since" ? since : ago)(at, Date.now());
    if (this.textContent !== text) this.textContent = text;
  }
}
customElements.define("hf-time", HfTime);

/** `time(run.created_at)`; `{ as: "since" }` for "6 min"; `{ focusable: true }` where it stands alone. */
export function time(at, { as = "ago", focusable = false } = {}) {
  if (!at) return "–";
  const iso = typeof at === "number" ? new Date(at * 1000).toISOString() : at;
  return h("hf-time", { datetime: iso, as, class: "nowrap num", title: exact(iso), ...(focusable ? { tabindex: "0", role: "note", "aria-label": exact(iso) } : {}) });
}
