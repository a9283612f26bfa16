// Draws on a canvas: what is seen, and nothing else, so that tens of thousands of frames move at the screen's pace. Two
// layers: the frames, and above them what is lit, so that a hover draws nothing but a line. A third has the picture from
// before while the graph goes to another view.
// Up and down is the scroll position of the host, so that scroll bars and touch work as they do everywhere.

import type { FlameFrame } from "../../api/types.ts";
import type { Theme } from "../../lib/colors.ts";
import { type FlameNode, nodeById } from "../../lib/flame-tree.ts";
import { isChosen } from "../../lib/identity.ts";
import { isPaper, listenForPaper, paintForPaper } from "../paper.ts";
import { themeNow } from "../theme.ts";
import { AccessibleTree } from "./accessible-tree.ts";
import { TextFitter } from "./box-text.ts";
import { type FlameGestures, listen } from "./gestures.ts";
import {
  clamped,
  type FlameLayout,
  type FlameView,
  frameAt,
  functionsOf,
  layOut,
  layoutOf,
  mover,
  NOTHING,
  nodeAt,
  panned,
  placeOf,
  revealed,
  spanOf,
  WHOLE,
  zoomed,
} from "./layout.ts";
import { drawMinimap, MINIMAP_HEIGHT } from "./minimap.ts";
import { type Ink, inkIn, outlinesOf, paintFrames, paintOutlines, ROW_HEIGHT, type Scene } from "./paint.ts";
import { layer, Pictures } from "./pictures.ts";
import { pixelsOf, Raster } from "./raster.ts";
import type { FlameLook, FlameMarks, MakeFlameRenderer } from "./renderer.ts";

/** From so many frames on the graph has a small picture of all of it. */
const MINIMAP_FROM = 40;

