// The selected layer: its figures, its inherited and added error, its neighbours, its code, its charts.
function drawLayer(layer) {
  const box = $("selected"),
    d = layer.details,
    focus = box.contains(document.activeElement) ? document.activeElement.dataset.walk : null;
  // Without a dataflow, the inherited error is unknown.
  box.replaceChildren(headingOf(layer), typeOf(layer), figuresOf(layer));
  drawTensors(box, layer);
  if (data.flow && data.measured) box.append(...shareOf(layer));
  if (data.flow) drawNeighbours(box, layer);
  box.append(factsOf(layer), ...codeOf(layer));
  if (d) drawDetails(box, layer, d);
  else if (data.measured) box.append(el("p", { class: "legend" }, "The report has no histograms of this layer."));
  box.scrollTop = 0;
  const again = focus && box.querySelector(`[data-walk="${focus}"]:not([disabled])`);
  if (again) again.focus();
}

function headingOf(layer) {
  const to = (sign, label, step) => {
    const place = layer.place + step;
    const parts = [el("span", { "aria-hidden": "true" }, sign), el("span", { class: "unseen" }, label)];
    return button({ title: label, disabled: !layers[place], "data-walk": label }, () => select(place), ...parts);
  };
  const walk = el("div", {}, to("←", "Previous layer", -1), to("→", "Next layer", 1));
  return el("div", { class: "head" }, el("h2", { id: "selected-title" }, written(layer.name)), walk);
}

function typeOf(layer) {
  const rise = layer.rises ? el("span", { class: "rise" }, `  ▲ ${HERE}`) : null;
  return el("p", {}, layer.op ? `${layer.op}  ` : "", data.measured ? el("span", { class: layer.verdict }, layer.verdict) : null, rise);
}

function fact(what, value, kind) {
  return value ? el("div", { class: kind }, el("dt", { title: TERMS[what] }, what), el("dd", {}, value)) : null;
}

function figuresOf(layer) {
  const each = (what, key, unit = "") => fact(what, figure(layer, key) && figure(layer, key) + unit);
  return el(
    "dl",
    { class: "figures" },
    each("RMSE", "rmse"),
    each("COS", "cos"),
    each("MSE", "mse"),
    each("SQNR", "sqnr", " dB"),
  );
}

function factsOf(layer) {
  const scales = layer.scale ? layer.scale.map((scale) => show(number(scale), 6)).join(", ") : "";
  const range = layer.details && layer.details.range;
  return el(
    "dl",
    { class: "facts" },
    fact("shape", layer.shape && layer.shape.join(" × ")),
    fact("type", layer.dtype),
    fact("bits", layer.bits && layer.bits.told),
    fact("scale", scales + (layer.scales > (layer.scale || []).length ? ` … (${layer.scales})` : "")),
    fact("zero point", layer.zero === undefined ? "" : String(layer.zero)),
    ...detailsOf(layer),
    fact("calibration range", range && range.map((end) => show(number(end))).join(" … ")),
    fact("mean RMSE of the inputs", layer.known.has("mean_rmse") && exact(layer.mean_rmse)),
    fact("worst input", layer.worst),
    fact("module", layer.module),
    fact("attributes", (layer.attributes || []).map(([name, value]) => `${name} = ${value}`).join(",  "), "wide"),
    fact("remark", layer.note, "wide"),
  );
}

// Facts on the distribution of the values, and on the other run.
function detailsOf(layer) {
  const d = layer.details,
    before = then[layer.place];
  const shift = d ? number(d.shift) : NaN,
    outside = d ? number(d.outside) : NaN;
  return [
    before && fact(data.other.label, `RMSE ${exact(before.rmse)}, COS ${exact(before.cos)}`, "wide"),
    fact("beyond the range", Number.isFinite(outside) && percent(outside)),
    fact("mean shift", Number.isFinite(shift) && percent(Math.abs(shift) < 1e-4 ? 0 : shift)),
  ];
}

const MEANT = { own: "Own", inherited: "Inherited" };

// Bars of the inherited error, the added error and the total error, on one scale.
function shareOf(layer) {
  const measured = layer.known.has("own_error") && layer.known.has("inherited");
  const before = Math.max(0, ...layer.sources.map((place) => layers[place].rmse));
  const [from, own] = measured ? [layer.inherited, layer.own_error] : [before, layer.rise];
  const parts = [
    [measured ? "inherited" : "before", from, "from"],
    [measured ? "own" : "rise", own, "own"],
    ["in all", measured && layer.known.has("in_all") ? layer.in_all : layer.rmse, "all"],
  ];
  const most = Math.max(...parts.map(([, value]) => Math.abs(value)).filter(Number.isFinite)) || 1;
  const rows = parts.flatMap(([what, value, kind]) => {
    const length = Number.isFinite(value) ? (Math.abs(value) / most) * 100 : 100;
    const bar = svg("rect", { class: `${kind}${value < 0 ? " less" : ""}`, width: length.toFixed(1), height: 10 });
    const drawing = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, bar);
    const meant = measured ? MEANT[what] : undefined;
    return [el("dt", { title: TERMS[meant] }, what), el("dd", {}, drawing, el("span", {}, exact(value)))];
  });
  const how = measured ? "Measured: own with only this convolution at 8 bits; inherited with only this convolution at 16 bits; in all as in the model." : "";
  return [
    el("h3", {}, measured ? "Error (RMSE), inherited and own" : "Error (RMSE) before and after this layer"),
    el("dl", { class: "share" }, ...rows),
    el("p", { class: "legend" }, how),
  ];
}

function chartIn(parent, title, ...legend) {
  const holder = el("div", { class: "chart" });
  parent.append(
    el("div", {}, el("h3", {}, title), holder, legend.length ? el("p", { class: "legend" }, ...legend) : null),
  );
  return holder;
}

function drawDetails(box, layer, d) {
  const key = (side) => el("span", {}, el("span", { class: `key ${side}` }), side);
  const ranges = d.range ? el("span", {}, "dashed: calibration range, divided into 256 levels") : null;
  drawValues(
    chartIn(box, "Values", key("benchmark"), key("sample"), ranges, el("span", {}, "logarithmic counts")),
    layer,
    d,
  );
  const pair = el("div", { class: "pair" });
  box.append(pair);
  drawErrors(chartIn(pair, "Error, sample − benchmark"), d);
  drawByValue(chartIn(pair, "Mean |error| against value"), layer, d);
  if (d.channels && d.channels.length) drawChannels(pair, d);
  if (d.heat) drawHeatMap(pair, d);
}
