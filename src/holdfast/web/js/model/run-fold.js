// Pure: a run's events, one by one, to what its tabs show: attempts with their times, steps, marks and money.
// It takes any order a journal can hold and any kind it does not know.

const STEP_ENDS = { "model.response": "done", "model.error": "failed", "tool.result": "done", "tool.error": "failed", "step.completed": "done", "step.failed": "failed" };
const STEP_STARTS = new Set(["model.request", "tool.started", "step.started"]);

export class RunFold {
  attempts = new Map(); // "plan/1" → { phase, n, from, to, state, segments, persona, envelope }
  steps = new Map(); // key → { key, type, label, phase, attempt, from, to, state, tries, model, args, result, error, startSeq, endSeq, micros }
  marks = []; // { ts, type: "crash" | "resumed" | "paused" | "cancelled" | …, text, seq }
  money = { micros: 0, reserved: new Map(), byPhase: new Map(), byModel: new Map(), tokens: { input: 0, output: 0 } };
  firstTs = null;
  lastTs = null;
  lastSeq = 0;
  exhausted = null;
  stalled = null;
  pausedBy = null;
  cancelled = null;
  #isPaused = false;
  #isOver = false;

  add(event) {
    if (event.seq <= this.lastSeq) return false;
    const before = this.lastTs;
    this.firstTs ??= event.ts;
    this.lastSeq = event.seq;
    this.lastTs = event.ts;
    const take = this.#takers[event.kind];
    if (take) take(event, event.payload ?? {}, before);
    else if (STEP_STARTS.has(event.kind)) this.#startStep(event);
    else if (STEP_ENDS[event.kind]) this.#endStep(event);
    return true;
  }

  get isOver() {
    return this.#isOver;
  }

  /** The call that is under way, if any: the latest that has begun and not ended. */
  lastOpenStep() {
    if (this.#isOver || this.#isPaused) return null;
    return [...this.steps.values()].filter((step) => step.state === "open").at(-1) ?? null;
  }

  attemptsOf(phase) {
    return [...this.attempts.values()].filter((attempt) => attempt.phase === phase).sort((a, b) => a.n - b.n);
  }

  stepsOf(phase, n = null) {
    return [...this.steps.values()].filter((step) => step.phase === phase && (n === null || step.attempt === n));
  }

  #takers = {
    "run.resumed": (event, payload, before) => this.#resume(event, payload, before),
    "run.paused": (event, payload) => this.#pause(event, payload),
    "run.cancelled": (event, payload) => {
      this.cancelled = { by: text(payload.by), reason: text(payload.reason) };
      this.#end(event, "aborted");
    },
    "run.completed": (event) => this.#end(event, "completed"),
    "run.failed": (event) => this.#end(event, "failed"),
    "run.resume.requested": (event, payload) => {
      if (payload.verb === "retry") this.#mark(event, "retried", `Retried by ${text(payload.by) || "someone"}`);
    },
    "run.pause.requested": (event, payload) => (this.pausedBy = text(payload.by)),
    "phase.started": (event, payload) => this.#startAttempt(event, payload),
    "phase.completed": (event, payload) => this.#endAttempt(event, payload, "completed"),
    "phase.failed": (event, payload) => this.#endAttempt(event, payload, "failed"),
    "phase.reopened": (event, payload) => this.#reopen(event, payload),
    "human.approval.requested": (event) => this.#wait(event),
    "human.approval.received": (event) => this.#goOn(event),
    "tool.unknown": (event, payload) => this.#unknown(event, payload),
    "step.unknown": (event, payload) => this.#unknown(event, payload),
    "budget.reserved": (_event, payload) => this.money.reserved.set(payload.entry, number(payload.amount_micros)),
    "budget.settled": (event, payload) => this.#settle(event, payload),
    "budget.exhausted": (_event, payload) => (this.exhausted = text(payload.message) || null),
    "agent.progress": (_event, payload) => payload.stalled && (this.stalled = text(payload.stalled)),
  };

  // -- attempts ---------------------------------------------------------------------------------------------------

