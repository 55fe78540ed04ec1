// One stream of events at a time, resumed where it broke, and what the page knows about being live.
// EventSource cannot hear kinds it does not know and cannot tell a refusal from a lost line, so this reads the stream itself.
import { toError } from "./api.js";
import { SseParser } from "./model/sse.js";

const SILENCE_MS = 45_000; // the server comments every 15 s; three missed ones are a dead line
const HIDDEN_MS = 30_000; // browsers allow six connections a host: a page nobody sees gives its own back
const WAITS_MS = [250, 500, 1000, 2000, 4000];

// `since` is null while the page is live, else the time it was last. Listeners are called on a change.
export const liveness = {
  since: null,
  listeners: new Set(),
  set(isLive) {
    if (isLive === (this.since === null)) return;
    this.since = isLive ? null : Date.now();
    for (const listener of this.listeners) listener(this.since);
  },
};

// Follow a stream until `signal` ends it, or the server says `done`. `onMessages` gets a list of `{ id, event, data }`;
// `onRefused(ApiError)` is called if it can never work.
export async function follow(path, { lastId = "", signal, onMessages, onDone, onRefused }) {
  let last = lastId;
  let failures = 0;
  while (!signal.aborted) {
    try {
      await untilVisible(signal);
      const end = await readOnce(path, last, signal, (messages) => {
        failures = 0;
        last = messages.findLast((message) => message.id)?.id ?? last;
        onMessages(messages.filter((message) => message.event !== "done"));
      });
      if (end === "done") return onDone?.();
      if (end === "hidden") continue;
    } catch (error) {
      if (!signal.aborted && error.status >= 400 && error.status < 500 && error.status !== 429) {
        liveness.set(true);
        return onRefused?.(error);
      }
    }
    if (signal.aborted) return;
    liveness.set(false);
    await pause(WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2), signal);
  }
}

async function readOnce(path, last, signal, onMessages) {
  const own = new AbortController();
  let ended = "lost";
  let silence;
  const stopLater = () => {
    clearTimeout(silence);
    silence = setTimeout(() => own.abort(), SILENCE_MS);
  };
  const stopHidden = whenHiddenLong(() => {
    ended = "hidden";
    own.abort();
  });
  stopLater();
  try {
    const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
    const response = await fetch(path, { headers, signal: AbortSignal.any([signal, own.signal]), cache: "no-store" });
    if (!response.ok) throw await toError(response);
    liveness.set(true);
    const parser = new SseParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      stopLater();
      const messages = parser.feed(piece.value).map(parse);
      if (messages.length) onMessages(messages);
      if (messages.some((message) => message.event === "done")) return "done";
    }
  } catch (error) {
    if (ended === "lost" || signal.aborted) throw error;
  } finally {
    clearTimeout(silence);
    stopHidden();
    own.abort();
  }
  return ended;
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
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(wake, ms);
    function wake() {
      clearTimeout(timer);
      removeEventListener("online", wake);
      resolve();
    }
    signal.addEventListener("abort", wake, { once: true });
    addEventListener("online", wake);
  });
}
