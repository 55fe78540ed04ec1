// A state as shape, colour and word.
import { h } from "../h.js";
import { SHAPES, toStatus } from "../model/status.js";

export function shape(name) {
  const path = h("svg:path", { d: SHAPES[name] ?? SHAPES.idle, "fill-rule": "evenodd", fill: "currentColor" });
  return h("svg:svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: name === "busy" ? "turning" : null }, path);
}

/** A tone with any word: `mark("good", "Valid")`. */
export function mark(tone, word, { pill = false, shapeName = tone } = {}) {
  return h("span", { class: `mark tone-${tone}${pill ? " pill" : ""}` }, shape(shapeName), word);
}

export function statusMark(state, { pauseReason = null, pill = false, word = null } = {}) {
  const status = toStatus(state, pauseReason);
  return mark(status.tone, word ?? status.word, { pill, shapeName: status.shape });
}
