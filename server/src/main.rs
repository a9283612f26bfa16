//! The binary `heaptrace`: the command line, the HTTP server, symbols and exports around the engine.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main(std::env::args_os())
}
