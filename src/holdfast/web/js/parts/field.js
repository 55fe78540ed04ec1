export * from "./ui.js";
