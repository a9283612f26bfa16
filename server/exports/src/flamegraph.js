"use strict";
(() => {
  const svg = document.documentElement;
  const left = Number(svg.dataset.left);
  const span = Number(svg.dataset.span);
  const advance = Number(svg.dataset.advance);
  const byId = (id) => document.getElementById(id);
  // The text before the first dash of a frame's title is its name.
  const frames = Array.from(document.querySelectorAll(".f"), (element) => {
    const title = element.querySelector("title").textContent;
    return {
      element,
      title,
      name: title.slice(0, title.indexOf(" — ")),
      rect: element.querySelector("rect"),
      text: element.querySelector("text"),
      left: Number(element.dataset.l),
      width: Number(element.dataset.w),
      depth: Number(element.dataset.d),
    };
  });
  const rounding = 1e-6;
  let searched = null;

  const fitting = (name, width) => {
    const room = Math.floor((width - 6) / advance);
    const letters = Array.from(name);
    if (letters.length <= room) return name;
    return room < 3 ? "" : letters.slice(0, room - 1).join("") + "…";
  };

  const zoom = (target) => {
    const end = target.left + target.width;
    for (const frame of frames) {
      const around = frame.left <= target.left + rounding && frame.left + frame.width >= end - rounding;
      const above = around && frame.depth < target.depth;
      const inside = frame.left >= target.left - rounding && frame.left + frame.width <= end + rounding;
      const shown = above || (inside && frame.depth >= target.depth);
      frame.element.style.display = shown ? "" : "none";
      frame.element.classList.toggle("above", above);
      if (!shown) continue;
      const x = above ? 0 : (frame.left - target.left) / target.width;
      const width = (above ? 1 : frame.width / target.width) * span;
      frame.rect.setAttribute("x", left + x * span);
      frame.rect.setAttribute("width", width);
      frame.text.setAttribute("x", left + x * span + 3);
      frame.text.textContent = fitting(frame.name, width);
    }
    svg.classList.toggle("zoomed", target.depth > 0);
  };

  const search = (pattern) => {
    let expression = null;
    try {
      expression = pattern ? new RegExp(pattern, "i") : null;
    } catch {
      expression = new RegExp(pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
    }
    searched = expression ? pattern : null;
    // Outer matches count, what lies above them is part of them.
    const counted = [];
    let sum = 0;
    for (const frame of [...frames].sort((a, b) => a.depth - b.depth)) {
      const match = expression !== null && expression.test(frame.name);
      frame.element.classList.toggle("match", match);
      const inside = (outer) => frame.left >= outer.left - rounding && frame.left + frame.width <= outer.left + outer.width + rounding;
      if (match && !counted.some(inside)) {
        counted.push(frame);
        sum += frame.width;
      }
    }
    byId("matched").textContent = expression ? `matched: ${(sum * 100).toFixed(2)}%` : "";
    byId("search").textContent = expression ? "clear search" : "search";
  };

  const ask = () => {
    const pattern = window.prompt("Functions to highlight (regular expression)", searched ?? "");
    if (pattern !== null) search(pattern);
  };

  for (const frame of frames) {
    frame.element.addEventListener("click", () => zoom(frame));
    frame.element.addEventListener("mouseenter", () => { byId("details").textContent = frame.title; });
    frame.element.addEventListener("mouseleave", () => { byId("details").textContent = ""; });
  }
  byId("reset").addEventListener("click", () => zoom(frames[0]));
  byId("search").addEventListener("click", () => (searched === null ? ask() : search("")));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search("");
      zoom(frames[0]);
    } else if (event.key === "/" || (event.key === "f" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      ask();
    }
  });
  svg.classList.add("interactive");
})();
