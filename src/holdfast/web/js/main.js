import { lateness, onSignedOut } from "./api.js";
import { liveness, navigateTo } from "./live.js";
import { navigate, startRouter } from "./router.js";
import { closeMenus, drawBar, drawTop, showHelp, start } from "./top.js";

const goTo = (label, path) => [label, () => navigate(path)];
onSignedOut.call = () => {
	if (location.pathname !== "/sign-in") navigate(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
};
navigateTo.call = navigate;
liveness.listeners.add(drawBar);
lateness.listeners.add(drawBar);
drawTop();
start();
startRouter({
	"?": ["This help", showHelp],
	"g r": goTo("Runs", "/"),
	"g i": goTo("Inbox", "/inbox"),
	"g f": goTo("Flows", "/flows"),
	"g w": goTo("Workflows", "/workflows"),
	"g p": goTo("Personas", "/personas"),
	"g s": goTo("Schedules", "/schedules"),
	"g b": goTo("Budget", "/budget"),
	n: goTo("New run", "/new"),
	Escape: ["Close", () => closeMenus(null)],
});
