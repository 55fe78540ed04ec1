// Pure: the list of runs as it changes under the reader's eyes. Rows never move by themselves.

/** Runs loaded so far, newest first; `fresh` are new ones that wait to be let in. */
export class RunList {
  items = [];
  fresh = [];
  cursor = null;
  #byId = new Map();

  /** Begin anew with a first page. */
  reset(page) {
    this.items = [...page.items];
    this.fresh = [];
    this.cursor = page.next_cursor;
    this.#byId = new Map(this.items.map((run) => [run.run_id, run]));
  }

  /** The next page below. */
  append(page) {
    for (const run of page.items) if (!this.#byId.has(run.run_id)) this.#add(run);
    this.cursor = page.next_cursor;
  }

  #add(run) {
    this.items.push(run);
    this.#byId.set(run.run_id, run);
  }

  /** The first page, asked for again: known runs change in place, unknown ones wait above. True if anything changed. */
  refresh(page) {
    let hasChanged = false;
    const fresh = [];
    for (const run of page.items) {
      if (!this.#byId.has(run.run_id)) fresh.push(run);
      else hasChanged = this.replace(run) || hasChanged;
    }
    const isOther = fresh.length !== this.fresh.length || fresh.some((run, index) => run.run_id !== this.fresh[index].run_id);
    this.fresh = fresh;
    return hasChanged || isOther;
  }

  /** A run as it is now, where it stands. */
  replace(run) {
    const known = this.#byId.get(run.run_id);
    if (!known || stampOf(known) === stampOf(run)) return false;
    Object.assign(known, run);
    return true;
  }

  /** Let the new ones in, at the top. */
  admit() {
    for (const run of this.fresh) this.#byId.set(run.run_id, run);
    this.items = [...this.fresh, ...this.items].sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : 0));
    this.fresh = [];
  }

  has(runId) {
    return this.#byId.has(runId);
  }
}

export const stampOf = (run) => `${run.state} ${run.updated_at} ${run.cost_usd} ${run.waiting_for ?? ""} ${run.pause_reason ?? ""}`;