  #startAttempt(event, payload) {
    const { phase, n } = laneOf(event, payload);
    if (!phase) return;
    const key = `${phase}/${n}`;
    const known = this.attempts.get(key);
    if (known) return;
    const envelope = payload.result?.envelope;
    this.attempts.set(key, { phase, n, from: event.ts, to: null, state: "running", segments: [{ type: "working", from: event.ts, to: null }], envelope: typeof envelope === "string" ? envelope : "", persona: text(payload.result?.persona ?? payload.persona), error: null, seq: event.seq });
  }

  #endAttempt(event, payload, state) {
    const attempt = this.#attemptOf(event, payload);
    if (!attempt) return;
    close(attempt, event.ts);
    attempt.to = event.ts;
    attempt.state = state;
    attempt.error = payload.error ?? null;
  }

  #reopen(event, payload) {
    const { phase, n } = laneOf(event, payload);
    const before = this.attempts.get(`${phase}/${n - 1}`) ?? this.attempts.get(`${phase}/${n}`);
    if (!before || before.to !== null) return;
    close(before, event.ts);
    before.to = event.ts;
    before.state = payload.reason === "changes" || payload.comment ? "changes" : "failed";
  }

  #attemptOf(event, payload) {
    const { phase, n } = laneOf(event, payload);
    return this.attempts.get(`${phase}/${n}`) ?? null;
  }

  #wait(event) {
    const attempt = this.#attemptOf(event, event.payload ?? {});
    if (attempt && attempt.to === null) turnTo(attempt, "waiting", event.ts);
  }

  #goOn(event) {
    const attempt = this.#attemptOf(event, event.payload ?? {});
    if (attempt && attempt.to === null && attempt.segments.at(-1)?.type === "waiting") turnTo(attempt, "queued", event.ts);
  }

  #open() {
    return [...this.attempts.values()].filter((attempt) => attempt.to === null);
  }

  #pause(event, payload) {
    this.#isPaused = true;
    for (const attempt of this.#open()) turnTo(attempt, "waiting", event.ts);
    if (payload.reason !== "approval") this.#mark(event, "paused", `Paused: ${text(payload.reason) || "waits"}`);
  }

  #resume(event, payload, before) {
    const isCrash = !this.#isPaused && payload.after !== "paused" && payload.after !== "failed" && payload.after !== "pending";
    if (isCrash) {
      this.#mark({ ...event, ts: before ?? event.ts }, "crash", "The process that drove it ended here");
      for (const attempt of this.#open()) turnTo(attempt, "down", before ?? event.ts);
      for (const step of this.steps.values()) if (step.state === "open") step.wasCut = true;
    }
    this.#isPaused = false;
    this.#isOver = false;
    this.exhausted = null;
    this.stalled = null;
    for (const attempt of this.#open()) turnTo(attempt, "working", event.ts);
    if (payload.after === "pending") return; // its first start, not a return
    this.#mark(event, "resumed", isCrash ? "Resumed: nothing that was done is done again" : "Resumed");
  }

  #end(event, state) {
    this.#isOver = true;
    for (const attempt of this.#open()) {
      close(attempt, event.ts);
      attempt.to = event.ts;
      attempt.state = state;
    }
    for (const step of this.steps.values()) if (step.state === "open") Object.assign(step, { state: "cut", to: event.ts });
    if (state === "aborted") this.#mark(event, state, "Aborted");
  }

  #mark(event, type, told) {
    this.marks.push({ ts: event.ts, type, text: told, seq: event.seq });
  }

  // -- steps ------------------------------------------------------------------------------------------------------

  #startStep(event) {
    const payload = event.payload ?? {};
    const known = this.steps.get(payload.key);
    if (known) Object.assign(known, { state: "open", to: null, tries: known.tries + 1 });
    else if (typeof payload.key === "string") this.steps.set(payload.key, this.#newStep(event, payload, event.ts));
  }

  #newStep(event, payload, from) {
    const { phase, n } = laneOf(event, payload);
    const type = event.kind.split(".", 1)[0];
    const label = type === "model" ? text(payload.model) || "model" : text(payload.tool) || payload.key;
    return { key: payload.key, type, label, phase, attempt: n, from, to: null, state: "open", tries: 1, model: text(payload.model), args: payload.args, result: undefined, error: null, startSeq: event.seq, endSeq: null, micros: 0 };
  }

  #endStep(event) {
    const payload = event.payload ?? {};
    if (typeof payload.key !== "string") return;
    const took = number(payload.result?.took_s);
    const step = this.steps.get(payload.key) ?? this.#newStep(event, payload, event.ts - took);
    this.steps.set(payload.key, step);
    const willRetry = payload.retry_at !== undefined;
    Object.assign(step, { state: willRetry ? "open" : STEP_ENDS[event.kind], to: event.ts, endSeq: event.seq, result: payload.result, error: payload.error ?? null, args: payload.args ?? step.args });
  }

  #unknown(event, payload) {
    const step = this.steps.get(payload.key);
    if (step) step.isUnknown = true;
    this.#mark(event, "unknown", `Outcome unknown: ${text(payload.resolution) || "asked"}`);
  }

  // -- money ------------------------------------------------------------------------------------------------------

  #settle(event, payload) {
    const micros = number(payload.amount_micros);
    const { phase } = laneOf(event, payload);
    const step = this.steps.get(payload.step);
    const model = step?.model || "unknown model";
    this.money.reserved.delete(payload.entry);
    this.money.micros += micros;
    this.money.tokens.input += number(payload.input_tokens);
    this.money.tokens.output += number(payload.output_tokens);
    if (step) step.micros += micros;
    tally(this.money.byPhase, phase || "run", micros, payload);
    tally(this.money.byModel, model, micros, payload);
  }

  /** Reserved for calls without an answer: under way, or cut off by a crash and perhaps paid. */
  get reservedMicros() {
    return [...this.money.reserved.values()].reduce((sum, micros) => sum + micros, 0);
  }
}

function tally(map, name, micros, payload) {
  const entry = map.get(name) ?? { micros: 0, calls: 0, input: 0, output: 0 };
  map.set(name, { micros: entry.micros + micros, calls: entry.calls + 1, input: entry.input + number(payload.input_tokens), output: entry.output + number(payload.output_tokens) });
}

/** Phase and attempt from "plan/2/turn1", or from what the payload says. */
export function laneOf(event, payload = event.payload ?? {}) {
  const [phase, n] = String(event.lane_id ?? "").split("/");
  if (n !== undefined && /^\d+$/.test(n)) return { phase, n: Number(n) };
  return { phase: text(payload.phase) || null, n: number(payload.attempt_no ?? payload.attempt) || 1 };
}

function turnTo(attempt, type, ts) {
  const last = attempt.segments.at(-1);
  if (last?.type === type && last.to === null) return;
  close(attempt, ts);
  attempt.segments.push({ type, from: ts, to: null });
}

function close(attempt, ts) {
  const last = attempt.segments.at(-1);
  if (last && last.to === null) last.to = Math.max(last.from, ts);
}

const text = (value) => (typeof value === "string" ? value : "");
const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : 0);
