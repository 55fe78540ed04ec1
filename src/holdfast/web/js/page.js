// How a page is declared, and what it is given. See README.md.

/**
 * @typedef {object} PageContext
 * @property {Record<string, string>} params   from the path, decoded
 * @property {URLSearchParams} query           from the URL
 * @property {AbortSignal} signal              aborted when the page is left; hand it to every request
 * @property {(title: string) => void} setTitle
 * @property {(keys: Record<string, [string, (event: KeyboardEvent) => void]>) => void} setKeys   `{ j: ["Next run", fn] }`
 */

/**
 * A page: `render(main, context)` draws into the empty `main` and may return `{ update, leave }`.
 * `update(context)` is called instead of a new render when only tab or query have changed; `leave()` when it is left.
 */
export function definePage({ title, render }) {
  return { title, render };
}
