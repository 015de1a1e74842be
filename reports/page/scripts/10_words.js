// Elements and words. Text enters the page through textContent only.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children.map(asNode));
}

function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children.map(asNode));
}

function asNode(child) {
  if (child === null || child === undefined || child instanceof Node) return child;
  return document.createTextNode(readable(String(child)));
}

function byId(id) {
  return document.getElementById(id);
}

// Marks that change the direction of writing could make a line read as another one.
function readable(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function dollars(value, digits) {
  if (value === null || value === undefined) return "–";
  const shown = digits ?? (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 2 : 4);
  return `$${value.toLocaleString("en-US", { minimumFractionDigits: shown, maximumFractionDigits: shown })}`;
}

// A budget is a round number: cents at least, and no more than it has.
function budgetWords(value) {
  return `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 6 })}`;
}

function exactDollars(value) {
  return value === 0 ? "$0" : `$${Number(value.toFixed(6))}`;
}

function count(value) {
  return value.toLocaleString("en-US");
}

function decimals(value, digits = 6) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e7 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(digits)));
}

function series(values) {
  return values.map((value) => decimals(value, 4)).join(", ");
}

function signed(value, digits) {
  return value > 0 ? `+${decimals(value, digits)}` : decimals(value, digits).replace("-", "−");
}

function share(value) {
  return `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// Whether the last attempt was not made, since nothing was left to pay for it.
function isUnpaid(step) {
  return step.events.includes("out_of_money");
}

// An attempt that was not paid for has not failed; one before it may have.
function hasFailed(step) {
  return step.failure !== null && (!isUnpaid(step) || step.attempts > 1);
}

function eventWords(event) {
  return event.replaceAll("_", " ").replace(":", ": ");
}

// Rows under headings; a cell may be text or an element.
function table(headings, rows, { names = 1, caption = null } = {}) {
  const kind = (place) => (place < names ? "name" : null);
  return h(
    "table",
    {},
    caption && h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, ...headings.map((text, place) => (text === "" ? h("td") : h("th", { scope: "col", class: kind(place) }, text))))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, place) => h("td", { class: kind(place) }, cell))))),
  );
}

const filled = new WeakMap();

// Replaces what an element shows only if it has changed; a link or button in it keeps the focus.
function refill(holder, ...nodes) {
  const fresh = h("div", {}, ...nodes);
  if (filled.get(holder)?.isEqualNode(fresh)) return;
  filled.set(holder, fresh.cloneNode(true));
  const focused = holder.contains(document.activeElement) ? document.activeElement.textContent : null;
  holder.replaceChildren(...fresh.childNodes);
  if (focused !== null) [...holder.querySelectorAll("a, button")].find((each) => each.textContent === focused)?.focus({ preventScroll: true });
}

// Signs with their meanings; an entry may name the word that is explained.
function legend(id, entries) {
  refill(byId(id), ...entries.map(([kind, text, key]) => h("span", {}, h("i", { class: `key-${kind}` }), key ? term(text, key) : text)));
}

// A link that opens an iteration, with one of its candidates first if that is named.
function stepLink(iteration, text = null, candidate = null) {
  return h(
    "a",
    {
      href: `#t=${iteration}`,
      class: "step",
      onclick: (event) => {
        event.preventDefault();
        openDrawer(iteration, false, candidate);
      },
    },
    text ?? String(iteration),
  );
}
