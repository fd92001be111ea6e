// The rows of the table. With up to a few hundred layers, the page has all rows. With more layers, it has only the
// visible rows, which are created on scrolling from the page's text for readers without a script.
const ROW = 40, // height of a row in a long table in pixels, as in the style
  SPARE = 12; // rows above and below the view
const body = $("table") && $("table").tBodies[0];
const kept = $("kept-rows");
const pieces = kept ? kept.textContent.split(/(?=<tr data-place=)/).filter((piece) => piece.startsWith("<tr")) : null;
const listed = { layers: [], first: 0, last: 0 }; // layers that match the filter, in order; range of rows in the page
const made = new Map();
const BEGIN = pieces ? commonOf(layers.map((layer) => layer.name)) : 0;

function rowOf(layer) {
  if (!made.has(layer.place)) made.set(layer.place, withButton(pieces ? parsed(pieces[layer.place]) : layer.row, layer));
  return made.get(layer.place);
}

function parsed(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text; // escaped by the page's template, as in a short table
  return holder.content.firstElementChild;
}

function withButton(row, layer) {
  const name = el("button", { type: "button", class: "name", title: layer.name, tabindex: "-1" });
  // in a long table, one line as long as its column
  name.append(pieces ? el("bdi", {}, shortest(layer.name, roomOf(layer))) : written(short(layer.name, 66)));
  row.querySelector(".name").replaceWith(name);
  if (layer.place === selection.place) row.setAttribute("aria-current", "true");
  return row;
}

// If there is little room, without the common beginning of all names.
function shortest(name, most) {
  return name.length <= most || !BEGIN ? short(name, most) : "…" + short(name.slice(BEGIN), most - 1);
}

// Number of characters of the name that fit beside the operator's type.
function roomOf(layer) {
  const type = layer.op && innerWidth > 620 ? 0.85 * layer.op.length + 1 : 0;
  return Math.max(Math.floor((headOf("name").offsetWidth - 24) / 7.6 - type), 12);
}

// List these layers in this order, starting at the first.
function listRows(layers) {
  listed.layers = layers;
  $("table").parentElement.scrollTop = 0;
  if (pieces) $("table").setAttribute("aria-rowcount", layers.length + 1);
  drawRows(true);
}

function drawRows(anew = false) {
  const holder = $("table").parentElement,
    count = listed.layers.length;
  const whole = !pieces || document.body.classList.contains("paper");
  const first = whole ? 0 : Math.max(Math.floor(holder.scrollTop / ROW) - SPARE, 0);
  const last = whole ? count : Math.min(Math.ceil((holder.scrollTop + holder.clientHeight) / ROW) + SPARE, count);
  if (!anew && first === listed.first && last === listed.last) return;
  Object.assign(listed, { first, last });
  const rows = listed.layers.slice(first, last).map(rowOf);
  if (pieces) rows.forEach((row, i) => row.setAttribute("aria-rowindex", first + i + 2));
  const focused = document.activeElement; // replacing a row removes its focus
  body.replaceChildren(...gap(first), ...rows, ...gap(count - last));
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

// Space of the rows that are not in the page.
function gap(count) {
  if (!count) return [];
  const room = el("td", { colspan: heads().filter((head) => head.offsetWidth).length });
  room.style.height = `${count * ROW}px`; // set by the script, because the page's policy forbids style attributes
  return [el("tr", { class: "gap", "aria-hidden": "true" }, room)];
}

// Scroll a row of the list into view, and return it.
function rowAt(at) {
  const holder = $("table").parentElement;
  if (pieces) {
    const top = at * ROW,
      room = holder.clientHeight - 2 * ROW;
    if (top < holder.scrollTop) holder.scrollTop = top;
    else if (top > holder.scrollTop + room) holder.scrollTop = top - room;
    drawRows();
  }
  return rowOf(listed.layers[at]);
}

// Groups of layers by the first parts of their names that differ, such as model.layers.7.
function groupsOf(layers) {
  const parts = layers.map((layer) => layer.name.split(/[./:]/).filter(Boolean));
  for (let depth = 1; depth < 6; depth++) {
    const groups = new Map();
    for (const [place, words] of parts.entries()) {
      if (words.length <= depth) continue;
      const name = words.slice(0, depth).join(".");
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(place);
    }
    const sizes = [...groups.values()].map((places) => places.length);
    if (groups.size > 1 && Math.max(...sizes) <= layers.length / 2) return groups.size <= 200 ? groups : new Map();
  }
  return new Map();
}
