// Shapes that pages repeat: a titled section, a table, pairs of name and value, a head with a search.
import { h } from "../h.js";
import { setQuery } from "../router.js";

export const section = (title, ...children) => h("section", { class: "stack tight" }, h("h2", {}, title), children);

/** `table(["Run", ">Cost"], [[cell, cell], …])`: ">" marks a column of numbers. */
export function table(heads, rows) {
  const number = heads.map((head) => (head.startsWith(">") ? "num" : null));
  const cells = (row) => h("tr", {}, row.map((cell, index) => h("td", { class: number[index] }, cell)));
  return h("div", { class: "card scroll-x" }, h("table", { class: "table" }, h("thead", {}, h("tr", {}, heads.map((head, index) => h("th", { scope: "col", class: number[index] }, head.replace(">", ""))))), h("tbody", {}, rows.map(cells))));
}

/** `[[name, value], …]`; what is falsy is left out. */
export const pairs = (facts, props = { class: "pairs" }) => h("dl", props, facts.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name, " "), h("dd", { class: "foreign" }, value))));

/** The head of a page with a search that lives in the URL as `q`. */
export function searchHead(title, { query, setKeys }) {
  const label = `Search ${title.toLowerCase()}`;
  const input = h("input", { class: "input", type: "search", value: query.get("q") ?? "", placeholder: label, "aria-label": label, oninput: () => setQuery({ q: input.value.trim() }) });
  setKeys({ "/": ["Search", (event) => (event.preventDefault(), input.focus())] });
  const head = h("div", { class: "page-head" }, h("h1", { tabindex: "-1" }, title), h("div", { class: "search" }, input));
  return { head, follow: (next) => input !== document.activeElement && (input.value = next.get("q") ?? "") };
}

/** Whether a text holds every word of what is searched for. */
export function holds(text, wanted) {
  const low = text.toLowerCase();
  return (wanted ?? "").toLowerCase().split(/\s+/).every((word) => low.includes(word));
}
