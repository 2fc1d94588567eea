// Lines over numbers of tokens, both axes in powers; what is chosen stands out.

const HEIGHT = 260;
const MARGIN = { left: 58, top: 12, bottom: 34 };
const UNITS = {
  B: ["B", "kB", "MB", "GB", "TB"],
  "µs": ["µs", "ms", "s", "ks", "Ms"],
};

/** A power of ten as a tick has it. */
function tick(power, unit) {
  const step = Math.min(Math.max(Math.floor(power / 3), 0), 4);
  return `${Number(`1e${power - 3 * step}`)} ${UNITS[unit][step]}`;
}

/** Series with equal values are one, with all their names. */
function merged(series) {
  const found = new Map();
  for (const one of series) {
    const key = JSON.stringify(one.points);
    const known = found.get(key);
    if (known) {
      known.names.push(one.name);
      known.on ||= one.on;
    } else found.set(key, { names: [one.name], points: one.points, on: one.on });
  }
  return [...found.values()].sort((one, other) => one.on - other.on); // the chosen one on top
}

function scales(series, width) {
  const all = series.flatMap((one) => one.points);
  const positive = all.map((one) => one.value).filter((value) => value > 0);
  const low = positive.length ? Math.floor(Math.log10(Math.min(...positive))) : 0;
  const high = positive.length ? Math.max(Math.ceil(Math.log10(Math.max(...positive))), low + 1) : 1;
  const zero = all.some((one) => !one.value) ? 18 : 0; // a place of its own below the powers
  const bottom = HEIGHT - MARGIN.bottom;
  const tall = bottom - zero - MARGIN.top;
  const marks = data.tokens.map((count) => Math.log2(count + 1));
  const [from, to] = [Math.min(...marks), Math.max(...marks)];
  const right = width - Math.min(150, width * 0.3);
  return {
    low,
    high,
    zero,
    bottom,
    right,
    x: (count) => MARGIN.left + ((Math.log2(count + 1) - from) / (to - from || 1)) * (right - MARGIN.left),
    y: (value) => (value > 0 ? bottom - zero - ((Math.log10(value) - low) / (high - low)) * tall : bottom),
  };
}

