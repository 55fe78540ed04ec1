// Where the pages begin. Nothing imports this module.
import { onSignedOut } from "./api.js";
import { setCommonKeys, startKeys } from "./keys.js";
import { liveness } from "./live.js";
import { navigate, startRouter } from "./router.js";
import { closeMenus, drawBar, drawTop, showHelp, start } from "./top.js";

setCommonKeys({
  "?": ["This help", showHelp],
  "g r": ["Runs", () => navigate("/")],
  "g w": ["Workflows", () => navigate("/workflows")],
  "g p": ["Personas", () => navigate("/personas")],
  "g b": ["Budget", () => navigate("/budget")],
  n: ["New run", () => navigate("/new")],
  Escape: ["Close", () => closeMenus(null)],
});

onSignedOut.call = () => {
  if (location.pathname !== "/sign-in") navigate(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
};

liveness.listeners.add(drawBar);
startKeys();
drawTop();
start();
startRouter();
