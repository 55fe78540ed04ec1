// A list of any length of which only the rows in view exist. Rows have one height; it is measured, not assumed.
import { h, reconcile } from "../h.js";

// A row is drawn anew when `stampOf(index)` changes. The page scrolls unless `scroller` is given. Call `update(count)` after
// every change of the list.
export class WindowedRows {
	#rows = new Map(); // key → { stamp, node }
	#count = 0;
	#height = 44;
	#frame = 0;
	#spacers;

	constructor(body, { signal, ...options }) {
		// One cell: more than a narrow page shows would be columns of their own, and take room from the others.
		this.#spacers = [0, 1].map(() => h("tr.spacer", { "aria-hidden": "true", hidden: true }, h("td")));
		Object.assign(this, { body, ...options });
		const later = () => {
			this.#frame ||= requestAnimationFrame(() => {
				this.#frame = 0;
				this.update(this.#count);
			});
		};
		(this.scroller ?? window).addEventListener("scroll", later, { passive: true, signal });
		addEventListener("resize", later, { passive: true, signal });
	}

	update(count) {
		this.#count = count;
		const range = windowOf({ count, rowHeight: this.#height, ...this.#view() });
		const rows = new Map();
		const nodes = [];
		for (let index = range.first; index < range.last; index++) {
			const row = this.#row(index);
			rows.set(this.keyOf(index), row);
			nodes.push(row.node);
		}
		this.#rows = rows;
		const [before, after] = this.#spacers;
		for (const [spacer, height] of [[before, range.before], [after, range.after]]) {
			spacer.firstChild.style.height = `${height}px`;
			spacer.hidden = !height;
		}
		reconcile(this.body, [before, ...nodes, after]);
		this.#measure(nodes[0]);
		if (range.last >= count && count > 0) this.onEnd?.();
	}

	show(index) {
		const height = this.#height;
		const node = this.#scrollTo(index);
		return height === this.#height ? node : this.#scrollTo(index); // the first rows have shown how high they are
	}

	#scrollTo(index) {
		const start = this.#top();
		const { top, height } = this.#view();
		const [above, below] = [index * this.#height, (index + 1) * this.#height];
		const target = above < top + 60 ? start + above - 80 : below > top + height ? start + below - height + 8 : null;
		if (target !== null) (this.scroller ?? window).scrollTo({ top: target });
		this.update(this.#count);
		return this.#rows.get(this.keyOf(index))?.node;
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
		if (known?.node.contains(document.activeElement)) keepFocus(node, document.activeElement.localName);
		return { stamp, node };
	}

	#view() {
		if (this.scroller) return { top: this.scroller.scrollTop, height: this.scroller.clientHeight || 400 };
		return { top: scrollY - this.#top(), height: innerHeight };
	}

	#top() {
		return this.scroller ? 0 : this.body.getBoundingClientRect().top + scrollY;
	}

	#measure(node) {
		const height = node?.getBoundingClientRect().height ?? 0;
		if (height > 0 && Math.abs(height - this.#height) > 1) {
			this.#height = height;
			queueMicrotask(() => this.update(this.#count));
		}
	}
}

// The focus that the row had before it was drawn anew, unless it has been led elsewhere since.
function keepFocus(node, name) {
	queueMicrotask(() => document.activeElement === document.body && node.querySelector(name)?.focus({ preventScroll: true }));
}

// The rows `first` … `last` (exclusive) of equal height that lie in view, with `spare` more on both sides.
export function windowOf({ count, rowHeight, top, height, spare = 12 }) {
	const first = clamp(Math.floor(top / rowHeight) - spare, 0, count);
	const last = clamp(Math.ceil((top + height) / rowHeight) + spare, first, count);
	return { first, last, before: first * rowHeight, after: (count - last) * rowHeight };
}

const clamp = (n, low, high) => Math.min(Math.max(n, low), high);
