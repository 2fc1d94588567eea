// The plan of the chosen boundary: in each variant, then in full.

function lies(state) {
  return h("span", { class: `lie ${state}` }, state);
}

function moves(before, after) {
  return before === after ? [lies(before)] : [lies(before), " → ", lies(after)];
}

function axesTable(way) {
  if (!way.axes.length) return h("p", { class: "empty" }, "There is one rank: rows are not cut.");
  return table(
    [["axis"], ["parts", "n"], ["rows"], ["residual"]],
    way.axes.map((one) =>
      h(
        "tr",
        {},
        h("td", {}, h("code", {}, one.axis)),
        h("td", { class: "n" }, number(one.parts)),
        h("td", {}, moves(one.before, one.after)),
        h("td", {}, moves(one.residual_before, one.residual_after)),
      ),
    ),
  );
}

function worksTable(way) {
  return table(
    [["operation"], ["group (ranks)"], ["sizes"], ["B/token", "n"], ["kernel"]],
    way.works.map((one) =>
      h(
        "tr",
        {},
        h("td", {}, h("code", {}, one.operation)),
        h("td", {}, one.group ? [h("code", {}, one.group), ` (${number(one.ranks)})`] : ""),
        h("td", {}, one.sizes),
        h("td", { class: "n" }, one.collectives ? number(one.bytes_per_token) : ""),
        h("td", {}, one.kernel ? h("code", {}, one.kernel) : ""),
      ),
    ),
  );
}

function because(way) {
  const items = [h("dt", {}, "why"), h("dd", { class: "why" }, way.why)];
  const other = way.next_best;
  if (other) {
    const cost = `${plural(other.collectives, "collective")}, ${number(other.bytes_per_token)} B/token`;
    const what = other.operations.join(" + ") || "nothing";
    items.push(
      h("dt", {}, "next best"),
      h("dd", { class: "next-best" }, h("code", {}, what), ` (${cost}): ${other.verdict}`),
    );
  }
  if (way.no_scatter) {
    items.push(h("dt", {}, "reduce-scatter"), h("dd", { class: "no-scatter" }, way.no_scatter));
  }
  return h("dl", { class: "because" }, items);
}

function wayView(one) {
  const way = one.way;
  const head = [h("h4", {}, way.when || "all batches")];
  const batch = batchOf(planOf());
  if (batch && one.runs) {
    head.push(h("span", { class: "badge" }, `runs with ${plural(batch.tokens, "token")}`));
  }
  const body = [h("div", { class: "tables" }, axesTable(way), h("div", { class: "scroll" }, worksTable(way))), because(way)];
  return h("details", { class: "way", open: one.runs }, h("summary", {}, head), body);
}

/** What each variant does at the boundary; a row for each of its ways that the batch may take. */
function variantsTable(boundary) {
  const topology = topologyOf(chosen.topology);
  const rows = topology.variants.flatMap((variant) => {
    const plan = planOf(variant);
    const ways = waysOf(plan, boundary).filter((way) => way.runs);
    const on = variant === chosen.variant;
    const known = chosen.tokens === null || batchOf(plan);
    return ways.map((one, at) =>
      h(
        "tr",
        { class: on ? "on" : "" },
        h("td", { class: "w" }, at ? "" : on ? variant : link(variant, () => update({ variant }))),
        h("td", {}, known ? one.way.when || "all batches" : `${one.way.when || "all batches"} (no such batch)`),
        h("td", {}, one.sends ? h("code", {}, one.sends) : "nothing"),
        h("td", { class: "n" }, number(one.way.collectives)),
        h("td", { class: "n" }, number(one.way.bytes_per_token)),
      ),
    );
  });
  const left = topology.left_out.map((one) =>
    h("tr", {}, h("td", { class: "w" }, one.variant), h("td", { colspan: 4 }, `not here: ${one.why}`)),
  );
  return h(
    "div",
    { class: "scroll" },
    table([["variant"], ["batches"], ["sends"], ["collectives", "n"], ["B/token", "n"]], [...rows, ...left]),
  );
}

function decides(crossing) {
  const items = crossing.levers.map((place) => {
    const lever = data.levers[place];
    const where = lever.line
      ? link(`line ${lever.line}`, () => update({ yaml: lever.line, line: 0, reveal: "yaml" }))
      : h("span", {}, "not written");
    return h("li", {}, where, " ", h("code", {}, lever.path), " ", h("span", {}, lever.effect));
  });
  return [h("h4", {}, "Decided by"), h("ul", { class: "decides" }, items)];
}

/** The functions of the generated code that run at a boundary, in the chosen variant. */
function functionsOf(crossing) {
  const file = data.files.find(
    (one) =>
      one.topology === chosen.topology &&
      one.variant === chosen.variant &&
      one.path.endsWith(`/${chosen.variant}.py`),
  );
  const [producer, consumer] = crossing.ends;
  const found = file.lines.filter(({ origin }) => {
    const ends = data.origins[origin].ends;
    return ends.length === 2
      ? ends[0] === producer && ends[1] === consumer
      : ends.length === 1 && ends[0] === producer;
  });
  return { file, found };
}

function code(crossing) {
  const { file, found } = functionsOf(crossing);
  if (!found.length) return [];
  const items = found.map(({ first, origin }) => {
    const { name, says } = data.origins[origin];
    const show = () => update({ file: file.path, line: first, reveal: "code" });
    return h("li", {}, link(name, show, { class: "link mono" }), " ", h("span", {}, says));
  });
  return [h("h4", {}, "Runs as"), h("ul", { class: "decides functions" }, items)];
}

function renderPlan() {
  const plan = planOf();
  const stands = data.boundaries[chosen.edge];
  const boundary = stands[chosen.boundary];
  const crossing = data.crossings[plan.crossings[boundary]];
  const picks = stands.map((one, at) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(at === chosen.boundary),
        onclick: () => update({ boundary: at }),
      },
      data.crossings[plan.crossings[one]].place,
    ),
  );
  find("plan").replaceChildren(
    h(
      "div",
      {},
      h("h3", {}, crossing.boundary),
      stands.length > 1 ? "" : h("p", { class: "place" }, crossing.place),
    ),
    stands.length > 1 ? h("div", { class: "pick", role: "group", "aria-label": "Where" }, picks) : "",
    h("p", {}, crossing.words),
    variantsTable(boundary),
    ...waysOf(plan, boundary)
      .sort((one, other) => other.runs - one.runs)
      .map(wayView),
    h("div", {}, decides(crossing)),
    h("div", {}, code(crossing)),
  );
}
