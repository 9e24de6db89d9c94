"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, tip = document.getElementById("tip");

  document.getElementById("theme").addEventListener("click", () => {
    const dark = getComputedStyle(root).getPropertyValue("--back").trim() !== "#fff";
    root.dataset.theme = dark ? "light" : "dark";
  });

  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const html = (name, attributes, text) => {
    const made = document.createElement(name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const figure = (value) => {
    if (value === null || !isFinite(value)) return "not finite";
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 1e6 || size < 1e-4) return value.toExponential(3);
    return String(+value.toPrecision(5));
  };
  // The parts of the data have the same color in every chart.
  const parts = { train: 0, val: 1, test: 2 };
  const color = (name, k) => `var(--c${(parts[name] ?? k) % 8})`;

  // Numbers at even steps of 1, 2 or 5 times a power of ten.
  const ticks = (low, high, count) => {
    const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power, all = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) all.push(+(k * step).toPrecision(12));
    return all;
  };
  const logTicks = (low, high) => {
    const all = [];
    for (let k = Math.ceil(low - 1e-9); k <= high + 1e-9; k++) all.push(k);
    return all.length >= 2 ? all.filter((_, k) => k % Math.ceil(all.length / 6) === 0) : [low, high];
  };
  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e4) return value % 1000 === 0 && size < 1e6 ? value / 1000 + "k" : value.toExponential(1).replace(/\.0e/, "e").replace("+", "");
    if (size > 0 && size < 1e-3) return value.toExponential(1).replace(/\.0e/, "e");
    return String(+value.toPrecision(4));
  };

  // An exponential mean that starts unbiased.
  const smoothed = (y, weight) => {
    let sum = 0, norm = 0;
    return y.map((value) => {
      if (value === null) return null;
      sum = sum * weight + (1 - weight) * value;
      norm = norm * weight + (1 - weight);
      return sum / norm;
    });
  };

  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  };

  const showTip = (parts, x, y) => {
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = Math.max(4, y - box.height - 12) + "px";
  };
  const hideTip = () => { tip.hidden = true; };
  const tipRow = (name, value, tone) => {
    const row = html("div");
    if (tone) row.append(html("i", { style: `background:${tone}` }));
    row.append(name + " ", html("b", {}, value));
    return row;
  };

  // The chart that is pointed at.
  let pointed = null;
  addEventListener("pointerdown", (event) => {
    if (pointed && !pointed.picture.contains(event.target)) pointed.leave();
  });

  const smooth = document.getElementById("smooth"), log = document.getElementById("log");

  const drawChart = (box, chart) => {
    const weight = smooth ? +smooth.value : 0;
    const width = Math.max(box.clientWidth - 24, 120), height = 210, left = 50, right = 10, top = 10, bottom = 24;
    const curves = chart.series.map((s, k) => ({ ...s, tone: color(s.name, k), line: weight > 0 ? smoothed(s.y, weight) : s.y }));
    const every = curves.flatMap((c) => c.y.filter((v) => v !== null)), steps = curves.flatMap((c) => c.x);
    const logarithmic = log && log.checked && every.length > 0 && every.every((v) => v > 0);
    const scale = (v) => (logarithmic ? Math.log10(v) : v);
    let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
    for (const v of every) { const y = scale(v); if (y < low) low = y; if (y > high) high = y; }
    for (const x of steps) { if (x < first) first = x; if (x > last) last = x; }
    if (!isFinite(low)) { low = 0; high = 1; }
    if (low === high) { const pad = Math.abs(low) * 0.1 || 1; low -= pad; high += pad; }
    const margin = (high - low) * 0.05;
    low -= margin; high += margin;
    if (first === last) last = first + 1;
    const px = (x) => left + ((x - first) / (last - first)) * (width - left - right);
    const py = (v) => top + ((high - scale(v)) / (high - low)) * (height - top - bottom);

    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img",
      "aria-label": `${chart.title}: ` + curves.map((c) => `${c.name} ${figure(c.y[c.y.length - 1])}`).join(", ") });
    for (const t of logarithmic ? logTicks(low, high) : ticks(low, high, 4)) {
      const y = top + ((high - t) / (high - low)) * (height - top - bottom);
      picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }),
        svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, short(logarithmic ? +(10 ** t).toPrecision(2) : t)));
    }
    for (const t of ticks(first, last, Math.max(2, Math.floor(width / 90))).filter((t) => Number.isInteger(t))) {
      picture.append(svg("text", { x: px(t), y: height - 6, "text-anchor": "middle" }, short(t)));
    }
    const path = (c, values) => {
      let d = "", pen = false;
      values.forEach((v, k) => {
        if (v === null) { pen = false; return; }
        d += `${pen ? "L" : "M"}${px(c.x[k]).toFixed(1)} ${py(v).toFixed(1)}`;
        pen = true;
      });
      return d;
    };
    for (const c of curves) {
      if (weight > 0) picture.append(svg("path", { class: "curve raw", d: path(c, c.y), stroke: c.tone }));
      picture.append(svg("path", { class: "curve", d: path(c, c.line), stroke: c.tone }));
      if (c.x.length === 1 && c.y[0] !== null) picture.append(svg("circle", { cx: px(c.x[0]), cy: py(c.y[0]), r: 3, fill: c.tone }));
    }
    const cross = svg("g", { visibility: "hidden" });
    picture.append(cross);

    let at = null;
    const look = (x, place) => {
      // The step nearest to the pointer among those of all curves.
      let step = null;
      for (const c of curves) {
        if (c.x.length === 0) continue;
        const own = c.x[nearest(c.x, x)];
        if (step === null || Math.abs(own - x) < Math.abs(step - x)) step = own;
      }
      if (step === null) return;
      at = step;
      pointed = { picture, leave };
      cross.replaceChildren(svg("line", { class: "cross", x1: px(step), x2: px(step), y1: top, y2: height - bottom }));
      const rows = [tipRow("step", String(step))];
      for (const c of curves) {
        const k = nearest(c.x, step), v = c.line[k];
        if (c.x[k] !== step && curves.length > 1 && (c.x[k] < first || Math.abs(c.x[k] - step) > (last - first) / 20)) continue;
        if (v !== null) cross.append(svg("circle", { cx: px(c.x[k]), cy: py(v), r: 3.5, fill: c.tone }));
        rows.push(tipRow(c.name + (c.x[k] === step ? "" : ` (step ${c.x[k]})`), figure(v), c.tone));
      }
      cross.setAttribute("visibility", "visible");
      const box = picture.getBoundingClientRect();
      showTip(rows, place ? place[0] : box.left + px(step), place ? place[1] : box.top + 40);
    };
    const leave = (event) => {
      // A finger that is lifted leaves what it has pointed at; the next touch elsewhere hides it.
      if (event && event.pointerType === "touch") return;
      cross.setAttribute("visibility", "hidden");
      hideTip();
      at = null;
    };
    const point = (event) => {
      const box = picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * width;
      look(first + ((x - left) / (width - left - right)) * (last - first), [event.clientX, event.clientY]);
    };
    for (const event of ["pointermove", "pointerdown"]) picture.addEventListener(event, point);
    picture.addEventListener("pointerleave", leave);
    picture.addEventListener("blur", leave);
    picture.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || curves.length === 0) return;
      event.preventDefault();
      const xs = curves.reduce((a, c) => (c.x.length > a.length ? c.x : a), []);
      const k = at === null ? (by > 0 ? -1 : xs.length) : nearest(xs, at);
      look(xs[Math.max(0, Math.min(xs.length - 1, k + by))]);
    });

    const head = html("h3", {}, chart.title);
    if (curves.length > 1 || curves[0].name !== chart.title) {
      for (const c of curves) {
        const key = html("span", { class: "legend" });
        key.append(html("i", { style: `background:${c.tone}` }), c.name);
        head.append(key);
      }
    }
    box.replaceChildren(head, picture);
  };

  const charts = document.getElementById("charts");
  const boxes = (data.charts || []).map((chart) => {
    const box = html("div", { class: "chart" });
    charts.append(box);
    return [box, chart];
  });
  const redraw = () => { hideTip(); for (const [box, chart] of boxes) drawChart(box, chart); };
  redraw();
  let waiting = 0, before = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === before) return;
    before = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(redraw);
  });
  for (const control of [smooth, log]) if (control) control.addEventListener("input", redraw);

  for (const box of document.querySelectorAll("[data-spark]")) {
    const { name, x, y } = data.sparks[+box.dataset.spark], width = 110, height = 26;
    const known = y.filter((v) => v !== null), low = Math.min(...known), high = Math.max(...known);
    const px = (k) => 2 + (k / Math.max(1, x.length - 1)) * (width - 4);
    const py = (v) => (high > low ? 2 + ((high - v) / (high - low)) * (height - 4) : height / 2);
    let d = "", pen = false;
    y.forEach((v, k) => {
      if (v === null) { pen = false; return; }
      d += `${pen ? "L" : "M"}${px(k).toFixed(1)} ${py(v).toFixed(1)}`;
      pen = true;
    });
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: from ${figure(low)} to ${figure(high)}` });
    picture.append(svg("path", { d, "vector-effect": "non-scaling-stroke" }));
    const point = (event) => {
      const bounds = picture.getBoundingClientRect();
      const k = Math.max(0, Math.min(x.length - 1, Math.round(((event.clientX - bounds.left) / bounds.width) * (x.length - 1))));
      showTip([tipRow("step", String(x[k])), tipRow(name, figure(y[k]))], event.clientX, event.clientY);
      event.stopPropagation();
    };
    for (const event of ["pointermove", "pointerdown"]) picture.addEventListener(event, point);
    picture.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hideTip(); });
    box.append(picture);
  }

  const panel = document.getElementById("cell");
  const choose = (button) => {
    for (const other of document.querySelectorAll("[data-cell].chosen")) other.classList.remove("chosen");
    button.classList.add("chosen");
    const cell = data.cells[button.dataset.cell];
    panel.replaceChildren(html("div", {}, cell.text), ...cell.images.map((src) => html("img", { src, alt: cell.text })));
  };
  for (const button of document.querySelectorAll("[data-cell]")) {
    for (const event of ["click", "focus", "pointerenter"]) button.addEventListener(event, () => choose(button));
  }
  // Something to look at from the beginning: the most frequent mistake.
  const frequent = [...document.querySelectorAll(".wrong [data-cell]")].sort((a, b) => +b.textContent - +a.textContent)[0];
  if (frequent) choose(frequent);
})();
