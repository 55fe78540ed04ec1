// The one way elements are made. Children are nodes or text; text is shown as text, whoever wrote it.
import { showable } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const LINKS = new Set(["href", "src", "action", "formaction", "xlink:href"]);

// h("button.tiny", { onclick: save }, "Save"); "svg:rect.bar" makes an SVG element; props may be left out. Props: `on…` are
// listeners, `style` and `dataset` objects, true/false/null boolean attributes. Children: nodes, text, arrays; nothing else shows.
export function h(tag, props, ...children) {
	const [name, ...classes] = tag.split(".");
	const element = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
	if (classes.length) element.setAttribute("class", classes.join(" "));
	if (Object.getPrototypeOf(props ?? "") !== Object.prototype) return add(element, props, children);
	for (const [key, value] of Object.entries(props)) setProp(element, key, value);
	return add(element, children);
}

function setProp(element, name, value) {
	if ((value ?? false) === false) return;
	if (name === "style") {
		for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
	} else if (name === "dataset") {
		Object.assign(element.dataset, value);
	} else if (name.startsWith("on")) {
		element.addEventListener(name.slice(2), value);
	} else {
		setAttribute(element, name, value === true ? "" : String(value));
	}
}

function setAttribute(element, name, text) {
	if (LINKS.has(name) && !isSafeLink(text)) return;
	if (name === "class") text = [...element.classList, text].join(" ");
	// What is typed into a field stays as it is; only what is read is made showable.
	element.setAttribute(name, name === "title" || name === "aria-label" ? showable(text) : text);
}

// Links lead to our own pages or to http(s); never to a script.
const isSafeLink = (text) => /^(?:[/#?]|https?:\/\/|blob:)/i.test(text) && !text.startsWith("//");

export function add(element, ...children) {
	for (const child of children.flat(Infinity)) {
		if ((child ?? false) !== false) element.append(child instanceof Node ? child : showable(String(child)));
	}
	return element;
}

// Whoever was at something inside stays there, or at what has taken its place.
export const fill = (element, ...children) => refill(element, nameOf, ...children);

const FOCUSABLE = "a, button, summary, input, [tabindex]";

// A button of the same name in another row or part does something else; a number in a name is often a count that grows.
function nameOf(element) {
	const name = element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.textContent.replace(/\d+/g, "");
	const part = element.closest("tr, section");
	return [element.localName, element.getAttribute("class"), name, part?.cells?.[0]?.textContent ?? part?.getAttribute("aria-label")].join(" ");
}

// The same with a key for what has no lasting name.
export const refill = (element, keyOf, ...children) => put(element, keyOf, children);

function put(element, keyOf, children, settle) {
	const focused = element.contains(document.activeElement) ? document.activeElement : null;
	const key = focused && keyOf(focused);
	const listAlike = () => [...element.querySelectorAll(FOCUSABLE)].filter((each) => keyOf(each) === key);
	const at = focused && listAlike().indexOf(focused);
	element.replaceChildren();
	add(element, children);
	settle?.(); // what is inside a closed fold cannot have the focus
	if (focused) (focused.isConnected ? focused : listAlike()[at])?.focus({ preventScroll: true });
	return element;
}

// Fill it with what is the same a little later: folds stay open, and what is scrolled sideways stays there.
export function redraw(element, ...children) {
	const list = (selector) => [...element.querySelectorAll(selector)];
	const open = new Set(list("details[open] > summary").map(nameOf));
	const lefts = list(".scroll-x").map((each) => each.scrollLeft);
	return put(element, nameOf, children, () => {
		for (const summary of list("details > summary")) if (open.has(nameOf(summary))) summary.parentElement.open = true;
		list(".scroll-x").forEach((each, index) => (each.scrollLeft = lefts[index] ?? 0));
	});
}

// Make an element hold these nodes in this order, touching only what differs, so that focus and scroll stay.
export function reconcile(parent, nodes) {
	const nodeSet = new Set(nodes);
	for (const child of [...parent.childNodes]) if (!nodeSet.has(child)) child.remove();
	let at = parent.firstChild;
	for (const node of nodes) {
		if (node === at) at = at.nextSibling;
		else parent.insertBefore(node, at);
	}
}
