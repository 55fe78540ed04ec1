// A question before something happens: what it will cause, one button named after it, and errors told in place.
import { newKey } from "../api.js";
import { fill, h } from "../h.js";
import { button } from "./button.js";
import { problemNote } from "./states.js";

/**
 * `ask({ title, body, label, kind, act })` opens a dialog and resolves to what `act(form, key)` gave, or to null when it is
 * closed. `act` gets the form's data and one key for all its tries; while it works nothing can be sent twice, and an error
 * stays in the dialog so that the same wish can be sent again.
 */
export function ask({ title, body, label, kind = "main", act, cancel = "Cancel", wide = false }) {
  const key = newKey();
  const trouble = h("div", {});
  return new Promise((resolve) => {
    let result = null;
    const confirm = label && button(label, null, { kind, type: "submit" });
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      body,
      trouble,
      h("div", { class: "buttons end" }, button(cancel, () => dialog.close(), { kind: "plain" }), confirm),
    );
    const dialog = h("dialog", { class: `dialog${wide ? " wide" : ""}`, "aria-labelledby": "dialog-title" }, form);
    let isBusy = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (isBusy) return;
      isBusy = true;
      confirm?.setAttribute("aria-busy", "true");
      fill(trouble);
      try {
        result = (await act(new FormData(form), key)) ?? true;
        dialog.close();
      } catch (error) {
        fill(trouble, problemNote(error));
      } finally {
        isBusy = false;
        confirm?.removeAttribute("aria-busy");
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
