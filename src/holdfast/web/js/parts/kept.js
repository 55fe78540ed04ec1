// Content that is loaded, and loaded again, without ever going away: old is better than empty, as long as it says so.
import { clock } from "../format.js";
import { fill, h } from "../h.js";
import { button } from "./button.js";
import { loading, problemState } from "./states.js";

/** `kept({ load, draw, signal })` gives `{ element, refresh }`; `draw(data)` gives what is shown of it. */
export function kept({ load, draw, signal }) {
  const trouble = h("div", { hidden: true });
  const content = h("div", { class: "stack" }, loading());
  let loadedAt = null;
  async function refresh() {
    content.setAttribute("aria-busy", "true");
    try {
      const data = await load();
      if (signal.aborted) return;
      loadedAt = Date.now() / 1000;
      trouble.hidden = true;
      fill(content, draw(data));
    } catch (error) {
      if (signal.aborted) return;
      if (loadedAt === null) return void fill(content, problemState(error, refresh));
      trouble.hidden = false;
      fill(trouble, h("div", { class: "note tone-waiting", role: "status" }, h("p", {}, h("strong", {}, `What you see is from ${clock(loadedAt)}. `), error.message), button("Try again", refresh, { kind: "tiny" })));
    } finally {
      content.removeAttribute("aria-busy");
    }
  }
  return { element: h("div", { class: "stack" }, trouble, content), refresh };
}
