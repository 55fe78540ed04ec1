// One stream of events at a time, resumed where it broke, and what the page knows about being live.
// EventSource cannot hear kinds it does not know and cannot tell a refusal from a lost line, so this reads the stream itself.
import { ApiError, toError } from "./api.js";
import { SseParser } from "./model/sse.js";

const SILENCE_MS = 45_000; // the server comments every 15 s; three missed ones are a dead line
const HIDDEN_MS = 30_000; // browsers allow six connections a host: a page nobody sees gives its own back
const WAITS_MS = [250, 500, 1000, 2000, 4000];

/** Whether the page is live: `since` is null, or the time it was last. Listeners are called on a change. */
export const liveness = {
  since: null,
  listeners: new Set(),
  set(since) {
    if ((since === null) === (this.since === null)) return;
    this.since = since;
    for (const listener of this.listeners) listener(since);
  },
};

/**
 * Follow a stream until `signal` ends it, or the server says `done`.
 * `onMessages(list)` gets `{id, event, data}` with data parsed; `onDone()`; `onRefused(ApiError)` if it can never work.
 */
export async function follow(path, { lastId = "", signal, onMessages, onDone = () => {}, onRefused = () => {} }) {
  let last = lastId;
  let failures = 0;
  while (!signal.aborted) {
    try {
      await untilVisible(signal);
      const end = await readOnce(path, last, signal, (messages) => {
        failures = 0;
        for (const message of messages) if (message.id) last = message.id;
        onMessages(messages.filter((message) => message.event !== "done"));
      });
      if (end === "done") return onDone();
      if (end === "hidden") continue;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
        liveness.set(null);
        return onRefused(error);
      }
    }
    if (signal.aborted) return undefined;
    liveness.set(liveness.since ?? Date.now());
    await pause(WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2), signal);
  }
  return undefined;
}

async function readOnce(path, last, signal, onMessages) {
  const own = new AbortController();
  let ended = "lost";
  const stop = (why) => {
    ended = why;
    own.abort();
  };
  const onAbort = () => own.abort();
  signal.addEventListener("abort", onAbort);
  const stopHidden = whenHiddenLong(() => stop("hidden"));
  let silence = setTimeout(() => stop("lost"), SILENCE_MS);
  try {
    const headers = { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
    const response = await fetch(path, { headers, signal: own.signal, cache: "no-store" });
    if (!response.ok) throw await toError(response);
    liveness.set(null);
    const parser = new SseParser();
    const decoder = new TextDecoder();
    for await (const chunk of pieces(response.body)) {
      clearTimeout(silence);
      silence = setTimeout(() => stop("lost"), SILENCE_MS);
      const messages = parser.feed(decoder.decode(chunk, { stream: true })).map(parse);
      if (messages.length) onMessages(messages);
      if (messages.some((message) => message.event === "done")) return "done";
    }
  } catch (error) {
    if (ended === "lost" || signal.aborted) throw error;
  } finally {
    clearTimeout(silence);
    stopHidden();
    signal.removeEventListener("abort", onAbort);
    own.abort();
  }
  return ended;
}

async function* pieces(body) {
  const reader = body.getReader();
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

function parse(message) {
  try {
    return { ...message, data: JSON.parse(message.data) };
  } catch {
    return { ...message, data: null };
  }
}

function whenHiddenLong(act) {
  let timer;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(act, HIDDEN_MS);
  };
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

function untilVisible(signal) {
  if (!document.hidden) return undefined;
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}

export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const wake = () => {
      clearTimeout(timer);
      resolve();
    };
    signal?.addEventListener("abort", wake, { once: true });
    addEventListener("online", wake, { once: true });
  });
}
