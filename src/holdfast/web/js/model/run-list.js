// Pure: the list of runs as it changes under the reader's eyes. Rows never move by themselves.

export class RunList {
	items = [];
	fresh = [];
	cursor = null;
	#byId = new Map();

	reset(page) {
		this.items = [];
		this.fresh = [];
		this.#byId.clear();
		this.append(page);
	}

	append(page) {
		for (const run of page.items) {
			if (this.has(run.run_id)) continue;
			this.items.push(run);
			this.#byId.set(run.run_id, run);
		}
		this.cursor = page.next_cursor;
	}

	// The first page, asked for again: known runs change in place, unknown ones wait above. True if anything changed.
	refresh(page) {
		const before = this.fresh.map((run) => run.run_id).join();
		this.fresh = page.items.filter((run) => !this.has(run.run_id));
		const changed = page.items.filter((run) => this.replace(run));
		return changed.length > 0 || before !== this.fresh.map((run) => run.run_id).join();
	}

	replace(run) {
		const known = this.#byId.get(run.run_id);
		if (!known || stampOf(known) === stampOf(run)) return false;
		Object.assign(known, run);
		return true;
	}

	admit() {
		if (!this.fresh.length) return;
		for (const run of this.fresh) this.#byId.set(run.run_id, run);
		this.items = [...this.fresh, ...this.items].sort((a, b) => (a.created_at < b.created_at) - (a.created_at > b.created_at));
		this.fresh = [];
	}

	get(runId) {
		return this.#byId.get(runId);
	}

	has(runId) {
		return this.#byId.has(runId);
	}
}

export const stampOf = (run) => [run.state, run.updated_at, run.cost, run.now, run.pause_reason].join(" ");
