// A synthetic recording: blocks with allocations, frees, threads and stacks, made from a seed. Test fixture.

export interface MockFrame {
  name: string;
  module: string;
  file: string | null;
  line: number | null;
  inlined: boolean;
  library: boolean;
}

export interface MockSite {
  id: number;
  /** Leaf first, indexes into `frames`. */
  stack: number[];
}

export interface MockBlock {
  index: number;
  size: number;
  site: number;
  allocated: number;
  /** Infinity while it lives. */
  freed: number;
  thread: number;
  freeThread: number;
  temporary: boolean;
}

export interface MockRecording {
  title: string;
  durationNs: number;
  frames: MockFrame[];
  sites: MockSite[];
  /** In the order of alloc. */
  blocks: MockBlock[];
  threads: { id: number; name: string }[];
  marks: { t_ns: number; label: string; thread: number }[];
}

/** Mulberry32: small, seeded, good enough for fixtures. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

interface Behaviour {
  path: string[];
  /** Allocs a second. */
  rate: number;
  size: (next: () => number) => number;
  /** Seconds; Infinity leaks. */
  life: (next: () => number, allocatedS: number) => number;
  thread: number;
  freeThread?: number;
  fromS?: number;
  toS?: number;
}

const LONG_NAME = `std::_Rb_tree<${"std::pair<std::basic_string<char, std::char_traits<char>>, std::shared_ptr<render::Layer>>, ".repeat(110)}std::less<void>>::_M_emplace_hint_unique(...)`;
export const HOSTILE_NAME = '<img src=x onerror="window.hacked=1">::operator<<(char const*, "&quot;")';

const PLACES: Record<string, [string, string, number]> = {
  main: ["server", "src/main.rs", 21],
  "server::accept_loop": ["server", "src/net/accept.rs", 88],
  "server::session::handle": ["server", "src/session.rs", 140],
  "server::session::Session::open": ["server", "src/session.rs", 61],
  "server::cache::Cache::insert": ["server", "src/cache.rs", 210],
  "server::cache::Cache::warm": ["server", "src/cache.rs", 320],
  "server::render::page": ["server", "src/render.rs", 77],
  "server::render::escape_html": ["server", "src/render.rs", 19],
  "server::json::parse_value": ["server", "src/json.rs", 300],
  "server::json::parse_object": ["server", "src/json.rs", 340],
  "server::import::load_batch": ["server", "src/import.rs", 55],
  "server::import::decode_row": ["server", "src/import.rs", 112],
  "server::log::format_line": ["server", "src/log.rs", 44],
  "alloc::raw_vec::RawVec<T>::grow_amortized": ["server", "library/alloc/src/raw_vec.rs", 480],
  "alloc::string::String::push_str": ["server", "library/alloc/src/string.rs", 960],
  "hashbrown::raw::RawTable<T,A>::reserve_rehash": ["server", "hashbrown/src/raw/mod.rs", 1120],
  start_thread: ["libc.so.6", "nptl/pthread_create.c", 442],
  __libc_start_main: ["libc.so.6", "csu/libc-start.c", 392],
  sqlite3Malloc: ["libsqlite3.so.0", "sqlite3.c", 30110],
  sqlite3_step: ["libsqlite3.so.0", "sqlite3.c", 91000],
  sqlite3BtreeInsert: ["libsqlite3.so.0", "sqlite3.c", 77120],
  "std::__cxx11::basic_string::_M_create": ["libstdc++.so.6", "basic_string.tcc", 153],
  [HOSTILE_NAME]: ["server", "src/<b>hostile</b>.rs", 1],
  [LONG_NAME]: ["libplugin.so", "plugin/tree.hpp", 2210],
};

