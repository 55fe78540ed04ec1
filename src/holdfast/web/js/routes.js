// Every page, each loaded when it is first wanted. `name` is what the navigation marks. pages.py serves the same paths.
export const routes = [
  { path: "/", name: "runs" },
  { path: "/runs/:runId/:tab?", name: "runs", file: "run" },
  { path: "/new", name: "new-run" },
  { path: "/workflows/:workflow?", name: "workflows" },
  { path: "/personas/:persona?", name: "personas" },
  { path: "/budget", name: "budget" },
  { path: "/settings", name: "settings" },
  { path: "/health", name: "health" },
  { path: "/sign-in", name: "login" },
];
