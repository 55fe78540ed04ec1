// The one stream of all runs, for any number of tabs: browsers allow six connections a host, whatever is open.
// A tab says `follow` with the run it shows, or `leave`. It is told `joined` (from now on nothing is missed: read what was before),
// `events`, `live` and `lost`, and `refused` if it can never work.
import { follow, pause } from "./stream.js";

const MOST_RUNS = 50; // a tab beyond these is told that its run went on, and reads it by itself

export class StreamHub {
	#tabs = new Map(); // port → the id of its run, "" for none
	#joining = new Set();
	#stream = null; // { controller, runs, isLive }
	#last = "";

	connect(port) {
		port.onmessage = ({ data: { type, runId } }) => (type === "follow" ? this.#add(port, runId) : this.#remove(port));
	}

	#add(port, runId) {
		this.#tabs.delete(port); // so that the latest stands last
		this.#tabs.set(port, runId);
		this.#joining.add(port);
		if (!this.#stream || (runId && !this.#stream.runs.has(runId))) return this.#open();
		port.postMessage({ type: this.#stream.isLive ? "live" : "lost" });
		if (this.#stream.isLive && this.#last) this.#join();
	}

	#remove(port) {
		this.#tabs.delete(port);
		this.#joining.delete(port);
		if (!this.#tabs.size) this.#close();
	}

	#close() {
		this.#stream?.controller.abort();
		this.#stream = null;
		this.#last = "";
	}

	#open() {
		this.#stream?.controller.abort();
		const controller = new AbortController();
		const stream = { controller, runs: new Set([...this.#tabs.values()].filter(Boolean).slice(-MOST_RUNS)), isLive: false };
		this.#stream = stream;
		const { signal } = controller;
		const tellLive = (isLive) => {
			stream.isLive = isLive;
			this.#tell({ type: isLive ? "live" : "lost" });
		};
		follow(`/api/events?in_full=${encodeURIComponent([...stream.runs].join())}`, {
			lastId: this.#last,
			signal,
			onOpen: () => {
				tellLive(true);
				if (this.#last) this.#join();
			},
			onMessages: (messages) => signal.aborted || this.#take(messages),
			onLost: () => tellLive(false),
			onRefused: async (error) => {
				this.#last = "";
				if (error.status === 401 || error.status === 403) {
					this.#tell({ type: "refused", status: error.status });
					return this.#close();
				}
				// Its place in the stream is not known any more: it begins anew.
				for (const port of this.#tabs.keys()) this.#joining.add(port);
				await pause(3000, signal);
				if (!signal.aborted) this.#open();
			},
		});
	}

	#take(messages) {
		const isFirst = !this.#last;
		this.#last = messages.findLast((message) => message.id)?.id ?? this.#last;
		if (isFirst) this.#join();
		const events = messages.map((message) => message.data).filter((event) => event?.run_id);
		if (!events.length) return;
		for (const [port, runId] of this.#tabs) {
			const own = ({ payload, ...event }) => (event.run_id === runId ? { payload, ...event } : { run_id: event.run_id, seq: event.seq, kind: event.kind });
			port.postMessage({ type: "events", events: events.map(own) });
		}
	}

	#join() {
		for (const port of this.#joining) port.postMessage({ type: "joined" });
		this.#joining.clear();
	}

	#tell(message) {
		for (const port of this.#tabs.keys()) port.postMessage(message);
	}
}