function behaviours(next: () => number): Behaviour[] {
  const entry = ["main", "__libc_start_main"];
  const worker = ["server::accept_loop", "start_thread"];
  const session = ["server::session::handle", ...worker];
  const list: Behaviour[] = [
    {
      path: ["server::cache::Cache::insert", ...session],
      rate: 60,
      size: () => 2048,
      life: () => Number.POSITIVE_INFINITY,
      thread: 2,
    },
    {
      path: ["hashbrown::raw::RawTable<T,A>::reserve_rehash", "server::cache::Cache::warm", ...entry],
      rate: 40,
      size: (n) => 64 << Math.floor(n() * 8),
      life: (n, t) => (t < 3 ? Number.POSITIVE_INFINITY : n() * 0.02),
      thread: 1,
      toS: 4,
    },
    {
      path: ["server::session::Session::open", ...session],
      rate: 50,
      size: (n) => 4096 + Math.floor(n() * 9000),
      life: (n) => 0.2 + n() * 1.8,
      thread: 2,
      freeThread: 3,
    },
    {
      path: ["alloc::string::String::push_str", "server::render::escape_html", "server::render::page", ...session],
      rate: 420,
      size: (n) => 16 + Math.floor(n() * 240),
      life: (n) => 0.00002 + n() * 0.0004,
      thread: 3,
    },
    {
      path: ["alloc::raw_vec::RawVec<T>::grow_amortized", "server::render::page", ...session],
      rate: 160,
      size: (n) => 1024 << Math.floor(n() * 5),
      life: (n) => 0.001 + n() * 0.05,
      thread: 3,
    },
    {
      path: [
        "server::json::parse_value",
        "server::json::parse_object",
        "server::json::parse_value",
        "server::json::parse_object",
        ...session,
      ],
      rate: 260,
      size: (n) => 24 + Math.floor(n() * 90),
      life: (n) => 0.0005 + n() * 0.2,
      thread: 2,
    },
    {
      path: ["server::import::decode_row", "server::import::load_batch", ...entry],
      rate: 300,
      size: (n) => 30_000 + Math.floor(n() * 20_000),
      life: (_, t) => Math.max(0.01, 7.4 - t),
      thread: 1,
      fromS: 5,
      toS: 7,
    },
    {
      path: ["sqlite3Malloc", "sqlite3BtreeInsert", "sqlite3_step", "server::import::load_batch", ...entry],
      rate: 220,
      size: (n) => 512 + Math.floor(n() * 3600),
      life: (n) => n() * 0.7,
      thread: 1,
    },
    {
      path: ["std::__cxx11::basic_string::_M_create", "server::log::format_line", ...session],
      rate: 300,
      size: (n) => 40 + Math.floor(n() * 60),
      life: () => 0.00001,
      thread: 4,
    },
    {
      path: [HOSTILE_NAME, "server::render::page", ...session],
      rate: 20,
      size: () => 5000,
      life: (n) => n() * 3,
      thread: 4,
    },
    {
      path: [LONG_NAME, "server::session::handle", ...worker],
      rate: 14,
      size: () => 9000,
      life: (n) => n() * 2,
      thread: 4,
    },
    {
      path: ["server::session::Session::open", "server::cache::Cache::warm", ...entry],
      rate: 8,
      size: () => 131_072,
      life: () => Number.POSITIVE_INFINITY,
      thread: 1,
      toS: 0.15,
    },
  ];
  for (let i = 0; i < 120; i += 1) {
    const depth = 2 + Math.floor(next() * 9);
    const path = Array.from(
      { length: depth },
      () => `server::module_${Math.floor(next() * 14)}::step_${Math.floor(next() * 5)}`,
    );
    const thread = 1 + Math.floor(next() * 4);
    const scale = next() ** 3;
    list.push({
      path: [...path, ...(thread === 1 ? entry : worker)],
      rate: 2 + 30 * scale,
      size: (n) => Math.floor(16 + n() ** 2 * 3000),
      life: (n) => (n() < 0.003 ? Number.POSITIVE_INFINITY : n() ** 3 * 2.5),
      thread,
    });
  }
  return list;
}

/** A server with sessions, a cache that leaks, an import that makes the peak. */
export function typicalRecording(seconds: number, seed = 7, title = "shop 4711"): MockRecording {
  const next = random(seed);
  return build(title, seconds, behaviours(next), next, [
    { id: 1, name: "server" },
    { id: 2, name: "accept" },
    { id: 3, name: "render-0" },
    { id: 4, name: "log" },
  ]);
}

/** Five blocks, one of them below two thousand frames of recursion. */
export function tinyRecording(): MockRecording {
  const next = random(1);
  const deep = Array.from({ length: 2000 }, () => "recurse");
  const recording = build(
    "five 12",
    0.02,
    [
      {
        path: ["leak_here", "main", "__libc_start_main"],
        rate: 100,
        size: () => 100,
        life: () => Number.POSITIVE_INFINITY,
        thread: 1,
      },
      {
        path: ["keep_here", ...deep, "main", "__libc_start_main"],
        rate: 100,
        size: () => 5000,
        life: () => 0.001,
        thread: 1,
      },
    ],
    next,
    [{ id: 1, name: "five" }],
  );
  return recording;
}

export function emptyRecording(): MockRecording {
  return build("empty 13", 0.001, [], random(1), []);
}

function build(
  title: string,
  seconds: number,
  list: Behaviour[],
  next: () => number,
  threads: MockRecording["threads"],
): MockRecording {
  const frames: MockFrame[] = [];
  const places = new Map<string, number>();
  const frameOf = (name: string): number => {
    const known = places.get(name);
    if (known !== undefined) return known;
    const place = PLACES[name];
    const generated = /^server::(module_\d+)::/.exec(name);
    const module =
      place?.[0] ?? (generated ? (Number(generated[1]?.slice(7)) % 3 === 0 ? "libcore.so" : "server") : "five");
    places.set(name, frames.length);
    frames.push({
      name,
      module,
      file: place?.[1] ?? (generated ? `src/${generated[1]}.rs` : null),
      line: place?.[2] ?? (generated ? 10 + ((name.length * 7) % 400) : null),
      inlined: name.includes("push_str"),
      library: /^<*(alloc|core|std|hashbrown)::/.test(name) || module.startsWith("libc.so"),
    });
    return frames.length - 1;
  };
  const sites: MockSite[] = list.map((behaviour, id) => ({ id, stack: behaviour.path.map(frameOf) }));
  const blocks: MockBlock[] = [];
  list.forEach((behaviour, site) => {
    const from = behaviour.fromS ?? 0;
    const to = Math.min(seconds, behaviour.toS ?? seconds);
    for (let t = from + next() / behaviour.rate; t < to; t += (0.4 + 1.2 * next()) / behaviour.rate) {
      const life = behaviour.life(next, t);
      const freed = (t + life) * 1e9;
      blocks.push({
        index: 0,
        size: behaviour.size(next),
        site,
        allocated: Math.floor(t * 1e9),
        freed: freed < seconds * 1e9 ? Math.floor(freed) : Number.POSITIVE_INFINITY,
        thread: behaviour.thread,
        freeThread: behaviour.freeThread ?? behaviour.thread,
        temporary: life < 0.0005,
      });
    }
  });
  blocks.sort((a, b) => a.allocated - b.allocated);
  blocks.forEach((block, index) => {
    block.index = index;
  });
  return {
    title,
    durationNs: Math.floor(seconds * 1e9),
    frames,
    sites,
    blocks,
    threads,
    marks: seconds > 8 ? [{ t_ns: 5e9, label: "import begins", thread: 1 }] : [],
  };
}
