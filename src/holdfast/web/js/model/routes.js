// Every page, each loaded when it is first wanted. `name` is what the navigation marks. pages.py serves the same paths.
export const routes = [
	{ path: "/", name: "runs" },
	{ path: "/runs/:runId/:tab?", name: "runs", file: "run" },
	{ path: "/compare", name: "runs", file: "compare" },
	{ path: "/inbox", name: "inbox" },
	{ path: "/flows/:runId?", name: "flows" },
	{ path: "/new", name: "new-run" },
	{ path: "/talk", name: "talk" },
	{ path: "/workflows/:workflow?", name: "workflows" },
	{ path: "/personas/:persona?", name: "personas" },
	{ path: "/schedules", name: "schedules" },
	{ path: "/budget", name: "budget" },
	{ path: "/settings", name: "settings" },
	{ path: "/health", name: "health" },
	{ path: "/workers", name: "workers" },
	{ path: "/sign-in", name: "login" },
];

// "/runs/:runId/:tab?" against "/runs/a%20b/events" gives { runId: "a b", tab: "events" }, or null.
export function matchPath(pattern, path) {
	const patternParts = pattern.split("/").filter(Boolean);
	const pathParts = path.split("/").filter(Boolean);
	if (pathParts.length > patternParts.length) return null;
	const params = {};
	for (const [index, part] of patternParts.entries()) {
		const text = pathParts[index];
		if (text === undefined && part.endsWith("?")) continue;
		if (text === undefined || (part !== text && !part.startsWith(":"))) return null;
		if (part === text) continue;
		try {
			params[part.slice(1).replace("?", "")] = decodeURIComponent(text);
		} catch {
			return null;
		}
	}
	return params;
}

export function findRoute(path) {
	for (const route of routes) {
		const params = matchPath(route.path, path);
		if (params) return { route, params };
	}
	return null;
}

// Where a login leads on to: only to our own pages. A browser leaves out tabs and takes "\\" for "/", so the origins are compared.
export function toOwnPath(next, origin = "http://own.invalid") {
	if (!next?.startsWith("/")) return "/";
	try {
		const url = new URL(next, origin);
		return url.origin === origin && url.pathname !== "/sign-in" ? url.pathname + url.search + url.hash : "/";
	} catch {
		return "/";
	}
}
