// ---- The chosen cell --------------------------------------------------------------------------------

const DASHES = ["6 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2"];
const solid = { width: 2.2 };

function choose(cell, scroll = false) {
  page.chosen = cell.key;
  // One cell of each heat map takes part in the tab order: the chosen one, or else the first.
  const entry = new Map();
  for (const { td, cell } of page.mapCells) {
    const chosen = cell.key === page.chosen;
    td.classList.toggle("chosen", chosen);
    td.setAttribute("aria-selected", chosen);
    td.tabIndex = -1;
    if (chosen || !entry.has(cell.run)) entry.set(cell.run, td);
  }
  for (const td of entry.values()) td.tabIndex = 0;
  const maps = byId("maps");
  const pane = maps.getBoundingClientRect();
  const row = maps.querySelector(".chosen").parentNode.getBoundingClientRect();
  if (row.top < pane.top + 60 || row.bottom > pane.bottom) maps.scrollTop += row.top - pane.top - pane.height / 2;
  showDetail();
  if (scroll) byId("detail").scrollIntoView({ block: "start" });
}

/** The chosen cell of the runs that have it. */
const chosenCells = () => page.runs.map(run => run.cells.get(page.chosen)).filter(cell => cell);

/** The charts of an operand, or of a product's result. */
function chartsOf(cells) {
  const formats = [...new Set(cells.flatMap(cell => cell.run.what_if))];
  const inUse = name => ({ key: "in use", label: "in use", ...solid, values: cell => cell.row[name] });
  const others = name => formats.map((format, place) => ({
    key: format, label: format, width: 1.5, dash: DASHES[place % DASHES.length],
    values: cell => cell.row.what_if?.[format]?.[name],
  }));
  const ofRow = (name, label, style, map = value => value) => ({
    key: name, label, ...style, values: cell => cell.row[name]?.map(value => value === null ? null : map(value)),
  });
  const ofResult = (name, label) => ({
    key: name, label, ...solid,
    values: cell => cell.run.cells.get(keyOf(cell.layer, cell.product, "result"))?.result[name],
  });
  const error = {
    title: "Relative error of the product's result", unit: "%", show: percent, range: [0],
    kinds: [ofResult("error", "result")],
  };
  if (!cells[0].row) {
    const operands = page.columns.filter(({ product, role }) => product === cells[0].product && role !== "result");
    const accumulators = cells[0].result.sums ?? [];
    const ofSums = (title, name, unit, show) => accumulators.length === 0 ? [] : [{
      title, unit, show, range: [0],
      kinds: accumulators.map(({ accumulator }, place) => ({
        key: accumulator, label: accumulator, width: place ? 1.5 : 2, dash: place ? DASHES[(place - 1) % DASHES.length] : null,
        values: cell => cell.result.sums.find(sums => sums.accumulator === accumulator)?.[name],
      })),
    }];
    return [error, ...ofSums("Relative error of the accumulator's sums (dashed: of others)", "error", "%", percent),
      ...ofSums("Last bits of a float32 sum that are wrong", "bits_lost", "bits", decibel),
      ...ofSums("Products that were cut to nothing", "cut_to_nothing", "%", percent), {
      title: "Cosine of the result and the exact one", unit: "", show: value => fixed(value, 6),
      kinds: [ofResult("cosine", "result")],
    }, {
      title: "SQNR of the product's operands", unit: "dB", show: decibel,
      kinds: operands.map(({ role, label }, place) => ({
        key: role, label, width: 2, dash: place ? DASHES[place - 1] : null,
        values: cell => cell.run.cells.get(keyOf(cell.layer, cell.product, role))?.row.sqnr,
      })),
    }];
  }
  const thin = dash => ({ width: 1.5, dash });
  return [{
    title: "SQNR in use, and with other formats (dashed)", unit: "dB", show: decibel,
    kinds: [inUse("sqnr"), ...others("sqnr")],
  }, {
    title: "SQNR of the single blocks", unit: "dB", show: decibel,
    kinds: [ofRow("sqnr", "whole operand", solid), ofRow("sqnr_median", "median block", thin()),
      ofRow("sqnr_p01", "1 % of blocks below", thin("7 3")), ofRow("sqnr_worst", "worst block", thin("2 2"))],
  }, {
    title: "Elements lost to underflow and to saturation", unit: "%", show: percent, range: [0],
    kinds: [ofRow("underflow", "underflow", solid), ofRow("saturation", "saturation", thin("3 2"))],
  }, {
    title: "Slope (below 1: lost magnitude)", unit: "", show: ratio, range: [1],
    kinds: [inUse("slope"), ...others("slope")],
  }, {
    title: "Largest and smallest magnitude", unit: "log2", show: decibel,
    kinds: [ofRow("amax", "largest", solid, log2), ofRow("smallest", "smallest but zero", thin("5 2"), log2)],
  }, error, ...(cells.some(cell => cell.row.error_scale) ? [{
    title: "Squared error by cause, as a share of all of it", unit: "", show: ratio, range: [0],
    kinds: [ofRow("error_scale", "scale", solid), ofRow("error_grid", "grid", thin("7 3")),
      ofRow("error_dead_zone", "dead zone", thin("2 2"))],
  }] : []), ...(cells.some(cell => cell.row.dialect_differing) ? [{
    title: "SQNR by the dialect, and by the format's own rule (dashed)", unit: "dB", show: decibel,
    kinds: [ofRow("sqnr", "dialect", solid), ofRow("plain_sqnr", "own rule", thin("7 3"))],
  }] : [])];
}

