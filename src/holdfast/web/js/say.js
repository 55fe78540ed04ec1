// For those who listen: short sentences into the polite live region.
let timer = 0;

export function say(text) {
  const region = document.getElementById("say");
  clearTimeout(timer);
  region.textContent = "";
  // A region speaks when it changes: the same sentence twice needs the emptiness between.
  timer = setTimeout(() => (region.textContent = text), 60);
}
