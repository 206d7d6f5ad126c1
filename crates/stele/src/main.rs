//! The `stele` command.

/// With the system's allocator a small write takes 50 % more processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    stele_command::main()
}
