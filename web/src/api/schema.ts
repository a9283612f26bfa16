// Types of the documents that the server gives out, in the shape that openapi-typescript writes.

export interface components {
  schemas: {
    /** @description One block. */
    Allocation: {
      /** @description Position among all births, from 0. */
      index: number;
      /** @description `0x…`. */
      address: string;
      /** @description Requested bytes. */
      size: number;
      /** @description Function that bore it. */
      function: string;
      /** @description Birth. */
      born_ns: number;
      /** @description Death; `null` while it lives. */
      died_ns?: number | null;
      /** @description Thread that bore it. */
      thread: number;
      /** @description Thread that freed it. */
      free_thread?: number | null;
      /** @description Handle of its site, `s12`. */
      site: string;
      /** @description Leaf first. */
      stack: components["schemas"]["Frame"][];
      /** @description Leaf first; empty while it lives or when frees were recorded without stacks. */
      free_stack: components["schemas"]["Frame"][];
      /** @description The block that realloc made it from. */
      previous?: number | null;
      /** @description The block that realloc made of it. */
      next?: number | null;
    };
    /** @description A page of blocks born in the window. */
    Allocations: {
      /** @description `heaptrace.allocations/1`. */
      schema: string;
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description Blocks that pass the filter, of which `allocations` is a part. */
      total: number;
      /** @description In the order that was asked for. */
      allocations: components["schemas"]["Allocation"][];
      /** @description Give it as `cursor=` for the next page; `null` on the last. */
      next_cursor?: string | null;
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description Bytes and number of blocks. */
    Amount: {
      /** @description Requested bytes. */
      bytes: number;
      /** @description Number of blocks. */
      count: number;
    };
    /** @description A row above the asked root. */
    Ancestor: {
      /** @description Id to ask for. */
      id: number;
      /** @description Index into `frames`; `null` for the tree's root. */
      frame?: number | null;
      /** @description Its value. */
      value: number;
    };
    /** @description A period during which events were recorded. */
    Capture: {
      /** @description First instant. */
      from_ns: number;
      /** @description Last instant. */
      to_ns: number;
    };
    /** @description What changed. */
    Diff: {
      /** @description `heaptrace.diff/1`. */
      schema: string;
      /** @description What `bytes` and ordering are about. */
      unit: components["schemas"]["Unit"];
      /** @description The first side, in words. */
      before: string;
      /** @description The second side, in words. */
      after: string;
      /** @description Sum of the first side. */
      total_before: components["schemas"]["Amount"];
      /** @description Sum of the second side. */
      total_after: components["schemas"]["Amount"];
      /** @description Rows that exist, of which `rows` is a part. */
      total_rows: number;
      /** @description Largest change first. */
      rows: components["schemas"]["DiffRow"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description One backtrace on both sides. */
    DiffRow: {
      /** @description Live on the first side. */
      before: components["schemas"]["Amount"];
      /** @description Live on the second side. */
      after: components["schemas"]["Amount"];
      /** @description Live on both, the very same blocks (two instants of one recording only). */
      survived?: components["schemas"]["Amount"] | null;
      /** @description Leaf first. */
      stack: components["schemas"]["Frame"][];
    };
    /** @description Why a recording ended. */
    End: "running" | "exit" | "exec" | "killed" | "stopped" | "disk_full" | "unknown";
    /** @description Numbers of events. */
    Events: {
      /** @description Births without a predecessor. */
      alloc: number;
      /** @description Deaths without a successor. */
      free: number;
      /** @description Successful reallocs of a block. */
      realloc: number;
      /** @description `mmap`. */
      map: number;
      /** @description `munmap`. */
      unmap: number;
      /** @description `mremap`. */
      remap: number;
      /** @description Moves of the program break. */
      brk: number;
      /** @description Known to be missing. */
      lost: number;
    };
    /** @description One exact size. */
    ExactSize: {
      /** @description Requested bytes. */
      size: number;
      /** @description Blocks of that size. */
      count: number;
    };
    /** @description How far an answer can be trusted; part of every answer. */
    Exactness: {
      /** @description Events that the answer stands on: all of the recording up to the watermark. */
      events: number;
      /** @description Events known to be missing: dropped by choice, or in damaged blocks. */
      lost_events: number;
      /** @description Damaged or missing blocks. */
      damaged_blocks: number;
      /** @description Every event before this time is in the answer. */
      watermark_ns: number;
      /** @description The recording has ended and nothing is known to be missing. */
      complete: boolean;
    };
    /** @description A function in the flame graph. */
    FlameFrame: {
      /** @description Demangled function, or `0x…` in `module` if there is no symbol. */
      name: string;
      /** @description File name of the module. */
      module?: string | null;
      /** @description Source file of the function. */
      file?: string | null;
      /** @description Some line of it that is in the graph. */
      line?: number | null;
      /** @description It was inlined into its caller. */
      inlined: boolean;
    };
    /** @description A flame graph. */
    Flamegraph: {
      /** @description `heaptrace.flamegraph/1`. */
      schema: string;
      /** @description What is measured. */
      metric: components["schemas"]["Metric"];
      /** @description What is added up. */
      unit: components["schemas"]["Unit"];
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description The instant, for `live` and `peak`. */
      at_ns?: number | null;
      /** @description Leaf functions at the root (callers below), or the program's entry. */
      inverted: boolean;
      /** @description Sum over the whole recording, window and filter, before zooming and folding. `grown` may be negative. */
      total: number;
      /** @description From the tree's root down to the parent of row 0; empty when row 0 is the tree's root. */
      ancestors: components["schemas"]["Ancestor"][];
      /** @description The rows. */
      rows: components["schemas"]["Rows"];
      /** @description Frames that rows refer to. */
      frames: components["schemas"]["FlameFrame"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description One frame of a stack. */
    Frame: {
      /** @description Demangled function name; `null` if there is no symbol. */
      function?: string | null;
      /** @description Source file as the debug information has it. */
      file?: string | null;
      /** @description Line of the call. */
      line?: number | null;
      /** @description File name of the module, e.g. `libc.so.6`. */
      module?: string | null;
      /** @description The function was inlined into the next frame. */
      inlined: boolean;
      /** @description Return address, `0x…`; inlined frames repeat their caller's. */
      address: string;
    };
    /** @description A backtrace that frees blocks of a site. */
    FreeSite: {
      /** @description Blocks and bytes that it freed. */
      amount: components["schemas"]["Amount"];
      /** @description Of them freed by the thread that allocated them. */
      same_thread: components["schemas"]["Amount"];
      /** @description Leaf first; empty when frees were recorded without stacks. */
      stack: components["schemas"]["Frame"][];
    };
    /** @description One row. */
    FunctionRow: {
      /** @description Stable handle: `f12` function, `s12` site, `t1` thread; else the name. */
      id: string;
      /** @description Function, file, module, thread or innermost function of the site. */
      name: string;
      /** @description File name of the module, where a row has one. */
      module?: string | null;
      /** @description Source file, where a row has one. */
      file?: string | null;
      /** @description Line, where a row has one. */
      line?: number | null;
      /** @description The function itself called the allocator. */
      flat: number;
      /** @description The function was anywhere on the stack; recursion counted once. */
      cum: number;
      /** @description `flat` in the other unit (blocks for bytes, bytes for blocks). */
      flat_other: number;
      /** @description `cum` in the other unit. */
      cum_other: number;
    };
    /** @description A table of functions (or files, modules, threads, sites). */
    Functions: {
      /** @description `heaptrace.functions/1`. */
      schema: string;
      /** @description What is measured. */
      metric: components["schemas"]["Metric"];
      /** @description What is added up. */
      unit: components["schemas"]["Unit"];
      /** @description What a row is. */
      by: components["schemas"]["GroupBy"];
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description The instant, for `live` and `peak`. */
      at_ns?: number | null;
      /** @description Sum over everything that passed the filter. */
      total: number;
      /** @description Rows that exist, of which `rows` is a part. */
      total_rows: number;
      /** @description Rows, in the order that was asked for. */
      rows: components["schemas"]["FunctionRow"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description What a row adds up. */
    GroupBy: "function" | "file" | "module" | "thread" | "site";
    /** @description Amounts per class of a quantity. Classes are `[lower[i], lower[i + 1])`, the last is open. */
    Histogram: {
      /** @description Lower bound of each class (bytes, or nanoseconds). */
      lower: number[];
      /** @description Blocks in the class. */
      count: number[];
      /** @description Their bytes. */
      bytes: number[];
      /** @description Blocks in the class that are still live at the end of the recording. */
      live_count: number[];
    };
    /** @description A recording in one document. */
    Info: {
      /** @description `heaptrace.info/1`. */
      schema: string;
      /** @description The traced process. */
      process: components["schemas"]["ProcessInfo"];
      /** @description The recording has ended in an orderly way and nothing is known to be missing. */
      complete: boolean;
      /** @description Why it ended. */
      end: components["schemas"]["End"];
      /** @description Events by kind. */
      events: components["schemas"]["Events"];
      /** @description Born blocks; a successful realloc bears one more. */
      allocations: components["schemas"]["Amount"];
      /** @description Largest sum of live bytes, exact to the event. */
      peak: components["schemas"]["Peak"];
      /** @description Largest resident set that was sampled, if any. */
      peak_rss?: components["schemas"]["PeakRss"] | null;
      /** @description Live at the end. */
      leaked: components["schemas"]["Amount"];
      /** @description Short-lived blocks. */
      temporary: components["schemas"]["Temporary"];
      /** @description Threads that made an event. */
      threads: number;
      /** @description Distinct allocating backtraces. */
      sites: number;
      /** @description Frames of the deepest backtrace, before inlined functions are expanded. */
      max_depth: number;
      /** @description The recorder about itself. */
      recorder: components["schemas"]["Recorder"];
      /** @description Labels that the program or its operator set. */
      marks: components["schemas"]["Mark"][];
      /** @description Periods during which recording was switched on; one that spans everything if it never was switched off. */
      captures: components["schemas"]["Capture"][];
      /** @description What the recording could not see, and other remarks, in plain words. */
      remarks: components["schemas"]["Remark"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description One leaking backtrace. */
    LeakSite: {
      /** @description Handle, `s12`. */
      id: string;
      /** @description Leaked bytes. */
      bytes: number;
      /** @description Leaked blocks. */
      count: number;
      /** @description Birth of the first leaked block. */
      first_ns: number;
      /** @description Birth of the last leaked block. */
      last_ns: number;
      /** @description What the history of the site says. */
      verdict: components["schemas"]["Verdict"];
      /** @description Leaf first, from the caller of the allocating function on. */
      stack: components["schemas"]["Frame"][];
    };
    /** @description Blocks that were live at the end, by allocating backtrace. */
    Leaks: {
      /** @description `heaptrace.leaks/1`. */
      schema: string;
      /** @description Sum over all sites, suppressed ones not included. */
      leaked: components["schemas"]["Amount"];
      /** @description Sum over suppressed sites. */
      suppressed: components["schemas"]["Amount"];
      /** @description Sites that exist, of which `sites` is a part. */
      total_sites: number;
      /** @description Largest first. */
      sites: components["schemas"]["LeakSite"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description Lifetimes of the blocks born in the window, alone and against size. */
    Lifetimes: {
      /** @description `heaptrace.lifetimes/1`. */
      schema: string;
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description By powers of two of nanoseconds, each split in two; blocks still live count until the end of the recording. */
      histogram: components["schemas"]["Histogram"];
      /** @description Lower bounds of the heat map's lifetime classes (nanoseconds). */
      map_lifetime: number[];
      /** @description Lower bounds of the heat map's size classes (bytes). */
      map_size: number[];
      /** @description Blocks, row by row: `map_count[size * map_lifetime.len() + lifetime]`. */
      map_count: number[];
      /** @description Bytes, in the same order. */
      map_bytes: number[];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description State of a recording: sent at once, then whenever it changes, at most four times a second. */
    Live: {
      /** @description `heaptrace.live/1`. */
      schema: string;
      /** @description What can be asked now. */
      state: components["schemas"]["State"];
      /** @description How far indexing is. */
      progress: components["schemas"]["Progress"];
      /** @description Every event before this time can be asked about. */
      watermark_ns: number;
      /** @description Live bytes at the watermark. */
      live_bytes: number;
      /** @description Grows with every change of the data: part of the key of cached answers. */
      revision: number;
    };
    /** @description A label on the timeline. */
    Mark: {
      /** @description When. */
      t_ns: number;
      /** @description Label. */
      label: string;
      /** @description Thread that set it; 0 = from outside. */
      thread: number;
    };
    /** @description What is measured. Windows are `[from, to)`. */
    Metric: "live" | "peak" | "leaked" | "allocated" | "freed" | "grown" | "temporary";
    /** @description One module. */
    Module: {
      /** @description Id. */
      id: number;
      /** @description Path at the time of recording. */
      path: string;
      /** @description Build id, hexadecimal; `null` if it has none. */
      build_id?: string | null;
      /** @description First address, `0x…`. */
      start: string;
      /** @description Bytes from the first to the last address. */
      size: number;
      /** @description Loaded. */
      loaded_ns: number;
      /** @description Unloaded, if it was. */
      unloaded_ns?: number | null;
      /** @description Where names come from. */
      symbols: components["schemas"]["Symbols"];
      /** @description Call-tree addresses in this module. */
      addresses: number;
      /** @description Of them with a name. */
      named: number;
      /** @description Why there are no symbols, in words. */
      note?: string | null;
    };
    /** @description All modules that were ever loaded. */
    Modules: {
      /** @description `heaptrace.modules/1`. */
      schema: string;
      /** @description In the order of loading. */
      modules: components["schemas"]["Module"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description The peak. */
    Peak: {
      /** @description Live bytes. */
      bytes: number;
      /** @description Live blocks at that moment. */
      count: number;
      /** @description When. */
      at_ns: number;
    };
    /** @description The largest sampled resident set. */
    PeakRss: {
      /** @description Resident bytes, the recorder's own included. */
      bytes: number;
      /** @description Of it the recorder's own, an estimate from above. */
      recorder_bytes: number;
      /** @description When. */
      at_ns: number;
    };
    /** @description What went wrong. */
    Problem: {
      /** @description `about:blank`, or a stable name of the kind of problem. */
      type: string;
      /** @description Short summary. */
      title: string;
      /** @description HTTP status code. */
      status: number;
      /** @description What happened here and what to do. */
      detail: string;
      /** @description The parameter at fault, if one is. */
      parameter?: string | null;
    };
    /** @description The traced process. */
    ProcessInfo: {
      /** @description Process id. */
      pid: number;
      /** @description Parent's process id. */
      parent_pid: number;
      /** @description Path of the executable. */
      executable: string;
      /** @description Command line. */
      arguments: string[];
      /** @description Start of recording, RFC 3339 with nanoseconds, UTC. */
      started_at: string;
      /** @description Length of the recording; of a running one, so far. */
      duration_ns: number;
    };
    /** @description Progress of indexing. */
    Progress: {
      /** @description Bytes of the recording that were read. */
      done_bytes: number;
      /** @description Bytes of the recording. */
      total_bytes: number;
      /** @description Events so far. */
      events: number;
      /** @description Events a second. */
      events_per_second: number;
    };
    /** @description Lifetimes in nanoseconds; blocks that are still live count as living until the end of the recording. */
    Quantiles: {
      /** @description Smallest. */
      min_ns: number;
      /** @description A tenth lives no longer. */
      p10_ns: number;
      /** @description Half lives no longer. */
      p50_ns: number;
      /** @description Nine tenths live no longer. */
      p90_ns: number;
      /** @description Largest. */
      max_ns: number;
      /** @description Blocks whose end was not seen. */
      censored: number;
    };
    /** @description The recorder about itself. */
    Recorder: {
      /** @description Version that wrote the recording. */
      version: string;
      /** @description Nanoseconds that the program's threads waited for the writer. */
      wait_ns: number;
      /** @description Bytes of chunk memory. */
      chunk_memory_bytes: number;
      /** @description Bytes of all our memory in the process, at most. */
      memory_bytes: number;
      /** @description `tsc`, `cntvct` or `monotonic`. */
      clock: string;
      /** @description Frees of blocks whose birth was not seen. */
      unmatched_frees: number;
      /** @description Backtraces cut short. */
      truncated_stacks: number;
      /** @description Backtraces that a frame pointer guess completed. */
      guessed_stacks: number;
      /** @description Backtraces taken by the general unwinder. */
      slow_stacks: number;
      /** @description Call-tree nodes. */
      nodes: number;
      /** @description CPU time of the recorder's own threads. */
      background_cpu_ns: number;
      /** @description Launch options that differ from the default, `NAME=value`. */
      options: string[];
      /** @description Bytes of the recording on disk. */
      file_bytes: number;
    };
    /** @description One served recording. */
    RecordingSummary: {
      /** @description Short stable id for URLs, e.g. `r1`. */
      id: string;
      /** @description File name. */
      name: string;
      /** @description Executable and pid, once known. */
      title: string;
      /** @description What can be asked of it now. */
      state: components["schemas"]["State"];
      /** @description How far indexing is. */
      progress: components["schemas"]["Progress"];
      /** @description What went wrong, for `failed`. */
      error?: string | null;
    };
    /** @description `GET recordings`: what this server serves. */
    Recordings: {
      /** @description `heaptrace.recordings/1`. */
      schema: string;
      /** @description In the order of the command line. */
      recordings: components["schemas"]["RecordingSummary"][];
    };
    /** @description Something worth knowing about the recording. */
    Remark: {
      /** @description When. */
      t_ns: number;
      /** @description Short stable name. */
      topic: string;
      /** @description One sentence. */
      text: string;
    };
    /** @description One array per field; index `i` is one row. */
    Rows: {
      /** @description Stable id, to be given as `root=`; for a synthetic row the id of its parent. */
      id: number[];
      /** @description Index of the parent row; row 0 points at itself. */
      parent: number[];
      /** @description Index into `frames`; `null` for the tree's root and for synthetic rows. */
      frame: (number | null)[];
      /** @description Own and descendants' sum. */
      value: number[];
      /** @description Own sum. */
      own: number[];
      /** @description Functions folded into this row; 0 for ordinary rows. */
      folded: number[];
    };
    /** @description One curve: smallest, largest and last value of each column. Columns without a sample hold `null`. */
    Series: {
      /** @description Which. */
      name: components["schemas"]["SeriesName"];
      /** @description For `thread_rate`: which thread. */
      thread?: number | null;
      /** @description Smallest value in the column. */
      min: (number | null)[];
      /** @description Largest value in the column. */
      max: (number | null)[];
      /** @description Value at the end of the column. */
      last: (number | null)[];
    };
    /** @description Curves that can be asked for. */
    SeriesName: "live_bytes" | "live_count" | "alloc_rate" | "free_rate" | "alloc_bytes_rate" | "rss" | "rss_anonymous" | "virtual_size" | "thread_rate";
    /** @description Everything about one site, for a window. */
    Site: {
      /** @description `heaptrace.site/1`. */
      schema: string;
      /** @description The row of the site in the list. */
      row: components["schemas"]["SiteRow"];
      /** @description Leaf first. */
      stack: components["schemas"]["Frame"][];
      /** @description Its live bytes and rates over the window. */
      timeline: components["schemas"]["Timeline"];
      /** @description Sizes of the blocks born in the window. */
      sizes: components["schemas"]["Histogram"];
      /** @description Lifetimes of the blocks born in the window. */
      lifetimes: components["schemas"]["Histogram"];
      /** @description Quantiles of the lifetimes. */
      lifetime_quantiles: components["schemas"]["Quantiles"];
      /** @description Who frees its blocks, most bytes first. */
      freed_by: components["schemas"]["FreeSite"][];
      /** @description What its history says. */
      verdict: components["schemas"]["Verdict"];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description One allocating backtrace, for a window. */
    SiteRow: {
      /** @description Handle, `s12`. */
      id: string;
      /** @description Innermost function that is not the allocator's wrapper. */
      function?: string | null;
      /** @description Source file of the innermost frame. */
      file?: string | null;
      /** @description Line of the innermost frame. */
      line?: number | null;
      /** @description Module of the innermost frame. */
      module?: string | null;
      /** @description Born in the window. */
      allocated: components["schemas"]["Amount"];
      /** @description Died in the window. */
      freed: components["schemas"]["Amount"];
      /** @description Live at the end of the window. */
      live: components["schemas"]["Amount"];
      /** @description Born in the window and live at the end of the recording. */
      leaked: components["schemas"]["Amount"];
      /** @description Live at the moment of the peak. */
      at_peak: components["schemas"]["Amount"];
      /** @description Born in the window and temporary. */
      temporary: components["schemas"]["Amount"];
      /** @description Live bytes at 32 equally spaced instants of the window, the last at its end. */
      trend: number[];
    };
    /** @description A page of sites. */
    Sites: {
      /** @description `heaptrace.sites/1`. */
      schema: string;
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description Sites with an event in the window that pass the filter, of which `sites` is a part. */
      total_sites: number;
      /** @description In the order that was asked for. */
      sites: components["schemas"]["SiteRow"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description Sizes of the blocks born in the window. */
    Sizes: {
      /** @description `heaptrace.sizes/1`. */
      schema: string;
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description By powers of two, each split in four. */
      histogram: components["schemas"]["Histogram"];
      /** @description The commonest exact sizes: size, blocks, bytes; at most 32. */
      commonest: components["schemas"]["ExactSize"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description A source file. */
    Source: {
      /** @description `heaptrace.source/1`. */
      schema: string;
      /** @description Path as the debug information has it. */
      file: string;
      /** @description What is measured. */
      metric: components["schemas"]["Metric"];
      /** @description What is added up. */
      unit: components["schemas"]["Unit"];
      /** @description The text; `null` where it cannot be shown. */
      text?: string | null;
      /** @description Why it cannot be shown. */
      note?: string | null;
      /** @description Lines with sums. */
      lines: components["schemas"]["SourceLine"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description A line with sums. */
    SourceLine: {
      /** @description Line number, from 1. */
      line: number;
      /** @description The line itself called the allocator. */
      flat: number;
      /** @description The line was anywhere on the stack. */
      cum: number;
    };
    /** @description What can be asked of a recording. */
    State: "indexing" | "ready" | "running" | "failed";
    /** @description Where a module's names come from. */
    Symbols: "debug" | "table" | "none" | "mismatch" | "missing";
    /** @description Short-lived blocks. */
    Temporary: {
      /** @description How many. */
      count: number;
      /** @description Their bytes. */
      bytes: number;
      /** @description The definition that was applied, e.g. `freed within 1 later allocation of the same thread`. */
      rule: string;
    };
    /** @description One thread. */
    Thread: {
      /** @description Recording-wide id, from 1. */
      id: number;
      /** @description The kernel's id. */
      os_thread: number;
      /** @description Last known name. */
      name: string;
      /** @description First event. */
      started_ns: number;
      /** @description End, if it was seen. */
      ended_ns?: number | null;
      /** @description Born in the window. */
      allocated: components["schemas"]["Amount"];
      /** @description Freed by this thread in the window. */
      freed: components["schemas"]["Amount"];
      /** @description Live at the end of the window, of those that it bore. */
      live: components["schemas"]["Amount"];
      /** @description Born in the window and live at the end of the recording. */
      leaked: components["schemas"]["Amount"];
      /** @description Born in the window and temporary. */
      temporary: components["schemas"]["Amount"];
    };
    /** @description One cell of the matrix. */
    ThreadPair: {
      /** @description Who bore the blocks. */
      allocated_by: number;
      /** @description Who freed them. */
      freed_by: number;
      /** @description How much. */
      amount: components["schemas"]["Amount"];
    };
    /** @description Who allocates, who frees whose, in the window. */
    Threads: {
      /** @description `heaptrace.threads/1`. */
      schema: string;
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description All threads that made an event, by id. */
      threads: components["schemas"]["Thread"][];
      /** @description Deaths in the window by (allocating thread, freeing thread). */
      pairs: components["schemas"]["ThreadPair"][];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description Curves over a window, in equal columns of time. */
    Timeline: {
      /** @description `heaptrace.timeline/1`. */
      schema: string;
      /** @description Start of the window. */
      from_ns: number;
      /** @description End of the window. */
      to_ns: number;
      /** @description Start of each column; column `i` covers `[t_ns[i], t_ns[i + 1])`, the last one ends at `to_ns`. */
      t_ns: number[];
      /** @description The curves that were asked for. */
      series: components["schemas"]["Series"][];
      /** @description Marks inside the window. */
      marks: components["schemas"]["Mark"][];
      /** @description Captures that overlap the window. */
      captures: components["schemas"]["Capture"][];
      /** @description Peak of live bytes inside the window. */
      peak: components["schemas"]["Peak"];
      /** @description How far the figures can be trusted. */
      exactness: components["schemas"]["Exactness"];
    };
    /** @description What is added up. */
    Unit: "bytes" | "count";
    /** @description A judgement on a site, with its reason. */
    Verdict: {
      /** @description The judgement. */
      kind: components["schemas"]["VerdictKind"];
      /** @description Growth of the site's live bytes, for `growing`. */
      bytes_per_second: number;
      /** @description 0 to 1. */
      confidence: number;
      /** @description The reason in words, with its numbers. */
      why: string;
    };
    /** @description What a site does. */
    VerdictKind: "growing" | "bounded" | "one_time" | "unclear";
  };
}