/** Builds what is shown of the chosen cell. */
function showDetail() {
  const all = chosenCells();
  byId("detail").hidden = all.length === 0;
  if (all.length === 0) return;
  const cells = all.filter(cell => !page.hiddenRuns.has(cell.run));
  const { layer, product } = all[0];
  byId("detail-title").replaceChildren("Chosen: ", ...breakable(layer), `, ${product}, ${operandText(all[0])}`);
  byId("run-switches").hidden = page.runs.length < 2;
  byId("run-switches").replaceChildren(...all.map(({ run, row }) =>
    switchButton(!page.hiddenRuns.has(run), () => { toggle(page.hiddenRuns, run); showDetail(); },
      lineSample(run.hue, { width: 8 }), run.name + (row?.format ? ` (${row.format})` : ""))));

  page.atStep = [];
  const charts = chartsOf(all);
  const figures = charts.map(() => html("figure"));
  const tables = { scales: html("figure"), numbers: html("div"), formats: html("div") };
  byId("figures").replaceChildren(...figures, ...(all[0].row ? Object.values(tables) : []));
  charts.forEach((chart, place) => lineChart(figures[place], { ...chart, cells }));
  if (all[0].row) {
    scaleHistogram(tables.scales, cells);
    page.atStep.push(() => showNumbers(tables.numbers, cells), () => showFormats(tables.formats, cells));
  }
  moveDetail();
}

/** Follows the slider in what is shown of the chosen cell. */
function moveDetail() {
  for (const draw of page.atStep) draw();
}

/** The recorded numbers of the chosen operand at the slider's step: one column a run. */
function showNumbers(place, cells) {
  const now = (row, name, text) => cell => text(at(cell.row[name], cell.run.index));
  const statistic = (name, unit) => cell => withUnit(statisticText(name, cell.row, cell.run.index), unit);
  const lines = [
    ["format", cell => cell.row.format ?? "none"],
    ["slot of the specs", cell => cell.row.slot],
    ["elements", cell => String(cell.row.elements ?? ABSENT)],
    ["blocks", cell => String(cell.row.blocks ?? ABSENT)],
    ["SQNR", statistic("sqnr", "dB")],
    ["mean squared error", cell => at(cell.row.mse, cell.run.index)?.toExponential(2) ?? ABSENT],
    ["dynamic range", statistic("dynamic_range", "binades")],
    ["largest magnitude", cell => magnitude(at(cell.row.amax, cell.run.index))],
    ["smallest but zero", cell => magnitude(at(cell.row.smallest, cell.run.index))],
    ...(cells.some(cell => cell.row.error_scale) ? [
      ["squared error by scale, dead zone, grid", cell => ["error_scale", "error_dead_zone", "error_grid"]
        .map(name => now(cell.row, name, ratio)(cell)).join(", ")],
      ["cosine of scale and grid", cell => now(cell.row, "error_cosine", ratio)(cell)],
      ["scale over exact scale", cell => withUnit(now(cell.row, "scale_bias", ratio)(cell), "binades")],
      ["elements in the dead zone", cell => withUnit(now(cell.row, "dead_zone_elements", percent)(cell), "%")],
    ] : []),
    ...(cells.some(cell => cell.row.dialect_differing) ? [
      ["elements that differ from the format's own rule",
        cell => withUnit(now(cell.row, "dialect_differing", percent)(cell), "%")],
      ["SQNR of the own rule", cell => withUnit(now(cell.row, "plain_sqnr", decibel)(cell), "dB")],
      ["squared error over the own rule's", cell => now(cell.row, "dialect_error_ratio", ratio)(cell)],
    ] : []),
    ["not finite", cell => withUnit(String(at(cell.row.non_finite, cell.run.index) ?? ABSENT), "elements")],
  ];
  const heads = [["Quantity"], ...cells.map(({ run }) => [page.runs.length > 1 ? run.name : "", "number"])];
  place.replaceChildren(html("figcaption", {}, `Numbers at step ${page.steps[page.step]}`),
    html("div", { class: "scroll" }, table(heads, [{
      lines: lines.map(([name, text]) => [name, ...cells.map(text)]),
    }])));
}

/** The chosen operand in the format in use and in the others, at the slider's step. */
function showFormats(place, cells) {
  const groups = cells.map(({ run, row }) => {
    const { index } = run;
    const exact = at(row.exact, index) === true;
    const entries = [
      { name: `${row.format ?? "none"} (in use)`, numbers: row, sqnr: exact ? Infinity : at(row.sqnr, index) },
      ...run.what_if.map(name => {
        const numbers = row.what_if?.[name] ?? {};
        return { name, numbers, sqnr: at(numbers.sqnr, index) };
      }),
    ];
    const best = Math.max(...entries.map(entry => entry.sqnr ?? -Infinity));
    const lines = entries.map(({ name, numbers, sqnr }) => {
      const text = sqnr === Infinity ? "∞" : decibel(sqnr);
      return [name, sqnr !== null && sqnr === best ? html("b", {}, text) : text, ratio(at(numbers.slope, index)),
        percent(at(numbers.underflow, index)), percent(at(numbers.saturation, index))];
    });
    return { name: run.name, lines };
  });
  const heads = [["Format"], ["SQNR, dB", "number"], ["slope", "number"], ["underflow, %", "number"],
    ["saturation, %", "number"]];
  place.replaceChildren(html("figcaption", {}, `This operand in other formats at step ${page.steps[page.step]}`),
    html("div", { class: "scroll" }, table(heads, groups)));
}
