(() => {
  const problems = [];
  const width = document.documentElement.clientWidth;
  const shown = (text) => text.trim().replace(/\s+/g, " ").slice(0, 40);
  if (document.documentElement.scrollWidth > width) {
    problems.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${width}`);
  }
  // Strips are drawn once and used: each is put on the page for a moment, so that its texts can be measured.
  const bench = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  bench.setAttribute("viewBox", "0 0 304 60");
  bench.style.width = "340px";
  for (const strip of document.querySelectorAll("defs g")) {
    bench.replaceChildren(strip.cloneNode(true));
    document.body.append(bench);
    boxes(bench, [...bench.querySelectorAll("tspan")]);
    bench.remove();
  }
  for (const drawing of document.querySelectorAll("figure svg")) {
    boxes(drawing, [...drawing.querySelectorAll("text, use")]);
  }
  function boxes(drawing, parts) {
    const outer = drawing.getBoundingClientRect();
    const found = parts.map((part) => [part, part.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
    found.forEach(([part, box], at) => {
      const name = shown(part.textContent) || part.getAttribute("href");
      if (box.left < outer.left - 1 || box.right > outer.right + 1) problems.push(`cut off in a drawing: ${name}`);
      for (const [other, next] of found.slice(at + 1)) {
        const across = Math.min(box.right, next.right) - Math.max(box.left, next.left);
        const down = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
        if (across > 1 && down > 3) problems.push(`overlap in a drawing: ${name} and ${shown(other.textContent)}`);
      }
    });
  }
  const texts = [];
  const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("svg, style, title")) continue;
    if (getComputedStyle(parent.closest("thead") ?? parent).clipPath !== "none") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) texts.push([node, box]);
  }
  for (const [node, box] of texts) {
    if (box.left < 0 || box.right > width + 0.5) problems.push(`cut off: ${shown(node.textContent)}`);
  }
  texts.sort((a, b) => a[1].top - b[1].top);
  texts.forEach(([node, box], at) => {
    for (let next = at + 1; next < texts.length && texts[next][1].top < box.bottom - 3; next++) {
      const other = texts[next][1];
      const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      if (across > 1 && texts[next][0] !== node) problems.push(`overlap: ${shown(node.textContent)} and ${shown(texts[next][0].textContent)}`);
    }
  });
  for (const element of document.querySelectorAll("body *")) {
    const style = getComputedStyle(element);
    if (style.overflowX !== "visible" && style.clipPath === "none" && element.scrollWidth > element.clientWidth + 1 && !element.closest("svg")) {
      problems.push(`cut or scrolled: ${shown(element.textContent)}`);
    }
  }
  return problems;
})()
