// Pure: the text of server-sent events, in whatever pieces it comes, to messages.

export class SseParser {
  #rest = "";
  #message = fresh();

  // Messages `{ id, event, data }` that this piece completes.
  feed(piece) {
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    return lines.map((line) => this.#take(line)).filter(Boolean);
  }

  #take(line) {
    const message = this.#message;
    if (line === "") {
      this.#message = fresh();
      return message.data !== null && message;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name === "data") message.data = message.data === null ? value : `${message.data}\n${value}`;
    else if (name === "id" || name === "event") message[name] = value;
  }
}

const fresh = () => ({ id: "", event: "message", data: null });
