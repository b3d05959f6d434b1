// Shows the numbers under the pointer. Without it the page is complete, only stiller.
"use strict";
for (const chart of JSON.parse(document.getElementById("numbers").textContent)) {
  const svg = document.getElementById(chart.id);
  const figure = svg.closest("figure");
  const cursor = svg.querySelector(".cursor");
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  figure.append(readout);
  const end = chart.end;
  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * chart.width / box.width;
    const at = Math.min(1, Math.max(0, (x - chart.left) / (chart.right - chart.left))) * end;
    let place = chart.moments.findIndex((moment) => moment >= at);
    if (place === -1) place = chart.moments.length - 1;
    const there = chart.left + (chart.right - chart.left) * chart.moments[place] / end;
    for (const [name, value] of [["x1", there], ["x2", there], ["y1", chart.top], ["y2", chart.bottom]]) {
      cursor.setAttribute(name, value);
    }
    cursor.setAttribute("visibility", "visible");
    readout.replaceChildren();
    const line = (text, color) => {
      const row = document.createElement("div");
      if (color !== undefined) {
        const dot = document.createElement("i");
        dot.className = "c" + color;
        row.append(dot);
      }
      row.append(text);
      readout.append(row);
    };
    line(chart.moments[place].toFixed(1) + " s");
    chart.series.forEach((series, number) => {
      const value = series.values[place];
      if (value !== null) line(series.name + ": " + value.toPrecision(4) + " " + chart.unit, number % 12);
    });
    readout.hidden = false;
    const near = event.clientX - figure.getBoundingClientRect().left;
    const wide = figure.clientWidth;
    readout.style.left = near > wide / 2 ? "auto" : near + 16 + "px";
    readout.style.right = near > wide / 2 ? wide - near + 16 + "px" : "auto";
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerleave", () => {
    readout.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  });
}
