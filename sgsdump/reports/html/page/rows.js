// The rows of the table. Of a few hundred layers all are in the page; of more only those in view are, made when they are
// scrolled to, of the text that the page has for readers without a script.
const ROW = 40, // pixels of a row of many, as the style has it
  SPARE = 12; // rows above and below the view
const body = $("table") && $("table").tBodies[0];
const kept = $("kept-rows");
const pieces = kept ? kept.textContent.split(/(?=<tr data-place=)/).filter((piece) => piece.startsWith("<tr")) : null;
const listed = { layers: [], first: 0, last: 0 }; // those that fit the filter, in their order; which are in the page
const made = new Map();
const BEGIN = pieces ? commonOf(layers.map((layer) => layer.name)) : 0;

function rowOf(layer) {
  if (!made.has(layer.place)) made.set(layer.place, withButton(pieces ? parsed(pieces[layer.place]) : layer.row, layer));
  return made.get(layer.place);
}

function parsed(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text; // escaped by the page's template, as the rows of a short table are
  return holder.content.firstElementChild;
}

function withButton(row, layer) {
  const name = el("button", { type: "button", class: "name", title: layer.name, tabindex: "-1" });
  // one line each, of many, as long as its column
  name.append(pieces ? el("bdi", {}, shortest(layer.name, roomOf(layer))) : written(short(layer.name, 66)));
  row.querySelector(".name").replaceWith(name);
  if (layer.place === selection.place) row.setAttribute("aria-current", "true");
  return row;
}

// Where there is little room, without what all names begin with.
function shortest(name, most) {
  return name.length <= most || !BEGIN ? short(name, most) : "…" + short(name.slice(BEGIN), most - 1);
}

// How many characters of the name fit beside the operator's type.
function roomOf(layer) {
  const type = layer.op && innerWidth > 620 ? 0.85 * layer.op.length + 1 : 0;
  return Math.max(Math.floor((headOf("name").offsetWidth - 24) / 7.6 - type), 12);
}

// These layers in this order, from the first one on.
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
  const focused = document.activeElement; // a row that is put in again would lose it
  body.replaceChildren(...gap(first), ...rows, ...gap(count - last));
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

// The room of the rows that are not in the page.
function gap(count) {
  if (!count) return [];
  const room = el("td", { colspan: heads().filter((head) => head.offsetWidth).length });
  room.style.height = `${count * ROW}px`; // by the script, which the page's policy lets set a style
  return [el("tr", { class: "gap", "aria-hidden": "true" }, room)];
}

// Brings the row of a place in the list into the page, and gives it.
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

// The parts of names that many layers share, such as model.layers.7: the first parts that tell the layers apart.
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
