// Every page, each loaded when it is first wanted. `name` is what the navigation marks. pages.py serves the same paths.
export const routes = [
  { path: "/", name: "runs", load: () => import("./pages/runs.js") },
  { path: "/runs/:runId/:tab?", name: "runs", load: () => import("./pages/run.js") },
  { path: "/new", name: "new-run", load: () => import("./pages/new-run.js") },
  { path: "/workflows/:workflow?", name: "workflows", load: () => import("./pages/workflows.js") },
  { path: "/personas/:persona?", name: "personas", load: () => import("./pages/personas.js") },
  { path: "/budget", name: "budget", load: () => import("./pages/budget.js") },
  { path: "/settings", name: "settings", load: () => import("./pages/settings.js") },
  { path: "/health", name: "health", load: () => import("./pages/health.js") },
  { path: "/sign-in", name: "login", load: () => import("./pages/login.js") },
];
