// What was typed survives a reload, a lost connection and a login; with it the key under which it is sent.
const PLACE = "hf-new-run";

/** `{ form, key }` of this tab, or null. */
export function readDraft() {
  try {
    return JSON.parse(sessionStorage.getItem(PLACE));
  } catch {
    return null;
  }
}

/** Keep it, or with null forget it. */
export function keepDraft(draft) {
  try {
    if (draft) sessionStorage.setItem(PLACE, JSON.stringify(draft));
    else sessionStorage.removeItem(PLACE);
  } catch {
    // Too long, or storage is forbidden: it is kept as long as the page is open.
  }
}
