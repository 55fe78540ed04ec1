// What all tabs of a browser share; it ends with the last of them.
import { StreamHub } from "./stream-hub.js";

const hub = new StreamHub();
addEventListener("connect", ({ ports: [port] }) => hub.connect(port));
