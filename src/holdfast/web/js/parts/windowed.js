// A list of any length of which only the rows in view exist. Rows have one height; it is measured, not assumed.
import { h, reconcile } from "../h.js";
import { windowOf } from "../model/window.js";

/**
 * Fills a `<tbody>` with rows: `keyOf(index)`, `stampOf(index)` (a row is drawn anew when it changes) and `draw(index)`.
 * The page scrolls unless `scroller` is given. Call `update(count)` after every change of the list.
 */
export class WindowedRows {
  #rows = new Map(); // key → { stamp, node }
  #count = 0;
  #height = 44;
  #frame = 0;
  #before;
  #after;

  constructor(body, { keyOf, stampOf, draw, columns, signal, scroller = null, onEnd = null }) {
    this.#before = spacer(columns);
    this.#after = spacer(columns);
    Object.assign(this, { body, keyOf, stampOf, draw, scroller, onEnd });
    const later = () => {
      this.#frame ||= requestAnimationFrame(() => {
        this.#frame = 0;
        this.update(this.#count);
      });
    };
    (scroller ?? window).addEventListener("scroll", later, { passive: true, signal });
    window.addEventListener("resize", later, { passive: true, signal });
  }

  update(count) {
    this.#count = count;
    const range = windowOf({ count, rowHeight: this.#height, ...this.#view() });
    const kept = new Map();
    const nodes = [];
    for (let index = range.first; index < range.last; index++) {
      const row = this.#row(index);
      kept.set(this.keyOf(index), row);
      nodes.push(row.node);
    }
    this.#rows = kept;
    this.#before.firstChild.style.setProperty("height", `${range.before}px`);
    this.#after.firstChild.style.setProperty("height", `${range.after}px`);
    this.#before.hidden = range.before === 0;
    this.#after.hidden = range.after === 0;
    reconcile(this.body, [this.#before, ...nodes, this.#after]);
    this.#measure(nodes[0]);
    if (range.last >= count && count > 0) this.onEnd?.();
  }

  /** Bring a row into view and give back its node. */
  show(index) {
    const start = this.#top();
    const view = this.#view();
    if (index * this.#height < view.top + 60) this.#scrollTo(start + index * this.#height - 80);
    else if ((index + 1) * this.#height > view.top + view.height) this.#scrollTo(start + (index + 1) * this.#height - view.height + 8);
    this.update(this.#count);
    return this.#rows.get(this.keyOf(index))?.node ?? null;
  }

  scrollToEnd() {
    if (this.scroller) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  #row(index) {
    const key = this.keyOf(index);
    const stamp = this.stampOf(index);
    const known = this.#rows.get(key);
    if (known?.stamp === stamp) return known;
    const node = this.draw(index);
    node.setAttribute("aria-rowindex", index + 2); // the head is the first
    if (known?.node.contains(document.activeElement)) queueMicrotask(() => node.querySelector("a, button")?.focus({ preventScroll: true }));
    return { stamp, node };
  }

  #view() {
    if (this.scroller) return { top: this.scroller.scrollTop, height: this.scroller.clientHeight || 400 };
    return { top: scrollY - this.#top(), height: innerHeight };
  }

  #top() {
    return this.scroller ? 0 : this.body.getBoundingClientRect().top + scrollY;
  }

  #scrollTo(top) {
    (this.scroller ?? window).scrollTo({ top });
  }

  #measure(node) {
    const height = node?.getBoundingClientRect().height ?? 0;
    if (height > 0 && Math.abs(height - this.#height) > 1) {
      this.#height = height;
      queueMicrotask(() => this.update(this.#count));
    }
  }
}

const spacer = (columns) => h("tr.spacer", { "aria-hidden": "true", hidden: true }, h("td", { colspan: columns }));
