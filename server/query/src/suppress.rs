//! Suppressions of leaks, in LeakSanitizer's format.
//!
//! ```text
//! # comment
//! leak:PATTERN      function, source file or module of a frame; * is anything, ^ and $ are the ends, else a substring
//! ```

mod stacks;

use regex::Regex;

pub use stacks::SuppressedStacks;
use tracehound_api::Frame;
use tracehound_index::Trace;

/// Where a suppression comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuppressionOrigin {
    /// The command line.
    Option,
    /// A file, by its path.
    File(String),
    /// `__lsan_default_suppressions` of the program or one of its libraries, by its path.
    Program(String),
    /// The list that comes with heaptrace.
    BuiltIn,
}

impl std::fmt::Display for SuppressionOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Option => f.write_str("--suppress"),
            Self::File(path) | Self::Program(path) => f.write_str(path),
            Self::BuiltIn => f.write_str("built in"),
        }
    }
}

/// One suppression.
#[derive(Debug, Clone)]
pub struct Suppression {
    /// As it was written, without `leak:`.
    pub pattern: String,
    /// Where it comes from.
    pub origin: SuppressionOrigin,
    rule: SuppressionRule,
    /// It is about sites of few blocks alone.
    of_few: bool,
}

/// Subject of a suppression.
#[derive(Debug, Clone)]
enum SuppressionRule {
    /// A frame that matches.
    Frame(Regex),
    /// What libstdc++ allocates while the loader initialises it, with no code of the program on the stack: its reserve for
    /// exceptions when memory is out. Stripped libraries have no name that a pattern could be about.
    LibraryStart,
}

/// What is shown for [`SuppressionRule::LibraryStart`].
const LIBRARY_START: &str = "libstdc++ while it is loaded";

fn begins(module: Option<&str>, names: &[&str]) -> bool {
    module.is_some_and(|module| names.iter().any(|name| module.starts_with(name)))
}

fn is_stdcxx(module: Option<&str>) -> bool {
    begins(module, &["libstdc++.so"])
}

fn is_loader(module: Option<&str>) -> bool {
    begins(module, &["ld-linux", "ld.so", "ld-musl"])
}

/// Whether a module is there before the program's own code runs.
fn is_start(module: Option<&str>) -> bool {
    is_stdcxx(module) || is_loader(module) || begins(module, &["libc.so"])
}

/// Whether a stack is that of libstdc++'s own initialisation, given the modules of its frames, innermost first.
fn is_library_start<M: AsRef<str>>(mut modules: impl Iterator<Item = Option<M>>) -> bool {
    let Some(innermost) = modules.next().filter(|module| is_stdcxx(module.as_ref().map(AsRef::as_ref))) else {
        return false;
    };
    let mut outermost = innermost;
    for module in modules {
        if !is_start(module.as_ref().map(AsRef::as_ref)) {
            return false;
        }
        outermost = module;
    }
    is_loader(outermost.as_ref().map(AsRef::as_ref))
}

/// The same for the backtrace of a node.
pub(crate) fn is_library_start_at(trace: &Trace, node: u32) -> bool {
    let module = |node: u32| trace.location(trace.node_location(node)?).module;
    is_library_start(trace.stack(node).map(|node| Some(trace.modules().get(module(node)? as usize)?.name())))
}

impl Suppression {
    /// A suppression by a regular expression.
    #[must_use]
    pub fn new(regex: Regex, origin: SuppressionOrigin) -> Self {
        Self { pattern: regex.as_str().to_owned(), origin, rule: SuppressionRule::Frame(regex), of_few: false }
    }

    /// Whether it is about a site with so many blocks, of which `most` can be by design.
    #[must_use]
    pub const fn is_about(&self, count: u64, most: u64) -> bool {
        !self.of_few || count <= most
    }

    /// Whether it matches a leak with these frames.
    #[must_use]
    pub fn matches(&self, stack: &[Frame]) -> bool {
        let SuppressionRule::Frame(regex) = &self.rule else {
            return is_library_start(stack.iter().map(|frame| frame.module.as_deref()));
        };
        let hit = |text: &Option<String>| text.as_ref().is_some_and(|text| regex.is_match(text));
        stack.iter().any(|frame| hit(&frame.function) || hit(&frame.file) || hit(&frame.module))
    }
}

/// Reads a list.
///
/// # Errors
/// When a line is no suppression: its number, and what is wrong with it.
pub fn parse(text: &str, origin: &SuppressionOrigin) -> Result<Vec<Suppression>, String> {
    let mut suppressions = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(pattern) = line.strip_prefix("leak:").filter(|pattern| !pattern.is_empty()) else {
            return Err(format!("line {number}: {line:?} is no suppression; write `leak:PATTERN`"));
        };
        let (start, rest) = pattern.strip_prefix('^').map_or(("", pattern), |rest| ("^", rest));
        let (end, rest) = rest.strip_suffix('$').map_or(("", rest), |rest| ("$", rest));
        let middle: Vec<_> = rest.split('*').map(regex::escape).collect();
        let regex = Regex::new(&format!("{start}{}{end}", middle.join(".*")));
        let regex = regex.map_err(|error| format!("line {number}: {error}"))?;
        suppressions.push(Suppression {
            pattern: pattern.to_owned(),
            origin: origin.clone(),
            rule: SuppressionRule::Frame(regex),
            of_few: false,
        });
    }
    Ok(suppressions)
}

