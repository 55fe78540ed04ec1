// A labelled field with its hint and its error.
import { h } from "../h.js";

let ids = 0;

/** `field("Comment", h("textarea", { name: "comment" }), { hint })`; the control gets class, id and description. */
export function field(label, control, { hint = null } = {}) {
  const id = `field-${++ids}`;
  control.id ||= id;
  control.classList.add("input");
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, hint && h("div", { class: "small soft", id: `${id}-hint` }, hint));
}
