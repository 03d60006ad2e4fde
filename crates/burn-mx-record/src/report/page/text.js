"use strict";

// ---- Elements ---------------------------------------------------------------------------------------

const byId = id => document.getElementById(id);

/** Fills `node`. Text from the data only ever becomes text nodes or attribute values, never markup. */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** The parts of a layer's name, with places to break the line between them. */
const breakable = name => name.split(/(?<=[._/])/).flatMap(part => [part, html("wbr")]);

/**
 * A table. `heads` are [text, class] pairs; `groups` are {name, lines}, a line being its cells, or
 * {cells, attributes}. The groups' names are shown when there are several.
 */
function table(heads, groups, style = "plain") {
  const bodies = groups.map(({ name, lines }) => html("tbody", {},
    ...(groups.length > 1
      ? [html("tr", {}, html("th", { colspan: heads.length, scope: "rowgroup" }, name))] : []),
    ...lines.map(line => html("tr", line.attributes, ...(line.cells ?? line).map((content, column) =>
      html("td", { class: heads[column][1] }, content))))));
  const head = heads.map(([text, kind]) => html("th", { scope: "col", class: kind }, text));
  return html("table", { class: style }, html("thead", {}, html("tr", {}, ...head)), ...bodies);
}

// ---- Numbers as text --------------------------------------------------------------------------------

const ABSENT = "–";
const at = (values, index) => values?.[index] ?? null;
const clamp = value => Math.min(1, Math.max(0, value));
const log2 = value => value > 0 ? Math.log2(value) : null;

function fixed(value, digits) {
  if (value === null) return ABSENT;
  const text = value.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text; // no "-0.0"
}

function percent(value) {
  if (value === null) return ABSENT;
  if (value === 0) return "0";
  return value < 0.1 ? "<0.1" : fixed(value, value < 100 ? 1 : 0);
}

const decibel = value => fixed(value, 1);
const gain = value => value === null ? ABSENT : (value > 0 ? "+" : "") + decibel(value);
const ratio = value => fixed(value, 3);
const magnitude = value =>
  value === null ? ABSENT : value > 0 ? `${value.toExponential(2)}, log2 ${decibel(log2(value))}` : "0";
const withUnit = (text, unit) => unit && text !== ABSENT ? `${text} ${unit}` : text;

/**
 * What the heat map can show. `loss` maps a value to 0 (calm) … 1 (alarming), `ticks` are the legend's.
 * Square roots, because the first per cent of underflow or saturation says more than the last.
 */
const SQNR = { unit: "dB", text: decibel, loss: value => 1 - value / 45, ticks: [0, 15, 30, 45] };
const STATISTICS = {
  sqnr: { ...SQNR, label: "SQNR" },
  slope: {
    label: "slope (lost magnitude)", unit: "", text: ratio,
    loss: value => Math.abs(1 - value) / 0.2, ticks: [0.8, 0.85, 0.9, 0.95, 1],
    note: "coloured by the distance from 1, above it too",
  },
  underflow: {
    label: "underflow", unit: "%", text: percent, loss: value => Math.sqrt(value / 50), ticks: [0, 1, 5, 20, 50],
  },
  saturation: {
    label: "saturation", unit: "%", text: percent, loss: value => Math.sqrt(value / 10), ticks: [0, 0.1, 1, 4, 10],
  },
  dynamic_range: {
    label: "dynamic range", unit: "binades", text: decibel, loss: value => value / 40, ticks: [0, 10, 20, 30, 40],
  },
  sqnr_worst: { ...SQNR, label: "SQNR of the worst block" },
  sqnr_median: { ...SQNR, label: "SQNR of the median block" },
};
const RESULT_ERROR = {
  label: "result's relative error", unit: "%", text: percent,
  loss: value => value > 0 ? (Math.log10(value) + 1) / 3 : 0, ticks: [0.1, 1, 10, 100],
};

/** The text of a statistic of a row; an SQNR that is absent because there was no error is infinite. */
function statisticText(name, row, index) {
  const value = at(row[name], index);
  if (value === null && name.startsWith("sqnr") && at(row.exact, index) === true) return "∞";
  return STATISTICS[name].text(value);
}
