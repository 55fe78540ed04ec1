// A classic script in the head, so that the first paint already has the right colours.
try {
	const theme = localStorage.getItem("hf-theme");
	if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
	// Storage may be forbidden; the system's theme is used then.
}