function frame(scale, unit) {
  const parts = [];
  const step = Math.ceil((scale.high - scale.low) / 6);
  const levels = scale.zero ? [[scale.bottom, "0"]] : [];
  for (let power = scale.low; power <= scale.high; power += step) {
    levels.push([scale.y(10 ** power), tick(power, unit)]);
  }
  for (const [y, text] of levels) {
    parts.push(
      s("line", { class: "grid", x1: MARGIN.left, x2: scale.right, y1: y, y2: y }),
      s("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, text),
    );
  }
  let free = -Infinity;
  for (const count of [...data.tokens].sort((one, other) => one - other)) {
    const x = scale.x(count);
    if (x < free) continue;
    free = x + 40;
    parts.push(s("text", { x, y: scale.bottom + 18, "text-anchor": "middle" }, number(count)));
  }
  return parts;
}

/** Names at the ends of lines, in their order, where there is room near by: the chosen one's first. */
function labels(series, scale, width) {
  const room = Math.floor((width - scale.right - 8) / 6.4);
  const ends = series.map((one) => {
    const last = one.points[one.points.length - 1];
    return { one, x: scale.x(last.tokens) + 8, y: scale.y(last.value) + 4 };
  });
  const put = ({ one, x, y: wanted }, y) => {
    if (Math.abs(y - wanted) > 26 || y < 8 || y > HEIGHT - 8) return false;
    const text = one.names.join(", ");
    one.element.append(s("text", { x, y }, cut(text, room), s("title", {}, text)));
    return true;
  };
  const first = ends[ends.length - 1]; // the chosen one is drawn last
  put(first, first.y);
  const others = ends.slice(0, -1).sort((one, other) => one.y - other.y);
  let above = first.y;
  for (const one of others.filter(({ y }) => y < first.y).reverse()) {
    const y = Math.min(one.y, above - 12);
    if (put(one, y)) above = y;
  }
  let below = first.y;
  for (const one of others.filter(({ y }) => y >= first.y)) {
    const y = Math.max(one.y, below + 12);
    if (put(one, y)) below = y;
  }
}

/** Draws series of points {tokens, value} with one unit into a box; called again on a new width. */
function plot(box, title, unit, series, name) {
  const width = Math.max(box.clientWidth, 260);
  const lines = merged(series.filter((one) => one.points.length));
  const scale = scales(lines, width);
  const said = h("output", {}, "");
  const ring = s("circle", { class: "ring", r: 5, visibility: "hidden" });
  for (const one of lines) {
    const points = one.points.map((point) => `${scale.x(point.tokens)} ${scale.y(point.value)}`);
    one.element = s(
      "g",
      { class: one.on ? "series on" : "series", "data-names": one.names.join(" ") },
      s("path", { d: `M${points.join("L")}` }),
      one.points.map((point) =>
        s("circle", {
          cx: scale.x(point.tokens),
          cy: scale.y(point.value),
          r: one.on ? 3 : 2,
          "data-tokens": point.tokens,
          "data-value": point.value,
        }),
      ),
    );
  }
  if (lines.length) labels(lines, scale, width);
  const picture = s(
    "svg",
    {
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      tabindex: 0,
      role: "application",
      "aria-label": `${title}; arrow keys go from point to point, the table below has the numbers`,
    },
    frame(scale, unit),
    lines.map((one) => one.element),
    ring,
  );
  const rest = `${unit === "B" ? "bytes of each rank" : "microseconds of the link"}, by tokens of the batch`;
  const at = { line: lines.length - 1, point: 0 };
  const point = () => {
    const line = lines[at.line];
    const here = line.points[Math.min(at.point, line.points.length - 1)];
    lines.forEach((one) => one.element.classList.toggle("at", one === line));
    made(ring, { cx: scale.x(here.tokens), cy: scale.y(here.value), visibility: "visible" }, []);
    said.textContent = `${line.names.join(", ")}: ${number(here.value)} ${unit} with ${plural(here.tokens, "token")}`;
  };
  const leave = () => {
    ring.setAttribute("visibility", "hidden");
    lines.forEach((one) => one.element.classList.remove("at"));
    said.textContent = rest;
  };
  picture.addEventListener("pointermove", (event) => {
    const origin = picture.getBoundingClientRect();
    let best = Infinity;
    lines.forEach((one, line) =>
      one.points.forEach((here, place) => {
        const dx = scale.x(here.tokens) - (event.clientX - origin.left);
        const dy = scale.y(here.value) - (event.clientY - origin.top);
        if (dx * dx + dy * dy < best) {
          best = dx * dx + dy * dy;
          Object.assign(at, { line, point: place });
        }
      }),
    );
    if (lines.length) point();
  });
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("blur", leave);
  picture.addEventListener("focus", () => lines.length && point());
  picture.addEventListener("keydown", (event) => {
    const most = lines.length && lines[at.line].points.length - 1;
    if (event.key === "ArrowRight") at.point = Math.min(at.point + 1, most);
    else if (event.key === "ArrowLeft") at.point = Math.max(at.point - 1, 0);
    else if (event.key === "ArrowUp") at.line = (at.line + 1) % lines.length;
    else if (event.key === "ArrowDown") at.line = (at.line + lines.length - 1) % lines.length;
    else return;
    event.preventDefault();
    if (lines.length) point();
  });
  said.textContent = rest;
  const empty = h("p", { class: "empty" }, "No such batch in this variant.");
  box.replaceChildren(h("h3", {}, title), lines.length ? picture : empty, lines.length ? said : "");
  box.dataset.plot = name;
}
