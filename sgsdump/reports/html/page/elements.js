// Elements of the page. Text goes in as text nodes, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(node, attributes, children = []) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// A name with its own text direction; it may break after separators.
function written(name) {
  return el("bdi", {}, ...name.split(/(?<=[/._:])/).flatMap((part) => [part, el("wbr")]));
}

function button(attributes, action, ...children) {
  const made = el("button", { type: "button", ...attributes }, ...children);
  made.addEventListener("click", action);
  return made;
}

// In a group of radio buttons, the arrow keys choose the next or the previous one.
function onArrows(group, choices, chosen, choose) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(choices[(choices.indexOf(chosen()) + step + choices.length) % choices.length]);
    group.querySelector('[aria-checked="true"]').focus();
  });
}

// Announce a text to screen readers.
function say(text) {
  $("said").textContent = text;
}

function tip(event, text) {
  const box = $("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const { width, height } = box.getBoundingClientRect();
  const below = event.clientY + 18 + height <= innerHeight;
  box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  box.style.top = (below ? event.clientY + 18 : Math.max(4, event.clientY - height - 12)) + "px";
}

// textOf(event): text on the item under the pointer; "" for none.
function onHover(node, textOf) {
  node.addEventListener("pointermove", (event) => tip(event, textOf(event)));
  node.addEventListener("pointerleave", (event) => tip(event, ""));
}
