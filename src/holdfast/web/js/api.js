// Talking with the server: JSON in and out, refusals as one kind of error, one key per wish so that nothing happens twice.

// `code` is stable; "offline" means that no answer came at all.
export class ApiError extends Error {
  constructor({ code = "unknown", title = "", detail, hint = "", errors = [], request_id: requestId = "" }, response) {
    super(detail || title || "The server refused.");
    const retryAfter = Number(response?.headers.get("Retry-After") ?? 0);
    Object.assign(this, { code, title, hint, errors, requestId, retryAfter, status: response?.status ?? 0, isOffline: code === "offline" });
  }
}

// Called with every 401; main.js leads to the login.
export const onSignedOut = { call: () => {} };

async function request(method, path, { body, headers, signal, key } = {}) {
  const asked = { method, headers: { Accept: "application/json", ...headers }, signal, credentials: "same-origin" };
  if (body !== undefined) {
    asked.headers["Content-Type"] = "application/json";
    asked.body = JSON.stringify(body);
  }
  if (key) asked.headers["Idempotency-Key"] = key;
  const response = await fetch(path, asked).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ code: "offline", title: "No connection", detail: "The server does not answer. Nothing is lost; what was acknowledged is kept." });
  });
  if (!response.ok) throw await toError(response);
  return response;
}

export async function toError(response) {
  const problem = await response.json().catch(() => ({ code: `http_${response.status}`, title: response.statusText }));
  if (response.status === 401) onSignedOut.call();
  return new ApiError(problem, response);
}

export async function getWithEtag(path, options) {
  const response = await request("GET", path, options);
  return { etag: response.headers.get("ETag"), data: await response.json() };
}

export const getJson = async (path, options) => (await request("GET", path, options)).json();
export const getText = async (path, options) => (await request("GET", path, { ...options, headers: { Accept: "*/*" } })).text();

// POST or DELETE; answers with JSON or null. `key` makes a repeated wish one wish.
export async function send(method, path, body, options) {
  const response = await request(method, path, { ...options, body });
  return response.status === 204 ? null : response.json();
}

// Made once when a form or dialog opens, sent with every try of it.
export const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export function withQuery(path, values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => (value ?? "") !== ""));
  return query.size ? `${path}?${query}` : path;
}

export const runPath = (runId, rest = "") => `/api/runs/${encodeURIComponent(runId)}${rest}`;