/// What libc and ld.so keep for good, by design: the bookkeeping of threads and libraries, buffers of streams, lists of
/// exit handlers, locales, time zones, name services. Only functions below which no code of the program runs. Each keeps a
/// block or a few for a thread, a library, a stream: a site with many more is a leak of the program, which does not join its
/// threads or close its streams.
const BUILT_IN: &str = "
leak:^allocate_dtv$
leak:^_dl_allocate_tls$
leak:^_dl_allocate_tls_init$
leak:^__tls_get_addr$
leak:^_dl_new_object$
leak:^_dl_map_object_deps$
leak:^_dl_check_map_versions$
leak:^_dl_init_paths$
leak:^_dl_important_hwcaps$
leak:^_dl_scope_free$
leak:^add_to_global_update$
leak:^add_to_global_resize$
leak:^_IO_file_doallocate$
leak:^_IO_wfile_doallocate$
leak:^__new_exitfn$
leak:^__cxa_thread_atexit_impl$
leak:^setlocale$
leak:^_nl_load_locale_from_archive$
leak:^_nl_intern_locale_data$
leak:^_nl_load_domain$
leak:^_nl_make_l10nflist$
leak:^tzset_internal$
leak:^__tzfile_read$
leak:^__gconv_open$
leak:^__nss_module_load$
leak:^__nss_database_get$
leak:^nss_action_parse$
leak:^__res_vinit$
leak:^_dlerror_run$
leak:^__libc_alloc_buffer_allocate$
";

/// The same of what is made once for a process, in however many blocks.
const BUILT_IN_ONCE: &str = "
leak:^__gconv_read_conf$
leak:^__GI___gconv_read_conf$
leak:^__gconv_load_cache$
leak:^__GI___gconv_load_cache$
leak:*anonymous namespace)::pool::pool*
leak:^_GLOBAL__sub_I_eh_alloc.cc$
";

/// The list that comes with heaptrace.
#[must_use]
pub fn built_in() -> Vec<Suppression> {
    // A function of libc has one name for itself and one for other libraries.
    let inner = |list: &str| list.replace("leak:^", "leak:^__GI_");
    let read = |list: &str| parse(list, &SuppressionOrigin::BuiltIn).unwrap_or_default();
    let few = [read(BUILT_IN), read(&inner(BUILT_IN))].concat();
    let few = few.into_iter().map(|suppression| Suppression { of_few: true, ..suppression });
    let mut list: Vec<Suppression> = few.chain(read(BUILT_IN_ONCE)).collect();
    list.push(Suppression {
        pattern: LIBRARY_START.to_owned(),
        origin: SuppressionOrigin::BuiltIn,
        rule: SuppressionRule::LibraryStart,
        of_few: false,
    });
    list
}

/// Most blocks of a site that are left by design: so many threads were there at once, whose stacks the C library keeps, and
/// so many libraries.
#[must_use]
pub fn most_by_design(trace: &Trace) -> u64 {
    /// Streams, categories of a locale, and the like.
    const OTHERS: usize = 16;
    let begins = trace.threads().iter().map(|thread| (thread.started_ns, 1));
    let ends = trace.threads().iter().filter_map(|thread| Some((thread.ended_ns?, -1)));
    let mut changes: Vec<(u64, i64)> = begins.chain(ends).collect();
    changes.sort_unstable();
    let (mut now, mut threads) = (0, 0);
    for (_, change) in changes {
        now += change;
        threads = threads.max(now);
    }
    let threads = threads as usize;
    let libraries = trace.modules().iter().filter(|module| module.unloaded_ns.is_none()).count();
    (threads + libraries + OTHERS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: Option<&str>, module: &str) -> Frame {
        Frame {
            function: Some(function.into()),
            file: file.map(Into::into),
            line: None,
            module: Some(module.into()),
            inlined: false,
            language: None,
            address: "0x1".into(),
            offset: None,
            library: false,
        }
    }

    #[test]
    fn patterns_mean_what_leak_sanitizer_says() {
        let stack = [frame("libfoo::make", Some("/src/make.c"), "libfoo.so.1"), frame("main", None, "app")];
        let hits = |pattern: &str| {
            let list = parse(&format!("# comment\n\n leak:{pattern}\n"), &SuppressionOrigin::Option).unwrap();
            list[0].matches(&stack)
        };
        for pattern in ["foo", "^main$", "lib*make", "make.c$", "libfoo.so", "^lib*so.1$", "*"] {
            assert!(hits(pattern), "{pattern}");
        }
        for pattern in ["^foo", "main2", "^mai$", "lib.oo", "so$"] {
            assert!(!hits(pattern), "{pattern}");
        }
        let error = parse("leak:a\nrace:b\n", &SuppressionOrigin::Option).unwrap_err();
        assert!(error.starts_with("line 2"), "{error}");
    }

    #[test]
    fn the_built_in_list_is_about_libc_alone() {
        assert!(built_in().len() > 20);
        let thread = [frame("calloc", None, "ld.so"), frame("allocate_dtv", None, "ld.so"), frame("main", None, "app")];
        assert!(built_in().iter().any(|known| known.matches(&thread)));
        let start = |caller: Frame| {
            [frame("0xa57ba", None, "libstdc++.so.6"), frame("call_init", None, "ld-linux-x86-64.so.2"), caller]
        };
        let hits = |stack: &[Frame]| built_in().iter().any(|known| known.matches(stack));
        assert!(hits(&start(frame("_dl_start_user", None, "ld-linux-x86-64.so.2"))));
        assert!(!hits(&start(frame("main", None, "app"))));
        let program = [frame("work", None, "app"), frame("__libc_start_main_impl", None, "libc.so.6")];
        assert!(!built_in().iter().any(|known| known.matches(&program)));
    }
}
