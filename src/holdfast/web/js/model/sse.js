// Pure: the text of server-sent events, in whatever pieces it comes, to messages.

export class SseParser {
  #rest = "";
  #message = fresh();

  /** Messages `{id, event, data, comment}` that this piece completes; a comment alone is a sign of life. */
  feed(piece) {
    this.#rest += piece;
    const messages = [];
    let end;
    while ((end = this.#rest.search(/\r\n|\n|\r(?!$)/)) !== -1) {
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + (this.#rest.startsWith("\r\n", end) ? 2 : 1));
      if (line === "") {
        if (this.#message.data !== null) messages.push(this.#message);
        this.#message = fresh();
      } else {
        this.#take(line);
      }
    }
    return messages;
  }

  #take(line) {
    const colon = line.indexOf(":");
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#message.data = this.#message.data === null ? value : `${this.#message.data}\n${value}`;
    else if (name === "id") this.#message.id = value;
    else if (name === "event") this.#message.event = value;
  }
}

const fresh = () => ({ id: "", event: "message", data: null });
