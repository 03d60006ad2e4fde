// ---- All operands -----------------------------------------------------------------------------------

const least = (cells, value) => cells.reduce((best, cell) =>
  value(cell) !== null && (best === null || value(cell) < value(best)) ? cell : best, null);
const mean = values => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;

/** What each format would have made of all the operands of a run at the slider's step. */
function showSummary() {
  const groups = page.runs.map(run => {
    const inUse = cell => at(cell.row.sqnr, run.index);
    const worst = (sqnr) => {
      const cell = least(run.operands, sqnr);
      return cell ? [decibel(sqnr(cell)), cellText(cell)] : [ABSENT, ABSENT];
    };
    const others = run.what_if.map(format => {
      const sqnr = cell => at(cell.row.what_if?.[format]?.sqnr, run.index);
      const gains = run.operands.filter(cell => inUse(cell) !== null && sqnr(cell) !== null)
        .map(cell => sqnr(cell) - inUse(cell));
      return { format, sqnr, mean: mean(gains), better: gains.filter(gain => gain > 0).length, of: gains.length };
    });
    const best = Math.max(0, ...others.map(other => other.mean ?? 0));
    const formats = [...new Set(run.operands.map(cell => cell.row.format).filter(format => format))];
    const first = `in use${formats.length ? `: ${formats.join(", ")}` : ""}`;
    return {
      name: run.name,
      lines: [[first, ABSENT, ABSENT, ...worst(inUse)], ...others.map(({ format, sqnr, mean, better, of }) => [
        format, mean !== null && mean > 0 && mean === best ? html("b", {}, gain(mean)) : gain(mean),
        `${better} of ${of}`, ...worst(sqnr)])],
    };
  });
  byId("summary").replaceChildren(table([["Format"], ["mean SQNR gain, dB", "number"],
    ["operands where better", "number"], ["worst operand's SQNR, dB", "number"], ["which that is"]], groups));
}

/** What would help an operand: the best other format if it gains 1 dB, or else what its loss comes from. */
function suggestion({ run, row }) {
  const { index } = run;
  const others = run.what_if.map(format => ({ format, sqnr: at(row.what_if?.[format]?.sqnr, index) }))
    .filter(other => other.sqnr !== null).sort((a, b) => b.sqnr - a.sqnr);
  const gained = others.length ? others[0].sqnr - at(row.sqnr, index) : 0;
  if (gained >= 1) return `${others[0].format}: ${gain(gained)} dB`;
  if (at(row.saturation, index) >= 1) return "a scale that does not saturate (rceil, headroom)";
  if (at(row.underflow, index) >= 10) return "more exponent range or smaller blocks";
  return ABSENT;
}

function showWorst() {
  const groups = page.runs.map(run => {
    const sqnr = cell => at(cell.row.sqnr, run.index);
    const worst = run.operands.filter(cell => sqnr(cell) !== null).sort((a, b) => sqnr(a) - sqnr(b)).slice(0, 10);
    const lines = worst.map(cell => ({
      attributes: { "data-cell": cell.key },
      cells: [html("button", { type: "button", class: "link" }, ...breakable(cell.layer)), cell.product,
        `${cell.row.operand} (${cell.row.slot})`, cell.row.format ?? ABSENT,
        ...["sqnr", "slope", "underflow", "saturation"].map(name => statisticText(name, cell.row, run.index)),
        suggestion(cell)],
    }));
    return { name: run.name, lines };
  });
  byId("worst").replaceChildren(table([["Layer"], ["Product"], ["Operand (slot)"], ["Format"],
    ["SQNR, dB", "number"], ["slope", "number"], ["underflow, %", "number"], ["saturation, %", "number"],
    ["Suggested"]], groups, "plain wide"));
}

/** The layers by their worst operand, with lines that try one in the preset that gains most there, or else in float32. */
function showRanking() {
  const groups = page.runs.map(run => {
    const sqnr = cell => at(cell.row.sqnr, run.index);
    const layers = [...new Set(run.operands.map(cell => cell.layer))].map(layer => {
      const cells = [...run.cells.values()].filter(cell => cell.layer === layer);
      const errors = cells.map(cell => at(cell.result?.error, run.index)).filter(error => error !== null);
      return { layer, worst: least(cells.filter(cell => cell.row), sqnr), error: Math.max(...errors, -1) };
    });
    const ranked = layers.filter(({ worst }) => worst).sort((a, b) => sqnr(a.worst) - sqnr(b.worst)).slice(0, 10);
    const lines = ranked.map(({ layer, worst, error }) => {
      const other = format => at(worst.row.what_if?.[format]?.sqnr, run.index);
      const best = (run.presets ?? []).filter(format => other(format) - sqnr(worst) >= 1)
        .sort((a, b) => other(b) - other(a))[0];
      const specs = best ? `MxSpecs::preset("${best}")?` : "MxSpecs::none()";
      // Names that the recorder made up have a space; a parameter's path has none.
      const paste = layer.includes(" ") ? [ABSENT] : [
        html("code", {}, `set_specs_at(model, "${layer}", &${specs}.resolve()?)?`), html("br"),
        html("code", {}, `--layer '${layer}=${best ?? "fp32"}'`)];
      return [html("span", {}, ...breakable(layer)), `${worst.row.operand} of ${worst.product}`, decibel(sqnr(worst)),
        error < 0 ? ABSENT : percent(error), html("span", {}, ...paste)];
    });
    return { name: run.name, lines };
  });
  byId("ranking").replaceChildren(table([["Layer"], ["Worst operand"], ["SQNR, dB", "number"],
    ["largest error of a result, %", "number"], ["To try the layer in another format"]], groups, "plain wide"));
}

function buildLayers() {
  for (const run of page.runs) {
    const lines = run.layers.map(layer => [html("span", {}, ...breakable(layer.name)), layer.op ?? ABSENT,
      html("code", {}, layer.specs ?? ABSENT)]);
    const others = run.not_emulated.map(name => [html("span", {}, ...breakable(name)), ABSENT, "not emulated"]);
    byId("layers").append(
      html("details", {}, html("summary", {}, `Layers and specs of ${run.name}: ${lines.length}` +
        (others.length ? `, and ${others.length} without emulation` : "")),
        html("div", { class: "scroll" }, table([["Layer"], ["Operation"], ["Specs"]], [{ lines: [...lines, ...others] }]))),
      html("details", {}, html("summary", {}, `Configuration of the recorder of ${run.name}`),
        html("pre", { tabindex: 0 }, JSON.stringify(run.config ?? null, null, 2))));
  }
}
