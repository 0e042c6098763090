//! `simulate`: plays many seeds of each system, and prints one line per system.
//!
//! Settings come from the environment: `SEEDS`, `FROM`, `SYSTEM`; `SEED` replays one, `TRACE=1` prints its trace.

// A command prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use signpost_simulation::command;

// Each seed allocates and frees a whole operator and its cluster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let settings = match command::Settings::from_env() {
        Ok(settings) => settings,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    if command::run(&settings, &mut |line| println!("{line}")) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
