//! The binary `heaptrace`: the command line, the HTTP server, symbols and exports around the engine.

mod audit;
mod cli;
mod export;
mod http;
mod import;
mod markup;
mod page_files;
mod query_params;
mod suppressions;
mod symbolize;

fn main() -> std::process::ExitCode {
    symbolize::install_panic_hook();
    cli::main(std::env::args_os())
}
