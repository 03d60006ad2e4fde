// ---- Elementwise ops --------------------------------------------------------------------------------

/** The roundings of elementwise ops at the slider's step: those that lost most, or all of them by op. */
function showElementwise() {
  const worst = byId("elementwise-order").value === "worst";
  const groups = page.runs.map(run => {
    const sqnr = row => at(row.sqnr, run.index);
    const seen = run.elementwise.filter(row => at(row.exact, run.index) !== null);
    const rows = worst
      ? seen.filter(row => sqnr(row) !== null).sort((a, b) => sqnr(a) - sqnr(b)).slice(0, 20)
      : seen.sort((a, b) => a.op.localeCompare(b.op));
    const lines = rows.map(row => [row.op, row.pass, html("span", {}, ...breakable(row.layer)), row.rounding,
      row.format, `${row.elements}`,
      ...["sqnr", "slope", "underflow", "saturation"].map(name => statisticText(name, row, run.index)),
      magnitude(at(row.amax, run.index))]);
    return { name: run.name, lines };
  });
  byId("roundings").replaceChildren(table([["Op"], ["Pass"], ["Layer"], ["Rounding of"], ["Format"],
    ["elements", "number"], ["SQNR, dB", "number"], ["slope", "number"], ["underflow, %", "number"],
    ["saturation, %", "number"], ["largest magnitude", "number"]], groups, "plain wide"));
}

/** Shows the section if any run has recorded elementwise ops. */
function buildElementwise() {
  if (page.runs.every(run => run.elementwise.length === 0)) return;
  byId("elementwise").hidden = false;
  byId("elementwise-order").addEventListener("change", showElementwise);
}
