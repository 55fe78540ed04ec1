// A classic script in the head, so that the first paint already has the right colours.
(function () {
  try {
    var theme = localStorage.getItem("hf-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (error) {
    // Storage may be forbidden; the system's theme is used then.
  }
})();
