// Talking with the server: JSON in and out, refusals as one kind of error, one key per wish so that nothing happens twice.

/** Why a request was refused. `code` is stable; "offline" means that no answer came at all. */
export class ApiError extends Error {
  constructor(problem, response = null) {
    super(problem.detail || problem.title || "The server refused.");
    this.code = problem.code ?? "unknown";
    this.status = response?.status ?? 0;
    this.title = problem.title ?? "";
    this.hint = problem.hint ?? "";
    this.errors = problem.errors ?? [];
    this.requestId = problem.request_id ?? "";
    this.retryAfter = Number(response?.headers.get("Retry-After") ?? 0);
  }
  get isOffline() {
    return this.code === "offline";
  }
}

/** Called with every 401; main.js leads to the login. */
export const onSignedOut = { call: () => {} };

export async function request(method, path, { body, headers = {}, signal, key } = {}) {
  const asked = { method, headers: { Accept: "application/json", ...headers }, signal, credentials: "same-origin" };
  if (body !== undefined) {
    asked.headers["Content-Type"] = "application/json";
    asked.body = JSON.stringify(body);
  }
  if (key) asked.headers["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(path, asked);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const detail = "The server does not answer. Nothing is lost; what was acknowledged is kept.";
    throw new ApiError({ code: "offline", title: "No connection", detail });
  }
  if (!response.ok) throw await toError(response);
  return response;
}

export async function toError(response) {
  const problem = await response.json().catch(() => ({ code: `http_${response.status}`, title: response.statusText }));
  if (response.status === 401) onSignedOut.call();
  return new ApiError(problem, response);
}

/** JSON of a GET. The browser's own cache does ETag and If-None-Match; `etag` says whether anything is new. */
export async function getJson(path, { signal } = {}) {
  return (await request("GET", path, { signal })).json();
}

export async function getWithEtag(path, { signal } = {}) {
  const response = await request("GET", path, { signal });
  return { etag: response.headers.get("ETag"), data: await response.json() };
}

export async function getText(path, { signal } = {}) {
  return (await request("GET", path, { signal, headers: { Accept: "*/*" } })).text();
}

/** POST or DELETE; answers with JSON or null. `key` makes a repeated wish one wish, see `newKey`. */
export async function send(method, path, body, { signal, key } = {}) {
  const response = await request(method, path, { body, signal, key });
  return response.status === 204 ? null : response.json();
}

/** Made once when a form or dialog opens, sent with every try of it. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** "/api/runs?state=failed": empty values are left out. */
export function withQuery(path, values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return query.size ? `${path}?${query}` : path;
}

export const runPath = (runId, rest = "") => `/api/runs/${encodeURIComponent(runId)}${rest}`;
