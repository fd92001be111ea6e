// Code of the program around the line that called the selected layer's operator.
function codeOf(layer) {
  return (layer.code || []).flatMap((code) => {
    const side = code.side ? ` in the ${code.side}` : "";
    const label = `Called at ${code.place}${side}`;
    const last = String(code.first + code.lines.length - 1);
    const lines = code.lines.map((text, i) => {
      const number = String(code.first + i).padStart(last.length);
      return el(code.first + i === code.called ? "mark" : "span", {}, el("small", {}, number), text);
    });
    const box = el("pre", { class: "code", tabindex: 0, role: "group", "aria-label": label }, el("code", {}, ...lines));
    return [el("h3", { class: "name" }, "Called at ", written(code.place), side), box];
  });
}
