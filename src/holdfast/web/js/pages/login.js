// Where somebody who is not known lands: how to get in, and what was wrong with the way they tried.
import { send } from "../api.js";
import { h } from "../h.js";
import { toOwnPath } from "../model/paths.js";
import { busy, button, checked, section } from "../parts/ui.js";
import { navigate } from "../router.js";
import { session } from "../session.js";
import { start } from "../top.js";

export default {
  title: "Log in",
  render(main, { query }) {
    const next = toOwnPath(query.get("next"));
    const { element, control, setError } = checked("Token", h("input", { type: "password", autocomplete: "current-password", spellcheck: "false" }), { hint: "One that an admin made for you. It begins with hf_." });
    const logIn = async () => {
      const token = control.value.trim();
      try {
        setError(token ? null : "Paste your token.");
        if (!token) return;
        await send("POST", "/api/session", { token });
        await start();
        navigate(next, { replace: true });
      } catch (error) {
        setError(toSentence(error));
      } finally {
        control.focus();
      }
    };
    const confirm = button("Log in", null, { kind: "main", type: "submit" });
    const onsubmit = (event) => {
      event.preventDefault();
      busy(confirm, logIn);
    };
    main.append(
      h(
        "div.login.stack",
        h("h1", { tabindex: "-1" }, "Log in"),
        query.get("problem") === "link" && h("p.note.tone-bad", { role: "alert" }, h("strong", "This login link does not work any more. "), "A link works once, for 15 minutes. Take a new one as below."),
        session.isKnown && h("p.note.tone-idle", `You are logged in as ${session.name}. `, h("a", { href: next }, "Go on")),
        h("form.card.padded.stack", { onsubmit, novalidate: true }, h("input", { type: "text", autocomplete: "username", value: "token", hidden: true }), element, h("div.buttons", confirm)),
        section("You have no token?", h("ul.bullets", h("li", "The terminal where ", h("code", "holdfast serve"), " was started shows a link that logs you in once. Start it again for a new one; no run is lost."), h("li", "On the server's machine, make one:", h("pre.code", "holdfast token create --name you --role approver")), h("li", "Or ask an admin, who makes them under Settings."))),
      ),
    );
    setTimeout(() => control.focus()); // after the router has led to the heading
  },
};

function toSentence({ code, message, retryAfter }) {
  if (code === "not_authenticated") return "This token is wrong, was revoked, or is over. Copy it whole, or ask for a new one.";
  return code === "too_many_attempts" ? `Too many wrong tokens came from here. Try again in ${retryAfter || 60} s.` : message;
}