export const makeCanvasRenderer: MakeFlameRenderer = (host, name, firstWidth, handlers) => {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const content = document.createElement("div");
  content.className = "flame-content";
  content.setAttribute("role", "presentation");
  const stage = document.createElement("div");
  stage.className = "flame-stage";
  stage.setAttribute("role", "presentation");
  const pictures = new Pictures(stage, arrive);
  const [marksCanvas, overlay] = layer(pictures.box, "flame-marks");
  marksCanvas.hidden = true;
  const [mapCanvas, map] = layer(stage, "flame-minimap");
  content.append(stage);
  host.append(content);

  let width = firstWidth;
  let height = 0;
  let ratio = 1;
  let layout: FlameLayout = layOut(NOTHING);
  let look: FlameLook | undefined;
  let marks: FlameMarks = { matches: undefined, selectedName: undefined, activeRow: undefined };
  let zoomRow = 0;
  /** Callers of the frame that is zoomed to: they take the whole width and say nothing about sizes. */
  let outer: ReadonlySet<number> = new Set();
  /** What is shown, or will be when the graph has got there. */
  let view: FlameView = WHOLE;
  let hovered: FlameNode | undefined;
  let lit: string | undefined;
  let fitter: TextFitter | undefined;
  /** The theme that the colours of the ink are of. */
  let inkOf: Theme | undefined;
  let ink: Ink = { text: "", muted: "", match: "", accent: "", strong: "", surface: "" };
  let asked: number | undefined;
  /** Pictures and trees so far, for tests and measurements. */
  let painted = 0;
  let trees = 0;
  let framesAreOld = true;
  let mapIsOld = true;
  let sizeIsOld = true;
  /** A way has just been shown to its end. */
  let arrives = false;
  /** The host's scroll position: to read it from the host would lay out the page. */
  let scrolled = 0;
  /** The view that the small picture and the items were last put to. */
  let placed: FlameView | undefined;
  /** All that the marks that are drawn depend on. */
  let drawnMarks: readonly unknown[] = [];
  const raster = new Raster();
  let pixels: Uint32Array[] = [];
  let labels = new WeakMap<FlameNode, string>();
  /** The frames of the selected function; unknown until it is asked for. */
  let selected: ReadonlySet<FlameFrame> | undefined;
  const tree = new AccessibleTree(content, name);

  const rows = () => layout.levels.length;
  const mapped = () => layout.count >= MINIMAP_FROM;
  const mapHeight = () => (mapped() ? MINIMAP_HEIGHT : 0);
  const downwards = () => look?.downwards ?? true;
  /** Top of a level, in pixels of the stage. */
  const levelTop = (depth: number): number => {
    const inContent = downwards() ? depth * ROW_HEIGHT : (rows() - 1 - depth) * ROW_HEIGHT;
    const spare = downwards() ? 0 : Math.max(0, height - mapHeight() - rows() * ROW_HEIGHT);
    return inContent + spare - scrolled + mapHeight();
  };
  const depthAt = (y: number): number => {
    if (y < mapHeight()) return -1;
    const steps = Math.floor((y - levelTop(0)) / ROW_HEIGHT);
    return downwards() ? steps : -steps;
  };

  function readStyle(): void {
    inkOf = themeNow();
    const style = getComputedStyle(host);
    const of = (token: string) => style.getPropertyValue(token).trim();
    ink = inkIn(of);
    const frames = pictures.write(`12px ${of("--font-text") || "sans-serif"}`);
    fitter ??= new TextFitter((text) => frames.measureText(text).width);
  }

  /** The canvases as large as what is seen, in the screen's own pixels. */
  function fitStage(): void {
    if (!sizeIsOld) return;
    sizeIsOld = false;
    const nextRatio = window.devicePixelRatio || 1;
    const nextHeight = Math.max(ROW_HEIGHT, host.clientHeight);
    // Without the scroll bar; the width that was given counts before the page is laid out.
    width = host.clientWidth || width;
    if (nextRatio === ratio && nextHeight === height && pictures.canvas.style.width === `${width}px`) return;
    ratio = nextRatio;
    height = nextHeight;
    scrolled = host.scrollTop;
    stage.style.height = `${height}px`;
    pictures.jump();
    for (const [canvas, tall] of [
      ...pictures.canvases.map((canvas) => [canvas, height] as const),
      [marksCanvas, ROW_HEIGHT],
      [mapCanvas, MINIMAP_HEIGHT],
    ] as const) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(tall * ratio));
      canvas.style.width = `${width}px`;
      canvas.style.height = `${tall}px`;
      canvas.getContext("2d")?.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    framesAreOld = true;
    mapIsOld = true;
    drawnMarks = [];
    fitter = undefined;
    readStyle();
  }

  function fitContent(): void {
    content.style.height = `${rows() * ROW_HEIGHT + mapHeight()}px`;
  }

  function ask(alsoFrames = true): void {
    if (alsoFrames) framesAreOld = true;
    asked ??= requestAnimationFrame(draw);
  }

  function draw(): void {
    if (asked !== undefined) cancelAnimationFrame(asked);
    asked = undefined;
    fitStage();
    const glides = pictures.turn();
    // What changes elements comes before what is painted: text on a canvas has the styles of the page made up to date.
    placeItems();
    if (arrives && !glides) tree.settle();
    arrives = false;
    if (framesAreOld) {
      // Every way out of a zoom leads back to a picture that was there.
      const where: unknown[] = [layout, view.left, view.right, scrolled, zoomRow, look?.downwards];
      const state = [...where, look?.label, pixels, ink, fitter, marks.matches, marks.selectedName];
      const isHere = pictures.recall(state);
      pictures.view = view;
      if (glides) pictures.glide(width);
      drawMarks();
      if (!isHere) {
        paintFrames(pictures.context, raster, scene(), fitter);
        pictures.note(state);
      }
      painted += 1;
      host.dataset["painted"] = String(painted);
    } else drawMarks();
    framesAreOld = false;
    drawMap();
    if (placed === view) return;
    placed = view;
    host.dataset["view"] = `${view.left.toPrecision(6)} ${view.right.toPrecision(6)}`;
  }

  /** What comes at the end of a way comes in one picture: a finer graph, and the items. */
  function arrive(): void {
    arrives = true;
    ask(false);
    handlers.onArrive?.();
  }

  function placeItems(): void {
    tree.place(layout, view, {
      width,
      rows: rows(),
      rowHeight: ROW_HEIGHT,
      downwards: downwards(),
      top: mapHeight(),
    });
  }

  function selectedFrames(): ReadonlySet<FlameFrame> {
    const { selectedName } = marks;
    selected ??= new Set(
      selectedName === undefined
        ? []
        : [...functionsOf(layout).byFrame.keys()].filter((frame) => isChosen(frame, selectedName)),
    );
    return selected;
  }

  const isSelected = ({ frame }: FlameNode): boolean => frame !== undefined && selectedFrames().has(frame);

  const colorOf = (node: FlameNode): string => look?.color(node) ?? "transparent";

  function labelOf(node: FlameNode): string {
    let label = labels.get(node);
    if (label === undefined) {
      label = look?.label(node) ?? "";
      labels.set(node, label);
    }
    return label;
  }

  /** Levels that can be seen, from the first to the last. */
  function seenLevels(): [number, number] {
    const a = depthAt(mapHeight());
    const b = depthAt(height - 1);
    return [Math.max(0, Math.min(a, b)), Math.min(rows() - 1, Math.max(a, b))];
  }

  /** The state that the painter needs. */
  function scene(): Scene {
    const [first, last] = seenLevels();
    return {
      layout,
      view,
      width,
      height,
      first,
      last,
      levelTop,
      marks,
      isSelected,
      selectedFrames,
      outer,
      colorOf,
      pixels,
      ratio,
      labelOf,
      ink,
    };
  }

  function drawMarks(): void {
    const active = marks.activeRow === undefined ? undefined : nodeOf(marks.activeRow);
    const outlines = outlinesOf(scene(), {
      lit,
      hovered,
      active: host.matches(":focus-visible") ? active : undefined,
    });
    // Most pictures have the marks of the one before, and to draw them lays out the page.
    const next = [width, ratio, ...outlines.flatMap(Object.values)];
    if (next.length === drawnMarks.length && next.every((part, i) => part === drawnMarks[i])) return;
    drawnMarks = next;
    marksCanvas.hidden = outlines.length === 0;
    if (outlines.length > 0) paintOutlines(overlay, outlines, ratio);
  }

  function drawMap(): void {
    if (!mapped() || (!mapIsOld && placed === view)) return;
    drawMinimap(map, layout, { view, width, colorOf, pixels, downwards: downwards(), ink });
    mapIsOld = false;
  }

  const nodeOf = (row: number): FlameNode | undefined => nodeAt(layout, row);

  function go(next: FlameView, glides: boolean): void {
    const glide = glides && !still.matches && pictures.approach(view, next);
    // It moves away from under the pointer.
    if (glide) hover(undefined, { x: 0, y: 0 });
    else pictures.jump();
    view = next;
    ask();
  }

  /** Where everything is in another tree. */
  function carry(move: (view: FlameView) => FlameView): void {
    view = clamped(move(view));
    pictures.carry(move);
  }

  /** Sets the frame that is zoomed to, and its callers. */
  function setZoom(node: FlameNode): void {
    zoomRow = node.row;
    const above = new Set<number>();
    for (let at = node.parent; at; at = at.parent) above.add(at.row);
    outer = above;
  }

  function hover(node: FlameNode | undefined, at: { x: number; y: number }): void {
    const changed = hovered !== node;
    hovered = node;
    if (changed) {
      stage.style.cursor = node ? "pointer" : "";
      ask(false);
    }
    if (node || changed) handlers.onHover(node, at);
  }

  function scrollTo(top: number): void {
    host.scrollTop = top;
    onScroll();
  }

  function onScroll(): void {
    if (scrolled === host.scrollTop) return;
    scrolled = host.scrollTop;
    pictures.forget();
    ask();
  }

  const gestures: FlameGestures = {
    frameAt: (x, y) => {
      const { left, right } = pictures.seen(view);
      return frameAt(layout, depthAt(y), left + (x / width) * (right - left));
    },
    isMap: (y) => mapped() && y < MINIMAP_HEIGHT,
    hover,
    click: (node, at, keeps) => {
      if (keeps) handlers.onPin?.(node, at);
      else handlers.onZoom(node);
    },
    menu: (node, at) => handlers.onMenu(node, at),
    drag: (right, down) => {
      go(panned(view, -right / width), false);
      scrollTo(host.scrollTop - down);
    },
    scale: (factor, x) => go(zoomed(view, factor, x / width), false),
    slide: (right) => go(panned(view, right / width), false),
    moveMap: (x) => {
      const half = (view.right - view.left) / 2;
      go(clamped({ left: x / width - half, right: x / width + half }), false);
    },
  };
  const deafen = listen(stage, gestures);
  const onFocus = () => ask(false);
  host.addEventListener("scroll", onScroll, { passive: true });
  host.addEventListener("focus", onFocus);
  host.addEventListener("blur", onFocus);
  const onResize = () => {
    sizeIsOld = true;
    ask();
  };
  const resizing = new ResizeObserver(onResize);
  resizing.observe(host);
  // Another screen, another zoom of the browser: more or fewer pixels for the same size.
  window.addEventListener("resize", onResize);
  const onPaper = () => {
    onResize();
    // A sheet is laid out now, and has no next picture. The theme of paper comes first.
    if (isPaper()) queueMicrotask(draw);
  };
  const deafenPaper = [listenForPaper(onPaper), paintForPaper(draw)];

  return {
    render(root, zoom, nextLook, nextMarks) {
      const was = spanOf(layout, zoomRow);
      const zoomed = nodeOf(zoomRow)?.id;
      const sameZoom = zoomed === zoom.id && was !== undefined && was.right > was.left;
      /** The frame that was zoomed to, if the new tree has it further down. */
      const left = sameZoom || zoomed === undefined || trees === 0 ? undefined : nodeById(root, zoomed);
      if (look?.label !== nextLook.label) labels = new WeakMap();
      look = nextLook;
      marks = nextMarks;
      selected = undefined;
      layout = layoutOf(root);
      pixels = pixelsOf(layout, nextLook.color);
      placed = undefined;
      hovered = undefined;
      setZoom(zoom);
      const span = spanOf(layout, zoom.row) ?? WHOLE;
      const place = left && spanOf(layout, left.row);
      if (sameZoom && was) {
        // The same frame in a newer or finer tree: what was seen of it stays where it is.
        carry(mover(was, span));
      } else if (was && place && place.right > place.left) {
        // From where it was to where it is now: the way says what became of it.
        carry(mover(was, place));
        go(clamped(span), true);
      } else {
        pictures.jump();
        view = clamped(span);
      }
      mapIsOld = true;
      // To read it again would lay out the whole page, in the middle of its changes.
      if (inkOf !== themeNow()) readStyle();
      mapCanvas.hidden = !mapped();
      fitContent();
      fitStage();
      tree.reset(layout, look, marks);
      host.dataset["frames"] = String(layout.count);
      trees += 1;
      host.dataset["drawn"] = String(trees);
      ask();
    },
    zoomTo(node) {
      const span = spanOf(layout, node.row);
      if (!span) return false;
      if (node.row !== zoomRow) {
        setZoom(node);
        go(clamped(span), true);
      }
      return true;
    },
    moves: () => pictures.moves,
    mark(next) {
      const frameMarksChanged = next.matches !== marks.matches || next.selectedName !== marks.selectedName;
      if (next.selectedName !== marks.selectedName) selected = undefined;
      marks = next;
      tree.mark(marks);
      ask(frameMarksChanged);
    },
    light(next) {
      if (next === lit) return;
      lit = next;
      tree.light(lit);
      ask(false);
    },
    resize(next) {
      width = next;
      onResize();
    },
    pan(right, down) {
      // A key that is held steps faster than a way can be shown.
      if (right !== 0) go(panned(view, right), !pictures.moves);
      if (down !== 0) scrollTo(host.scrollTop + down * (height - mapHeight()));
    },
    scale: (factor) => go(zoomed(view, factor, 0.5), !pictures.moves),
    reveal(row) {
      const span = spanOf(layout, row);
      const place = placeOf(layout, row);
      if (!span || !place) return;
      const next = revealed(view, span, 3 / width);
      if (next !== view) go(next, true);
      const top = levelTop(place.level);
      if (top < mapHeight()) scrollTo(scrolled + top - mapHeight());
      else if (top + ROW_HEIGHT > height) scrollTo(scrolled + top + ROW_HEIGHT - height);
    },
    element: (row) => {
      pictures.jump();
      placeItems();
      return tree.element(row);
    },
    destroy() {
      if (asked !== undefined) cancelAnimationFrame(asked);
      pictures.jump();
      deafen();
      tree.destroy();
      resizing.disconnect();
      window.removeEventListener("resize", onResize);
      for (const deafen of deafenPaper) deafen();
      host.removeEventListener("scroll", onScroll);
      host.removeEventListener("focus", onFocus);
      host.removeEventListener("blur", onFocus);
      content.remove();
    },
  };
};
