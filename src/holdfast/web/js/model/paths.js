// Pure: from a path to the route that fits it.

// "/runs/:runId/:tab?" against "/runs/a%20b/events" gives { runId: "a b", tab: "events" }, or null.
export function matchPath(pattern, path) {
  const wanted = pattern.split("/").filter(Boolean);
  const given = path.split("/").filter(Boolean);
  if (given.length > wanted.length) return null;
  const params = {};
  for (const [index, part] of wanted.entries()) {
    const text = given[index];
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

export function findRoute(routes, path) {
  for (const route of routes) {
    const params = matchPath(route.path, path);
    if (params) return { route, params };
  }
  return null;
}

// Where to go on after a login: only ever a page of ours.
export const toOwnPath = (next) => (next && /^\/(?![/\\])/.test(next) && !next.startsWith("/sign-in") ? next : "/");
