// Formatting of numbers and names.

// A long name loses its middle; its end is more specific than its beginning.
function short(text, most) {
  if (text.length <= most) return text;
  if (most < 8) return text.slice(0, most - 1) + "…";
  return text.slice(0, Math.ceil(most * 0.35)) + "…" + text.slice(text.length - Math.floor(most * 0.65) + 1);
}

function wordOf(value) {
  if (Number.isNaN(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

// A few significant digits, for charts.
function show(value, digits = 4) {
  if (!Number.isFinite(value)) return wordOf(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}

// Six decimals, as in the table.
function exact(value) {
  if (!Number.isFinite(value)) return wordOf(value);
  const size = Math.abs(value);
  if (value !== 0 && size < 1e-5) return value.toExponential(2);
  return size < 1e6 ? value.toFixed(6) : value.toExponential(5);
}

function percent(value) {
  return Number.isFinite(value) ? `${Number((value * 100).toPrecision(2))} %` : wordOf(value);
}

// Label of a mark on a logarithmic axis.
function power(value) {
  const exponent = Math.round(Math.log10(value));
  return exponent >= -3 && exponent <= 3 ? String(Number(value.toPrecision(3))) : `1e${exponent}`;
}

function plural(count, what) {
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}
