// Which of the two renderers there is.

/** Whether this browser can draw on a canvas at all. */
export function hasCanvas(): boolean {
  try {
    return typeof CanvasRenderingContext2D === "function" && document.createElement("canvas").getContext("2d") !== null;
  } catch {
    return false;
  }
}
