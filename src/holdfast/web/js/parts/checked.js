// A field of a form that says what is wrong with it, where it is wrong.
import { fill, h } from "../h.js";
import { field } from "./field.js";

let ids = 0;

/** `checked("Title", input, { hint, before, after })` gives `{ element, control, setError(text) }`. */
export function checked(label, control, { hint = null, before = null, after = null } = {}) {
  const trouble = h("div", { class: "trouble", id: `trouble-${++ids}` });
  const element = field(label, control, { hint });
  control.setAttribute("aria-describedby", [control.getAttribute("aria-describedby"), trouble.id].filter(Boolean).join(" "));
  if (before) control.before(before);
  element.append(trouble, ...[after].flat().filter(Boolean));
  const setError = (text) => {
    fill(trouble, text);
    if (text) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  };
  return { element, control, setError };
}
