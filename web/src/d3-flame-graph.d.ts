// The part of d3-flame-graph 5 that is used here; the package brings no types.
declare module "d3-flame-graph" {
  import type { Selection } from "d3-selection";

  export interface Datum {
    name: string;
    value: number;
    children?: Datum[];
  }

  export interface ChartNode<D extends Datum> {
    data: D;
    x0: number;
    x1: number;
    depth: number;
    parent: ChartNode<D> | null;
    children?: ChartNode<D>[];
  }

  export interface Tooltip<D extends Datum> {
    (selection: unknown): void;
    show: (event: MouseEvent, node: ChartNode<D>) => void;
    hide: () => void;
    destroy: () => void;
  }

  export interface Chart<D extends Datum> {
    (selection: Selection<HTMLElement, D, null, undefined>): void;
    width(): number;
    width(width: number): this;
    cellHeight(height: number): this;
    transitionDuration(ms: number): this;
    minFrameSize(pixels: number): this;
    inverted(downwards: boolean): this;
    selfValue(own: boolean): this;
    resetHeightOnZoom(reset: boolean): this;
    title(title: string): this;
    sort(order: boolean): this;
    tooltip(tooltip: Tooltip<D>): this;
    onClick(handler: (node: ChartNode<D>) => void): this;
    setColorMapper(mapper: (node: ChartNode<D>, original: string) => string): this;
    update(data?: D): this;
    destroy(): this;
  }

  export default function flamegraph<D extends Datum>(): Chart<D>;
}
